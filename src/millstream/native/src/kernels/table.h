// Body of the levels' .cpp files: everything here is compiled once per ISA level in the level's own (unnamed) namespace, so the
// linker can never merge code of different levels.

#include "elementwise.h"
#include "quantize.h"
#include "matmul_float.h"
#include "attention.h"
#include "matmul_dispatch.h"

static constexpr Kernels table(const char* name) {
    return {.name = name,
            .quantize = quantize,
            .matmul = matmul,
            .rms_norm = rms_norm,
            .add = add,
            .scale = scale,
            .silu_mul = silu_mul,
            .gelu_tanh_mul = gelu_tanh_mul,
            .softcap = softcap,
            .rope_half = rope_half,
            .rope_interleaved = rope_interleaved,
            .store_kv = store_kv,
            .attend = attend,
            .merge_parts = merge_parts};
}
