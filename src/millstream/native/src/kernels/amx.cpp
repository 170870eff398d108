// Kernels for AMX int8: blocks of 16 rows on the tile unit, the rest as at the level of AVX-512.
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

#include "tiles.h"

#include "matmul_amx.h"

#include "table.h"
}  // namespace

extern const Kernels kAmxKernels;
const Kernels kAmxKernels = table("amx");

}  // namespace millstream
