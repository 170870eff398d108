// Integer matrix products with AMX: blocks of 16 activation rows, the last of which may be shorter, times a tile of 16 output
// rows, a group (or half a group, if scales are that fine) at a time. Up to four rows are left to VNNI. Included only by
// amx.cpp, inside the level's own namespace.
//
// Nibbles take activations of 16 * high + low in one product of 64 bytes, [high | low] times [16 * w | w], whose results are
// the exact sums of a group. 8-bit weights have no room for the factor: the halves are multiplied apart.
//
// To convert, scale and sum the 256 results of a product takes the vector units longer than the product takes the tile unit.
// So the two work at the same time on different stages: while the tile unit makes the products of a stage, the results of
// the stage before are summed, eight rows of two tiles at a time. Stages and sweeps are so short that results, unpacked weights
// and most activations are in the first cache (48 KiB) when they are needed.

constexpr int kBlockRows = 16;
constexpr int kProducts = 4;     // of a stage, for each of its tiles; 8 rows are summed for every other one
constexpr int kSweepGroups = 4;  // that all rows pass before the next
static_assert(kProducts / 2 * kMaxRows == kBlockRows);

// Tile registers: results of two tiles with a full block and with the last block, activations of either block, weights of
// two tiles.
constexpr int kActivations = 4, kWeights = 6;

template <Format kFormat, ActivationType kType>
struct Shape {
    static constexpr Format format = kFormat;
    static constexpr ActivationType type = kType;
    static constexpr bool nibbles = kNibbles<kFormat>;
    static constexpr bool unpacked = kLayout<kFormat>.bits < 8;
    static constexpr int parts = kParts<kFormat>;  // of a group
    static constexpr int halves = kType == ActivationType::I12 && !nibbles ? 2 : 1;
    static constexpr int record = activation_bytes(kType);
    static constexpr int depth = nibbles ? record : kGroup / parts;  // bytes of a product's row
    static constexpr int stage_parts = kProducts / halves;
};

template <class S>
LANES TileConfig tile_shapes(int last_rows) {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
        const bool last = t == 2 || t == 3 || t == kActivations + 1;
        config.rows[t] = static_cast<uint8_t>(t >= kWeights ? S::depth / 4 : last ? last_rows : kBlockRows);
        config.row_bytes[t] = t >= kActivations && t < kWeights ? S::depth : 64;
    }
    return config;
}

using Results = int32_t[kProducts][2][kBlockRows][kTileRows];  // [product][tile]

// Parts of groups, of one or two tiles and a block of rows. No rows: nothing to do.
struct Stage {
    int tile = 0, tiles = 0, row = 0, rows = 0, part = 0, parts = 0;
    int64_t ahead = 0;  // groups from these to those that come after all rows, if it is time to ask for them
    Results* results = nullptr;
};

struct Operands {
    const MatrixView& w;
    const ActivationsView& a;
    float* out;
    int64_t out_stride;
};

// The groups of a sweep, from `first` on, of two tiles: what has fewer than eight bits as bytes.
struct BytePanel {
    I16x32 lines[2][kSweepGroups * 16];
    int first;
};

// The lines of one group as tiles take them.
template <Format kFormat, ActivationType kType>
LANES void unpack_bytes(const uint8_t* w, I16x32* lines) {
    if constexpr (kNibbles<kFormat>) {
        unpack<kFormat, kType>(w, lines);
    } else {
        for (int quad = 0; quad < 8; ++quad) lines[quad] = reinterpret_cast<I16x32>(load_quad<kFormat>(w, quad));
    }
}

// Product i of a stage of T tiles, into the tile registers.
template <class S, int T, bool kLast>
LANES void multiply_tiles(const Operands& x, const BytePanel& panel, const Stage& stage, int i) {
    constexpr int sums = kLast ? 2 : 0, activations = kActivations + kLast;
    const int half = i % S::halves, part = stage.part + i / S::halves;
    const int64_t row_bytes = int64_t{x.a.groups} * S::record;
    const auto load_weights = [&]<int kTile>() {
        if constexpr (S::unpacked) {
            tile_load<kWeights + kTile>(panel.lines[kTile] + (part - panel.first * S::parts) * (S::depth / 4), 64);
        } else {
            const int64_t at = static_cast<int64_t>(stage.tile + kTile) * x.w.groups * S::parts + part;
            tile_load<kWeights + kTile>(x.w.data + at * S::depth * kTileRows, 64);
        }
    };
    tile_load<activations>(x.a.bytes + stage.row * row_bytes + part / S::parts * S::record + part % S::parts * S::depth +
                               half * kGroup,
                           row_bytes);
    if (half == 0) load_weights.template operator()<0>();
    tile_zero<sums>();
    tile_products<!S::nibbles, sums, activations, kWeights>();
    if constexpr (T > 1) {
        if (half == 0) load_weights.template operator()<1>();
        tile_zero<sums + 1>();
        tile_products<!S::nibbles, sums + 1, activations, kWeights + 1>();
    }
    if (stage.ahead != 0 && half == 0 && part % S::parts == 0)
        for (int t = 0; t < T; ++t)
            prefetch_group<S::format>(x.w, int64_t{stage.tile + t} * x.w.groups + part / S::parts + stage.ahead);
}

