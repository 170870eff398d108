#include "weights.h"

#include <stdexcept>

namespace millstream {

namespace {

// A slot: where its tensor goes, and its shape; one of matrix and vector is set.
struct Slot {
    const char* name;
    Matrix* matrix;
    std::vector<float>* vector;
    int rows, cols;
    bool used;
};

std::vector<Slot> global_slots(const ModelConfig& c, Weights& w) {
    return {{"embedding", &w.embedding, nullptr, c.vocab, c.hidden, true},
            {"output", &w.output, nullptr, c.vocab, c.hidden, !c.tied_output},
            {"output_norm", nullptr, &w.output_norm, 1, c.hidden, true}};
}

std::vector<Slot> layer_slots(const ModelConfig& c, const LayerConfig& l, LayerWeights& w) {
    const int q = l.heads * l.head_dim, kv = l.kv_heads * l.head_dim;
    return {{"attn_norm", nullptr, &w.attn_norm, 1, c.hidden, true},
            {"q", &w.q, nullptr, q, c.hidden, true},
            {"k", &w.k, nullptr, kv, c.hidden, true},
            {"v", &w.v, nullptr, kv, c.hidden, true},
            {"q_bias", nullptr, &w.q_bias, 1, q, l.qkv_bias},
            {"k_bias", nullptr, &w.k_bias, 1, kv, l.qkv_bias},
            {"v_bias", nullptr, &w.v_bias, 1, kv, l.qkv_bias},
            {"q_norm", nullptr, &w.q_norm, 1, l.head_dim, l.qk_norm},
            {"k_norm", nullptr, &w.k_norm, 1, l.head_dim, l.qk_norm},
            {"o", &w.o, nullptr, c.hidden, q, true},
            {"attn_post_norm", nullptr, &w.attn_post_norm, 1, c.hidden, l.post_norms},
            {"mlp_norm", nullptr, &w.mlp_norm, 1, c.hidden, true},
            {"gate", &w.gate, nullptr, l.intermediate, c.hidden, true},
            {"up", &w.up, nullptr, l.intermediate, c.hidden, true},
            {"down", &w.down, nullptr, c.hidden, l.intermediate, true},
            {"mlp_post_norm", nullptr, &w.mlp_post_norm, 1, c.hidden, l.post_norms}};
}

std::string full_name(int layer, const std::string& slot) {
    return layer < 0 ? "slot " + slot : "slot " + slot + " of layer " + std::to_string(layer);
}

std::string shape(int64_t rows, int64_t cols) {
    return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

std::vector<Slot> slots_of(const ModelConfig& config, Weights& weights, int layer) {
    if (layer == -1) return global_slots(config, weights);
    if (layer < 0 || layer >= static_cast<int>(config.layers.size()))
        throw std::invalid_argument("layer " + std::to_string(layer) + " does not exist");
    const auto i = static_cast<size_t>(layer);
    return layer_slots(config, config.layers[i], weights.layers[i]);
}

}  // namespace

Weights::Weights(const ModelConfig& config) : layers(config.layers.size()) {}

void Weights::set(const ModelConfig& config, int layer, const std::string& slot, int ggml_type, int64_t rows, int64_t cols,
                  const void* data, size_t bytes, ThreadPool& pool) {
    const std::string name = full_name(layer, slot);
    for (const Slot& s : slots_of(config, *this, layer)) {
        if (slot != s.name) continue;
        if (!s.used) throw std::invalid_argument(name + " is not used by this model");
        if (rows != s.rows || cols != s.cols)
            throw std::invalid_argument(name + " has shape " + shape(rows, cols) + ", " + shape(s.rows, s.cols) + " expected");
        Matrix packed(name, ggml_type, rows, cols, data, bytes, &pool);
        if (s.matrix) {
            *s.matrix = std::move(packed);
        } else {
            s.vector->resize(static_cast<size_t>(cols));
            packed.dequantize_row(0, s.vector->data());
        }
        return;
    }
    throw std::invalid_argument(name + " does not exist");
}

void Weights::check_complete(const ModelConfig& config) const {
    auto& self = const_cast<Weights&>(*this);  // the slot table has mutable pointers; nothing is written here
    for (int layer = -1; layer < static_cast<int>(layers.size()); ++layer) {
        for (const Slot& s : slots_of(config, self, layer)) {
            const bool empty = s.matrix ? s.matrix->empty() : s.vector->empty();
            if (s.used && empty) throw std::invalid_argument(full_name(layer, s.name) + " is missing");
        }
    }
}

void Weights::gather() {
    std::vector<Matrix*> order;
    for (LayerWeights& l : layers) order.insert(order.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down});
    order.insert(order.end(), {&output, &embedding});
    size_t total = 0;
    for (const Matrix* m : order) total += m->movable_bytes();
    gathered_ = Buffer<uint8_t>(total);
    uint8_t* to = gathered_.data();
    for (Matrix* m : order) to = m->move_into(to);
}

size_t Weights::bytes() const {
    size_t total = embedding.bytes() + output.bytes() + output_norm.size() * sizeof(float);
    for (const LayerWeights& l : layers) {
        for (const Matrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) total += m->bytes();
        for (const auto* v : {&l.attn_norm, &l.q_bias, &l.k_bias, &l.v_bias, &l.q_norm, &l.k_norm, &l.attn_post_norm,
                              &l.mlp_norm, &l.mlp_post_norm})
            total += v->size() * sizeof(float);
    }
    return total;
}

}  // namespace millstream
