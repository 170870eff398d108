// Products with seven or more activation rows. A block of the product is one tile (two vectors) times up to six rows: 12
// sums, two vectors of weights, an activation and a product fill the 16 registers.
// Included only by matmul_avx2.h.

constexpr int kPanelLines = 144;  // of a tile at a time, at most: 9 KiB
constexpr int kPanelTiles = 2;
constexpr int kMaxRows = 6;

// A line of a panel is what four bytes of a row of activations are multiplied by, for all 16 output rows: a quad of nibbles as
// bytes, or a pair of 16-bit integers.
template <Format kFormat, ActivationType kType>
constexpr bool kByteLines = kNibbles<kFormat> && kType == ActivationType::I8;

template <Format kFormat, ActivationType kType>
constexpr int kGroupLines = kByteLines<kFormat, kType> ? kGroup / 4 : kGroup / 2;

// Some groups of one tile: lines in the order of ActivationsView::bytes or words, and f32 scales.
struct Panel {
    alignas(64) uint8_t lines[kPanelLines][kTileRows * 4];
    alignas(64) float scales[kPanelLines / 8][kTileRows];
};

LANES void store_line(uint8_t (*line)[kTileRows * 4], int half, __m256i v) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(*line + half * 32), v);
}

// The lines of one group. A quad of weights gives two pairs: its even and its odd bytes.
template <Format kFormat, ActivationType kType>
LANES void unpack(const uint8_t* w, uint8_t (*lines)[kTileRows * 4]) {
    constexpr bool bytes = kByteLines<kFormat, kType>;
#pragma GCC unroll 8
    for (int quad = 0; quad < (kNibbles<kFormat> ? 4 : 8); ++quad) {
        for (int half = 0; half < 2; ++half) {
            if constexpr (!kNibbles<kFormat>) {
                const __m256i v = load_quad<kFormat>(w + half * 32, quad);
                store_line(lines + quad * 2, half, even_bytes<kFormat>(v));
                store_line(lines + quad * 2 + 1, half, odd_bytes(v));
                continue;
            }
            const __m256i packed = load_bytes(w + quad * kTileRows * 4 + half * 32);
            const __m256i mask = bytes ? _mm256_set1_epi8(15) : _mm256_set1_epi16(15);
            if constexpr (bytes) {
                store_line(lines + quad, half, _mm256_and_si256(packed, mask));
                store_line(lines + quad + 4, half, _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask));
            } else {
                store_line(lines + quad * 2, half, _mm256_and_si256(packed, mask));
                store_line(lines + quad * 2 + 1, half, _mm256_and_si256(_mm256_srli_epi16(packed, 8), mask));
                store_line(lines + quad * 2 + 8, half, _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask));
                store_line(lines + quad * 2 + 9, half, _mm256_srli_epi16(packed, 12));
            }
        }
    }
}

// Fills the panel with `count` groups of a tile from `first` on.
template <Format kFormat, ActivationType kType>
static void fill_panel(const MatrixView& w, int tile, int first, int count, Panel& panel) {
    const int64_t base = static_cast<int64_t>(tile) * w.groups + first;
    for (int g = 0; g < count; ++g) {
        unpack<kFormat, kType>(w.data + (base + g) * kGroupBytes<kFormat>, panel.lines + g * kGroupLines<kFormat, kType>);
        for (int part = 0; part < kParts<kFormat>; ++part)
            for (int lane = 0; lane < kTileRows; lane += kWidth)
                store_wide(panel.scales[g * kParts<kFormat> + part] + lane, load_scales<kFormat>(w, base + g, part, lane));
    }
}

// sum + the products of half a line and four bytes of activations. Bytes: 16-bit lanes, which fit (dot_u4); else 32-bit.
template <bool kBytes>
LANES __m256i add_products(__m256i sum, __m256i weights, __m256i activations) {
    if constexpr (kBytes) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, activations));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, activations));
}

