#include "weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "threads.h"

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

// What one thread repacks at a time: some tiles of a matrix.
struct Piece {
    Matrix* matrix;
    int begin, end;

    const uint8_t* source() const { return matrix->source(begin); }
    size_t source_bytes() const { return matrix->source_bytes(begin, end); }
};

// Large enough that handing them out and giving back their pages costs nothing, small enough to bound what of a file is
// resident and how long the last thread works alone.
constexpr size_t kPieceBytes = size_t{1} << 19;

// All tiles of the matrices, in the order in which the tensors lie in memory: a file is best read forwards.
std::vector<Piece> pieces_of(const std::vector<Matrix*>& matrices) {
    std::vector<Piece> pieces;
    for (Matrix* m : matrices) {
        const int step = static_cast<int>(std::max<size_t>(kPieceBytes / m->source_bytes(0, 1), 1));
        for (int tile = 0; tile < m->tiles(); tile += step) pieces.push_back({m, tile, std::min(tile + step, m->tiles())});
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return std::less<>()(a.source(), b.source()); });
    return pieces;
}

// Advice to the system about whole pages.
void advise(const uint8_t* data, size_t bytes, int advice) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / page * page;
    madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(data) + bytes - begin, advice);
}

// How far a file is read ahead: so many pieces are on their way from the disk while others are repacked.
constexpr size_t kPiecesAhead = 16;

void read_ahead(const std::vector<Piece>& pieces, size_t i) {
    if (i < pieces.size()) advise(pieces[i].source(), pieces[i].source_bytes(), MADV_WILLNEED);
}

// What another thread still reads of the pages is mapped again.
void give_back(const Piece& piece) { advise(piece.source(), piece.source_bytes(), MADV_DONTNEED); }

}  // namespace

Weights::Weights(const ModelConfig& config) : layers(config.layers.size()) {}

void Weights::set(const ModelConfig& config, const TensorSource& t) {
    const std::string name = full_name(t.layer, t.slot);
    for (const Slot& s : slots_of(config, *this, t.layer)) {
        if (t.slot != s.name) continue;
        if (!s.used) throw std::invalid_argument(name + " is not used by this model");
        if (t.rows != s.rows || t.cols != s.cols)
            throw std::invalid_argument(name + " has shape " + shape(t.rows, t.cols) + ", " + shape(s.rows, s.cols) + " expected");
        if (s.matrix) {
            *s.matrix = Matrix(name, t.ggml_type, t.rows, t.cols, t.data, t.bytes);
        } else {
            s.vector->resize(static_cast<size_t>(t.cols));
            Matrix::alone(name, t.ggml_type, t.rows, t.cols, t.data, t.bytes).dequantize_row(0, s.vector->data());
        }
        return;
    }
    throw std::invalid_argument(name + " does not exist");
}

void Weights::check_complete(const ModelConfig& config) const {
    auto& self = const_cast<Weights&>(*this);  // the slot table has mutable pointers; nothing is written here
    for (int layer = -1; layer < static_cast<int>(layers.size()); ++layer) {
        for (const Slot& s : slots_of(config, self, layer)) {
            const bool empty = s.matrix ? s.matrix->rows() == 0 : s.vector->empty();
            if (s.used && empty) throw std::invalid_argument(full_name(layer, s.name) + " is missing");
        }
    }
}

// All matrices are in one allocation, in the order of a step: that can have huge pages, many small ones cannot, and reading
// 4 KiB pages costs a fifth to a third of the bandwidth.
std::vector<Matrix*> Weights::place() {
    std::vector<Matrix*> order;
    for (LayerWeights& l : layers) order.insert(order.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down});
    order.insert(order.end(), {&output, &embedding});
    std::erase_if(order, [](const Matrix* m) { return m->rows() == 0; });
    size_t total = 0;
    for (const Matrix* m : order) total += m->placed_bytes();
    memory_ = Buffer<uint8_t>(total);
    uint8_t* to = memory_.data();
    for (Matrix* m : order) to = m->place(to);
    return order;
}

void Weights::load(const ModelConfig& config, std::span<const TensorSource> tensors, bool mapped, ThreadPool& pool) {
    *this = Weights(config);  // nothing of a load that was refused: its data may be gone
    for (const TensorSource& tensor : tensors) set(config, tensor);
    check_complete(config);
    const std::vector<Piece> pieces = pieces_of(place());
    for (size_t i = 0; mapped && i < kPiecesAhead; ++i) read_ahead(pieces, i);
    auto region = [&](int) {
        pool.for_each(static_cast<int>(pieces.size()), 1, [&](int begin, int) {
            const auto i = static_cast<size_t>(begin);
            if (mapped) read_ahead(pieces, i + kPiecesAhead);
            pieces[i].matrix->repack(pieces[i].begin, pieces[i].end);
            if (mapped) give_back(pieces[i]);
        });
    };
    pool.run(region);
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
