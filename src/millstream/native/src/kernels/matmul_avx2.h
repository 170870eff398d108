// Integer matrix products for AVX2. A vector is eight output rows, two vectors are a tile.
//
// A few activation rows: weights are unpacked in registers (matmul_avx2_few.h). More rows: weights are unpacked once, into
// a panel that stays in the first-level cache while all rows pass (matmul_avx2_panel.h).
// Included only by avx2.cpp, inside the level's own namespace.

// Keeps a sum where it is. Without this, compilers regroup long chains of integer additions into trees, whose leaves do
// not fit the registers.
#define KEEP(v) asm("" : "+x"(v))

// Keeps a pointer in a register. Without this, compilers keep one address per load of an unrolled loop.
#define KEEP_POINTER(p) asm("" : "+r"(p))

LANES __m256 load_scales(const void* scales, bool half, int64_t i) {
    if (half)
        return _mm256_cvtph_ps(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(scales) + i)));
    return _mm256_loadu_ps(static_cast<const float*>(scales) + i);
}

LANES __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

LANES __m256i broadcast_dword(const void* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

// acc + dots * (weight scales * activation scale)
LANES __m256 accumulate(__m256 acc, __m256i dots, __m256 weight_scales, float scale) {
    const __m256 factor = _mm256_mul_ps(weight_scales, _mm256_set1_ps(scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), factor, acc);
}

#include "matmul_avx2_few.h"
#include "matmul_avx2_panel.h"

template <Format kFormat, ActivationType kType>
static void multiply(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin, int row_end,
                     float* out, int64_t out_stride) {
    switch (row_end - row_begin) {
        case 0: return;
        case 1: return multiply_few<kFormat, kType, 1>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        case 2: return multiply_few<kFormat, kType, 2>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        case 3: return multiply_few<kFormat, kType, 3>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        case 4: return multiply_few<kFormat, kType, 4>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        case 5: return multiply_few<kFormat, kType, 5>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        case 6: return multiply_few<kFormat, kType, 6>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
        default: return multiply_many<kFormat, kType>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    }
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    // Only nibbles are multiplied by bytes of activations; 16-bit words hold integers of either type.
    const bool bytes = kFormat == Format::U4 && a.type == ActivationType::I8;
    const auto kernel = bytes ? multiply<kFormat, ActivationType::I8> : multiply<kFormat, ActivationType::I12>;
    kernel(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
