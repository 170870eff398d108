// Kernels in portable C++: any processor.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <utility>

#include "half.h"
#include "kernels.h"

namespace millstream {
namespace {
#include "lanes.h"

#include "scales.h"

#include "matmul_generic.h"

#include "table.h"
}  // namespace

extern const Kernels kGenericKernels;
const Kernels kGenericKernels = table("generic");

}  // namespace millstream
