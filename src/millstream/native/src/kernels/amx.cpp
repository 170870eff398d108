// Kernels for AMX with int8 and bf16: products of blocks of 16 rows and attention on the tile unit, the rest as at the level of
// AVX-512.
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

#include "attention_amx.h"

static constexpr Kernels table_with_tiles() {
    Kernels kernels = table("amx");
    kernels.attend = attend_on_tiles;
    return kernels;
}
}  // namespace

extern const Kernels kAmxKernels;
const Kernels kAmxKernels = table_with_tiles();

}  // namespace millstream
