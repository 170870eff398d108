// The model description as the core uses it (millstream/models/spec.py, read by spec_reader.cpp).
#pragma once

#include <string>
#include <vector>

#include "kernels/views.h"

namespace millstream {

struct RopeConfig {
    bool interleaved = false;
    float scale = 1.0f;
    std::vector<double> inv_freq;  // dims / 2

    bool operator==(const RopeConfig&) const = default;
};

struct LayerConfig {
    int heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
    float attention_scale = 1.0f;
    int rope = 0;    // index into ModelConfig::ropes
    int window = 0;  // 0: unlimited
    float softcap = 0.0f;
    bool qk_norm = false, qkv_bias = false, post_norms = false, gelu = false;
};

struct ModelConfig {
    int vocab = 0, hidden = 0, context_length = 0;
    float norm_eps = 0.0f, embedding_scale = 1.0f, final_softcap = 0.0f;
    bool tied_output = false;
    std::vector<RopeConfig> ropes;  // distinct ones
    std::vector<LayerConfig> layers;
};

// What is allocated. threads 0: as many as the affinity mask has.
struct Limits {
    int kv_blocks = 0, max_tokens = 0, max_rows = 0, threads = 0;
    KvType kv_type = KvType::F16;
    ActivationType activations = ActivationType::I12;
};

// Throws std::invalid_argument naming the first field that makes no sense.
void check_config(const ModelConfig& config, const Limits& limits);

}  // namespace millstream
