// The instructions that matmul_vnni.h is built on: acc[i] + the dot product of what lane i of w and x holds, which is two
// 16-bit integers or four bytes, unsigned in w and signed in x. With MILLSTREAM_EMULATE, for tests on machines without them,
// what the manual says they do. Included only by avx512.cpp and amx.cpp, inside the level's own namespace.

typedef int32_t I16x32 __attribute__((vector_size(64)));

#if defined(MILLSTREAM_EMULATE)
LANES I16x32 dot_words(I16x32 acc, I16x32 w, I16x32 x) {
    int16_t a[32], b[32];
    __builtin_memcpy(a, &w, sizeof a);
    __builtin_memcpy(b, &x, sizeof b);
    for (int i = 0; i < 16; ++i) acc[i] += a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return acc;
}

LANES I16x32 dot_bytes(I16x32 acc, I16x32 w, I16x32 x) {
    uint8_t a[64];
    int8_t b[64];
    __builtin_memcpy(a, &w, sizeof a);
    __builtin_memcpy(b, &x, sizeof b);
    for (int i = 0; i < 64; ++i) acc[i / 4] += a[i] * b[i];
    return acc;
}
#else
LANES I16x32 dot_words(I16x32 acc, I16x32 w, I16x32 x) {
    return reinterpret_cast<I16x32>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(w),
                                                        reinterpret_cast<__m512i>(x)));
}

LANES I16x32 dot_bytes(I16x32 acc, I16x32 w, I16x32 x) {
    return reinterpret_cast<I16x32>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(w),
                                                        reinterpret_cast<__m512i>(x)));
}
#endif
