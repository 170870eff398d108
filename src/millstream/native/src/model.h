// A model: weights, KV pages, and the program of one step.
#pragma once

#include <mutex>
#include <optional>
#include <span>

#include "config.h"
#include "kernels/kernels.h"
#include "sampler.h"
#include "threads.h"
#include "weights.h"
#include "workspace.h"

namespace millstream {

// Arguments of a step; see Model.step in _core.pyi. logits may be null, and hidden if hidden_rows is empty. keep_logits:
// those of sample_rows wait for Model::sample; sampling and out are then not used.
struct StepInput {
    std::span<const int32_t> tokens, seq_starts, seq_positions, block_tables, sample_rows, hidden_rows;
    int table_width = 0;
    SamplingBatch sampling{};
    SampleOutput out{};
    ScoreBatch scores{};
    float* logits = nullptr;
    float* hidden = nullptr;
    bool keep_logits = false;
};

class Model {
public:
    Model(ModelConfig config, const Limits& limits);

    // Once; see Weights::load.
    void load(std::span<const TensorSource> tensors, bool mapped);

    // Throws std::invalid_argument, before anything runs, if the input does not fit together.
    void step(const StepInput& input);

    // Samples, once, what the last step kept. Throws std::invalid_argument if that were other rows or none.
    void sample(const SamplingBatch& sampling, const SampleOutput& out);

    int threads() const { return pool_.size(); }
    uint64_t progress() const { return pool_.progress(); }
    int vocab() const { return config_.vocab; }
    int hidden() const { return config_.hidden; }
    size_t weight_bytes() const { return weights_.bytes(); }
    size_t kv_bytes() const { return kv_.bytes(); }

private:
    void check(const StepInput& input) const;
    void plan(const StepInput& input);

    ModelConfig config_;
    Limits limits_;
    const Kernels& kernels_;
    ThreadPool pool_;
    Weights weights_;
    Workspace work_;
    KvCache kv_;
    std::mutex mutex_;
    bool loaded_ = false;
    int kept_rows_ = 0;  // of the logits in work_, which wait for sample

    friend class Step;
};

}  // namespace millstream
