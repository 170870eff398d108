// Integer matrix products with AMX: 16 activation rows times a tile of 16 output rows, a group (or half a group, if scales
// are that fine) at a time. Rows that do not fill a block of 16 are left to VNNI. Included only by amx.cpp, inside the
// level's own namespace.
//
// Nibbles take activations of 16 * high + low in one product of 64 bytes, [high | low] times [16 * w | w], whose results are
// the exact sums of a group. 8-bit weights have no room for the factor: the halves are multiplied apart.
//
// To convert, scale and sum the 256 results of a product takes the vector units at least as long as the product takes the
// tile unit. So the two work at the same time on different stages: while the tile unit makes the products of a stage, the
// results of the stage before are summed, a quarter of each in turns. Up to two tiles of weights and two blocks of rows
// share what is loaded, and sums stay in registers for all groups of a stage.

constexpr int kBlockRows = 16;
constexpr int kProducts = 4;     // of a stage, for each of its up to four pairs of a tile and a block
constexpr int kSweepGroups = 8;  // that all rows pass before the next; the nibbles of two tiles, unpacked, take 16 KiB

// Tile registers: results of pairs (tile * 2 + block), activations of two blocks, weights of two tiles.
constexpr int kActivations = 4, kWeights = 6;

template <Format kFormat, ActivationType kType>
struct Shape {
    static constexpr bool nibbles = kFormat == Format::U4;
    static constexpr int parts = kParts<kFormat>;  // of a group
    static constexpr int halves = kType == ActivationType::I12 && !nibbles ? 2 : 1;
    static constexpr int depth = nibbles ? activation_bytes(kType) : kGroup / parts;  // bytes of a product's row
    static constexpr int stage_parts = kProducts / halves;
};

template <Format kFormat, ActivationType kType>
LANES TileConfig tile_shapes() {
    constexpr int depth = Shape<kFormat, kType>::depth;
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
        config.rows[t] = t < kWeights ? kBlockRows : depth / 4;
        config.row_bytes[t] = t >= kActivations && t < kWeights ? depth : 64;
    }
    return config;
}

using Results = int32_t[kProducts][4][kBlockRows][kTileRows];  // [product][pair]

// Parts of groups, of some tiles and blocks of rows. No tiles: nothing to do.
struct Stage {
    int tile = 0, tiles = 0, row = 0, blocks = 0, part = 0, parts = 0;
    Results* results = nullptr;
};

struct Operands {
    const MatrixView& w;
    const ActivationsView& a;
    float* out;
    int64_t out_stride;
};

// The groups of a sweep, from `first` on, of two tiles: nibbles as bytes.
struct BytePanel {
    I16x32 lines[2][kSweepGroups * 16];
    int first;
};

// Product i of a stage of T tiles and B blocks, into the tile registers.
template <Format kFormat, ActivationType kType, int T, int B>
LANES void multiply_tiles(const Operands& x, const BytePanel& panel, const Stage& stage, int i) {
    using S = Shape<kFormat, kType>;
    const int half = i % S::halves, part = stage.part + i / S::halves;
    const int64_t row_bytes = int64_t{x.a.groups} * activation_bytes(kType);
    const int8_t* activations = x.a.bytes + stage.row * row_bytes + part / S::parts * activation_bytes(kType) +
                                part % S::parts * S::depth + half * kGroup;
    const auto load_weights = [&]<int kTile>() {
        if constexpr (S::nibbles) {
            tile_load<kWeights + kTile>(panel.lines[kTile] + (part - panel.first) * (S::depth / 4), 64);
        } else {
            const int64_t at = static_cast<int64_t>(stage.tile + kTile) * x.w.groups * S::parts + part;
            tile_load<kWeights + kTile>(x.w.data + at * S::depth * kTileRows, 64);
        }
    };
    const auto multiply = [&]<int kTile, int kBlock>() {
        tile_zero<kTile * 2 + kBlock>();
        tile_products<!S::nibbles, kTile * 2 + kBlock, kActivations + kBlock, kWeights + kTile>();
    };
    tile_load<kActivations>(activations, row_bytes);
    if (half == 0) load_weights.template operator()<0>();
    multiply.template operator()<0, 0>();
    if constexpr (B > 1) {
        tile_load<kActivations + 1>(activations + kBlockRows * row_bytes, row_bytes);
        multiply.template operator()<0, 1>();
    }
    if constexpr (T > 1) {
        if (half == 0) load_weights.template operator()<1>();
        multiply.template operator()<1, 0>();
        if constexpr (B > 1) multiply.template operator()<1, 1>();
    }
}

template <int T, int B>
LANES void store_results(int32_t (*pairs)[kBlockRows][kTileRows]) {
    tile_store<0>(pairs[0], 64);
    if constexpr (B > 1) tile_store<1>(pairs[1], 64);
    if constexpr (T > 1) tile_store<2>(pairs[2], 64);
    if constexpr (T > 1 && B > 1) tile_store<3>(pairs[3], 64);
}

