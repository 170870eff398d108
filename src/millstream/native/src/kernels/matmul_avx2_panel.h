// Products with three or more activation rows. A block of the product is one tile (two vectors) times up to six rows: 12
// sums, two vectors of weights, an activation and a product fill the 16 registers.
// Included only by matmul_avx2.h.

constexpr int kPanelGroups = 9;  // groups of a tile widened at a time, at most: 9 KiB
constexpr int kPanelTiles = 2;
constexpr int kPairs = kGroup / 2;
constexpr int kMaxRows = 6;

// Some groups of one tile: pairs of inputs as 16-bit integers, in the order of ActivationsView::words, and f32 scales.
struct Panel {
    alignas(64) int16_t words[kPanelGroups][kPairs][kTileRows * 2];
    alignas(64) float scales[kPanelGroups * 2][kTileRows];
};

LANES void store_pairs(int16_t (*pair)[kTileRows * 2], int half, __m256i v) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(*pair + half * 16), v);
}

// A quad of weights gives two pairs: its even and its odd bytes.
LANES void widen_u4(const uint8_t* w, int16_t (*pairs)[kTileRows * 2]) {
    const __m256i mask = _mm256_set1_epi16(15);
    for (int quad = 0; quad < 4; ++quad) {
        for (int half = 0; half < 2; ++half) {
            const __m256i packed = load_bytes(w + quad * kTileRows * 4 + half * 32);
            store_pairs(pairs + quad * 2, half, _mm256_and_si256(packed, mask));
            store_pairs(pairs + quad * 2 + 1, half, _mm256_and_si256(_mm256_srli_epi16(packed, 8), mask));
            store_pairs(pairs + quad * 2 + 8, half, _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask));
            store_pairs(pairs + quad * 2 + 9, half, _mm256_srli_epi16(packed, 12));
        }
    }
}

LANES void widen_i8(const uint8_t* w, int16_t (*pairs)[kTileRows * 2]) {
    for (int quad = 0; quad < 8; ++quad) {
        for (int half = 0; half < 2; ++half) {
            const __m256i bytes = load_bytes(w + quad * kTileRows * 4 + half * 32);
            store_pairs(pairs + quad * 2, half, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
            store_pairs(pairs + quad * 2 + 1, half, _mm256_srai_epi16(bytes, 8));
        }
    }
}

// Fills the panel with `count` groups of a tile from `first` on. kParts: scales per group.
template <Format kFormat, int kParts>
static void fill_panel(const MatrixView& w, int tile, int first, int count, Panel& panel) {
    constexpr int group_bytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;
    const int64_t base = static_cast<int64_t>(tile) * w.groups + first;
    for (int g = 0; g < count; ++g) {
        const uint8_t* bytes = w.data + (base + g) * group_bytes;
        if constexpr (kFormat == Format::U4) {
            widen_u4(bytes, panel.words[g]);
        } else {
            widen_i8(bytes, panel.words[g]);
        }
    }
    for (int i = 0; i < count * kParts * 2; ++i)
        _mm256_store_ps(panel.scales[i / 2] + i % 2 * 8,
                        load_scales(w.scales, w.half_scales, base * kParts * kTileRows + i * 8));
}

// Adds `count` groups from `first` on to R rows of one tile's outputs, which are written anew if `first` is 0.
template <int kParts, int R>
static void multiply_panel(const Panel& panel, int first, int count, const ActivationsView& a, int row, float* out,
                           int64_t out_stride) {
    const int64_t at = static_cast<int64_t>(row) * a.groups + first;
    const int64_t fourth = R > 3 ? 3 * static_cast<int64_t>(a.groups) : 0;  // groups to the fourth row, if there is one
    const int16_t *words = a.words + at * kGroup, *words_3 = words + fourth * kGroup;
    const float *scales = a.scales + at, *scales_3 = scales + fourth;
    int64_t stride = a.groups;
    KEEP_POINTER(stride);
    __m256 acc[2][R];
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r)
            acc[h][r] = first ? _mm256_loadu_ps(out + r * out_stride + h * 8) : _mm256_setzero_ps();
    for (int g = 0; g < count; ++g) {
        for (int part = 0; part < kParts; ++part) {
            constexpr int pairs = kPairs / kParts;
            const int16_t(*weights)[kTileRows * 2] = panel.words[g] + part * pairs;
            KEEP_POINTER(words);
            KEEP_POINTER(words_3);
            __m256i dots[2][R];
            for (int h = 0; h < 2; ++h)
                for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 16
            for (int pair = 0; pair < pairs; ++pair) {
                const __m256i w0 = load_bytes(weights[pair]), w1 = load_bytes(weights[pair] + 16);
                for (int r = 0; r < R; ++r) {
                    const int16_t* x = r < 3 ? words + r * stride * kGroup : words_3 + (r - 3) * stride * kGroup;
                    const __m256i activation = broadcast_dword(x + pair * 2);
                    dots[0][r] = _mm256_add_epi32(dots[0][r], _mm256_madd_epi16(w0, activation));
                    dots[1][r] = _mm256_add_epi32(dots[1][r], _mm256_madd_epi16(w1, activation));
                    KEEP(dots[0][r]);
                    KEEP(dots[1][r]);
                }
            }
            for (int h = 0; h < 2; ++h) {
                const __m256 weight_scales = _mm256_load_ps(panel.scales[g * kParts + part] + h * 8);
                for (int r = 0; r < R; ++r)
                    acc[h][r] = accumulate(acc[h][r], dots[h][r], weight_scales,
                                           r < 3 ? scales[r * stride + g] : scales_3[(r - 3) * stride + g]);
            }
            words += pairs * 2;
            words_3 += pairs * 2;
        }
    }
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r) _mm256_storeu_ps(out + r * out_stride + h * 8, acc[h][r]);
}

