#include "step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millstream {

namespace {

// Rows of activations that one pass over a weight tile serves: they stay in L2 while tiles pass through L1.
constexpr int kRowBlock = 64;

// So few tokens that work per token is not worth a phase.
constexpr int kFewTokens = 4;

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Bytes of weights that one row passes in one go, at most: a tenth of a millisecond, so that nobody waits long for a thread
// that loses its processor meanwhile.
constexpr size_t kLongestRun = size_t{1} << 20;

// Calls body(row, row_end, begin, end) for every row block and for pieces of [0, tiles), on whichever thread is free, and
// last() when all are done. No piece has more than `largest` tiles, or kLongestRun if there is one row, which reads weights
// once.
template <class Body, class Last>
void over_blocks(ThreadPool& pool, int rows, int tiles, size_t tile_bytes, int largest, const Body& body, const Last& last) {
    const int blocks = ceil_div(rows, kRowBlock);
    if (blocks == 1) {
        const int longest = static_cast<int>(std::max<size_t>(kLongestRun / tile_bytes, 1));
        pool.for_shares(tiles, rows == 1 ? longest : largest, [&](int begin, int end) { body(0, rows, begin, end); }, last);
        return;
    }
    // Enough pieces for balance, few enough to keep the counter cold.
    const auto share = int64_t{tiles} * blocks / (pool.size() * 16);
    const int piece = static_cast<int>(std::clamp<int64_t>(share, 2, largest));
    const int pieces = ceil_div(tiles, piece);
    const auto run = [&](int item, int) {
        const int row = item / pieces * kRowBlock, begin = item % pieces * piece;
        body(row, std::min(rows, row + kRowBlock), begin, std::min(tiles, begin + piece));
    };
    pool.for_each(blocks * pieces, 1, run, last);
}

}  // namespace

Step::Step(Model& model, const StepInput& input)
    : model_(model),
      in_(input),
      kernels_(model.kernels_),
      pool_(model.pool_),
      work_(model.work_),
      tokens_(static_cast<int>(input.tokens.size())),
      hidden_(model.config_.hidden) {}

void Step::run(int thread) {
    embed();
    for (int layer = 0; layer < static_cast<int>(model_.config_.layers.size()); ++layer) {
        attention_block(layer, thread);
        mlp_block(layer);
    }
    report_hidden();
    score(thread);  // before the other logits, as those may be kept
    sample(thread);
}

// x = embedding rows, cosines and sines of every position, and the first norm.
void Step::embed() {
    const ModelConfig& config = model_.config_;
    const LayerWeights& first = model_.weights_.layers.front();
    const auto position_of = [&](int token) {
        const auto next = std::upper_bound(in_.seq_starts.begin(), in_.seq_starts.end(), token);
        const auto sequence = static_cast<size_t>(next - in_.seq_starts.begin() - 1);
        return in_.seq_positions[sequence] + token - in_.seq_starts[sequence];
    };
    pool_.for_each(tokens_, kFewTokens, [&](int begin, int end) {
        for (int t = begin; t < end; ++t) {
            float* x = work_.x.data() + t * work_.x_stride;
            model_.weights_.embedding.dequantize_row(in_.tokens[static_cast<size_t>(t)], x);
            if (config.embedding_scale != 1.0f) kernels_.scale(x, config.embedding_scale, hidden_);
            const double position = position_of(t);
            for (size_t i = 0; i < config.ropes.size(); ++i) {
                const RopeConfig& rope = config.ropes[i];
                const size_t half = rope.inv_freq.size(), base = static_cast<size_t>(t) * half;
                for (size_t j = 0; j < half; ++j) {
                    const double angle = position * rope.inv_freq[j];
                    work_.cos[i][base + j] = static_cast<float>(std::cos(angle)) * rope.scale;
                    work_.sin[i][base + j] = static_cast<float>(std::sin(angle)) * rope.scale;
                }
            }
        }
        norm_rows(begin, end, first.attn_norm.data(), first.q.integer() || first.k.integer() || first.v.integer());
    });
}

// normed = rms_norm(x) * weight for rows [begin, end), quantised if a product needs it.
void Step::norm_rows(int begin, int end, const float* weight, bool quantize) {
    const ActivationsView a = work_.normed.view(hidden_);
    for (int t = begin; t < end; ++t)
        kernels_.rms_norm(work_.x.data() + t * work_.x_stride, weight, hidden_, model_.config_.norm_eps,
                          a.f32 + t * a.stride);
    if (quantize) kernels_.quantize(a, begin, end, 0, a.groups);
}

