// Kernels for AVX2 and F16C (no FMA: products and sums are rounded apart, as at every level).
#include <immintrin.h>

#include "half.h"
#include "kernels.h"

namespace millstream {
namespace {
#include "lanes.h"

#include "matmul_avx2.h"

#include "table.h"
}  // namespace

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = table("avx2");

}  // namespace millstream