// Adds `count` groups from `first` on to R rows of one tile's outputs, which are written anew if `first` is 0. A function
// of its own: inlined into its caller's loops it would not keep its sums in registers.
template <Format kFormat, ActivationType kType, int R>
__attribute__((noinline)) static void multiply_panel(const Panel& panel, int first, int count, const ActivationsView& a,
                                                     int row, float* out, int64_t out_stride) {
    constexpr bool bytes = kByteLines<kFormat, kType>;
    constexpr int parts = kParts<kFormat>, lines = kGroupLines<kFormat, kType> / parts;
    constexpr int record = kGroupLines<kFormat, kType> * 4;  // bytes of a group of activations
    const int64_t at = static_cast<int64_t>(row) * a.groups + first;
    const int64_t fourth = R > 3 ? 3 * static_cast<int64_t>(a.groups) : 0;  // groups to the fourth row, if there is one
    const auto* integers = bytes ? reinterpret_cast<const uint8_t*>(a.bytes) : reinterpret_cast<const uint8_t*>(a.words);
    const uint8_t* x = integers + at * record;
    const uint8_t* x_3 = x + fourth * record;
    const float *scales = a.scales + at, *scales_3 = scales + fourth;
    int64_t stride = a.groups;
    KEEP_POINTER(stride);
    __m256 acc[2][R];
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r)
            acc[h][r] = first ? _mm256_loadu_ps(out + r * out_stride + h * 8) : _mm256_setzero_ps();
    for (int g = 0; g < count; ++g) {
        for (int part = 0; part < parts; ++part) {
            const uint8_t(*weights)[kTileRows * 4] = panel.lines + (g * parts + part) * lines;
            KEEP_POINTER(x);
            KEEP_POINTER(x_3);
            __m256i dots[2][R];
            for (int h = 0; h < 2; ++h)
                for (int r = 0; r < R; ++r) dots[h][r] = _mm256_setzero_si256();
#pragma GCC unroll 16
            for (int line = 0; line < lines; ++line) {
                const __m256i w0 = load_bytes(weights[line]), w1 = load_bytes(weights[line] + 32);
                for (int r = 0; r < R; ++r) {
                    const uint8_t* from = r < 3 ? x + r * stride * record : x_3 + (r - 3) * stride * record;
                    const __m256i activations = broadcast_dword(from + line * 4);
                    dots[0][r] = add_products<bytes>(dots[0][r], w0, activations);
                    dots[1][r] = add_products<bytes>(dots[1][r], w1, activations);
                    KEEP(dots[0][r]);
                    KEEP(dots[1][r]);
                }
            }
            for (int h = 0; h < 2; ++h) {
                const __m256 weight_scales = _mm256_load_ps(panel.scales[g * parts + part] + h * 8);
                for (int r = 0; r < R; ++r) {
                    if constexpr (bytes) dots[h][r] = _mm256_madd_epi16(dots[h][r], _mm256_set1_epi16(1));
                    acc[h][r] = accumulate(acc[h][r], dots[h][r], weight_scales,
                                           r < 3 ? scales[r * stride + g] : scales_3[(r - 3) * stride + g]);
                }
            }
            x += lines * 4;
            x_3 += lines * 4;
        }
    }
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r) _mm256_storeu_ps(out + r * out_stride + h * 8, acc[h][r]);
}

// out += sum over groups of minimum * sum of the group's activations, for R rows of one tile.
template <Format kFormat, int R>
static void add_minimums(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out,
                         int64_t out_stride) {
    const float* sums = a.sums + static_cast<int64_t>(row) * a.groups;
    const int64_t base = static_cast<int64_t>(tile) * w.groups;
    __m256 acc[2][R];
    for (int h = 0; h < 2; ++h)
        for (int r = 0; r < R; ++r) acc[h][r] = _mm256_setzero_ps();
    for (int g = 0; g < w.groups; ++g) {
        const __m256 m0 = native(load_minimums<kFormat>(w, base + g, 0));
        const __m256 m1 = native(load_minimums<kFormat>(w, base + g, 8));
        for (int r = 0; r < R; ++r) {
            const __m256 sum = _mm256_set1_ps(sums[static_cast<int64_t>(r) * a.groups + g]);
            acc[0][r] = _mm256_fmadd_ps(m0, sum, acc[0][r]);
            acc[1][r] = _mm256_fmadd_ps(m1, sum, acc[1][r]);
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
template <Format kFormat>
LANES void prefetch_groups(const MatrixView& w, int tile, int first, int count, int at, int pieces) {
    const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
    const int lines = count * kGroupBytes<kFormat> / 64, step = (lines + pieces - 1) / pieces;
    const int end = (at + 1) * step < lines ? (at + 1) * step : lines;
    for (int line = at * step; line < end; ++line) prefetch_line(w.data, group * kGroupBytes<kFormat> + line * 64);
    if (at != 0) return;
    constexpr IntegerLayout layout = kLayout<kFormat>;
    const int64_t scales_end = (group + count + layout.run - 1) / layout.run * layout.record_bytes();
    for (int64_t i = group / layout.run * layout.record_bytes(); i < scales_end; i += 64) prefetch_line(w.scales, i);
}

// Groups outside, tiles inside: the activations of a panel's groups are few enough for the caches whatever the width of
// the matrix. The weights of the next panels are asked for while these are multiplied.
template <Format kFormat, ActivationType kType>
static void multiply_many(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    constexpr int panel_groups = kPanelLines / kGroupLines<kFormat, kType>;
    Panel panels[kPanelTiles];
    const int chunks = (w.groups + panel_groups - 1) / panel_groups, most = (w.groups + chunks - 1) / chunks;
    const int row_blocks = (row_end - row_begin + kMaxRows - 1) / kMaxRows;
    for (int first = 0; first < w.groups; first += most) {
        for (int tile = tile_begin; tile < tile_end; tile += kPanelTiles) {
            const auto count = [&](int from) { return w.groups - from < most ? w.groups - from : most; };
            const int tiles = tile_end - tile < kPanelTiles ? tile_end - tile : kPanelTiles;
            for (int i = 0; i < tiles; ++i) fill_panel<kFormat, kType>(w, tile + i, first, count(first), panels[i]);
            const bool last = tile + kPanelTiles >= tile_end;
            const int next = last ? tile_begin : tile + kPanelTiles, next_first = last ? first + most : first;
            int block = 0;
            over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
                for (int i = 0; i < tiles; ++i) {
                    if (next_first < w.groups && next + i < tile_end)
                        prefetch_groups<kFormat>(w, next + i, next_first, count(next_first), block, row_blocks);
                    multiply_panel<kFormat, kType, rows.count>(panels[i], first, count(first), a, row,
                                                               out + row * out_stride + (tile + i) * kTileRows, out_stride);
                }
                ++block;
            });
        }
    }
    if constexpr (kLayout<kFormat>.minimum == Minimum::None) return;
    for (int tile = tile_begin; tile < tile_end; ++tile)
        over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
            add_minimums<kFormat, rows.count>(w, tile, a, row, out + row * out_stride + tile * kTileRows, out_stride);
        });
}
