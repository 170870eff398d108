#include "ggml.h"

namespace millstream {

const GgmlTraits* ggml_traits(int type) {
    static constexpr GgmlTraits f32{"F32", 1, 4}, f16{"F16", 1, 2}, bf16{"BF16", 1, 2},
        q4_0{"Q4_0", 32, 18}, q4_1{"Q4_1", 32, 20}, q5_0{"Q5_0", 32, 22}, q5_1{"Q5_1", 32, 24},
        q8_0{"Q8_0", 32, 34}, q4_k{"Q4_K", 256, 144}, q5_k{"Q5_K", 256, 176},
        q6_k{"Q6_K", 256, 210};
    switch (static_cast<GgmlType>(type)) {
        case GgmlType::F32: return &f32;
        case GgmlType::F16: return &f16;
        case GgmlType::BF16: return &bf16;
        case GgmlType::Q4_0: return &q4_0;
        case GgmlType::Q4_1: return &q4_1;
        case GgmlType::Q5_0: return &q5_0;
        case GgmlType::Q5_1: return &q5_1;
        case GgmlType::Q8_0: return &q8_0;
        case GgmlType::Q4_K: return &q4_k;
        case GgmlType::Q5_K: return &q5_k;
        case GgmlType::Q6_K: return &q6_k;
    }
    return nullptr;
}

}  // namespace millstream