// out += sum over groups of minimum * sum of the group's activations, for R rows of one tile.
template <int R>
static void add_minimums(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    const float* sums = a.sums + static_cast<int64_t>(row) * a.groups;
    const int64_t base = static_cast<int64_t>(tile) * w.groups * kTileRows;
    __m256 acc[2][R];
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = _mm256_setzero_ps();
    for (int g = 0; g < w.groups; ++g) {
        const __m256 m0 = load_scales(w.mins, w.half_scales, base + g * kTileRows);
        const __m256 m1 = load_scales(w.mins, w.half_scales, base + g * kTileRows + 8);
        for (int r = 0; r < R; ++r) {
            const __m256 sum = _mm256_set1_ps(sums[static_cast<int64_t>(r) * a.groups + g]);
            acc[0][r] = _mm256_add_ps(acc[0][r], _mm256_mul_ps(m0, sum));
            acc[1][r] = _mm256_add_ps(acc[1][r], _mm256_mul_ps(m1, sum));
        }
    }
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r) {
            float* to = out + r * out_stride + h * 8;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), acc[h][r]));
        }
}

template <int R>
struct Rows {
    static constexpr int count = R;
};

// Calls body(Rows<R>, row) for blocks of rows of nearly the same size.
template <class Body>
LANES void over_row_blocks(int row, int row_end, const Body& body) {
    while (row < row_end) {
        const int left = row_end - row, blocks = (left + kMaxRows - 1) / kMaxRows, rows = (left + blocks - 1) / blocks;
        switch (rows) {
            case 1: body(Rows<1>{}, row); break;
            case 2: body(Rows<2>{}, row); break;
            case 3: body(Rows<3>{}, row); break;
            case 4: body(Rows<4>{}, row); break;
            case 5: body(Rows<5>{}, row); break;
            default: body(Rows<kMaxRows>{}, row);
        }
        row += rows;
    }
}

// Asks for piece `at` of `pieces` of the weights of some groups of a tile.
template <Format kFormat, int kParts>
LANES void prefetch_groups(const MatrixView& w, int tile, int first, int count, int at, int pieces) {
    constexpr int group_bytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;
    const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
    const int lines = count * group_bytes / 64, step = (lines + pieces - 1) / pieces;
    const int end = (at + 1) * step < lines ? (at + 1) * step : lines;
    for (int line = at * step; line < end; ++line) prefetch_line(w.data, group * group_bytes + line * 64);
    if (at != 0) return;
    const int scale_bytes = kParts * kTileRows * (w.half_scales ? 2 : 4);
    for (int i = 0; i < count * scale_bytes; i += 64)
        prefetch_line(static_cast<const uint8_t*>(w.scales), group * scale_bytes + i);
}

// Groups outside, tiles inside: the activations of a panel's groups are few enough for the caches whatever the width of
// the matrix. The weights of the next panels are asked for while these are multiplied.
template <Format kFormat>
static void multiply_many(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    constexpr int parts = kFormat == Format::I8G16 ? 2 : 1;
    Panel panels[kPanelTiles];
    const int chunks = (w.groups + kPanelGroups - 1) / kPanelGroups, most = (w.groups + chunks - 1) / chunks;
    const int row_blocks = (row_end - row_begin + kMaxRows - 1) / kMaxRows;
    for (int first = 0; first < w.groups; first += most) {
        for (int tile = tile_begin; tile < tile_end; tile += kPanelTiles) {
            const auto count = [&](int from) { return w.groups - from < most ? w.groups - from : most; };
            const int tiles = tile_end - tile < kPanelTiles ? tile_end - tile : kPanelTiles;
            for (int i = 0; i < tiles; ++i) fill_panel<kFormat, parts>(w, tile + i, first, count(first), panels[i]);
            const bool last = tile + kPanelTiles >= tile_end;
            const int next = last ? tile_begin : tile + kPanelTiles, next_first = last ? first + most : first;
            int block = 0;
            over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
                for (int i = 0; i < tiles; ++i) {
                    if (next_first < w.groups && next + i < tile_end)
                        prefetch_groups<kFormat, parts>(w, next + i, next_first, count(next_first), block, row_blocks);
                    multiply_panel<parts, rows.count>(panels[i], first, count(first), a, row,
                                                      out + row * out_stride + (tile + i) * kTileRows, out_stride);
                }
                ++block;
            });
        }
    }
    if (!w.mins) return;
    for (int tile = tile_begin; tile < tile_end; ++tile)
        over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
            add_minimums<rows.count>(w, tile, a, row, out + row * out_stride + tile * kTileRows, out_stride);
        });
}
