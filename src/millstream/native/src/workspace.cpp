#include "workspace.h"

#include <algorithm>
#include <stdexcept>

namespace millstream {

namespace {

// Query vectors that share the conversion of a KV page: with few of them it weighs, with more their scores leave the caches.
constexpr int kLeastQueries = 32;
constexpr int kMostQueries = 96;

// Pieces of attention per thread that are enough to keep all of them busy to the end.
constexpr int kPiecesPerThread = 6;

// Room for unmerged attention parts; a step that would need more does not split its sequences.
constexpr size_t kPartialFloats = size_t{4} << 20;

int64_t padded(int64_t n) { return (n + kTileRows - 1) / kTileRows * kTileRows; }

size_t product(int64_t a, int64_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

}  // namespace

ActivationBuffer::ActivationBuffer(ActivationType type, int n, int width)
    : type_(type),
      f32_(product(n, padded(width))),
      words_(product(n, width)),
      bytes_(product(n, int64_t{width} / kGroup * activation_bytes(type))),
      scales_(product(n, width / kGroup)),
      sums_(product(n, width / kGroup)) {}

ActivationsView ActivationBuffer::view(int cols) const {
    return {.type = type_,
            .cols = cols,
            .groups = cols / kGroup,
            .stride = padded(cols),
            .f32 = f32_.data(),
            .words = words_.data(),
            .bytes = bytes_.data(),
            .scales = scales_.data(),
            .sums = sums_.data()};
}

int attention_state_width(int head_dim) { return static_cast<int>(padded(padded(head_dim) + 2)); }

Workspace::Workspace(const ModelConfig& config, const Limits& limits, int threads) {
    int q_width = 0, kv_width = 0, intermediate = 0, group = 0, head_dim = 0;
    int64_t page_floats = 0;
    for (const LayerConfig& l : config.layers) {
        q_width = std::max(q_width, l.heads * l.head_dim);
        kv_width = std::max(kv_width, l.kv_heads * l.head_dim);
        intermediate = std::max(intermediate, l.intermediate);
        group = std::max(group, l.heads / l.kv_heads);
        head_dim = std::max(head_dim, l.head_dim);
        page_floats = std::max(page_floats, padded(converted_floats(l.head_dim)));
    }
    const int n = limits.max_tokens;
    least_rows_ = std::max(1, kLeastQueries / group);
    most_rows_ = std::max(1, kMostQueries / group);
    x_stride = padded(config.hidden);
    q_stride = padded(q_width);
    kv_stride = padded(kv_width);
    up_stride = padded(intermediate);
    logits_stride = padded(config.vocab);
    x = Buffer<float>(product(n, x_stride));
    out = Buffer<float>(product(n, x_stride));
    q = Buffer<float>(product(n, q_stride));
    k = Buffer<float>(product(n, kv_stride));
    v = Buffer<float>(product(n, kv_stride));
    up = Buffer<float>(product(n, up_stride));
    normed = ActivationBuffer(limits.activations, n, config.hidden);
    attended = ActivationBuffer(limits.activations, n, q_width);
    gate = ActivationBuffer(limits.activations, n, intermediate);
    final = ActivationBuffer(limits.activations, limits.max_rows, config.hidden);
    logits = Buffer<float>(product(limits.max_rows, logits_stride));
    for (const RopeConfig& rope : config.ropes) {
        cos.emplace_back(product(n, static_cast<int64_t>(rope.inv_freq.size())));
        sin.emplace_back(product(n, static_cast<int64_t>(rope.inv_freq.size())));
    }
    partial = Buffer<float>(kPartialFloats);
    blocks.reserve(static_cast<size_t>(n));
    const int64_t queries = scratch_queries(static_cast<int64_t>(most_rows_) * group), width = attention_state_width(head_dim);
    for (int i = 0; i < threads; ++i) {
        attention.emplace_back(product(
            1, page_floats + queries * (kPartSize + 2 * width + whole_steps(head_dim)) + tile_floats(head_dim)));
        float* page = attention.back().data();
        float* scores = page + page_floats;
        float* state = scores + queries * kPartSize;
        float* part = state + queries * width;
        float* vectors = part + queries * width;
        float* tiles = vectors + queries * whole_steps(head_dim);
        attention_scratch.push_back(
            {.page = page, .scores = scores, .state = state, .part = part, .vectors = vectors, .tiles = tiles});
        sampler_scratch.emplace_back(config.vocab);
    }
}

int Workspace::block_rows(int tokens, int kv_heads, int threads) const {
    const int64_t rows = int64_t{tokens} * kv_heads / (kPiecesPerThread * threads);
    return static_cast<int>(std::clamp<int64_t>(rows, least_rows_, most_rows_));
}

KvCache::KvCache(const ModelConfig& config, const Limits& limits) : type_(limits.kv_type) {
    int64_t total = 0;
    for (const LayerConfig& l : config.layers) {
        const int64_t stride = int64_t{2} * l.kv_heads * kv_head_bytes(type_, l.head_dim);
        int64_t layer_size = 0;
        strides_.push_back(stride);
        offsets_.push_back(total);
        if (__builtin_mul_overflow(stride, int64_t{limits.kv_blocks}, &layer_size) ||
            __builtin_add_overflow(total, layer_size, &total) || total > int64_t{1} << 46)
            throw std::invalid_argument("kv_blocks is out of range");
    }
    data_ = Buffer<uint8_t>(static_cast<size_t>(total));
}

}  // namespace millstream