// x += out (normed first if post_norm) for rows [begin, end), then the next block's norm, if there is one.
void Step::add_and_norm(int begin, int end, const float* post_norm, const float* next_norm, bool quantize) {
    for (int t = begin; t < end; ++t) {
        float* out = work_.out.data() + t * work_.x_stride;
        if (post_norm) kernels_.rms_norm(out, post_norm, hidden_, model_.config_.norm_eps, out);
        kernels_.add(work_.x.data() + t * work_.x_stride, out, hidden_);
    }
    if (next_norm) norm_rows(begin, end, next_norm, quantize);
}

// Runs phase(last) and then tail(begin, end) over [0, n): shared out, or for a few tokens on the thread that ends the
// phase, while the others wait for it anyway.
template <class Phase, class Tail>
void Step::with_tail(int n, int chunk, const Phase& phase, const Tail& tail) {
    if (tokens_ <= kFewTokens) return phase([&] { tail(0, n); });
    phase([] {});
    pool_.for_each(n, chunk, tail);
}

// Products of the same activations with several matrices.
template <class Last>
void Step::multiply(const ActivationsView& a, int rows, std::span<const Product> products, const Last& last) {
    int tiles = 0;
    for (const Product& product : products) tiles += product.weights->tiles();
    const auto run = [&](int row, int row_end, int begin, int end) {
        int first = 0;
        for (const Product& product : products) {
            const int n = product.weights->tiles();
            const int tile_begin = std::max(begin - first, 0), tile_end = std::min(end - first, n);
            if (tile_begin < tile_end)
                kernels_.matmul(product.weights->view(), tile_begin, tile_end, a, row, row_end, product.out, product.stride);
            first += n;
        }
    };
    over_blocks(pool_, rows, tiles, products.front().weights->tile_bytes(), 16, run, last);
}

void Step::attention_block(int layer, int thread) {
    const auto i = static_cast<size_t>(layer);
    const LayerConfig& config = model_.config_.layers[i];
    const LayerWeights& w = model_.weights_.layers[i];
    const Product qkv[] = {{&w.q, work_.q.data(), work_.q_stride},
                           {&w.k, work_.k.data(), work_.kv_stride},
                           {&w.v, work_.v.data(), work_.kv_stride}};
    with_tail(
        static_cast<int>(work_.blocks.size()), 1,
        [&](const auto& last) { multiply(work_.normed.view(hidden_), tokens_, qkv, last); },
        [&](int begin, int end) { rotate_and_store(layer, begin, end); });
    attend(layer, thread);
    const ActivationsView attended = work_.attended.view(config.heads * config.head_dim);
    const Product o[] = {{&w.o, work_.out.data(), work_.x_stride}};
    const float* post_norm = config.post_norms ? w.attn_post_norm.data() : nullptr;
    const bool quantize = w.gate.integer() || w.up.integer();
    with_tail(
        tokens_, kFewTokens, [&](const auto& last) { multiply(attended, tokens_, o, last); },
        [&](int begin, int end) { add_and_norm(begin, end, post_norm, w.mlp_norm.data(), quantize); });
}

// out = down(activation(gate) * up). Two tiles of gate and up at a time: their 32 outputs are one activation group.
void Step::mlp_block(int layer) {
    const auto i = static_cast<size_t>(layer);
    const LayerConfig& config = model_.config_.layers[i];
    const LayerWeights& w = model_.weights_.layers[i];
    const ActivationsView normed = work_.normed.view(hidden_), gate = work_.gate.view(config.intermediate);
    const auto activate = config.gelu ? kernels_.gelu_tanh_mul : kernels_.silu_mul;
    const auto run = [&](int row, int row_end, int begin, int end) {
        const int tile_end = std::min(end * 2, w.gate.tiles());
        kernels_.matmul(w.gate.view(), begin * 2, tile_end, normed, row, row_end, gate.f32, gate.stride);
        kernels_.matmul(w.up.view(), begin * 2, tile_end, normed, row, row_end, work_.up.data(), work_.up_stride);
        const int column = begin * kGroup, n = std::min(config.intermediate, end * kGroup) - column;
        for (int t = row; t < row_end; ++t)
            activate(gate.f32 + t * gate.stride + column, work_.up.data() + t * work_.up_stride + column, n);
        if (w.down.integer()) kernels_.quantize(gate, row, row_end, begin, end);
    };
    const size_t pair_bytes = 2 * (w.gate.tile_bytes() + w.up.tile_bytes());
    over_blocks(pool_, tokens_, ceil_div(w.gate.tiles(), 2), pair_bytes, 8, run, [] {});

    const Product down[] = {{&w.down, work_.out.data(), work_.x_stride}};
    const bool last = i + 1 == model_.config_.layers.size();
    const LayerWeights* next = last ? nullptr : &model_.weights_.layers[i + 1];
    const float* post_norm = config.post_norms ? w.mlp_post_norm.data() : nullptr;
    const float* next_norm = next ? next->attn_norm.data() : nullptr;
    const bool quantize = next && (next->q.integer() || next->k.integer() || next->v.integer());
    with_tail(
        tokens_, kFewTokens, [&](const auto& end) { multiply(gate, tokens_, down, end); },
        [&](int begin, int end) { add_and_norm(begin, end, post_norm, next_norm, quantize); });
}

