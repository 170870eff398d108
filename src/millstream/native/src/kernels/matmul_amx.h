// Integer matrix products with AMX: blocks of 16 activation rows times a tile of 16 output rows, the high and the low bytes
// of the activations apart, a group (or half a group, if scales are that fine) at a time. Rows that do not fill a block
// are left to VNNI. Included only by amx.cpp, inside the level's own namespace.

constexpr int kBlockRows = 16;

template <Format kFormat>
LANES TileConfig tile_shapes() {
    constexpr int inputs = kGroup / kParts<kFormat>;
    TileConfig config;
    for (int t = kHighSums; t <= kWeights; ++t) {
        const bool activations = t == kHighActivations || t == kLowActivations;
        config.rows[t] = t == kWeights ? inputs / 4 : kBlockRows;
        config.row_bytes[t] = activations ? inputs : 64;
    }
    return config;
}

// Some groups of one tile: quads as bytes, and f32 scales.
struct BytePanel {
    alignas(64) uint8_t quads[kPanelGroups][kGroup / 4][64];
    FW scales[kPanelGroups * 2];
};

template <Format kFormat>
static void fill_panel(const MatrixView& w, int tile, int first, int count, BytePanel& panel) {
    const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
    for (int g = 0; g < count; ++g) {
        const uint8_t* bytes = w.data + (group + g) * kGroupBytes<kFormat>;
        if constexpr (kFormat == Format::U4) {
            for (int i = 0; i < 256; ++i) {
                panel.quads[g][i / 64][i % 64] = bytes[i] & 15;
                panel.quads[g][i / 64 + 4][i % 64] = bytes[i] >> 4;
            }
        } else {
            __builtin_memcpy(panel.quads[g], bytes, sizeof panel.quads[g]);
        }
    }
    for (int i = 0; i < count * kParts<kFormat>; ++i)
        panel.scales[i] = load_scales(w.scales, w.half_scales, (group * kParts<kFormat> + i) * kTileRows);
}

// As multiply_pairs, for 16 rows.
template <Format kFormat>
static void multiply_block(const BytePanel& panel, int first, int count, const ActivationsView& a, int row, float* out,
                           int64_t out_stride) {
    constexpr int parts = kParts<kFormat>, inputs = kGroup / parts;
    const int64_t at = static_cast<int64_t>(row) * a.groups + first, row_bytes = int64_t{a.groups} * 2 * kGroup;
    alignas(64) int32_t high[kBlockRows][kTileRows], low[kBlockRows][kTileRows];
    FW acc[kBlockRows];
    for (int r = 0; r < kBlockRows; ++r) acc[r] = first ? load_wide(out + r * out_stride) : FW{};
    for (int i = 0; i < count * parts; ++i) {
        const int8_t* x = a.bytes + (at + i / parts) * 2 * kGroup + i % parts * inputs;
        tile_load(kHighActivations, x, row_bytes);
        tile_load(kLowActivations, x + kGroup, row_bytes);
        tile_load(kWeights, panel.quads[i / parts][i % parts * inputs / 4], 64);
        multiply_tiles<kFormat != Format::U4>();
        tile_store(kHighSums, high, 64);
        tile_store(kLowSums, low, 64);
        for (int r = 0; r < kBlockRows; ++r) {
            I16x32 dots, low_dots;
            __builtin_memcpy(&dots, high[r], sizeof dots);
            __builtin_memcpy(&low_dots, low[r], sizeof low_dots);
            dots = (dots << 8) + low_dots;
            const float scale = a.scales[at + static_cast<int64_t>(r) * a.groups + i / parts];
            acc[r] = accumulate(acc[r], dots, panel.scales[i], scale);
        }
    }
    for (int r = 0; r < kBlockRows; ++r) store_wide(out + r * out_stride, acc[r]);
}

template <Format kFormat>
static void multiply_amx(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                         int row_end, float* out, int64_t out_stride) {
    const int blocks_end = row_begin + (row_end - row_begin) / kBlockRows * kBlockRows;
    if (blocks_end < row_end) multiply_vnni<kFormat>(w, tile_begin, tile_end, a, blocks_end, row_end, out, out_stride);
    if (blocks_end == row_begin) return;
    configure_tiles(tile_shapes<kFormat>());
    BytePanel panel;
    for (int first = 0; first < w.groups; first += kPanelGroups) {
        const int count = w.groups - first < kPanelGroups ? w.groups - first : kPanelGroups;
        for (int tile = tile_begin; tile < tile_end; ++tile) {
            fill_panel<kFormat>(w, tile, first, count, panel);
            for (int row = row_begin; row < blocks_end; row += kBlockRows)
                multiply_block<kFormat>(panel, first, count, a, row, out + row * out_stride + tile * kTileRows, out_stride);
        }
    }
    release_tiles();
    if (w.mins) add_all_minimums(w, tile_begin, tile_end, a, row_begin, blocks_end, out, out_stride);
}
