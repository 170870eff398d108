// Rows of GGUF blocks turned into tiles of the core's own layout (MatrixView), without loss.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml.h"
#include "kernels/views.h"

namespace millstream {

// Rows of a tensor as the file has them: row r at data + r * row_bytes.
struct GgmlRows {
    GgmlType type;
    const uint8_t* data;
    size_t row_bytes;
};

// Where one tile goes, laid out as MatrixView says: zeros that rows beyond the tensor's stay. scales: null for floats.
struct TilePlace {
    uint8_t* data;
    uint8_t* scales;
};

// How a type is stored.
Format format_of(GgmlType type);

// Repacks the `count` (1..16) rows from `first` on, of `cols` weights each.
void repack_tile(const GgmlRows& rows, int64_t first, int count, int cols, const TilePlace& to);

}  // namespace millstream
