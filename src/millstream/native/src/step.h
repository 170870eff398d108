// The program of one step, run by the threads of the pool at once.
#pragma once

#include "model.h"

namespace millstream {

class Step {
public:
    Step(Model& model, const StepInput& input);

    // The body of a region of the pool: what threads share, they write in its phases only.
    void run(int thread);

private:
    struct Product {
        const Matrix* weights;
        float* out;
        int64_t stride;
    };

    // How a layer's attention is shared out. A pair is a row block and a KV head.
    struct AttentionPlan {
        int layer, pairs;
        int parts = 1;            // of 256 positions, the most of any pair
        int64_t part_floats = 0;  // room for one unmerged part of a pair
        bool split = false, quantize_pairs = false;
    };

    void embed();
    void attention_block(int layer, int thread);
    void mlp_block(int layer);
    void report_hidden();
    void sample(int thread);
    void score(int thread);
    template <class Take>
    void each_logits(std::span<const int32_t> rows, Take&& take);

    template <class Phase, class Tail>
    void with_tail(int n, int chunk, const Phase& phase, const Tail& tail);
    template <class Last>
    void multiply(const ActivationsView& a, int rows, std::span<const Product> products, const Last& last);
    void rotate_and_store(int layer, int begin, int end);
    void attend(int layer, int thread);
    AttentionPlan plan_attention(int layer) const;
    void attend_whole(const AttentionPlan& plan, const AttentionScratch& scratch);
    void attend_split(const AttentionPlan& plan, const AttentionScratch& scratch);
    void quantize_attended(const AttentionPlan& plan, int pair);
    AttentionItem item_of(const AttentionPlan& plan, int pair) const;
    void add_and_norm(int begin, int end, const float* post_norm, const float* next_norm, bool quantize);
    void norm_rows(int begin, int end, const float* weight, bool quantize);
    AttentionItem attention_item(int layer, const QueryBlock& block, int kv_head) const;

    Model& model_;
    const StepInput& in_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    Workspace& work_;
    const int tokens_;
    const int hidden_;
};

// Samples the logits that a step has kept, row by row; the body of a region of the pool.
void sample_kept(ThreadPool& pool, Workspace& work, int vocab, const SamplingBatch& sampling, const SampleOutput& out,
                 int thread);

}  // namespace millstream
