// Fused multiply-add where the level has no instruction for it. Included only by lanes.h, on x86 after the compiler's header
// of SSE2 instructions.

static_assert(__FLT_EVAL_METHOD__ == 0, "the emulation needs arithmetic without excess precision: -mfpmath=sse");

typedef float F2 __attribute__((vector_size(8)));
typedef double D2 __attribute__((vector_size(16)));

#if defined(__aarch64__)
LANES F2 fused(F2 a, F2 b, F2 c) {
    return F2{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1])};
}
#else
// Through double, where the product is exact. The sum's error is exact too (TwoSum, D. Knuth), and an inexact sum is rounded
// to odd: of the two doubles around the true value the one whose last bit is set. As that is never in the middle between
// two floats, the rounding to float sees on which side the true value lies (S. Boldo, G. Melquiond, "Emulation of FMA and
// correctly rounded sums", 2008).
LANES F2 fused(F2 a, F2 b, F2 c) {
    typedef int64_t L2 __attribute__((vector_size(16)));
    typedef uint64_t U2 __attribute__((vector_size(16)));
    const D2 product = __builtin_convertvector(a, D2) * __builtin_convertvector(b, D2);
    const D2 addend = __builtin_convertvector(c, D2);
    const D2 sum = product + addend, back = sum - product;
    const D2 error = (product - (sum - back)) + (addend - back);
    const L2 inexact = (error < 0.0) | (error > 0.0);  // not if the sum is infinite or NaN: then the error is NaN
    const U2 bits = reinterpret_cast<U2>(sum), signs = bits ^ reinterpret_cast<U2>(error);
    const U2 even = (bits & 1) - 1, outwards = 1 - (signs >> 63 << 1);
    return __builtin_convertvector(reinterpret_cast<D2>(bits + (outwards & even & reinterpret_cast<U2>(inexact))), F2);
}
#endif

template <class Lanes>
LANES Lanes fused_in_pairs(Lanes a, Lanes b, Lanes c) {
    constexpr int pairs = sizeof(Lanes) / sizeof(F2);
    F2 x[pairs], y[pairs], z[pairs];
    __builtin_memcpy(x, &a, sizeof a);
    __builtin_memcpy(y, &b, sizeof b);
    __builtin_memcpy(z, &c, sizeof c);
    for (int i = 0; i < pairs; ++i) z[i] = fused(x[i], y[i], z[i]);
    __builtin_memcpy(&c, z, sizeof c);
    return c;
}

#if defined(__SSE2__) && !defined(MILLSTREAM_EMULATE)
// The lanes of a sum in double whose rounding to float may differ from that of the true value: all ones in one half or the
// other. Either the sum is in the middle between two floats, 29 bits below their last one, or it is near or below the
// smallest normal float, where the middle is elsewhere; zero is neither.
LANES __m128i doubtful(__m128d sum) {
    const __m128i bits = _mm_and_si128(_mm_castpd_si128(sum), _mm_set_epi32(0x7fffffff, 0x1fffffff, 0x7fffffff, 0x1fffffff));
    const __m128i middle = _mm_cmpeq_epi32(bits, _mm_set_epi32(-1, 0x10000000, -1, 0x10000000));
    // The high halves minus one, offset such that a signed comparison takes them as unsigned, for which zero is large.
    constexpr int lowest = static_cast<int>(0x80000000u), normal = (1023 - 125) << 20;
    const __m128i high = _mm_add_epi32(bits, _mm_set1_epi32(0x7fffffff));
    const __m128i small = _mm_cmpgt_epi32(_mm_set_epi32(lowest + normal, lowest, lowest + normal, lowest), high);
    return _mm_or_si128(middle, small);
}

template <class Lanes>
__attribute__((noinline, cold)) static Lanes fused_with_care(Lanes a, Lanes b, Lanes c) {
    return fused_in_pairs(a, b, c);
}

// Rounds through double twice, which is right unless the first result is doubtful; that is rare.
template <class Lanes>
LANES Lanes fused_in_parts(Lanes a, Lanes b, Lanes c) {
    constexpr int parts = sizeof(Lanes) / sizeof(__m128);
    __m128 x[parts], y[parts], z[parts];
    __builtin_memcpy(x, &a, sizeof a);
    __builtin_memcpy(y, &b, sizeof b);
    __builtin_memcpy(z, &c, sizeof c);
    const auto sum = [](__m128 p, __m128 q, __m128 r) {
        return _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(p), _mm_cvtps_pd(q)), _mm_cvtps_pd(r));
    };
    const auto upper = [](__m128 v) { return _mm_movehl_ps(v, v); };
    __m128i doubt = _mm_setzero_si128();
    for (int i = 0; i < parts; ++i) {
        const __m128d low = sum(x[i], y[i], z[i]), high = sum(upper(x[i]), upper(y[i]), upper(z[i]));
        doubt = _mm_or_si128(doubt, _mm_or_si128(doubtful(low), doubtful(high)));
        z[i] = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
    }
    if (__builtin_expect(_mm_movemask_epi8(doubt) != 0, 0)) return fused_with_care(a, b, c);
    __builtin_memcpy(&c, z, sizeof c);
    return c;
}
#else
template <class Lanes>
LANES Lanes fused_in_parts(Lanes a, Lanes b, Lanes c) {
    return fused_in_pairs(a, b, c);
}
#endif
