// Python bindings of the native core.
#include <nanobind/nanobind.h>

NB_MODULE(_core, m) { m.attr("BLOCK_SIZE") = 32; }
