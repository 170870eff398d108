// Integer matrix products for AVX2. A vector is eight output rows; a block is H vectors of one tile times R activation rows,
// which share every unpacked weight vector. One row (decoding alone) waits for memory, so its block is the whole tile, read
// once and asked for early; more rows wait for the multipliers, so their blocks are narrow and leave registers for rows.
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

// dots[h][r] += 16-bit weights w[h] times the dword of activations at q16[at], which every output row shares.
template <int H, int R>
LANES void multiply_words(const __m256i* w, const QuantizedGroup* const* x, int at, __m256i (*dots)[R]) {
    for (int r = 0; r < R; ++r) {
        const __m256i activation = broadcast_dword(x[r]->q16 + at);
        for (int h = 0; h < H; ++h)
            dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(w[h], activation));
    }
}

// dots[h][r] of one group, for few rows: byte products of the high and the low halves apart. A pair is at most
// 15 * 128 * 2, so 8 quads fit 16 bits.
template <int H, int R>
LANES void dot_u4_bytes(const uint8_t* w, const QuantizedGroup* const* x, __m256i (*dots)[R]) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i hi[H][R], lo[H][R];
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) hi[h][r] = lo[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
        __m256i weights[H];
        for (int h = 0; h < H; ++h) {
            const __m256i bytes = load_bytes(w + quad % 4 * kTileRows * 4 + h * 32);
            weights[h] = _mm256_and_si256(quad < 4 ? bytes : _mm256_srli_epi16(bytes, 4), mask);
        }
        for (int r = 0; r < R; ++r) {
            const __m256i high = broadcast_dword(x[r]->hi + quad * 4), low = broadcast_dword(x[r]->lo + quad * 4);
            for (int h = 0; h < H; ++h) {
                hi[h][r] = _mm256_add_epi16(hi[h][r], _mm256_maddubs_epi16(weights[h], high));
                lo[h][r] = _mm256_add_epi16(lo[h][r], _mm256_maddubs_epi16(weights[h], low));
            }
        }
    }
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r)
            dots[h][r] = _mm256_add_epi32(_mm256_madd_epi16(hi[h][r], _mm256_set1_epi16(256)),
                                          _mm256_madd_epi16(lo[h][r], _mm256_set1_epi16(1)));
}

// The same for many rows: nibbles widened to 16 bits cost more to unpack, but need one sum per row instead of two.
template <int H, int R>
LANES void dot_u4_words(const uint8_t* w, const QuantizedGroup* const* x, __m256i (*dots)[R]) {
    const __m256i mask = _mm256_set1_epi16(15);
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad) {
        __m256i bytes[H], part[H];
        for (int h = 0; h < H; ++h) bytes[h] = load_bytes(w + quad * kTileRows * 4 + h * 32);
        const int at = quad * 4;
        for (int h = 0; h < H; ++h) part[h] = _mm256_and_si256(bytes[h], mask);
        multiply_words<H, R>(part, x, at, dots);
        for (int h = 0; h < H; ++h) part[h] = _mm256_and_si256(_mm256_srli_epi16(bytes[h], 4), mask);
        multiply_words<H, R>(part, x, at + 16, dots);
        for (int h = 0; h < H; ++h) part[h] = _mm256_and_si256(_mm256_srli_epi16(bytes[h], 8), mask);
        multiply_words<H, R>(part, x, at + 2, dots);
        for (int h = 0; h < H; ++h) part[h] = _mm256_srli_epi16(bytes[h], 12);
        multiply_words<H, R>(part, x, at + 18, dots);
    }
}

template <int H, int R>
LANES void dot_u4(const uint8_t* w, const QuantizedGroup* const* x, __m256i (*dots)[R]) {
    if constexpr (R <= 2) {
        dot_u4_bytes<H, R>(w, x, dots);
    } else {
        dot_u4_words<H, R>(w, x, dots);
    }
}

// dots[h][r] over quads [kBegin, kEnd) of one group: bytes widened to 16 bits, even and odd apart.
template <int H, int R, int kBegin, int kEnd>
LANES void dot_i8(const uint8_t* w, const QuantizedGroup* const* x, __m256i (*dots)[R]) {
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
        __m256i bytes[H], part[H];
        for (int h = 0; h < H; ++h) bytes[h] = load_bytes(w + quad * kTileRows * 4 + h * 32);
        for (int h = 0; h < H; ++h) part[h] = _mm256_srai_epi16(_mm256_slli_epi16(bytes[h], 8), 8);
        multiply_words<H, R>(part, x, quad * 4, dots);
        for (int h = 0; h < H; ++h) part[h] = _mm256_srai_epi16(bytes[h], 8);
        multiply_words<H, R>(part, x, quad * 4 + 2, dots);
    }
}

