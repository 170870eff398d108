#include "model.h"

#include <stdexcept>

#include "step.h"

namespace millstream {

namespace {

[[noreturn]] void fail(const std::string& why) { throw std::invalid_argument(why); }

void require(bool ok, const char* why) {
    if (!ok) fail(why);
}

ModelConfig checked(ModelConfig config, const Limits& limits) {
    check_config(config, limits);
    return config;
}

}  // namespace

Model::Model(ModelConfig config, const Limits& limits)
    : config_(checked(std::move(config), limits)),
      limits_(limits),
      kernels_(active_kernels()),
      pool_(limits.threads ? limits.threads : default_threads()),
      weights_(config_),
      work_(config_, limits, pool_.size()),
      kv_(config_, limits) {}

void Model::load(std::span<const TensorSource> tensors, bool mapped) {
    const std::lock_guard<std::mutex> lock(mutex_);
    require(!loaded_, "the model is loaded already");
    weights_.load(config_, tensors, mapped, pool_);
    loaded_ = true;
}

// Everything that an index or a size depends on.
void Model::check(const StepInput& in) const {
    require(loaded_, "step before load");
    const auto tokens = static_cast<int64_t>(in.tokens.size());
    const auto sequences = static_cast<int64_t>(in.seq_positions.size());
    require(tokens > 0, "tokens is empty");
    require(tokens <= limits_.max_tokens, "tokens has more than max_tokens entries");
    require(static_cast<int64_t>(in.seq_starts.size()) == sequences + 1, "seq_starts must have one entry more than seq_positions");
    require(static_cast<int64_t>(in.block_tables.size()) == sequences * in.table_width,
            "block_tables must have one row per sequence");
    require(in.seq_starts.front() == 0 && in.seq_starts.back() == tokens, "seq_starts must run from 0 to the number of tokens");
    for (const int32_t token : in.tokens)
        if (token < 0 || token >= config_.vocab) fail("token " + std::to_string(token) + " is not in the vocabulary");
    for (size_t s = 0; s < in.seq_positions.size(); ++s) {
        const std::string name = "sequence " + std::to_string(s);
        const int64_t count = int64_t{in.seq_starts[s + 1]} - in.seq_starts[s];
        if (count <= 0) fail("seq_starts must rise at " + name);
        const int64_t end = in.seq_positions[s] + count;
        if (in.seq_positions[s] < 0 || end > config_.context_length) fail(name + " runs outside the context");
        const int64_t blocks = (end + kBlockSize - 1) / kBlockSize;
        if (blocks > in.table_width) fail("block_tables is too narrow for " + name);
        for (int64_t b = 0; b < blocks; ++b) {
            const int32_t block = in.block_tables[s * static_cast<size_t>(in.table_width) + static_cast<size_t>(b)];
            if (block < 0 || block >= limits_.kv_blocks) fail("block_tables names no page for " + name);
        }
    }
    require(static_cast<int64_t>(in.sample_rows.size()) <= limits_.max_rows, "sample_rows has more than max_rows entries");
    require(in.keep_logits || static_cast<int64_t>(in.sample_rows.size()) == in.sampling.rows,
            "sampling must have one row per sample row");
    for (const int32_t row : in.sample_rows)
        if (row < 0 || row >= tokens) fail("sample row " + std::to_string(row) + " is not a token of this step");
    require(static_cast<int64_t>(in.hidden_rows.size()) <= tokens, "hidden_rows has more entries than there are tokens");
    for (const int32_t row : in.hidden_rows)
        if (row < 0 || row >= tokens) fail("hidden row " + std::to_string(row) + " is not a token of this step");
    require(in.scores.count <= tokens, "scores has more entries than there are tokens");
    for (int i = 0; i < in.scores.count; ++i) {
        const int32_t row = in.scores.rows[i], target = in.scores.targets[i];
        if (row < 0 || row >= tokens) fail("scored row " + std::to_string(row) + " is not a token of this step");
        if (target < 0 || target >= config_.vocab) fail("target " + std::to_string(target) + " is not in the vocabulary");
    }
}

// Cuts sequences into the row blocks of attention.
void Model::plan(const StepInput& in) {
    work_.blocks.clear();
    const int most = work_.block_rows(static_cast<int>(in.tokens.size()), config_.layers.front().kv_heads, pool_.size());
    for (int s = 0; s < static_cast<int>(in.seq_positions.size()); ++s) {
        const auto i = static_cast<size_t>(s);
        for (int token = in.seq_starts[i]; token < in.seq_starts[i + 1]; token += most) {
            const int rows = std::min(most, in.seq_starts[i + 1] - token);
            work_.blocks.push_back({s, token, rows, in.seq_positions[i] + token - in.seq_starts[i]});
        }
    }
}

void Model::step(const StepInput& input) {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_rows_ = 0;
    check(input);
    plan(input);
    Step step(*this, input);
    auto region = [&](int thread) { step.run(thread); };
    pool_.run(region);
    if (input.keep_logits) kept_rows_ = static_cast<int>(input.sample_rows.size());
}

void Model::sample(const SamplingBatch& sampling, const SampleOutput& out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    require(kept_rows_ > 0, "no step has kept logits to sample");
    require(sampling.rows == kept_rows_, "sampling must have one row per sample row of the step");
    kept_rows_ = 0;  // sampling overwrites them
    auto region = [&](int thread) { sample_kept(pool_, work_, config_.vocab, sampling, out, thread); };
    pool_.run(region);
}

}  // namespace millstream
