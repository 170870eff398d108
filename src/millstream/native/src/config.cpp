#include "config.h"

#include <cmath>
#include <stdexcept>

namespace millstream {

namespace {

// Bounds keep every size below 2^62 and every index in an int.
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeads = 4096;

void require(bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument(what + " is out of range");
}

void check_layer(const ModelConfig& config, const LayerConfig& layer, const std::string& name) {
    require(layer.heads > 0 && layer.heads <= kMaxHeads, name + ".heads");
    require(layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0, name + ".kv_heads");
    require(layer.head_dim > 0 && layer.head_dim <= 4096 && layer.head_dim % 2 == 0, name + ".head_dim");
    require(layer.heads * layer.head_dim <= kMaxWidth, name + ".heads * head_dim");
    require(layer.intermediate > 0 && layer.intermediate <= kMaxWidth, name + ".intermediate");
    require(std::isfinite(layer.attention_scale) && layer.attention_scale > 0, name + ".attention_scale");
    require(layer.window >= 0, name + ".window");
    require(std::isfinite(layer.softcap) && layer.softcap >= 0, name + ".softcap");
    require(static_cast<int>(config.ropes[static_cast<size_t>(layer.rope)].inv_freq.size()) <= layer.head_dim / 2,
            name + ".rope.inv_freq");
}

}  // namespace

void check_config(const ModelConfig& config, const Limits& limits) {
    require(config.vocab > 0 && config.vocab <= 1 << 24, "vocab_size");
    require(config.hidden > 0 && config.hidden <= kMaxWidth, "hidden");
    require(config.context_length > 0 && config.context_length <= 1 << 30, "context_length");
    require(std::isfinite(config.norm_eps) && config.norm_eps >= 0, "norm_eps");
    require(std::isfinite(config.embedding_scale), "embedding_scale");
    require(std::isfinite(config.final_softcap) && config.final_softcap >= 0, "final_softcap");
    require(!config.layers.empty() && config.layers.size() <= 4096, "layers");
    for (size_t i = 0; i < config.layers.size(); ++i)
        check_layer(config, config.layers[i], "layers[" + std::to_string(i) + "]");
    require(limits.kv_blocks > 0 && limits.kv_blocks <= 1 << 26, "kv_blocks");
    require(limits.max_tokens > 0 && limits.max_tokens <= 1 << 20, "max_tokens");
    require(limits.max_rows > 0 && limits.max_rows <= 1 << 20, "max_rows");
    require(limits.threads >= 0 && limits.threads <= 1024, "threads");
}

}  // namespace millstream
