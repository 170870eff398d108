// Reads a ModelSpec (millstream/models/spec.py) by attribute name.
#pragma once

#include <nanobind/nanobind.h>

#include "config.h"

namespace millstream {

// Throws nanobind::value_error naming the attribute that is missing or of the wrong type.
ModelConfig read_spec(nanobind::handle spec);

}  // namespace millstream
