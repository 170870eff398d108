// Instructions of AVX-512 that the vector extension has no words for. With MILLSTREAM_EMULATE, for tests on machines without
// them, what the manual says they do. Included only by avx512.cpp and amx.cpp, inside the level's own namespace.
//
//   dot_words, dot_bytes   acc[i] + the dot product of what lane i of w and x holds, which is two 16-bit integers or four
//                          bytes, unsigned in w and signed in x
//   pair_sums              the sums of the two 16-bit integers in each lane
//   pack_ints, pack_words  a and b with half as many bits, saturated; 128 bits of a, then as many of b, and so on
//   nearest_ints           rounded, ties to even
//   times_power_of_two     a * 2^n for integers n, rounded once

typedef int32_t I16x32 __attribute__((vector_size(64)));
typedef int16_t I32x16 __attribute__((vector_size(64)));

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

LANES I16x32 pair_sums(I32x16 v) {
    I16x32 sums{};
    for (int i = 0; i < 32; ++i) sums[i / 2] += v[i];
    return sums;
}

// a and b, which have kPart integers in 128 bits, as integers To.
template <class To, int kPart, class Packed, class From>
LANES Packed pack_lanes(From a, From b) {
    constexpr int largest = (1 << (8 * sizeof(To) - 1)) - 1;
    To to[8 * kPart];
    for (int i = 0; i < 8 * kPart; ++i) {
        const int32_t x = (i / kPart % 2 ? b : a)[i / (2 * kPart) * kPart + i % kPart];
        to[i] = static_cast<To>(x > largest ? largest : x < -largest - 1 ? -largest - 1 : x);
    }
    Packed packed;
    static_assert(sizeof packed == sizeof to);
    __builtin_memcpy(&packed, to, sizeof packed);
    return packed;
}

LANES I32x16 pack_ints(IW a, IW b) { return pack_lanes<int16_t, 4, I32x16>(a, b); }
LANES IW pack_words(I32x16 a, I32x16 b) { return pack_lanes<int8_t, 8, IW>(a, b); }

LANES IW nearest_ints(FW v) {
    IW n{};
    for (int i = 0; i < kWidth; ++i) n[i] = static_cast<int32_t>(__builtin_rintf(v[i]));
    return n;
}

LANES FW times_power_of_two(FW a, FW n) {
    for (int i = 0; i < kWidth; ++i) a[i] = n[i] == n[i] ? __builtin_ldexpf(a[i], static_cast<int>(n[i])) : n[i];
    return a;
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

LANES I16x32 pair_sums(I32x16 v) {
    return reinterpret_cast<I16x32>(_mm512_madd_epi16(reinterpret_cast<__m512i>(v), _mm512_set1_epi16(1)));
}

LANES I32x16 pack_ints(IW a, IW b) {
    return reinterpret_cast<I32x16>(_mm512_packs_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

LANES IW pack_words(I32x16 a, I32x16 b) {
    return reinterpret_cast<IW>(_mm512_packs_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

// With masks, as GCC warns of the plain forms.
LANES IW nearest_ints(FW v) {
    return reinterpret_cast<IW>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(v)));
}

LANES FW times_power_of_two(FW a, FW n) {
    return reinterpret_cast<FW>(
        _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(n)));
}
#endif
