// Kernels for AVX-512 with VNNI.
#if !defined(MILLSTREAM_EMULATE)
#include <immintrin.h>
#endif

#include <utility>

#include "half.h"
#include "kernels.h"

namespace millstream {
namespace {
#include "lanes.h"

#include "scales.h"

#include "vnni.h"

#include "matmul_vnni.h"

template <Format kFormat>
static void matmul_integer(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                           int row_end, float* out, int64_t out_stride) {
    const auto kernel = a.type == ActivationType::I8 ? multiply_vnni<kFormat, ActivationType::I8>
                                                     : multiply_vnni<kFormat, ActivationType::I12>;
    kernel(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}

#include "table.h"
}  // namespace

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = table("avx512");

}  // namespace millstream
