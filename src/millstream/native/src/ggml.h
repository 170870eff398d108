// GGUF block formats: sizes, and rows decoded to integers with scales.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millstream {

// Numbers as in GGUF files.
enum class GgmlType : int {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30,
};

// A block type. `group`: weights per scale (0: float types). `has_min`: value = scale * q + min, else scale * q.
struct GgmlTraits {
    const char* name;
    int block_size;
    int block_bytes;
    int group;
    bool has_min;
    bool nibbles;  // integers 0..15
};

// Null for a type that is not supported.
const GgmlTraits* ggml_traits(int type);

// Decodes one row of `cols` weights of an integer type: q [cols], scales and mins [cols / group].
void decode_row(GgmlType type, const uint8_t* row, int cols, int8_t* q, float* scales, float* mins);

}  // namespace millstream
