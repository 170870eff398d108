// The tensors of a model by slot (GLOBAL_SLOTS and LAYER_SLOTS of millstream/models/spec.py).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config.h"
#include "matrix.h"

namespace millstream {

class ThreadPool;

// Matrices [outputs, inputs]; vectors as f32, empty if the spec has no use for them.
struct LayerWeights {
    Matrix q, k, v, o, gate, up, down;
    std::vector<float> attn_norm, q_bias, k_bias, v_bias, q_norm, k_norm, attn_post_norm, mlp_norm, mlp_post_norm;
};

// A tensor of a model file and the slot that it is for (layer -1: the model's own); vectors have one row.
struct TensorSource {
    int layer;
    std::string slot;
    int ggml_type;
    int64_t rows, cols;
    const uint8_t* data;
    size_t bytes;
};

class Weights {
public:
    explicit Weights(const ModelConfig& config);

    // Repacks all tensors of a model. Throws std::invalid_argument naming the first slot that does not exist, is not used
    // by the spec, gets a wrong shape or size, or is missing. `mapped`: the data are pages of a file, which are given back
    // to the system as soon as they were read.
    void load(const ModelConfig& config, std::span<const TensorSource> tensors, bool mapped, ThreadPool& pool);

    size_t bytes() const;

    // The output head, which may be the embedding table.
    const Matrix& head(const ModelConfig& config) const { return config.tied_output ? embedding : output; }

    Matrix embedding, output;
    std::vector<float> output_norm;
    std::vector<LayerWeights> layers;

private:
    void set(const ModelConfig& config, const TensorSource& tensor);
    void check_complete(const ModelConfig& config) const;
    std::vector<Matrix*> place();

    Buffer<uint8_t> memory_;  // of all matrices
};

}  // namespace millstream
