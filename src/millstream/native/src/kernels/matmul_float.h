// Products of rows and float columns: lanes are columns, inputs ascending, acc = fused(w, x, acc).
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

// Where sums go: row r of them at to + r * stride. `fresh`: they begin at zero, not at what is there. With `scales`, one
// for each column, the products have a sum of their own, which is multiplied by them and added then.
struct Sums {
    float* to;
    int64_t stride;
    bool fresh;
    const float* scales;
};

// Sums of rows r and columns [0, V * kWidth): of a[r][k] * b[k * step + column], k in [begin, end) ascending. `ahead`, if not
// null, is memory that will be needed soon, as much for each k as is read now.
template <int R, int V, class Weights>
LANES void multiply_add(const float* const* a, Weights b, int64_t step, int begin, int end, const Sums& sums,
                        const uint8_t* ahead) {
    FW sum[R][V];
    if (sums.fresh || sums.scales) {
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < V; ++i) sum[r][i] = FW{};
    } else {
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < V; ++i) sum[r][i] = load_wide(sums.to + r * sums.stride + kWidth * i);
    }
    constexpr int bytes = V * kWidth * sizeof *b.p, line = 64;
    for (int k = begin; k < end; ++k) {
        if (ahead)
            for (int i = 0; i < bytes; i += line) __builtin_prefetch(ahead + int64_t{k} * bytes + i, 0, 2);
        if constexpr (R > V) {  // the fewer of both stay in registers
            FW weights[V];
            for (int i = 0; i < V; ++i) weights[i] = load_lanes(b, k * step + kWidth * i);
            for (int r = 0; r < R; ++r) {
                const FW x = splat_wide(a[r][k]);
                for (int i = 0; i < V; ++i) sum[r][i] = fused(weights[i], x, sum[r][i]);
            }
        } else {
            FW x[R];
            for (int r = 0; r < R; ++r) x[r] = splat_wide(a[r][k]);
            for (int i = 0; i < V; ++i) {
                const FW weights = load_lanes(b, k * step + kWidth * i);
                for (int r = 0; r < R; ++r) sum[r][i] = fused(weights, x[r], sum[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < V; ++i) {
            float* to = sums.to + r * sums.stride + kWidth * i;
            if (sums.scales)
                sum[r][i] = fused(sum[r][i], load_wide(sums.scales + kWidth * i), sums.fresh ? FW{} : load_wide(to));
            store_wide(to, sum[r][i]);
        }
}

// The same for columns [first, columns), both multiples of 16.
template <int R, int V, class Weights>
static void multiply_add_columns(const float* const* a, Weights b, int64_t step, int begin, int end, int first, int columns,
                                 const Sums& sums, const uint8_t* ahead) {
    int i = first;
    for (; i + V * kWidth <= columns; i += V * kWidth)
        multiply_add<R, V>(a, Weights{b.p + i}, step, begin, end,
                           {sums.to + i, sums.stride, sums.fresh, sums.scales ? sums.scales + i : nullptr},
                           ahead ? ahead + i * kBlockSize * sizeof *b.p : nullptr);
    if constexpr (V * kWidth > 16) multiply_add_columns<R, V / 2>(a, b, step, begin, end, i, columns, sums, ahead);
}

// How many rows go together (pieces below that have at most kMostRows, at least half as many), so that the sums of 16 or more
// columns fill the registers: 32 with AVX-512, 16 with AVX2. No order depends on it.
#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
constexpr int kRowsAtOnce = 12, kMostRows = 6, kMostSums = 24;
#elif defined(__FMA__) || defined(__aarch64__)
constexpr int kRowsAtOnce = 6, kMostRows = 6, kMostSums = 12;
#else
constexpr int kRowsAtOnce = 2, kMostRows = 2, kMostSums = 4;
#endif

// Vectors of columns for R rows: a power of two, at most 64 columns.
constexpr int vectors_for(int rows) {
    int vectors = 16 / kWidth;
    while (2 * vectors * rows <= kMostSums && 2 * vectors * kWidth <= 64) vectors *= 2;
    return vectors;
}

// How many of the rows that are left go next: the last two pieces are about equal.
LANES int rows_of_piece(int left, int most) { return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most; }

// The same for `rows` rows, at most R.
template <int R, class Weights>
static void multiply_add_rows(const float* const* a, int rows, Weights b, int64_t step, int begin, int end, int columns,
                              const Sums& sums, const uint8_t* ahead = nullptr) {
    if (rows == R) return multiply_add_columns<R, vectors_for(R)>(a, b, step, begin, end, 0, columns, sums, ahead);
    if constexpr (R > kMostRows) {
        const int n = rows_of_piece(rows, kMostRows);
        multiply_add_rows<kMostRows>(a, n, b, step, begin, end, columns, sums, ahead);
        if (n < rows)
            multiply_add_rows<kMostRows>(a + n, rows - n, b, step, begin, end, columns,
                                         {sums.to + n * sums.stride, sums.stride, sums.fresh, sums.scales});
    } else if constexpr (R > 1) {
        multiply_add_rows<R - 1>(a, rows, b, step, begin, end, columns, sums, ahead);
    }
}

template <class Weights>
static void matmul_float(Weights weights, const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a,
                         int row_begin, int row_end, float* out, int64_t out_stride) {
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        const Weights tile_weights{weights.p + static_cast<int64_t>(tile) * w.cols * kTileRows};
        for (int row = row_begin, n; row < row_end; row += n) {
            n = rows_of_piece(row_end - row, kRowsAtOnce);
            const float* x[kRowsAtOnce];
            for (int r = 0; r < n; ++r) x[r] = a.f32 + (row + r) * a.stride;
            const Sums sums{out + row * out_stride + tile * kTileRows, out_stride, true, nullptr};
            multiply_add_rows<kRowsAtOnce>(x, n, tile_weights, kTileRows, 0, w.cols, kTileRows, sums);
        }
    }
}
