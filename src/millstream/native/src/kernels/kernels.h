// The dispatch table: one set of kernels per ISA level. All have the same bits as results, but for the attention of `amx` over
// f16 pages, where a row has the same bits in any company.
#pragma once

#include "views.h"

namespace millstream {

struct Kernels {
    const char* name;

    // Quantises groups [group_begin, group_end) of rows [begin, end) of a.f32.
    void (*quantize)(const ActivationsView& a, int begin, int end, int group_begin, int group_end);

    // out[row * out_stride + o] = sum over inputs, for activation rows [row_begin, row_end) and the output rows o of
    // tiles [tile_begin, tile_end): 16 floats per tile are written, padding rows included.
    void (*matmul)(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin, int row_end,
                   float* out, int64_t out_stride);

    // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x.
    void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);

    // x[i] += y[i]
    void (*add)(float* x, const float* y, int n);

    // x[i] *= factor
    void (*scale)(float* x, float factor, int n);

    // gate[i] = activation(gate[i]) * up[i]
    void (*silu_mul)(float* gate, const float* up, int n);
    void (*gelu_tanh_mul)(float* gate, const float* up, int n);

    // x[i] = cap * tanh(x[i] / cap)
    void (*softcap)(float* x, float cap, int n);

    // Rotates one head in place by cos/sin [dims / 2].
    void (*rope_half)(float* x, const float* cos, const float* sin, int dims);
    void (*rope_interleaved)(float* x, const float* cos, const float* sin, int dims);

    // Stores one head of position `slot` of a page, which is given by the beginnings of the head's keys and values.
    void (*store_kv)(KvType type, const float* k, const float* v, int dims, int slot, uint8_t* keys, uint8_t* values);

    // Attention of one item (see AttentionItem), and the merge of `parts` partial results of `queries` query vectors
    // [part][query][...] in order of part, into out (query (row, head) as in AttentionItem).
    void (*attend)(const AttentionItem& item, const AttentionScratch& scratch);
    void (*merge_parts)(const float* partial, int parts, const AttentionItem& item, const AttentionScratch& scratch);
};

// Levels this build has and this machine can run, slowest first.
const Kernels* const* kernel_levels(int* count);

// The best level, or the one MILLSTREAM_ISA names; throws std::runtime_error if that cannot run here.
const Kernels& active_kernels();

}  // namespace millstream
