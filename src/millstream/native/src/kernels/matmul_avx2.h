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

LANES __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

LANES __m256 native(FW v) { return reinterpret_cast<__m256>(v); }

LANES __m256i broadcast_dword(const void* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

// acc + dots * (weight scales * activation scale)
LANES __m256 accumulate(__m256 acc, __m256i dots, __m256 weight_scales, float scale) {
    const __m256 factor = _mm256_mul_ps(weight_scales, _mm256_set1_ps(scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), factor, acc);
}

// Half of a quad of weights as signed bytes. `group` is the group's first byte, or that of its second eight rows.
template <Format kFormat>
LANES __m256i load_quad(const uint8_t* group, int quad) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    constexpr int line = kTileRows * 4, upper_bits = layout.bits - 4, quads = 8 / (upper_bits ? upper_bits : 8);
    if constexpr (layout.bits == 8) return load_bytes(group + quad * line);
    const __m256i packed = load_bytes(group + quad % 4 * line);
    const __m256i low = _mm256_and_si256(quad < 4 ? packed : _mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
    if constexpr (layout.bits == 4) return low;
    const __m256i lines = load_bytes(group + (4 + quad / quads) * line);
    const int shift = 4 - quad % quads * upper_bits;  // to the place above the nibble
    const __m256i moved = shift > 0 ? _mm256_slli_epi16(lines, shift) : _mm256_srli_epi16(lines, -shift);
    const __m256i upper = _mm256_and_si256(moved, _mm256_set1_epi8(((1 << upper_bits) - 1) << 4));
    const __m256i whole = _mm256_or_si256(low, upper);
    return layout.offset ? _mm256_sub_epi8(whole, _mm256_set1_epi8(layout.offset)) : whole;
}

// Bytes to 16 bits: those at even and those at odd places.
template <Format kFormat>
LANES __m256i even_bytes(__m256i v) {
    if constexpr (kLayout<kFormat>.bits < 8 && kLayout<kFormat>.offset == 0) return _mm256_and_si256(v, _mm256_set1_epi16(255));
    return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}

LANES __m256i odd_bytes(__m256i v) { return _mm256_srai_epi16(v, 8); }

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
    const bool bytes = kNibbles<kFormat> && a.type == ActivationType::I8;
    const auto kernel = bytes ? multiply<kFormat, ActivationType::I8> : multiply<kFormat, ActivationType::I12>;
    kernel(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