// Adds the results of R rows of a stage of T tiles to their outputs, which are written anew by the first stage. `first` is
// the first of the rows, from the stage's own.
template <class S, int T, int R>
static void sum_rows(const Operands& x, const Stage& stage, int first) {
    const int row = stage.row + first;
    float* out = x.out + row * x.out_stride + stage.tile * kTileRows;
    FW acc[R * T];  // [row][tile]
#pragma GCC unroll 16  // else GCC keeps them in memory
    for (int k = 0; k < R * T; ++k)
        acc[k] = stage.part ? load_wide(out + k / T * x.out_stride + k % T * kTileRows) : FW{};
    for (int i = 0; i < stage.parts; ++i) {
        const int part = stage.part + i;
        FW weight_scales[T];
        for (int t = 0; t < T; ++t) {
            const int64_t group = static_cast<int64_t>(stage.tile + t) * x.w.groups + part / S::parts;
            weight_scales[t] = load_scales<S::format>(x.w, group, part % S::parts, 0);
        }
        const float* scales = x.a.scales + static_cast<int64_t>(row) * x.a.groups + part / S::parts;
#pragma GCC unroll 16
        for (int k = 0; k < R * T; ++k) {
            const auto result = [&](int half) {
                I16x32 v;
                __builtin_memcpy(&v, (*stage.results)[i * S::halves + half][k % T][first + k / T], sizeof v);
                return v;
            };
            I16x32 dots = result(0);
            if constexpr (S::halves == 2) dots = (dots << 4) + result(1);
            acc[k] = accumulate(acc[k], dots, weight_scales[k % T], scales[int64_t{k / T} * x.a.groups]);
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < R * T; ++k) store_wide(out + k / T * x.out_stride + k % T * kTileRows, acc[k]);
}

// The products of `now`, which has T tiles and a full block or the last, and the sums of `before`.
template <class S, int T, bool kLast>
static void run_stage(const Operands& x, const BytePanel& panel, const Stage& now, const Stage& before) {
    for (int i = 0; i < kProducts; ++i) {
        const bool multiplies = i < now.parts * S::halves;
        if (multiplies) multiply_tiles<S, T, kLast>(x, panel, now, i);
        const int first = i / 2 * kMaxRows, end = before.rows < first + kMaxRows ? before.rows : first + kMaxRows;
        if (i % 2 == 0)
            over_row_blocks(first, end, [&](auto rows, int row) {
                if (before.tiles == 2) sum_rows<S, 2, rows.count>(x, before, row);
                else sum_rows<S, 1, rows.count>(x, before, row);
            });
        if (!multiplies) continue;
        tile_store<kLast ? 2 : 0>((*now.results)[i][0], 64);
        if constexpr (T > 1) tile_store<kLast ? 3 : 1>((*now.results)[i][1], 64);
    }
}

// Nothing in here throws, so the tiles are released in any case.
template <class S>
static void multiply_blocks(const Operands& x, int tile_begin, int tile_end, int row_begin, int row_end) {
    constexpr int group_lines = S::depth * S::parts / 4;
    const int last_rows = (row_end - row_begin) % kBlockRows;
    configure_tiles(tile_shapes<S>(last_rows ? last_rows : kBlockRows));
    alignas(64) Results results[2];
    BytePanel panel;
    Stage before;
    int turn = 0;
    const auto run = [&](const Stage& now) {
        const bool last = now.rows < kBlockRows;
        const auto stage = now.tiles == 2 ? last ? run_stage<S, 2, true> : run_stage<S, 2, false>
                           : last ? run_stage<S, 1, true> : run_stage<S, 1, false>;
        stage(x, panel, now, before);
        before = now;
    };
    for (int first = 0; first < x.w.groups; first += kSweepGroups) {
        const int groups = x.w.groups - first < kSweepGroups ? x.w.groups - first : kSweepGroups;
        for (int tile = tile_begin; tile < tile_end; tile += 2) {
            const int tiles = tile_end - tile < 2 ? 1 : 2;
            const int64_t ahead = tile + 2 < tile_end ? int64_t{2} * x.w.groups
                                                      : kSweepGroups - int64_t{tile - tile_begin} * x.w.groups;
            panel.first = first;
            if constexpr (S::unpacked)
                for (int t = 0; t < tiles; ++t)
                    for (int g = 0; g < groups; ++g) {
                        const int64_t group = static_cast<int64_t>(tile + t) * x.w.groups + first + g;
                        unpack_bytes<S::format, S::type>(x.w.data + group * kGroupBytes<S::format>,
                                                   panel.lines[t] + g * group_lines);
                    }
            for (int row = row_begin; row < row_end; row += kBlockRows) {
                const int rows = row_end - row < kBlockRows ? row_end - row : kBlockRows, end = (first + groups) * S::parts;
                for (int part = first * S::parts; part < end; part += S::stage_parts) {
                    const int parts = end - part < S::stage_parts ? end - part : S::stage_parts;
                    run({tile, tiles, row, rows, part, parts, row == row_begin ? ahead : 0, &results[turn]});
                    turn ^= 1;
                }
            }
        }
    }
    run_stage<S, 1, false>(x, panel, Stage{}, before);
    release_tiles();
}

template <Format kFormat, ActivationType kType>
static void multiply_amx(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                         int row_end, float* out, int64_t out_stride) {
    if (row_end - row_begin <= kFewRows)
        return multiply_few<kFormat, kNibbleType<kFormat, kType>>(w, tile_begin, tile_end, a, row_begin, row_end, out,
                                                                  out_stride);
    multiply_blocks<Shape<kFormat, kType>>({w, a, out, out_stride}, tile_begin, tile_end, row_begin, row_end);
    add_all_minimums<kFormat>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    const auto kernel = a.type == ActivationType::I8 ? multiply_amx<kFormat, ActivationType::I8>
                                                     : multiply_amx<kFormat, ActivationType::I12>;
    kernel(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
