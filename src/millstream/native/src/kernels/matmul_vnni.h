// Integer matrix products for AVX-512 VNNI. A vector is a tile of 16 output rows.
//
// As for AVX2, a few activation rows are multiplied straight from the packed weights, more rows from a panel of weights
// widened to 16 bits. The one instruction of its own is dot_words: acc[i] += the dot product of the two 16-bit integers in
// lane i. Included only by avx512.cpp and amx.cpp, inside the level's own namespace.

typedef int16_t W32 __attribute__((vector_size(64)));
typedef uint16_t U32 __attribute__((vector_size(64)));

constexpr int kPairs = kGroup / 2;
constexpr int kPanelGroups = 16;  // groups of a tile widened at a time, at most: 16 KiB
constexpr int kMaxRows = 8;       // activation rows of a block

LANES I16x32 broadcast_pair(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return pair - I16x32{};
}

LANES FW load_scales(const void* scales, bool half, int64_t i) {
    return half ? load_half_wide(static_cast<const uint16_t*>(scales) + i)
                : load_wide(static_cast<const float*>(scales) + i);
}

// acc + dots * (weight scales * activation scale)
LANES FW accumulate(FW acc, I16x32 dots, FW weight_scales, float scale) {
    return acc + __builtin_convertvector(dots, FW) * (weight_scales * splat_wide(scale));
}

template <Format kFormat>
constexpr int kGroupBytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;

template <Format kFormat>
constexpr int kParts = kFormat == Format::I8G16 ? 2 : 1;  // scales per group

// Pairs of inputs of one group as 16-bit integers, in the order of ActivationsView::words: a quad of weights gives two
// pairs, its even and its odd bytes.
template <Format kFormat>
LANES void widen(const uint8_t* w, I16x32* pairs) {
    if constexpr (kFormat == Format::U4) {
        for (int quad = 0; quad < 4; ++quad) {
            U32 packed;
            __builtin_memcpy(&packed, w + quad * 64, sizeof packed);
            pairs[quad * 2] = reinterpret_cast<I16x32>(packed & 15);
            pairs[quad * 2 + 1] = reinterpret_cast<I16x32>((packed >> 8) & 15);
            pairs[quad * 2 + 8] = reinterpret_cast<I16x32>((packed >> 4) & 15);
            pairs[quad * 2 + 9] = reinterpret_cast<I16x32>(packed >> 12);
        }
    } else {
        for (int quad = 0; quad < 8; ++quad) {
            W32 bytes;
            __builtin_memcpy(&bytes, w + quad * 64, sizeof bytes);
            pairs[quad * 2] = reinterpret_cast<I16x32>(reinterpret_cast<W32>(reinterpret_cast<U32>(bytes) << 8) >> 8);
            pairs[quad * 2 + 1] = reinterpret_cast<I16x32>(bytes >> 8);
        }
    }
}

// Adds `count` groups from `first` on to R rows of one tile's outputs, which are written anew if `first` is 0. `pairs` and
// `weight_scales` belong to these groups.
template <Format kFormat, int R>
LANES void multiply_pairs(const I16x32* pairs, const FW* weight_scales, int first, int count, const ActivationsView& a,
                          int row, float* out, int64_t out_stride) {
    const int64_t at = static_cast<int64_t>(row) * a.groups + first;
    FW acc[R];
    for (int r = 0; r < R; ++r) acc[r] = first ? load_wide(out + r * out_stride) : FW{};
    for (int i = 0; i < count * kParts<kFormat>; ++i) {
        constexpr int n = kPairs / kParts<kFormat>;
        const int16_t* x = a.words + at * kGroup + i * n * 2;
        I16x32 dots[R];
        for (int r = 0; r < R; ++r) dots[r] = I16x32{};
        for (int pair = 0; pair < n; ++pair)
            for (int r = 0; r < R; ++r)
                dots[r] = dot_words(dots[r], pairs[i * n + pair],
                                    broadcast_pair(x + static_cast<int64_t>(r) * a.groups * kGroup + pair * 2));
        for (int r = 0; r < R; ++r) {
            const float scale = a.scales[at + static_cast<int64_t>(r) * a.groups + i / kParts<kFormat>];
            acc[r] = accumulate(acc[r], dots[r], weight_scales[i], scale);
        }
    }
    for (int r = 0; r < R; ++r) store_wide(out + r * out_stride, acc[r]);
}

