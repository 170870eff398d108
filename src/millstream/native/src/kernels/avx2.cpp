// Kernels for AVX2 with F16C and FMA.
#include <immintrin.h>

#include <utility>

#include "half.h"
#include "kernels.h"

namespace millstream {
namespace {
#include "lanes.h"

#include "scales.h"

#include "matmul_avx2.h"

#include "table.h"
}  // namespace

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = table("avx2");

}  // namespace millstream
