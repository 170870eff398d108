// Eight floats at a time, in the compilers' vector extension: the same operations in the same order at every ISA level,
// lowered to what the level has. Included only by kernels_*.cpp, inside the level's own namespace.

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8x32 __attribute__((vector_size(32)));
typedef uint16_t H8 __attribute__((vector_size(16)));

#define LANES static inline __attribute__((always_inline))

LANES F8 load8(const float* p) {
    F8 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES void store8(float* p, F8 v) { __builtin_memcpy(p, &v, sizeof v); }

LANES F8 splat(float x) { return F8{x, x, x, x, x, x, x, x}; }

LANES I8x32 splat_int(int32_t x) { return I8x32{x, x, x, x, x, x, x, x}; }

LANES I8x32 as_int(F8 v) { return reinterpret_cast<I8x32>(v); }

LANES F8 as_float(I8x32 v) { return reinterpret_cast<F8>(v); }

// mask lanes are all ones or zero.
LANES F8 select(I8x32 mask, F8 yes, F8 no) { return as_float((as_int(yes) & mask) | (as_int(no) & ~mask)); }

LANES F8 max8(F8 a, F8 b) { return select(a > b, a, b); }
LANES F8 min8(F8 a, F8 b) { return select(a < b, a, b); }
LANES F8 abs8(F8 a) { return as_float(as_int(a) & splat_int(0x7fffffff)); }

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
    float s[8];
    store8(s, a + b);
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

LANES float max16(F8 a, F8 b) {
    float s[8];
    store8(s, max8(a, b));
    float m = s[0];
    for (int i = 1; i < 8; ++i) m = s[i] > m ? s[i] : m;
    return m;
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

LANES F8 load_bfloat8(const uint16_t* p) {
    H8 h;
    __builtin_memcpy(&h, p, sizeof h);
    return as_float(__builtin_convertvector(h, I8x32) << 16);
}
