// Products with up to six activation rows. Included only by matmul_avx2.h.

constexpr int kPrefetch = 2048;  // bytes between the group at work and the one asked for

// Asks for memory that may lie beyond the end of the weights, which does no harm but must not be a pointer.
LANES void prefetch_line(const uint8_t* p, int64_t offset) {
    _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(offset)), _MM_HINT_T0);
}

// One row's part of a group: its bytes for nibbles, else its words.
struct GroupView {
    const void* integers;
    float scale, sum;
};

template <Format kFormat, ActivationType kType>
LANES GroupView group_of(const ActivationsView& a, int row, int g) {
    const int64_t at = static_cast<int64_t>(row) * a.groups + g;
    if constexpr (kFormat == Format::U4) return {a.bytes + at * activation_bytes(kType), a.scales[at], a.sums[at]};
    return {a.words + at * kGroup, a.scales[at], a.sums[at]};
}

// dots[h][r] of one group of nibbles, from byte products: of the activations, or of their high and their low halves apart.
// A 16-bit lane takes a pair from each of 8 quads. Halves: |high| <= 128, so 15 * 128 * 2 * 8 = 30720; low <= 15, so
// 15 * 15 * 2 * 8 = 3600. Whole bytes: |a| <= 127, so 15 * 127 * 2 * 8 = 30480. All fit.
template <ActivationType kType, int H, int R>
LANES void dot_u4(const uint8_t* w, const GroupView* x, __m256i (*dots)[R]) {
    constexpr bool halves = kType == ActivationType::I12;
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i sums[H][R], low[H][R];
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) sums[h][r] = low[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad) {
        for (int upper = 0; upper < 2; ++upper) {
            for (int h = 0; h < H; ++h) {
                const __m256i packed = load_bytes(w + quad * kTileRows * 4 + h * 32);
                const __m256i weights = _mm256_and_si256(upper ? _mm256_srli_epi16(packed, 4) : packed, mask);
                for (int r = 0; r < R; ++r) {
                    const auto* quad_bytes = static_cast<const int8_t*>(x[r].integers) + (quad + 4 * upper) * 4;
                    sums[h][r] =
                        _mm256_add_epi16(sums[h][r], _mm256_maddubs_epi16(weights, broadcast_dword(quad_bytes)));
                    KEEP(sums[h][r]);
                    if constexpr (!halves) continue;
                    low[h][r] =
                        _mm256_add_epi16(low[h][r], _mm256_maddubs_epi16(weights, broadcast_dword(quad_bytes + kGroup)));
                    KEEP(low[h][r]);
                }
            }
        }
    }
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) {
            dots[h][r] = _mm256_madd_epi16(sums[h][r], _mm256_set1_epi16(halves ? 16 : 1));
            if constexpr (halves)
                dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(low[h][r], _mm256_set1_epi16(1)));
        }
}

// dots[h][r] over quads [kBegin, kEnd) of one group of bytes, widened to 16 bits, even and odd apart.
template <int H, int R, int kBegin, int kEnd>
LANES void dot_i8(const uint8_t* w, const GroupView* x, __m256i (*dots)[R]) {
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
        for (int h = 0; h < H; ++h) {
            const __m256i bytes = load_bytes(w + quad * kTileRows * 4 + h * 32);
            const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), odd = _mm256_srai_epi16(bytes, 8);
            for (int r = 0; r < R; ++r) {
                const auto* words = static_cast<const int16_t*>(x[r].integers) + quad * 4;
                dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(even, broadcast_dword(words)));
                dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(odd, broadcast_dword(words + 2)));
                KEEP(dots[h][r]);
            }
        }
    }
}

template <Format kFormat, ActivationType kType, bool kMins, int H, int R>
LANES void multiply_tile(const MatrixView& w, int tile, int half, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    constexpr int group_bytes = kGroupBytes<kFormat>;
    __m256 acc[H][R], acc_min[H][R];
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = acc_min[h][r] = _mm256_setzero_ps();
    const auto add_dots = [&](const __m256i(*dots)[R], int64_t lanes, const GroupView* x) {
        for (int h = 0; h < H; ++h) {
            const __m256 scales = load_scales(w.scales, w.half_scales, lanes + (half + h) * 8);
            for (int r = 0; r < R; ++r) acc[h][r] = accumulate(acc[h][r], dots[h][r], scales, x[r].scale);
        }
    };
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        const uint8_t* bytes = w.data + group * group_bytes + half * 32;
        for (int line = 0; line < group_bytes; line += 64) prefetch_line(bytes, kPrefetch + line);
        GroupView x[R];
        for (int r = 0; r < R; ++r) x[r] = group_of<kFormat, kType>(a, row + r, g);
        __m256i dots[H][R];
        if constexpr (kFormat == Format::U4) {
            dot_u4<kType, H, R>(bytes, x, dots);
            add_dots(dots, group * kTileRows, x);
        } else if constexpr (kFormat == Format::I8) {
            dot_i8<H, R, 0, 8>(bytes, x, dots);
            add_dots(dots, group * kTileRows, x);
        } else {
            dot_i8<H, R, 0, 4>(bytes, x, dots);
            add_dots(dots, group * 2 * kTileRows, x);
            dot_i8<H, R, 4, 8>(bytes, x, dots);
            add_dots(dots, (group * 2 + 1) * kTileRows, x);
        }
        if constexpr (kMins) {
            for (int h = 0; h < H; ++h) {
                const __m256 mins = load_scales(w.mins, w.half_scales, group * kTileRows + (half + h) * 8);
                for (int r = 0; r < R; ++r)
                    acc_min[h][r] = _mm256_fmadd_ps(mins, _mm256_set1_ps(x[r].sum), acc_min[h][r]);
            }
        }
    }
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r)
            _mm256_storeu_ps(out + r * out_stride + (half + h) * 8, kMins ? _mm256_add_ps(acc[h][r], acc_min[h][r]) : acc[h][r]);
}

template <Format kFormat, ActivationType kType, int R>
static void multiply_few(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    constexpr int vectors = R < 3 ? 2 : 1;  // as the registers allow
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        float* to = out + row * out_stride + tile * kTileRows;
        for (int half = 0; half < 2; half += vectors) {
            if (w.mins) {
                multiply_tile<kFormat, kType, true, vectors, R>(w, tile, half, a, row, to, out_stride);
            } else {
                multiply_tile<kFormat, kType, false, vectors, R>(w, tile, half, a, row, to, out_stride);
            }
        }
    }
}
