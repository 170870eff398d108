// Memory of a step, allocated once for the largest step there can be.
#pragma once

#include <memory>
#include <vector>

#include "buffer.h"
#include "config.h"
#include "sampler.h"
#include "kernels/views.h"

namespace millstream {

// Room for n rows of activations of at most `width` inputs, as f32 and quantised.
class ActivationBuffer {
public:
    ActivationBuffer() = default;
    ActivationBuffer(ActivationType type, int n, int width);
    ActivationsView view(int cols) const;

private:
    ActivationType type_ = ActivationType::I12;
    Buffer<float> f32_;
    Buffer<int16_t> words_;
    Buffer<int8_t> bytes_;
    Buffer<float> scales_, sums_;
};

// Consecutive new tokens of one sequence that attention handles together.
struct QueryBlock {
    int sequence, first_token, rows, first_position;
};

// AttentionItem::state_width: whole cache lines.
int attention_state_width(int head_dim);

struct Workspace {
    Workspace(const ModelConfig& config, const Limits& limits, int threads);

    // Rows of a full QueryBlock in a step of so many tokens. No result depends on it.
    int block_rows(int tokens, int kv_heads, int threads) const;

    int64_t x_stride, q_stride, kv_stride, up_stride, logits_stride;
    Buffer<float> x;     // [max_tokens] residual stream
    Buffer<float> out;   // [max_tokens] output of attention or MLP before the residual is added
    Buffer<float> q, k, v, up;
    ActivationBuffer normed, attended, gate, final;
    Buffer<float> logits;                 // [max_rows]
    std::vector<Buffer<float>> cos, sin;  // per rope [max_tokens][dims / 2]
    Buffer<float> partial;                // unmerged attention parts
    std::vector<QueryBlock> blocks;
    std::vector<Buffer<float>> attention;  // per thread
    std::vector<AttentionScratch> attention_scratch;
    std::vector<SamplerScratch> sampler_scratch;

private:
    int least_rows_, most_rows_;
};

// KV pages. Block b of layer l: keys at keys(l) + b * page_stride(l), values behind them, each head by head of
// kv_head_bytes. Strides are in bytes.
class KvCache {
public:
    KvCache(const ModelConfig& config, const Limits& limits);
    KvType type() const { return type_; }
    int64_t page_stride(int layer) const { return strides_[static_cast<size_t>(layer)]; }
    uint8_t* keys(int layer) const { return data_.data() + offsets_[static_cast<size_t>(layer)]; }
    uint8_t* values(int layer) const { return keys(layer) + page_stride(layer) / 2; }
    size_t bytes() const { return data_.bytes(); }

private:
    KvType type_;
    Buffer<uint8_t> data_;
    std::vector<int64_t> strides_, offsets_;
};

}  // namespace millstream
