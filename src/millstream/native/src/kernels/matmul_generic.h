// Integer matrix products in portable C++: the reference that every other level equals bit for bit.
// Included only by the levels' .cpp files, inside the level's own namespace.

LANES float load_scale(const void* scales, bool half, int64_t i) {
    return half ? half_to_float(static_cast<const uint16_t*>(scales)[i]) : static_cast<const float*>(scales)[i];
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

// One tile times one activation row. kSplit: scales per 16 inputs.
template <bool kU4, bool kSplit>
static void matmul_tile(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out) {
    float acc[kTileRows] = {}, acc_min[kTileRows] = {};
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
        const uint8_t* bytes = w.data + group * (kU4 ? kTileRows * kGroup / 2 : kTileRows * kGroup);
        const int64_t at = static_cast<int64_t>(row) * a.groups + g;
        const int16_t* x = a.words + at * kGroup;
        for (int part = 0; part < (kSplit ? 2 : 1); ++part) {
            int32_t dots[kTileRows];
            if constexpr (kU4) {
                dot_u4(bytes, x, dots);
            } else {
                const auto* weights = reinterpret_cast<const int8_t*>(bytes);
                dot_i8(weights, x, kSplit ? part * 4 : 0, kSplit ? part * 4 + 4 : 8, dots);
            }
            const int64_t scale_base = (kSplit ? group * 2 + part : group) * kTileRows;
            for (int lane = 0; lane < kTileRows; ++lane) {
                const float factor = load_scale(w.scales, w.half_scales, scale_base + lane) * a.scales[at];
                acc[lane] = acc[lane] + static_cast<float>(dots[lane]) * factor;
            }
        }
        if (!w.mins) continue;
        for (int lane = 0; lane < kTileRows; ++lane)
            acc_min[lane] = acc_min[lane] + load_scale(w.mins, w.half_scales, group * kTileRows + lane) * a.sums[at];
    }
    for (int lane = 0; lane < kTileRows; ++lane) out[lane] = w.mins ? acc[lane] + acc_min[lane] : acc[lane];
}

template <bool kU4, bool kSplit>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile)
        for (int row = row_begin; row < row_end; ++row)
            matmul_tile<kU4, kSplit>(w, tile, a, row, out + row * out_stride + tile * kTileRows);
}

static constexpr auto matmul_u4 = matmul_integer<true, false>;
static constexpr auto matmul_i8 = matmul_integer<false, false>;
static constexpr auto matmul_i8g16 = matmul_integer<false, true>;
