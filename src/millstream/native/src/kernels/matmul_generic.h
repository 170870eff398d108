// Integer matrix products in portable C++: the reference that every other level equals bit for bit.
// Included only by the levels' .cpp files, inside the level's own namespace.

LANES F8 load_scales8(const void* scales, bool half, int64_t i) {
    return half ? load_half8(static_cast<const uint16_t*>(scales) + i) : load8(static_cast<const float*>(scales) + i);
}

LANES F8 to_float8(const int32_t* p) {
    I8x32 v;
    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, F8);
}

// Position of input j of a quad within its four words (see ActivationsView).
LANES int quad_order(int j) { return j == 1 ? 2 : j == 2 ? 1 : j; }

// dots[lane] = sum over quads [begin, end) of one group's weights times activations.
static void dot_u4(const uint8_t* w, const int16_t* x, int32_t* dots) {
    for (int lane = 0; lane < kTileRows; ++lane) dots[lane] = 0;
    for (int quad = 0; quad < 4; ++quad) {
        for (int lane = 0; lane < kTileRows; ++lane) {
            const uint8_t* bytes = w + (quad * kTileRows + lane) * 4;
            int32_t sum = 0;
            for (int j = 0; j < 4; ++j) {
                sum += (bytes[j] & 15) * x[quad * 4 + quad_order(j)];
                sum += (bytes[j] >> 4) * x[(quad + 4) * 4 + quad_order(j)];
            }
            dots[lane] += sum;
        }
    }
}

static void dot_i8(const int8_t* w, const int16_t* x, int begin, int end, int32_t* dots) {
    for (int lane = 0; lane < kTileRows; ++lane) dots[lane] = 0;
    for (int quad = begin; quad < end; ++quad) {
        for (int lane = 0; lane < kTileRows; ++lane) {
            const int8_t* bytes = w + (quad * kTileRows + lane) * 4;
            for (int j = 0; j < 4; ++j) dots[lane] += bytes[j] * x[quad * 4 + quad_order(j)];
        }
    }
}

// One tile times one activation row.
template <Format kFormat>
static void matmul_tile(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out) {
    constexpr int parts = kParts<kFormat>;
    F8 acc[2] = {}, acc_min[2] = {};
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        const uint8_t* bytes = w.data + group * kGroupBytes<kFormat>;
        const int64_t at = static_cast<int64_t>(row) * a.groups + g;
        const int16_t* x = a.words + at * kGroup;
        for (int part = 0; part < parts; ++part) {
            int32_t dots[kTileRows];
            if constexpr (kFormat == Format::U4) {
                dot_u4(bytes, x, dots);
            } else {
                const auto* weights = reinterpret_cast<const int8_t*>(bytes);
                dot_i8(weights, x, part * 8 / parts, (part + 1) * 8 / parts, dots);
            }
            const int64_t scale_base = (group * parts + part) * kTileRows;
            for (int half = 0; half < 2; ++half) {
                const F8 factors = load_scales8(w.scales, w.half_scales, scale_base + half * 8) * splat(a.scales[at]);
                acc[half] = fused(to_float8(dots + half * 8), factors, acc[half]);
            }
        }
        if (!w.mins) continue;
        for (int half = 0; half < 2; ++half) {
            const F8 mins = load_scales8(w.mins, w.half_scales, group * kTileRows + half * 8);
            acc_min[half] = fused(mins, splat(a.sums[at]), acc_min[half]);
        }
    }
    for (int half = 0; half < 2; ++half) store8(out + half * 8, w.mins ? acc[half] + acc_min[half] : acc[half]);
}

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile)
        for (int row = row_begin; row < row_end; ++row)
            matmul_tile<kFormat>(w, tile, a, row, out + row * out_stride + tile * kTileRows);
}
