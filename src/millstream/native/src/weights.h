// The tensors of a model by slot (GLOBAL_SLOTS and LAYER_SLOTS of millstream/models/spec.py).
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "matrix.h"

namespace millstream {

// Matrices [outputs, inputs]; vectors as f32, empty if the spec has no use for them.
struct LayerWeights {
    Matrix q, k, v, o, gate, up, down;
    std::vector<float> attn_norm, q_bias, k_bias, v_bias, q_norm, k_norm, attn_post_norm, mlp_norm, mlp_post_norm;
};

class Weights {
public:
    explicit Weights(const ModelConfig& config);

    // Repacks a tensor into its slot. Throws std::invalid_argument naming the slot if it does not exist, is not used by
    // the spec, or the shape or size is wrong. Setting a slot again replaces it.
    void set(const ModelConfig& config, int layer, const std::string& slot, int ggml_type, int64_t rows, int64_t cols,
             const void* data, size_t bytes, ThreadPool& pool);

    // Throws std::invalid_argument naming the first slot that is used and empty.
    void check_complete(const ModelConfig& config) const;

    // Brings the small matrices together in the order of a step: one allocation can have huge pages, many small ones
    // cannot, and reading 4 KiB pages costs a fifth to a third of the bandwidth. Once, after the last set().
    void gather();

    size_t bytes() const;

    // The output head, which may be the embedding table.
    const Matrix& head(const ModelConfig& config) const { return config.tied_output ? embedding : output; }

    Matrix embedding, output;
    std::vector<float> output_norm;
    std::vector<LayerWeights> layers;

private:
    Buffer<uint8_t> gathered_;
};

}  // namespace millstream