// Adds the results of one pair of a stage to its outputs, which are written anew by the first stage.
template <Format kFormat, ActivationType kType>
LANES void sum_results(const Operands& x, const Stage& stage, int tile, int block) {
    using S = Shape<kFormat, kType>;
    const int row = stage.row + block * kBlockRows;
    float* out = x.out + row * x.out_stride + (stage.tile + tile) * kTileRows;
    FW acc[kBlockRows];
    for (int r = 0; r < kBlockRows; ++r) acc[r] = stage.part ? load_wide(out + r * x.out_stride) : FW{};
    for (int i = 0; i < stage.parts; ++i) {
        const int part = stage.part + i;
        const int64_t at = static_cast<int64_t>(stage.tile + tile) * x.w.groups * S::parts + part;
        const FW weight_scales = load_scales(x.w.scales, x.w.half_scales, at * kTileRows);
        const float* scales = x.a.scales + static_cast<int64_t>(row) * x.a.groups + part / S::parts;
        for (int r = 0; r < kBlockRows; ++r) {
            const auto result = [&](int half) {
                I16x32 v;
                __builtin_memcpy(&v, (*stage.results)[i * S::halves + half][tile * 2 + block][r], sizeof v);
                return v;
            };
            I16x32 dots = result(0);
            if constexpr (S::halves == 2) dots = (dots << 4) + result(1);
            acc[r] = accumulate(acc[r], dots, weight_scales, scales[static_cast<int64_t>(r) * x.a.groups]);
        }
    }
    for (int r = 0; r < kBlockRows; ++r) store_wide(out + r * x.out_stride, acc[r]);
}

// The products of `now`, which has T tiles and B blocks, and the sums of `before`.
template <Format kFormat, ActivationType kType, int T, int B>
static void run_stage(const Operands& x, const BytePanel& panel, const Stage& now, const Stage& before) {
    for (int i = 0; i < kProducts; ++i) {
        const bool multiplies = i < now.parts * Shape<kFormat, kType>::halves;
        if (multiplies) multiply_tiles<kFormat, kType, T, B>(x, panel, now, i);
        const int two = before.blocks - 1;  // blocks, not one
        if (i < before.tiles * before.blocks) sum_results<kFormat, kType>(x, before, i >> two, i & two);
        if (multiplies) store_results<T, B>((*now.results)[i]);
    }
}

template <Format kFormat, ActivationType kType>
static void multiply_blocks(const Operands& x, int tile_begin, int tile_end, int row_begin, int row_end) {
    using S = Shape<kFormat, kType>;
    constexpr int group_lines = S::depth / 4;
    alignas(64) Results results[2];
    BytePanel panel;
    Stage before;
    int turn = 0;
    const auto run = [&](const Stage& now) {
        const auto stage = now.tiles == 2 ? now.blocks == 2 ? run_stage<kFormat, kType, 2, 2> : run_stage<kFormat, kType, 2, 1>
                           : now.blocks == 2 ? run_stage<kFormat, kType, 1, 2> : run_stage<kFormat, kType, 1, 1>;
        stage(x, panel, now, before);
        before = now;
    };
    for (int first = 0; first < x.w.groups; first += kSweepGroups) {
        const int groups = x.w.groups - first < kSweepGroups ? x.w.groups - first : kSweepGroups;
        for (int tile = tile_begin; tile < tile_end; tile += 2) {
            const int tiles = tile_end - tile < 2 ? 1 : 2;
            panel.first = first;
            if constexpr (S::nibbles)
                for (int t = 0; t < tiles; ++t)
                    for (int g = 0; g < groups; ++g) {
                        const int64_t group = static_cast<int64_t>(tile + t) * x.w.groups + first + g;
                        unpack<kFormat, kType>(x.w.data + group * kGroupBytes<kFormat>, panel.lines[t] + g * group_lines);
                    }
            for (int row = row_begin; row < row_end; row += 2 * kBlockRows) {
                const int blocks = row_end - row < 2 * kBlockRows ? 1 : 2, end = (first + groups) * S::parts;
                for (int part = first * S::parts; part < end; part += S::stage_parts) {
                    const int parts = end - part < S::stage_parts ? end - part : S::stage_parts;
                    run({tile, tiles, row, blocks, part, parts, &results[turn]});
                    turn ^= 1;
                }
            }
        }
    }
    run_stage<kFormat, kType, 1, 1>(x, panel, Stage{}, before);
}

template <Format kFormat, ActivationType kType>
static void multiply_amx(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                         int row_end, float* out, int64_t out_stride) {
    const int blocks_end = row_begin + (row_end - row_begin) / kBlockRows * kBlockRows;
    if (blocks_end < row_end)
        multiply_vnni<kFormat, kType>(w, tile_begin, tile_end, a, blocks_end, row_end, out, out_stride);
    if (blocks_end == row_begin) return;
    configure_tiles(tile_shapes<kFormat, kType>());
    multiply_blocks<kFormat, kType>({w, a, out, out_stride}, tile_begin, tile_end, row_begin, blocks_end);
    release_tiles();
    if (w.mins) add_all_minimums(w, tile_begin, tile_end, a, row_begin, blocks_end, out, out_stride);
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    const auto kernel = a.type == ActivationType::I8 ? multiply_amx<kFormat, ActivationType::I8>
                                                     : multiply_amx<kFormat, ActivationType::I12>;
    kernel(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
