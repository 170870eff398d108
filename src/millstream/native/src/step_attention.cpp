// Attention of a step: rotation, KV pages, and how the work is shared among threads.
#include <algorithm>

#include "step.h"

namespace millstream {

// Biases, head norms and rotation of q and k of row blocks [begin, end); k and v go to their pages.
void Step::rotate_and_store(int layer, int begin, int end) {
    const auto i = static_cast<size_t>(layer);
    const LayerConfig& config = model_.config_.layers[i];
    const LayerWeights& w = model_.weights_.layers[i];
    const RopeConfig& rope = model_.config_.ropes[static_cast<size_t>(config.rope)];
    const int dim = config.head_dim, half = static_cast<int>(rope.inv_freq.size());
    const auto rotate = rope.interleaved ? kernels_.rope_interleaved : kernels_.rope_half;
    const float eps = model_.config_.norm_eps;
    const int64_t page_stride = model_.kv_.page_stride(layer);
    uint16_t* keys = model_.kv_.keys(layer);
    uint16_t* values = model_.kv_.values(layer);

    const auto prepare = [&](float* x, int heads, const std::vector<float>& norm, int token) {
        const float* cos = work_.cos[static_cast<size_t>(config.rope)].data() + static_cast<int64_t>(token) * half;
        const float* sin = work_.sin[static_cast<size_t>(config.rope)].data() + static_cast<int64_t>(token) * half;
        for (int h = 0; h < heads; ++h) {
            float* head = x + h * dim;
            if (config.qk_norm) kernels_.rms_norm(head, norm.data(), dim, eps, head);
            rotate(head, cos, sin, 2 * half);
        }
    };
    for (int b = begin; b < end; ++b) {
        const QueryBlock& block = work_.blocks[static_cast<size_t>(b)];
        const int32_t* table = in_.block_tables.data() + static_cast<int64_t>(block.sequence) * in_.table_width;
        for (int r = 0; r < block.rows; ++r) {
            const int token = block.first_token + r, position = block.first_position + r;
            float* q = work_.q.data() + token * work_.q_stride;
            float* k = work_.k.data() + token * work_.kv_stride;
            float* v = work_.v.data() + token * work_.kv_stride;
            if (config.qkv_bias) {
                kernels_.add(q, w.q_bias.data(), config.heads * dim);
                kernels_.add(k, w.k_bias.data(), config.kv_heads * dim);
                kernels_.add(v, w.v_bias.data(), config.kv_heads * dim);
            }
            prepare(q, config.heads, w.q_norm, token);
            prepare(k, config.kv_heads, w.k_norm, token);
            const int64_t page = table[position / kBlockSize] * page_stride;
            const int slot = position % kBlockSize;
            for (int h = 0; h < config.kv_heads; ++h) {
                const int64_t head = page + int64_t{h} * dim * kBlockSize;
                kernels_.store_kv(k + h * dim, v + h * dim, dim, keys + head + slot, values + head + slot * dim);
            }
        }
    }
}

AttentionItem Step::attention_item(int layer, const QueryBlock& block, int kv_head) const {
    const LayerConfig& config = model_.config_.layers[static_cast<size_t>(layer)];
    const int group = config.heads / config.kv_heads, dim = config.head_dim;
    const ActivationsView attended = work_.attended.view(config.heads * dim);
    const int64_t head = int64_t{kv_head} * dim * kBlockSize, column = int64_t{kv_head} * group * dim;
    const int last = block.first_position + block.rows - 1;
    const int first_visible = config.window > 0 ? std::max(0, block.first_position - config.window + 1) : 0;
    return {.q = work_.q.data() + block.first_token * work_.q_stride + column,
            .q_stride = work_.q_stride,
            .rows = block.rows,
            .group = group,
            .head_dim = dim,
            .state_width = attention_state_width(dim),
            .first_position = block.first_position,
            .window = config.window,
            .scale = config.attention_scale,
            .softcap = config.softcap,
            .block_table = in_.block_tables.data() + static_cast<int64_t>(block.sequence) * in_.table_width,
            .keys = model_.kv_.keys(layer) + head,
            .values = model_.kv_.values(layer) + head,
            .page_stride = model_.kv_.page_stride(layer),
            .part_begin = first_visible / kPartSize,
            .part_end = last / kPartSize + 1,
            .out = attended.f32 + block.first_token * attended.stride + column,
            .out_stride = attended.stride,
            .partial = nullptr};
}

// The whole of every (row block, KV head) on one thread. Later blocks of a prompt see more, so they come first.
void Step::attend_whole(const AttentionPlan& plan, const AttentionScratch& scratch) {
    pool_.for_each(plan.pairs, 1, [&](int i, int) {
        const int pair = plan.pairs - 1 - i;
        kernels_.attend(item_of(plan, pair), scratch);
        quantize_attended(plan, pair);
    });
}

// Parts of 256 positions apart, then merged in the same order as above and so with the same bits.
void Step::attend_split(const AttentionPlan& plan, const AttentionScratch& scratch) {
    const auto partial_of = [&](int pair) { return work_.partial.data() + int64_t{pair} * plan.parts * plan.part_floats; };
    pool_.for_each(plan.pairs * plan.parts, 1, [&](int i, int) {
        AttentionItem item = item_of(plan, i / plan.parts);
        const int part = i % plan.parts;
        if (item.part_begin + part >= item.part_end) return;
        item.partial = partial_of(i / plan.parts) + int64_t{part} * item.rows * item.group * item.state_width;
        item.part_begin += part;
        item.part_end = item.part_begin + 1;
        kernels_.attend(item, scratch);
    });
    pool_.for_each(plan.pairs, 1, [&](int pair, int) {
        const AttentionItem item = item_of(plan, pair);
        kernels_.merge_parts(partial_of(pair), item.part_end - item.part_begin, item, scratch);
        quantize_attended(plan, pair);
    });
}

AttentionItem Step::item_of(const AttentionPlan& plan, int pair) const {
    const int kv_heads = model_.config_.layers[static_cast<size_t>(plan.layer)].kv_heads;
    return attention_item(plan.layer, work_.blocks[static_cast<size_t>(pair / kv_heads)], pair % kv_heads);
}

// Quantises the result of one pair, if the next product needs it and the heads are whole activation groups.
void Step::quantize_attended(const AttentionPlan& plan, int pair) {
    if (!plan.quantize_pairs) return;
    const LayerConfig& config = model_.config_.layers[static_cast<size_t>(plan.layer)];
    const QueryBlock& block = work_.blocks[static_cast<size_t>(pair / config.kv_heads)];
    const int groups = config.heads / config.kv_heads * config.head_dim / kGroup, first = pair % config.kv_heads * groups;
    kernels_.quantize(work_.attended.view(config.heads * config.head_dim), block.first_token,
                      block.first_token + block.rows, first, first + groups);
}

Step::AttentionPlan Step::plan_attention(int layer) const {
    const LayerConfig& config = model_.config_.layers[static_cast<size_t>(layer)];
    const int group = config.heads / config.kv_heads;
    AttentionPlan plan{.layer = layer, .pairs = static_cast<int>(work_.blocks.size()) * config.kv_heads};
    int rows = 1;
    for (const QueryBlock& block : work_.blocks) {
        const AttentionItem item = attention_item(layer, block, 0);
        plan.parts = std::max(plan.parts, item.part_end - item.part_begin);
        rows = std::max(rows, block.rows);
    }
    plan.part_floats = int64_t{rows} * group * attention_state_width(config.head_dim);
    const size_t needed = static_cast<size_t>(plan.part_floats) * static_cast<size_t>(plan.parts) *
                          static_cast<size_t>(plan.pairs) * sizeof(float);
    plan.split = pool_.size() > 1 && plan.parts > 1 && plan.pairs < 4 * pool_.size() && needed <= work_.partial.bytes();
    plan.quantize_pairs =
        model_.weights_.layers[static_cast<size_t>(layer)].o.integer() && group * config.head_dim % kGroup == 0;
    return plan;
}

// Attention of every (row block, KV head), split into parts if these are too few to keep all threads busy.
void Step::attend(int layer, int thread) {
    const AttentionPlan plan = plan_attention(layer);
    const AttentionScratch& scratch = work_.attention_scratch[static_cast<size_t>(thread)];
    if (plan.split) {
        attend_split(plan, scratch);
    } else {
        attend_whole(plan, scratch);
    }
    if (plan.quantize_pairs || !model_.weights_.layers[static_cast<size_t>(layer)].o.integer()) return;
    const LayerConfig& config = model_.config_.layers[static_cast<size_t>(layer)];
    const ActivationsView attended = work_.attended.view(config.heads * config.head_dim);
    pool_.for_each(tokens_, 4, [&](int begin, int end) { kernels_.quantize(attended, begin, end, 0, attended.groups); });
}

}  // namespace millstream
