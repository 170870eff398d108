// Matrix products with float weights: lanes are output rows, inputs ascending, acc = acc + w * x.
// Included only by the levels' .cpp files, inside the level's own namespace.

struct HalfWeights {
    const uint16_t* p;
};
struct BfloatWeights {
    const uint16_t* p;
};
struct FloatWeights {
    const float* p;
};

struct ByteWeights {
    const int8_t* p;
};

LANES FW load_lanes(FloatWeights w, int64_t i) { return load_wide(w.p + i); }
LANES FW load_lanes(HalfWeights w, int64_t i) { return load_half_wide(w.p + i); }
LANES FW load_lanes(BfloatWeights w, int64_t i) { return load_bfloat_wide(w.p + i); }
LANES FW load_lanes(ByteWeights w, int64_t i) { return load_bytes_wide(w.p + i); }

// acc[r][0..V * kWidth) += sum over k of a[r][k] * b[k * step + ..], k in [begin, end) ascending; acc row r at acc + r * stride.
template <int R, int V, class Weights>
LANES void multiply_add(const float* const* a, Weights b, int64_t step, int begin, int end, float* acc, int64_t stride) {
    FW sum[R][V];
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < V; ++i) sum[r][i] = load_wide(acc + r * stride + kWidth * i);
    for (int k = begin; k < end; ++k) {
        FW x[R];
        for (int r = 0; r < R; ++r) x[r] = splat_wide(a[r][k]);
        for (int i = 0; i < V; ++i) {
            const FW weights = load_lanes(b, k * step + kWidth * i);
            for (int r = 0; r < R; ++r) sum[r][i] = sum[r][i] + weights * x[r];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < V; ++i) store_wide(acc + r * stride + kWidth * i, sum[r][i]);
}

// The same for n columns, n a multiple of 16: as many at a time as the registers of AVX2 hold sums.
template <int R, class Weights>
static void multiply_add_columns(const float* const* a, Weights b, int64_t step, int begin, int end, int n, float* acc,
                                 int64_t stride) {
    constexpr int most = R <= 2 ? 4 : 2;
    int i = 0;
    for (; i + most * kWidth <= n; i += most * kWidth)
        multiply_add<R, most>(a, Weights{b.p + i}, step, begin, end, acc + i, stride);
    for (; i < n; i += 16) multiply_add<R, 16 / kWidth>(a, Weights{b.p + i}, step, begin, end, acc + i, stride);
}

constexpr int kRowsAtOnce = 4;

// The same for n rows, at most kRowsAtOnce.
template <class Weights>
static void multiply_add_rows(const float* const* a, int rows, Weights b, int64_t step, int begin, int end, int columns,
                              float* acc, int64_t stride) {
    switch (rows) {
        case 1: return multiply_add_columns<1>(a, b, step, begin, end, columns, acc, stride);
        case 2: return multiply_add_columns<2>(a, b, step, begin, end, columns, acc, stride);
        case 3: return multiply_add_columns<3>(a, b, step, begin, end, columns, acc, stride);
        default: return multiply_add_columns<kRowsAtOnce>(a, b, step, begin, end, columns, acc, stride);
    }
}

template <class Weights>
static void matmul_float(Weights weights, const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a,
                         int row_begin, int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        const Weights tile_weights{weights.p + static_cast<int64_t>(tile) * w.cols * kTileRows};
        for (int row = row_begin; row < row_end; row += kRowsAtOnce) {
            const int n = row_end - row < kRowsAtOnce ? row_end - row : kRowsAtOnce;
            const float* x[kRowsAtOnce];
            float* y = out + row * out_stride + tile * kTileRows;
            for (int r = 0; r < n; ++r) {
                x[r] = a.f32 + (row + r) * a.stride;
                for (int i = 0; i < kTileRows; ++i) y[r * out_stride + i] = 0.0f;
            }
            multiply_add_rows(x, n, tile_weights, kTileRows, 0, w.cols, kTileRows, y, out_stride);
        }
    }
}
