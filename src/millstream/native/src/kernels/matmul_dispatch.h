// The matmul entry of the table: chooses by format. Expects matmul_integer<Format> of the level.
// Included only by the levels' .cpp files, inside the level's own namespace.

static void matmul(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                   int row_end, float* out, int64_t out_stride) {
    const auto* halves = reinterpret_cast<const uint16_t*>(w.data);
    switch (w.format) {
        case Format::U4: return matmul_integer<Format::U4>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
        case Format::I8: return matmul_integer<Format::I8>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
        case Format::I8G16: return matmul_integer<Format::I8G16>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
        case Format::F32:
            return matmul_float(FloatWeights{reinterpret_cast<const float*>(w.data)}, w, tile_begin, tile_end, a,
                                row_begin, row_end, out, out_stride);
        case Format::F16:
            return matmul_float(HalfWeights{halves}, w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
        case Format::BF16:
            return matmul_float(BfloatWeights{halves}, w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    }
}
