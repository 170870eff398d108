// Kernels for AVX-512 with VNNI.
#if !defined(MILLSTREAM_EMULATE)
#include <immintrin.h>
#endif

#include "half.h"
#include "kernels.h"

namespace millstream {
namespace {
#include "lanes.h"

#include "vnni.h"

#include "matmul_vnni.h"

static constexpr auto matmul_u4 = multiply_vnni<Format::U4>;
static constexpr auto matmul_i8 = multiply_vnni<Format::I8>;
static constexpr auto matmul_i8g16 = multiply_vnni<Format::I8G16>;

#include "table.h"
}  // namespace

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = table("avx512");

}  // namespace millstream
