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
    if constexpr (kNibbles<kFormat>) return {a.bytes + at * activation_bytes(kType), a.scales[at], a.sums[at]};
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

// dots[h][r] over quads [kBegin, kEnd) of one group, widened to 16 bits, even and odd apart.
template <Format kFormat, int H, int R, int kBegin, int kEnd>
LANES void dot_words(const uint8_t* w, const GroupView* x, __m256i (*dots)[R]) {
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
        for (int h = 0; h < H; ++h) {
            const __m256i bytes = load_quad<kFormat>(w + h * 32, quad);
            const __m256i even = even_bytes<kFormat>(bytes), odd = odd_bytes(bytes);
            for (int r = 0; r < R; ++r) {
                const auto* words = static_cast<const int16_t*>(x[r].integers) + quad * 4;
                dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(even, broadcast_dword(words)));
                dots[h][r] = _mm256_add_epi32(dots[h][r], _mm256_madd_epi16(odd, broadcast_dword(words + 2)));
                KEEP(dots[h][r]);
            }
        }
    }
}

template <int H, int R>
LANES void add_dots(__m256 (*acc)[R], const __m256i (*dots)[R], const __m256* scales, const GroupView* x) {
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = accumulate(acc[h][r], dots[h][r], scales[h], x[r].scale);
}

template <Format kFormat, ActivationType kType, int H, int R>
LANES void multiply_tile(const MatrixView& w, int tile, int half, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    constexpr bool minimums = layout.minimum != Minimum::None;
    __m256 acc[H][R], acc_min[H][R];
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = acc_min[h][r] = _mm256_setzero_ps();
    for (int first = 0; first < w.groups; first += layout.run) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
        const auto first_record = load_record<kFormat>(w, group, half * 8), last_record = load_record<kFormat>(w, group, 8);
        for (int i = 0; i < layout.run; ++i) {
            const uint8_t* bytes = w.data + (group + i) * kGroupBytes<kFormat> + half * 32;
            for (int line = 0; line < kGroupBytes<kFormat>; line += 64) prefetch_line(bytes, kPrefetch + line);
            GroupView x[R];
            for (int r = 0; r < R; ++r) x[r] = group_of<kFormat, kType>(a, row + r, first + i);
            __m256i dots[H][R];
            __m256 scales[2] = {native(scales_of(first_record, i, 0)), native(scales_of(last_record, i, 0))};
            if constexpr (kNibbles<kFormat>) {
                dot_u4<kType, H, R>(bytes, x, dots);
            } else {
                dot_words<kFormat, H, R, 0, 8 / layout.parts>(bytes, x, dots);
            }
            add_dots<H, R>(acc, dots, scales, x);
            if constexpr (layout.parts == 2) {
                dot_words<kFormat, H, R, 4, 8>(bytes, x, dots);
                scales[0] = native(scales_of(first_record, i, 1)), scales[1] = native(scales_of(last_record, i, 1));
                add_dots<H, R>(acc, dots, scales, x);
            }
            if constexpr (minimums) {
                const __m256 mins[2] = {native(minimums_of(first_record, i)), native(minimums_of(last_record, i))};
                for (int h = 0; h < H; ++h)
                    for (int r = 0; r < R; ++r)
                        acc_min[h][r] = _mm256_fmadd_ps(mins[h], _mm256_set1_ps(x[r].sum), acc_min[h][r]);
            }
        }
    }
    for (int h = 0; h < H; ++h)
        for (int r = 0; r < R; ++r)
            _mm256_storeu_ps(out + r * out_stride + (half + h) * 8,
                             minimums ? _mm256_add_ps(acc[h][r], acc_min[h][r]) : acc[h][r]);
}

template <Format kFormat, ActivationType kType, int R>
static void multiply_few(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    constexpr int vectors = R < 3 ? 2 : 1;  // as the registers allow
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        float* to = out + row * out_stride + tile * kTileRows;
        for (int half = 0; half < 2; half += vectors)
            multiply_tile<kFormat, kType, vectors, R>(w, tile, half, a, row, to, out_stride);
    }
}
