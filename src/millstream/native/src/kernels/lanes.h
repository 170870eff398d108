// Eight floats at a time, in the compilers' vector extension: the same operations in the same order at every ISA level,
// lowered to what the level has. Where lanes never meet, FW holds as many as a register of the level. Included only by the
// levels' .cpp files, inside the level's own namespace.

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8x32 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));

#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif
typedef float FW __attribute__((vector_size(kWidth * 4)));

#define LANES static inline __attribute__((always_inline))

LANES F8 load8(const float* p) {
    F8 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES void store8(float* p, F8 v) { __builtin_memcpy(p, &v, sizeof v); }

LANES FW load_wide(const float* p) {
    FW v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES FW splat_wide(float x) { return x - FW{}; }

LANES void store_wide(float* p, FW v) { __builtin_memcpy(p, &v, sizeof v); }

LANES F8 splat(float x) { return F8{x, x, x, x, x, x, x, x}; }

LANES I8x32 splat_int(int32_t x) { return I8x32{x, x, x, x, x, x, x, x}; }

LANES I8x32 as_int(F8 v) { return reinterpret_cast<I8x32>(v); }

LANES F8 as_float(I8x32 v) { return reinterpret_cast<F8>(v); }

// mask lanes are all ones or zero.
LANES F8 select(I8x32 mask, F8 yes, F8 no) { return mask ? yes : no; }

LANES F8 max8(F8 a, F8 b) { return select(a > b, a, b); }
LANES F8 min8(F8 a, F8 b) { return select(a < b, a, b); }
LANES F8 abs8(F8 a) { return as_float(as_int(a) & splat_int(0x7fffffff)); }

// a * b + c, rounded once. A NaN is NaN, whichever. Nothing else in the kernels is contracted.
#if defined(__FMA__)
LANES F8 fused(F8 a, F8 b, F8 c) {
    return reinterpret_cast<F8>(
        _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
}
#if defined(__AVX512F__)
LANES FW fused(FW a, FW b, FW c) {
    return reinterpret_cast<FW>(
        _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}
#endif
#else
#include "emulated_fma.h"
LANES F8 fused(F8 a, F8 b, F8 c) { return fused_in_parts(a, b, c); }
#if defined(MILLSTREAM_EMULATE)
LANES FW fused(FW a, FW b, FW c) { return fused_in_parts(a, b, c); }
#endif
#endif

// The n < 8 floats at p, then zeros.
LANES F8 load_tail(const float* p, int n) {
    float lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load8(lanes);
}

LANES void store_tail(float* p, F8 v, int n) {
    float lanes[8];
    store8(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// The fixed tree of every reduction: 16 lanes (a, b) to 8, 4, 2, 1.
LANES float sum16(F8 a, F8 b) {
    const F8 s = a + b;
    const F4 half = __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
    return (half[0] + half[2]) + (half[1] + half[3]);
}

LANES float max16(F8 a, F8 b) {
    const F8 m = max8(a, b);
    const F4 low = __builtin_shufflevector(m, m, 0, 1, 2, 3), high = __builtin_shufflevector(m, m, 4, 5, 6, 7);
    const F4 half = low > high ? low : high;
    const float even = half[0] > half[2] ? half[0] : half[2], odd = half[1] > half[3] ? half[1] : half[3];
    return even > odd ? even : odd;
}

// The largest of eight magnitudes, given and compared as bits: NaN is above infinity.
LANES float max_magnitude(I8x32 v) {
    typedef int32_t I4x32 __attribute__((vector_size(16)));
    const I4x32 low = __builtin_shufflevector(v, v, 0, 1, 2, 3), high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
    const I4x32 half = low > high ? low : high;
    const int32_t even = half[0] > half[2] ? half[0] : half[2], odd = half[1] > half[3] ? half[1] : half[3];
    return __builtin_bit_cast(float, even > odd ? even : odd);
}

LANES int32_t sum_ints(I8x32 v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

#if defined(__AVX2__)
LANES __m256i native(I8x32 v) { return reinterpret_cast<__m256i>(v); }

// 32 integers that fit 16 bits, each four of them in the order 0, 2, 1, 3.
LANES void store_words(int16_t* p, const I8x32* v) {
    for (int i = 0; i < 2; ++i) {
        const __m256i low = _mm256_shuffle_epi32(native(v[2 * i]), 0xd8);
        const __m256i high = _mm256_shuffle_epi32(native(v[2 * i + 1]), 0xd8);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16 * i),
                            _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8));
    }
}

// 32 integers that fit 8 bits, in order.
LANES void store_bytes(int8_t* p, const I8x32* v) {
    const __m256i words0 = _mm256_packs_epi32(native(v[0]), native(v[1]));
    const __m256i words1 = _mm256_packs_epi32(native(v[2]), native(v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words0, words1), order));
}
#else
LANES void store_words(int16_t* p, const I8x32* v) {
    for (int i = 0; i < 32; ++i) {
        const int in_quad = i % 4, from = in_quad == 1 ? i + 1 : in_quad == 2 ? i - 1 : i;
        p[i] = static_cast<int16_t>(v[from / 8][from % 8]);
    }
}

LANES void store_bytes(int8_t* p, const I8x32* v) {
    for (int i = 0; i < 32; ++i) p[i] = static_cast<int8_t>(v[i / 8][i % 8]);
}
#endif

#if defined(__F16C__)
LANES F8 load_half8(const uint16_t* p) {
    return reinterpret_cast<F8>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
LANES void store_half8(uint16_t* p, F8 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
LANES F8 load_half8(const uint16_t* p) {
    float lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = half_to_float(p[i]);
    return load8(lanes);
}
LANES void store_half8(uint16_t* p, F8 v) {
    float lanes[8];
    store8(lanes, v);
    for (int i = 0; i < 8; ++i) p[i] = float_to_half(lanes[i]);
}
#endif

// kWidth halves or bfloats as f32.
LANES FW load_half_wide(const uint16_t* p) {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return reinterpret_cast<FW>(_mm512_maskz_cvtph_ps(0xffff, halves));  // GCC warns of the plain form
#else
    FW v;
    for (int i = 0; i < kWidth; i += 8) {
        const F8 part = load_half8(p + i);
        __builtin_memcpy(reinterpret_cast<float*>(&v) + i, &part, sizeof part);
    }
    return v;
#endif
}

LANES FW load_bfloat_wide(const uint16_t* p) {
    typedef uint16_t Halves __attribute__((vector_size(kWidth * 2)));
    typedef uint32_t Words __attribute__((vector_size(kWidth * 4)));
    Halves h;
    __builtin_memcpy(&h, p, sizeof h);
    return reinterpret_cast<FW>(__builtin_convertvector(h, Words) << 16);
}

// kWidth signed bytes as f32. GCC 12 converts such short vectors lane by lane, hence the instructions; and it warns of their
// plain forms, as above.
LANES FW load_bytes_wide(const int8_t* p) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<FW>(_mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes)));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<FW>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
    typedef int8_t Bytes __attribute__((vector_size(kWidth)));
    Bytes b;
    __builtin_memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, FW);
#endif
}