// acc[h][r] += dots[h][r] * (weight scale * activation scale); scales of the 8 rows of h at `lanes` + 8 h.
template <int H, int R>
LANES void accumulate(const __m256i (*dots)[R], const MatrixView& w, int64_t lanes, const QuantizedGroup* const* x,
                      __m256 (*acc)[R]) {
    for (int h = 0; h < H; ++h) {
        const __m256 scales = load_scales(w.scales, w.half_scales, lanes + h * 8);
        for (int r = 0; r < R; ++r) {
            const __m256 factor = _mm256_mul_ps(scales, _mm256_set1_ps(x[r]->scale));
            acc[h][r] = _mm256_add_ps(acc[h][r], _mm256_mul_ps(_mm256_cvtepi32_ps(dots[h][r]), factor));
        }
    }
}

constexpr int kMaxRows = 6;      // activation rows of a block, as many as registers hold
constexpr int kTileBlock = 8;    // tiles that stay in the second-level cache while all rows pass
constexpr int kPrefetch = 2048;  // bytes between the group at work and the one asked for

// H vectors of eight output rows, from row half * 8 of a tile on, times R activation rows.
template <Format kFormat, bool kMins, int R, int H>
LANES void matmul_block(const MatrixView& w, int tile, int half, const QuantizedGroup* rows, float* out,
                        int64_t out_stride) {
    constexpr int group_bytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;
    __m256 acc[H][R], acc_min[H][R];
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = acc_min[h][r] = _mm256_setzero_ps();
    const QuantizedGroup* x[R];
    for (int r = 0; r < R; ++r) x[r] = rows + static_cast<int64_t>(r) * w.groups;
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        if constexpr (R == 1) {
            for (int line = 0; line < group_bytes; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(w.data + group * group_bytes + kPrefetch + line), _MM_HINT_T0);
        }
        const uint8_t* bytes = w.data + group * group_bytes + half * 32;
        const int64_t lanes = group * kTileRows + half * 8;
        __m256i dots[H][R];
        if constexpr (kFormat == Format::I8G16) {
            const int64_t pair = group * 2 * kTileRows + half * 8;
            dot_i8<H, R, 0, 4>(bytes, x, dots);
            accumulate<H, R>(dots, w, pair, x, acc);
            dot_i8<H, R, 4, 8>(bytes, x, dots);
            accumulate<H, R>(dots, w, pair + kTileRows, x, acc);
        } else {
            if constexpr (kFormat == Format::U4) {
                dot_u4<H, R>(bytes, x, dots);
            } else {
                dot_i8<H, R, 0, 8>(bytes, x, dots);
            }
            accumulate<H, R>(dots, w, lanes, x, acc);
        }
        if constexpr (kMins) {
            for (int h = 0; h < H; ++h) {
                const __m256 mins = load_scales(w.mins, w.half_scales, lanes + h * 8);
                for (int r = 0; r < R; ++r)
                    acc_min[h][r] = _mm256_add_ps(acc_min[h][r], _mm256_mul_ps(mins, _mm256_set1_ps(x[r]->sum)));
            }
        }
        for (int r = 0; r < R; ++r) ++x[r];
    }
    for (int h = 0; h < H; ++h) {
        for (int r = 0; r < R; ++r) {
            const __m256 result = kMins ? _mm256_add_ps(acc[h][r], acc_min[h][r]) : acc[h][r];
            _mm256_storeu_ps(out + r * out_stride + (half + h) * 8, result);
        }
    }
}

// Rows [row, row_end) in blocks of R, then the rest in smaller ones. A block of rows stays in the first-level cache while
// tiles pass.
template <Format kFormat, bool kMins, int R>
static void matmul_rows(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row, int row_end,
                        float* out, int64_t out_stride) {
    for (; row + R <= row_end; row += R) {
        const QuantizedGroup* x = a.quantized + static_cast<int64_t>(row) * a.groups;
        for (int tile = tile_begin; tile < tile_end; ++tile) {
            float* y = out + row * out_stride + tile * kTileRows;
            if constexpr (R == 1) {
                matmul_block<kFormat, kMins, R, 2>(w, tile, 0, x, y, out_stride);
            } else {
                matmul_block<kFormat, kMins, R, 1>(w, tile, 0, x, y, out_stride);
                matmul_block<kFormat, kMins, R, 1>(w, tile, 1, x, y, out_stride);
            }
        }
    }
    if constexpr (R > 1) matmul_rows<kFormat, kMins, R - 1>(w, tile_begin, tile_end, a, row, row_end, out, out_stride);
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    const auto run = w.mins ? matmul_rows<kFormat, true, kMaxRows> : matmul_rows<kFormat, false, kMaxRows>;
    for (int tile = tile_begin; tile < tile_end; tile += kTileBlock)
        run(w, tile, tile_end - tile < kTileBlock ? tile_end : tile + kTileBlock, a, row_begin, row_end, out, out_stride);
}

static constexpr auto matmul_u4 = matmul_integer<Format::U4>;
static constexpr auto matmul_i8 = matmul_integer<Format::I8>;
static constexpr auto matmul_i8g16 = matmul_integer<Format::I8G16>;