// out += sum over groups of minimum * sum of the group's activations, for R rows of one tile.
template <int R>
LANES void add_minimums(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out, int64_t out_stride) {
    const float* sums = a.sums + static_cast<int64_t>(row) * a.groups;
    FW acc[R];
    for (int r = 0; r < R; ++r) acc[r] = FW{};
    for (int g = 0; g < w.groups; ++g) {
        const FW mins = load_scales(w.mins, w.half_scales, (static_cast<int64_t>(tile) * w.groups + g) * kTileRows);
        for (int r = 0; r < R; ++r)
            acc[r] = acc[r] + mins * splat_wide(sums[static_cast<int64_t>(r) * a.groups + g]);
    }
    for (int r = 0; r < R; ++r) store_wide(out + r * out_stride, load_wide(out + r * out_stride) + acc[r]);
}

template <int R>
struct Rows {
    static constexpr int count = R;
};

// Calls body(Rows<R>, row) for blocks of rows.
template <class Body>
LANES void over_row_blocks(int row, int row_end, const Body& body) {
    for (; row + kMaxRows <= row_end; row += kMaxRows) body(Rows<kMaxRows>{}, row);
    for (; row + 4 <= row_end; row += 4) body(Rows<4>{}, row);
    for (; row + 2 <= row_end; row += 2) body(Rows<2>{}, row);
    if (row < row_end) body(Rows<1>{}, row);
}

static void add_all_minimums(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                             int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile)
        over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
            add_minimums<rows.count>(w, tile, a, row, out + row * out_stride + tile * kTileRows, out_stride);
        });
}

// Rows of one tile from weights widened a group at a time: for few rows, when the memory takes longer than the products.
template <Format kFormat>
static void multiply_few(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                         int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        for (int g = 0; g < w.groups; ++g) {
            const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
            I16x32 pairs[kPairs];
            FW scales[kParts<kFormat>];
            widen<kFormat>(w.data + group * kGroupBytes<kFormat>, pairs);
            for (int i = 0; i < kParts<kFormat>; ++i)
                scales[i] = load_scales(w.scales, w.half_scales, (group * kParts<kFormat> + i) * kTileRows);
            over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
                multiply_pairs<kFormat, rows.count>(pairs, scales, g, 1, a, row, out + row * out_stride + tile * kTileRows,
                                                    out_stride);
            });
        }
    }
}

// More rows: groups outside, tiles inside, so that the activations of a panel's groups stay in the caches.
template <Format kFormat>
static void multiply_many(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    I16x32 pairs[kPanelGroups * kPairs];
    FW scales[kPanelGroups * 2];
    const int panels = (w.groups + kPanelGroups - 1) / kPanelGroups, most = panels ? (w.groups + panels - 1) / panels : 1;
    for (int first = 0; first < w.groups; first += most) {
        const int count = w.groups - first < most ? w.groups - first : most;
        for (int tile = tile_begin; tile < tile_end; ++tile) {
            const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
            for (int g = 0; g < count; ++g)
                widen<kFormat>(w.data + (group + g) * kGroupBytes<kFormat>, pairs + g * kPairs);
            for (int i = 0; i < count * kParts<kFormat>; ++i)
                scales[i] = load_scales(w.scales, w.half_scales, (group * kParts<kFormat> + i) * kTileRows);
            over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
                multiply_pairs<kFormat, rows.count>(pairs, scales, first, count, a, row,
                                                    out + row * out_stride + tile * kTileRows, out_stride);
            });
        }
    }
}

template <Format kFormat>
static void multiply_vnni(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    const auto multiply = row_end - row_begin <= 4 ? multiply_few<kFormat> : multiply_many<kFormat>;
    multiply(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    if (w.mins) add_all_minimums(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
