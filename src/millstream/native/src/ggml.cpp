// Block layouts: ggml's quantisation formats (ggml-common.h); checked against gguf.quants.
#include "ggml.h"

#include <cstring>

#include "kernels/half.h"

namespace millstream {

namespace {

float half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half_to_float(half);
}

// 32 four-bit integers: input i in the low nibble of byte i, input i + 16 in the high one.
void unpack_nibbles(const uint8_t* p, int8_t* q) {
    for (int i = 0; i < 16; ++i) {
        q[i] = static_cast<int8_t>(p[i] & 15);
        q[i + 16] = static_cast<int8_t>(p[i] >> 4);
    }
}

void add_fifth_bits(const uint8_t* p, int8_t* q) {
    uint32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] | (bits >> i & 1) << 4);
}

// The eight 6-bit (scale, min) pairs that Q4_K and Q5_K pack into 12 bytes.
void unpack_scales_k(const uint8_t* p, uint8_t* scales, uint8_t* mins) {
    for (int i = 0; i < 4; ++i) {
        scales[i] = p[i] & 63;
        mins[i] = p[i + 4] & 63;
        scales[i + 4] = static_cast<uint8_t>((p[i + 8] & 15) | (p[i] >> 6) << 4);
        mins[i + 4] = static_cast<uint8_t>((p[i + 8] >> 4) | (p[i + 4] >> 6) << 4);
    }
}

void decode_q4_0(const uint8_t* p, int8_t* q, float* scale, float* min) {
    *scale = half_at(p);
    *min = -8.0f * *scale;
    unpack_nibbles(p + 2, q);
}

void decode_q4_1(const uint8_t* p, int8_t* q, float* scale, float* min) {
    *scale = half_at(p);
    *min = half_at(p + 2);
    unpack_nibbles(p + 4, q);
}

void decode_q5_0(const uint8_t* p, int8_t* q, float* scale, float*) {
    *scale = half_at(p);
    unpack_nibbles(p + 6, q);
    add_fifth_bits(p + 2, q);
    for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] - 16);
}

void decode_q5_1(const uint8_t* p, int8_t* q, float* scale, float* min) {
    *scale = half_at(p);
    *min = half_at(p + 2);
    unpack_nibbles(p + 8, q);
    add_fifth_bits(p + 4, q);
}

void decode_q8_0(const uint8_t* p, int8_t* q, float* scale, float*) {
    *scale = half_at(p);
    std::memcpy(q, p + 2, 32);
}

// Q4_K and Q5_K: 256 weights in 8 groups; groups 2i and 2i + 1 share 32 bytes of nibbles.
void decode_k(const uint8_t* p, const uint8_t* fifth_bits, const uint8_t* nibbles, int8_t* q, float* scales, float* mins) {
    const float d = half_at(p), d_min = half_at(p + 2);
    uint8_t group_scales[8], group_mins[8];
    unpack_scales_k(p + 4, group_scales, group_mins);
    for (int g = 0; g < 8; ++g) {
        scales[g] = d * static_cast<float>(group_scales[g]);
        mins[g] = -(d_min * static_cast<float>(group_mins[g]));
        for (int i = 0; i < 32; ++i) {
            const int low = nibbles[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
            const int high = fifth_bits ? (fifth_bits[i] >> g & 1) << 4 : 0;
            q[g * 32 + i] = static_cast<int8_t>(low | high);
        }
    }
}

void decode_q4_k(const uint8_t* p, int8_t* q, float* scales, float* mins) {
    decode_k(p, nullptr, p + 16, q, scales, mins);
}

void decode_q5_k(const uint8_t* p, int8_t* q, float* scales, float* mins) {
    decode_k(p, p + 16, p + 48, q, scales, mins);
}

// Q6_K: 256 weights, 16 scales of 8 bits; per half of 128: 64 bytes of nibbles and 32 bytes of upper bits.
void decode_q6_k(const uint8_t* p, int8_t* q, float* scales, float*) {
    const float d = half_at(p + 208);
    for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(static_cast<int8_t>(p[192 + g]));
    for (int half = 0; half < 2; ++half) {
        const uint8_t* low = p + half * 64;
        const uint8_t* high = p + 128 + half * 32;
        for (int part = 0; part < 4; ++part) {  // 32 weights each
            for (int i = 0; i < 32; ++i) {
                const int nibble = low[part % 2 * 32 + i] >> (part / 2 * 4) & 15;
                const int upper = high[i] >> (part * 2) & 3;
                q[half * 128 + part * 32 + i] = static_cast<int8_t>((nibble | upper << 4) - 32);
            }
        }
    }
}

using DecodeBlock = void (*)(const uint8_t*, int8_t*, float*, float*);

DecodeBlock block_decoder(GgmlType type) {
    switch (type) {
        case GgmlType::Q4_0: return decode_q4_0;
        case GgmlType::Q4_1: return decode_q4_1;
        case GgmlType::Q5_0: return decode_q5_0;
        case GgmlType::Q5_1: return decode_q5_1;
        case GgmlType::Q8_0: return decode_q8_0;
        case GgmlType::Q4_K: return decode_q4_k;
        case GgmlType::Q5_K: return decode_q5_k;
        case GgmlType::Q6_K: return decode_q6_k;
        default: return nullptr;
    }
}

}  // namespace

const GgmlTraits* ggml_traits(int type) {
    static constexpr GgmlTraits f32{"F32", 1, 4, 0, false, false}, f16{"F16", 1, 2, 0, false, false},
        bf16{"BF16", 1, 2, 0, false, false}, q4_0{"Q4_0", 32, 18, 32, true, true},
        q4_1{"Q4_1", 32, 20, 32, true, true}, q5_0{"Q5_0", 32, 22, 32, false, false},
        q5_1{"Q5_1", 32, 24, 32, true, false}, q8_0{"Q8_0", 32, 34, 32, false, false},
        q4_k{"Q4_K", 256, 144, 32, true, true}, q5_k{"Q5_K", 256, 176, 32, true, false},
        q6_k{"Q6_K", 256, 210, 16, false, false};
    switch (static_cast<GgmlType>(type)) {
        case GgmlType::F32: return &f32;
        case GgmlType::F16: return &f16;
        case GgmlType::BF16: return &bf16;
        case GgmlType::Q4_0: return &q4_0;
        case GgmlType::Q4_1: return &q4_1;
        case GgmlType::Q5_0: return &q5_0;
        case GgmlType::Q5_1: return &q5_1;
        case GgmlType::Q8_0: return &q8_0;
        case GgmlType::Q4_K: return &q4_k;
        case GgmlType::Q5_K: return &q5_k;
        case GgmlType::Q6_K: return &q6_k;
    }
    return nullptr;
}

void decode_row(GgmlType type, const uint8_t* row, int cols, int8_t* q, float* scales, float* mins) {
    const GgmlTraits& traits = *ggml_traits(static_cast<int>(type));
    const DecodeBlock decode = block_decoder(type);
    const int groups_per_block = traits.block_size / traits.group;
    for (int block = 0; block < cols / traits.block_size; ++block) {
        decode(row + static_cast<int64_t>(block) * traits.block_bytes, q + block * traits.block_size,
               scales + block * groups_per_block, mins + block * groups_per_block);
    }
}

}  // namespace millstream
