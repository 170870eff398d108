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

LANES F8 load_lanes(FloatWeights w, int64_t i) { return load8(w.p + i); }
LANES F8 load_lanes(HalfWeights w, int64_t i) { return load_half8(w.p + i); }
LANES F8 load_lanes(BfloatWeights w, int64_t i) { return load_bfloat8(w.p + i); }

// acc[r][0..N) += sum over k of a[r][k] * b[k * step .. + N), k in [begin, end) ascending; acc row r at acc + r * stride.
template <int R, int N, class Weights>
LANES void multiply_add(const float* const* a, Weights b, int64_t step, int begin, int end, float* acc, int64_t stride) {
    constexpr int vectors = N / 8;
    F8 sum[R][vectors];
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < vectors; ++i) sum[r][i] = load8(acc + r * stride + 8 * i);
    for (int k = begin; k < end; ++k) {
        F8 x[R];
        for (int r = 0; r < R; ++r) x[r] = splat(a[r][k]);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; ++i) {
            const F8 weights = load_lanes(b, k * step + 8 * i);
            for (int r = 0; r < R; ++r) sum[r][i] = sum[r][i] + weights * x[r];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < vectors; ++i) store8(acc + r * stride + 8 * i, sum[r][i]);
}

// The same for any n rows, four at a time.
template <class Weights>
static void multiply_add_rows(const float* const* a, int n, Weights b, int64_t step, int begin, int end, float* acc,
                              int64_t stride) {
    int r = 0;
    for (; r + 4 <= n; r += 4) multiply_add<4, 16>(a + r, b, step, begin, end, acc + r * stride, stride);
    for (; r < n; ++r) multiply_add<1, 16>(a + r, b, step, begin, end, acc + r * stride, stride);
}

template <class Weights>
static void matmul_float(Weights weights, const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a,
                         int row_begin, int row_end, float* out, int64_t out_stride) {
    constexpr int rows_at_once = 4;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        const Weights tile_weights{weights.p + static_cast<int64_t>(tile) * w.cols * kTileRows};
        for (int row = row_begin; row < row_end; row += rows_at_once) {
            const int n = row_end - row < rows_at_once ? row_end - row : rows_at_once;
            const float* x[rows_at_once];
            float* y = out + row * out_stride + tile * kTileRows;
            for (int r = 0; r < n; ++r) {
                x[r] = a.f32 + (row + r) * a.stride;
                for (int i = 0; i < kTileRows; ++i) y[r * out_stride + i] = 0.0f;
            }
            multiply_add_rows(x, n, tile_weights, kTileRows, 0, w.cols, y, out_stride);
        }
    }
}