// The final norm of the rows asked for, exactly as the output head reads it before quantisation.
void Step::report_hidden() {
    const int rows = static_cast<int>(in_.hidden_rows.size());
    if (rows == 0) return;
    pool_.for_each(rows, 4, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            kernels_.rms_norm(work_.x.data() + in_.hidden_rows[static_cast<size_t>(r)] * work_.x_stride,
                              model_.weights_.output_norm.data(), hidden_, model_.config_.norm_eps,
                              in_.hidden + int64_t{r} * hidden_);
    });
}

// take(i, logits) for every row asked for, whoever of the threads is free. The logits of at most max_rows rows exist at a
// time, however many are asked for.
template <class Take>
void Step::each_logits(std::span<const int32_t> rows, Take&& take) {
    const ModelConfig& config = model_.config_;
    const Matrix& head = model_.weights_.head(config);
    const ActivationsView final = work_.final.view(hidden_);
    const Product logits[] = {{&head, work_.logits.data(), work_.logits_stride}};
    const int count = static_cast<int>(rows.size()), most = model_.limits_.max_rows;
    for (int first = 0; first < count; first += most) {
        const int n = std::min(most, count - first);
        pool_.for_each(n, 4, [&](int begin, int end) {
            for (int r = begin; r < end; ++r)
                kernels_.rms_norm(work_.x.data() + rows[static_cast<size_t>(first + r)] * work_.x_stride,
                                  model_.weights_.output_norm.data(), hidden_, config.norm_eps,
                                  final.f32 + r * final.stride);
            if (head.integer()) kernels_.quantize(final, begin, end, 0, final.groups);
        });
        multiply(final, n, logits, [] {});
        pool_.for_each(n, 1, [&](int begin, int end) {
            for (int r = begin; r < end; ++r) {
                float* row = work_.logits.data() + r * work_.logits_stride;
                if (config.final_softcap > 0.0f) kernels_.softcap(row, config.final_softcap, config.vocab);
                take(first + r, row);
            }
        });
    }
}

void Step::sample(int thread) {
    const int vocab = model_.config_.vocab;
    SamplerScratch& scratch = work_.sampler_scratch[static_cast<size_t>(thread)];
    each_logits(in_.sample_rows, [&](int r, float* row) {
        if (in_.logits)
            std::memcpy(in_.logits + static_cast<int64_t>(r) * vocab, row, static_cast<size_t>(vocab) * sizeof(float));
        if (!in_.keep_logits) sample_row(row, vocab, in_.sampling, r, in_.out, scratch);
    });
}

void sample_kept(ThreadPool& pool, Workspace& work, int vocab, const SamplingBatch& sampling, const SampleOutput& out,
                 int thread) {
    SamplerScratch& scratch = work.sampler_scratch[static_cast<size_t>(thread)];
    pool.for_each(sampling.rows, 1, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            sample_row(work.logits.data() + r * work.logits_stride, vocab, sampling, r, out, scratch);
    });
}

void Step::score(int thread) {
    const ScoreBatch& scores = in_.scores;
    SamplerScratch& scratch = work_.sampler_scratch[static_cast<size_t>(thread)];
    each_logits({scores.rows, static_cast<size_t>(scores.count)},
                [&](int i, float* row) { score_row(row, model_.config_.vocab, scores, i, scratch); });
}

}  // namespace millstream
