// The matmul entry of the table: chooses by format. Expects matmul_integer<Format> of the level.
// Included only by the levels' .cpp files, inside the level's own namespace.

static void matmul(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                   int row_end, float* out, int64_t out_stride) {
    const auto* halves = reinterpret_cast<const uint16_t*>(w.data);
    const auto integer = [&]<Format kFormat>() {
        matmul_integer<kFormat>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    };
    switch (w.format) {
        case Format::Q4_0: return integer.template operator()<Format::Q4_0>();
        case Format::Q4_1: return integer.template operator()<Format::Q4_1>();
        case Format::Q4_K: return integer.template operator()<Format::Q4_K>();
        case Format::Q5_0: return integer.template operator()<Format::Q5_0>();
        case Format::Q5_1: return integer.template operator()<Format::Q5_1>();
        case Format::Q5_K: return integer.template operator()<Format::Q5_K>();
        case Format::Q6_K: return integer.template operator()<Format::Q6_K>();
        case Format::Q8_0: return integer.template operator()<Format::Q8_0>();
        case Format::F32:
            return matmul_float(FloatWeights{reinterpret_cast<const float*>(w.data)}, w, tile_begin, tile_end, a,
                                row_begin, row_end, out, out_stride);
        case Format::F16:
            return matmul_float(HalfWeights{halves}, w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
        case Format::BF16:
            return matmul_float(BfloatWeights{halves}, w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    }
}
