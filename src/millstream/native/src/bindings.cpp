// Python bindings of the native core.
#include <nanobind/nanobind.h>

#include "bindings_sampler.h"

NB_MODULE(_core, m) {
  m.attr("BLOCK_SIZE") = 32;
  millstream::bind_sampler(m);
}
