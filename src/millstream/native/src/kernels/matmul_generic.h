// Integer matrix products in portable C++: the reference that every other level equals bit for bit.
// Included only by the levels' .cpp files, inside the level's own namespace.

LANES F8 to_float8(const int32_t* p) {
    I8x32 v;
    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, F8);
}

// Position of input j of a quad within its four words (see ActivationsView).
LANES int quad_order(int j) { return j == 1 ? 2 : j == 2 ? 1 : j; }

// Rows of activations that share the widened weights of a group.
constexpr int kSharedRows = 16;

// The weights of one group of a tile as [16 rows][32 inputs], inputs in the order of ActivationsView::words: a dword of four
// bytes gives the pair of its even bytes and that of its odd ones.
template <Format kFormat>
static void widen(const uint8_t* w, int16_t (*to)[kGroup]) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    constexpr int upper_bits = layout.bits - 4, quads = 8 / (upper_bits ? upper_bits : 8);  // of a line of upper bits
    constexpr uint32_t upper_mask = ((1u << upper_bits) - 1) * 0x01010101;
    for (int quad = 0; quad < (kNibbles<kFormat> ? 4 : 8); ++quad)
        for (int lane = 0; lane < kTileRows; ++lane) {
            const auto line = [&](int i) {
                uint32_t bytes;
                __builtin_memcpy(&bytes, w + (i * kTileRows + lane) * 4, sizeof bytes);
                return bytes;
            };
            int16_t* words = to[lane] + quad * 4;
            if constexpr (kNibbles<kFormat>) {
                const uint32_t bytes = line(quad);
                for (int nibble = 0; nibble < 2; ++nibble) {
                    const uint32_t pairs[2] = {bytes >> nibble * 4 & 0x000f000f, bytes >> (nibble * 4 + 8) & 0x000f000f};
                    __builtin_memcpy(words + nibble * kGroup / 2, pairs, sizeof pairs);
                }
            } else if constexpr (layout.bits == 8) {
                const uint32_t bytes = line(quad);
                for (int j = 0; j < 4; ++j) words[quad_order(j)] = static_cast<int8_t>(bytes >> j * 8);
            } else {
                const uint32_t low = line(quad % 4) >> quad / 4 * 4 & 0x0f0f0f0f;
                const uint32_t bytes = low | (line(4 + quad / quads) >> quad % quads * upper_bits & upper_mask) << 4;
                for (int j = 0; j < 4; ++j) words[quad_order(j)] = static_cast<int16_t>((bytes >> j * 8 & 255) - layout.offset);
            }
        }
}

// dots[lane] = sum over n inputs of widened weights times activations.
template <int n>
LANES void dot_rows(const int16_t (*w)[kGroup], const int16_t* x, int32_t* dots) {
    for (int lane = 0; lane < kTileRows; ++lane) {
        int32_t sum = 0;
        for (int k = 0; k < n; ++k) sum += w[lane][k] * x[k];
        dots[lane] = sum;
    }
}

// One tile times `rows` rows of activations, at most kSharedRows.
template <Format kFormat>
static void matmul_tile(const MatrixView& w, int tile, const ActivationsView& a, int row, int rows, float* out,
                        int64_t out_stride) {
    constexpr int parts = kParts<kFormat>, inputs = kGroup / parts;
    constexpr bool minimums = kLayout<kFormat>.minimum != Minimum::None;
    F8 acc[kSharedRows][2] = {}, acc_min[kSharedRows][2] = {};
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        alignas(64) int16_t weights[kTileRows][kGroup];
        widen<kFormat>(w.data + group * kGroupBytes<kFormat>, weights);
        F8 scales[parts * 2], mins[2] = {};
        for (int i = 0; i < parts * 2; ++i) scales[i] = load_scales<kFormat>(w, group, i / 2, i % 2 * 8);
        for (int half = 0; half < 2 && minimums; ++half) mins[half] = load_minimums<kFormat>(w, group, half * 8);
        for (int r = 0; r < rows; ++r) {
            const int64_t at = static_cast<int64_t>(row + r) * a.groups + g;
            const int16_t* x = a.words + at * kGroup;
            for (int part = 0; part < parts; ++part) {
                int32_t dots[kTileRows];
                dot_rows<inputs>(reinterpret_cast<const int16_t(*)[kGroup]>(&weights[0][part * inputs]), x + part * inputs, dots);
                for (int half = 0; half < 2; ++half) {
                    const F8 factors = scales[part * 2 + half] * splat(a.scales[at]);
                    acc[r][half] = fused(to_float8(dots + half * 8), factors, acc[r][half]);
                }
            }
            for (int half = 0; half < 2 && minimums; ++half)
                acc_min[r][half] = fused(mins[half], splat(a.sums[at]), acc_min[r][half]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < 2; ++half)
            store8(out + r * out_stride + half * 8, minimums ? acc[r][half] + acc_min[r][half] : acc[r][half]);
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile)
        for (int row = row_begin; row < row_end; row += kSharedRows) {
            const int rows = row_end - row < kSharedRows ? row_end - row : kSharedRows;
            matmul_tile<kFormat>(w, tile, a, row, rows, out + row * out_stride + tile * kTileRows, out_stride);
        }
}
