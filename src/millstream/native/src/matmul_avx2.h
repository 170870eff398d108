// Integer matrix products for AVX2. Eight output rows per vector; R activation rows share every unpacked weight vector.
// Included only by kernels_avx2.cpp, inside the level's own namespace.

LANES __m256 load_scales(const void* scales, bool half, int64_t i) {
    if (half)
        return _mm256_cvtph_ps(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(scales) + i)));
    return _mm256_loadu_ps(static_cast<const float*>(scales) + i);
}

LANES __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

LANES __m256i broadcast_dword(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}

// dots[r] of 8 output rows for one group. Each byte product pair is at most 15 * 128 * 2, so 8 quads fit 16 bits.
template <int R>
LANES void dot_u4(const uint8_t* w, const QuantizedGroup* const* x, __m256i* dots) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i hi[R], lo[R];
    for (int r = 0; r < R; ++r) hi[r] = lo[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad) {
        const __m256i bytes = load_bytes(w + quad * kTileRows * 4);
        const __m256i first = _mm256_and_si256(bytes, mask);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
        const int at = quad * 4;
        for (int r = 0; r < R; ++r) {
            hi[r] = _mm256_add_epi16(hi[r], _mm256_maddubs_epi16(first, broadcast_dword(x[r]->hi + at)));
            lo[r] = _mm256_add_epi16(lo[r], _mm256_maddubs_epi16(first, broadcast_dword(x[r]->lo + at)));
            hi[r] = _mm256_add_epi16(hi[r], _mm256_maddubs_epi16(second, broadcast_dword(x[r]->hi + at + 16)));
            lo[r] = _mm256_add_epi16(lo[r], _mm256_maddubs_epi16(second, broadcast_dword(x[r]->lo + at + 16)));
        }
    }
    for (int r = 0; r < R; ++r)
        dots[r] = _mm256_add_epi32(_mm256_madd_epi16(hi[r], _mm256_set1_epi16(256)),
                                   _mm256_madd_epi16(lo[r], _mm256_set1_epi16(1)));
}

// dots[r] of 8 output rows over quads [kBegin, kEnd) of one group: bytes widened to 16 bits, even and odd apart.
template <int R, int kBegin, int kEnd>
LANES void dot_i8(const uint8_t* w, const QuantizedGroup* const* x, __m256i* dots) {
    for (int r = 0; r < R; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
        const __m256i bytes = load_bytes(w + quad * kTileRows * 4);
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
        const __m256i odd = _mm256_srai_epi16(bytes, 8);
        const int at = quad * 4;
        for (int r = 0; r < R; ++r) {
            dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(even, broadcast_dword(x[r]->q16 + at)));
            dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(odd, broadcast_dword(x[r]->q16 + at + 2)));
        }
    }
}

template <int R>
LANES void accumulate(const __m256i* dots, __m256 scales, const QuantizedGroup* const* x, __m256* acc) {
    for (int r = 0; r < R; ++r) {
        const __m256 factor = _mm256_mul_ps(scales, _mm256_set1_ps(x[r]->scale));
        acc[r] = _mm256_add_ps(acc[r], _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r]), factor));
    }
}

// Eight output rows (half a tile) times R activation rows.
template <Format kFormat, bool kMins, int R>
LANES void matmul_half_tile(const MatrixView& w, int tile, int half, const QuantizedGroup* rows, float* out,
                            int64_t out_stride) {
    constexpr int group_bytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;
    __m256 acc[R], acc_min[R];
    for (int r = 0; r < R; ++r) acc[r] = acc_min[r] = _mm256_setzero_ps();
    const QuantizedGroup* x[R];
    for (int r = 0; r < R; ++r) x[r] = rows + static_cast<int64_t>(r) * w.groups;
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        const uint8_t* bytes = w.data + group * group_bytes + half * 32;
        const int64_t lanes = group * kTileRows + half * 8;
        __m256i dots[R];
        if constexpr (kFormat == Format::I8G16) {
            const int64_t pair = group * 2 * kTileRows + half * 8;
            dot_i8<R, 0, 4>(bytes, x, dots);
            accumulate<R>(dots, load_scales(w.scales, w.half_scales, pair), x, acc);
            dot_i8<R, 4, 8>(bytes, x, dots);
            accumulate<R>(dots, load_scales(w.scales, w.half_scales, pair + kTileRows), x, acc);
        } else {
            if constexpr (kFormat == Format::U4) {
                dot_u4<R>(bytes, x, dots);
            } else {
                dot_i8<R, 0, 8>(bytes, x, dots);
            }
            accumulate<R>(dots, load_scales(w.scales, w.half_scales, lanes), x, acc);
        }
        if constexpr (kMins) {
            const __m256 mins = load_scales(w.mins, w.half_scales, lanes);
            for (int r = 0; r < R; ++r)
                acc_min[r] = _mm256_add_ps(acc_min[r], _mm256_mul_ps(mins, _mm256_set1_ps(x[r]->sum)));
        }
        for (int r = 0; r < R; ++r) ++x[r];
    }
    for (int r = 0; r < R; ++r) {
        const __m256 result = kMins ? _mm256_add_ps(acc[r], acc_min[r]) : acc[r];
        _mm256_storeu_ps(out + r * out_stride + half * 8, result);
    }
}

template <Format kFormat, bool kMins, int R>
static void matmul_tile_rows(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out,
                             int64_t out_stride) {
    const QuantizedGroup* x = a.quantized + static_cast<int64_t>(row) * a.groups;
    float* y = out + row * out_stride + tile * kTileRows;
    matmul_half_tile<kFormat, kMins, R>(w, tile, 0, x, y, out_stride);
    matmul_half_tile<kFormat, kMins, R>(w, tile, 1, x, y, out_stride);
}

template <Format kFormat, bool kMins>
static void matmul_blocks(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        int row = row_begin;
        for (; row + 4 <= row_end; row += 4) matmul_tile_rows<kFormat, kMins, 4>(w, tile, a, row, out, out_stride);
        switch (row_end - row) {
            case 3: matmul_tile_rows<kFormat, kMins, 3>(w, tile, a, row, out, out_stride); break;
            case 2: matmul_tile_rows<kFormat, kMins, 2>(w, tile, a, row, out, out_stride); break;
            case 1: matmul_tile_rows<kFormat, kMins, 1>(w, tile, a, row, out, out_stride); break;
            default: break;
        }
    }
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    const auto run = w.mins ? matmul_blocks<kFormat, true> : matmul_blocks<kFormat, false>;
    run(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}

static constexpr auto matmul_u4 = matmul_integer<Format::U4>;
static constexpr auto matmul_i8 = matmul_integer<Format::I8>;
static constexpr auto matmul_i8g16 = matmul_integer<Format::I8G16>;
