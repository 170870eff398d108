// GGUF's tensor types: names and sizes.
#pragma once

namespace millstream {

// Numbers as in GGUF files.
enum class GgmlType : int {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30,
};

struct GgmlTraits {
    const char* name;
    int block_size;  // weights
    int block_bytes;
};

// Null for a type that is not supported.
const GgmlTraits* ggml_traits(int type);

}  // namespace millstream
