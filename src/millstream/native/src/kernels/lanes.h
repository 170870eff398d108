// Floats in the compilers' vector extension: the same operations in the same order at every ISA level, lowered to what the
// level has. Lanes never meet but in the trees below, so FW holds as many as a register of the level, 16 or 8; F8 is for what
// has eight at every level. Included only by the levels' .cpp files, inside the level's own namespace.

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8x32 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));

#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif
typedef float FW __attribute__((vector_size(kWidth * 4)));
typedef int32_t IW __attribute__((vector_size(kWidth * 4)));
typedef uint32_t UW __attribute__((vector_size(kWidth * 4)));

constexpr int kSixteen = 16 / kWidth;  // vectors of 16 lanes

#define LANES static inline __attribute__((always_inline))

LANES F8 load8(const float* p) {
    F8 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES void store8(float* p, F8 v) { __builtin_memcpy(p, &v, sizeof v); }

LANES F8 splat(float x) { return F8{x, x, x, x, x, x, x, x}; }

LANES FW load_wide(const float* p) {
    FW v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES void store_wide(float* p, FW v) { __builtin_memcpy(p, &v, sizeof v); }

LANES FW splat_wide(float x) { return x - FW{}; }

LANES IW as_int(FW v) { return reinterpret_cast<IW>(v); }
LANES UW as_bits(FW v) { return reinterpret_cast<UW>(v); }
LANES FW as_float(IW v) { return reinterpret_cast<FW>(v); }
LANES FW as_float(UW v) { return reinterpret_cast<FW>(v); }

// mask lanes are all ones or zero.
LANES FW select(IW mask, FW yes, FW no) { return mask ? yes : no; }

// The second operand if one is NaN. GCC 12 compares and blends where an operand is constant, hence the instructions.
#if defined(__AVX512F__)
LANES FW larger(FW a, FW b) {
    return reinterpret_cast<FW>(_mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
LANES FW smaller(FW a, FW b) {
    return reinterpret_cast<FW>(_mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
#elif defined(__AVX2__)
LANES FW larger(FW a, FW b) {
    return reinterpret_cast<FW>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
LANES FW smaller(FW a, FW b) {
    return reinterpret_cast<FW>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
#else
LANES FW larger(FW a, FW b) { return select(a > b, a, b); }
LANES FW smaller(FW a, FW b) { return select(a < b, a, b); }
#endif
LANES FW magnitude(FW a) { return as_float(as_int(a) & INT32_MAX); }

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

// The n < kWidth floats at p, then zeros.
LANES FW load_tail(const float* p, int n) {
    float lanes[kWidth] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load_wide(lanes);
}

LANES void store_tail(float* p, FW v, int n) {
    float lanes[kWidth];
    store_wide(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// Eight lanes of 16, the lower or the upper ones.
template <int kUpper, class V>
LANES F8 half_of(const V (&v)[kSixteen]) {
    if constexpr (sizeof(V) == sizeof(F8)) {
        return v[kUpper];
    } else if constexpr (kUpper) {
        return __builtin_shufflevector(v[0], v[0], 8, 9, 10, 11, 12, 13, 14, 15);
    } else {
        return __builtin_shufflevector(v[0], v[0], 0, 1, 2, 3, 4, 5, 6, 7);
    }
}

// The fixed tree of every reduction: 16 lanes to 8, 4, 2, 1.
LANES float sum16(const FW (&v)[kSixteen]) {
    const F8 s = half_of<0>(v) + half_of<1>(v);
    const F4 half = __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
    return (half[0] + half[2]) + (half[1] + half[3]);
}

LANES float max16(const FW (&v)[kSixteen]) {
    const F8 a = half_of<0>(v), b = half_of<1>(v), m = a > b ? a : b;
    const F4 low = __builtin_shufflevector(m, m, 0, 1, 2, 3), high = __builtin_shufflevector(m, m, 4, 5, 6, 7);
    const F4 half = low > high ? low : high;
    const float even = half[0] > half[2] ? half[0] : half[2], odd = half[1] > half[3] ? half[1] : half[3];
    return even > odd ? even : odd;
}

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
