// Block layouts: ggml's quantisation formats (ggml-common.h); checked against gguf.quants.
//
// Per block type: one function that turns a block of one row into the bytes that its groups have in a tile. For U4 these are
// 16 bytes a group, input i in the low and input i + 16 in the high nibble of byte i; else 32 signed bytes. A tile then has
// the rows' bytes interleaved, four at a time. All loops are over bytes, so that compilers vectorise them for any processor.
#include "repack.h"

#include <array>
#include <cstring>

#include "kernels/half.h"

namespace millstream {

namespace {

uint16_t half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half;
}

void put(uint16_t half, uint16_t& out) { out = half; }
void put(uint16_t half, float& out) { out = half_to_float(half); }

// -8 * half; false if that is no f16.
bool put_times_minus_8(uint16_t half, uint16_t& out) {
    const int exponent = half >> 10 & 31;
    if (exponent >= 1 && exponent <= 27) {
        out = static_cast<uint16_t>((half + (3 << 10)) ^ 0x8000);
        return true;
    }
    const float product = -8.0f * half_to_float(half);
    out = float_to_half(product);
    return float_to_bits(half_to_float(out)) == float_to_bits(product);
}

bool put_times_minus_8(uint16_t half, float& out) {
    out = -8.0f * half_to_float(half);
    return true;
}

// Not one memcpy of 16 bytes: gcc 12 makes a vector load of it that needs alignment, where it vectorises the loop around.
template <int kBytes>
void copy(const uint8_t* from, uint8_t* to) {
    for (int i = 0; i < kBytes; i += 8) {
        uint64_t word;
        std::memcpy(&word, from + i, sizeof word);
        std::memcpy(to + i, &word, sizeof word);
    }
}

constexpr uint64_t kOnes = 0x0101010101010101u;  // 1 in each byte

// kFifths[b]: byte j is 16 if bit j of b is set.
constexpr auto kFifths = [] {
    std::array<uint64_t, 256> table{};
    for (unsigned b = 0; b < 256; ++b)
        for (unsigned j = 0; j < 8; ++j) table[b] |= uint64_t{b >> j & 1} << (8 * j + 4);
    return table;
}();

// 32 integers of five bits: nibbles as U4 has them, and bit i of the four bytes `fifth` for integer i; less 16 if kSigned.
template <bool kSigned>
void spread_fives(const uint8_t* nibbles, const uint8_t* fifth, uint8_t* q) {
    uint64_t low[2], out[4];
    for (int i = 0; i < 2; ++i) std::memcpy(&low[i], nibbles + i * 8, sizeof low[i]);
    for (int i = 0; i < 4; ++i) {
        const uint64_t value = (low[i % 2] >> (i / 2 * 4) & 0x0f * kOnes) | kFifths[fifth[i]];
        out[i] = kSigned ? (value + 0x70 * kOnes) ^ 0x80 * kOnes : value;
    }
    for (int i = 0; i < 4; ++i) std::memcpy(q + i * 8, &out[i], sizeof out[i]);
}

// The eight 6-bit (scale, min) pairs that Q4_K and Q5_K pack into 12 bytes, times d and -d_min.
void scales_k(const uint8_t* p, float* scales, float* mins) {
    const float d = half_to_float(half_at(p)), d_min = half_to_float(half_at(p + 2));
    p += 4;
    for (int i = 0; i < 4; ++i) {
        scales[i] = d * static_cast<float>(p[i] & 63);
        mins[i] = -(d_min * static_cast<float>(p[i + 4] & 63));
        scales[i + 4] = d * static_cast<float>((p[i + 8] & 15) | (p[i] >> 6) << 4);
        mins[i + 4] = -(d_min * static_cast<float>((p[i + 8] >> 4) | (p[i + 4] >> 6) << 4));
    }
}

// The block types. kGroups: groups of 32 in a block; kParts: scales of a group; kMins: value = scale * q + min.
// unpack: q [kGroups][16 or 32], scales and mins [kGroups * kParts]; false as repack_tile.

struct Q4_0 {
    static constexpr int kBytes = 18, kGroups = 1, kParts = 1;
    static constexpr bool kNibbles = true, kMins = true;
    template <class S>
    static bool unpack(const uint8_t* p, uint8_t* q, S* scale, S* min) {
        put(half_at(p), *scale);
        copy<16>(p + 2, q);
        return put_times_minus_8(half_at(p), *min);
    }
};

struct Q4_1 {
    static constexpr int kBytes = 20, kGroups = 1, kParts = 1;
    static constexpr bool kNibbles = true, kMins = true;
    template <class S>
    static bool unpack(const uint8_t* p, uint8_t* q, S* scale, S* min) {
        put(half_at(p), *scale);
        put(half_at(p + 2), *min);
        copy<16>(p + 4, q);
        return true;
    }
};

struct Q5_0 {
    static constexpr int kBytes = 22, kGroups = 1, kParts = 1;
    static constexpr bool kNibbles = false, kMins = false;
    template <class S>
    static bool unpack(const uint8_t* p, uint8_t* q, S* scale, S*) {
        put(half_at(p), *scale);
        spread_fives<true>(p + 6, p + 2, q);
        return true;
    }
};

struct Q5_1 {
    static constexpr int kBytes = 24, kGroups = 1, kParts = 1;
    static constexpr bool kNibbles = false, kMins = true;
    template <class S>
    static bool unpack(const uint8_t* p, uint8_t* q, S* scale, S* min) {
        put(half_at(p), *scale);
        put(half_at(p + 2), *min);
        spread_fives<false>(p + 8, p + 4, q);
        return true;
    }
};

struct Q8_0 {
    static constexpr int kBytes = 34, kGroups = 1, kParts = 1;
    static constexpr bool kNibbles = false, kMins = false;
    template <class S>
    static bool unpack(const uint8_t* p, uint8_t* q, S* scale, S*) {
        put(half_at(p), *scale);
        copy<32>(p + 2, q);
        return true;
    }
};

// Groups 2i and 2i + 1 share 32 bytes, low and high nibbles.
struct Q4_K {
    static constexpr int kBytes = 144, kGroups = 8, kParts = 1;
    static constexpr bool kNibbles = true, kMins = true;
    static bool unpack(const uint8_t* p, uint8_t* q, float* scales, float* mins) {
        scales_k(p, scales, mins);
        for (const uint8_t* pair = p + 16; pair < p + kBytes; pair += 32, q += 32) {
            for (int i = 0; i < 16; ++i) {
                q[i] = static_cast<uint8_t>((pair[i] & 15) | pair[i + 16] << 4);
                q[i + 16] = static_cast<uint8_t>(pair[i] >> 4 | (pair[i + 16] & 0xf0));
            }
        }
        return true;
    }
};

// As Q4_K; bit g of byte i is the fifth bit of weight i of group g.
struct Q5_K {
    static constexpr int kBytes = 176, kGroups = 8, kParts = 1;
    static constexpr bool kNibbles = false, kMins = true;
    static bool unpack(const uint8_t* p, uint8_t* q, float* scales, float* mins) {
        scales_k(p, scales, mins);
        const uint8_t* fifth = p + 16;
        const uint8_t* nibbles = p + 48;
        for (int g = 0; g < 8; g += 2, nibbles += 32, q += 64) {
            for (int i = 0; i < 32; ++i) {
                q[i] = static_cast<uint8_t>((nibbles[i] & 15) | (fifth[i] >> g & 1) << 4);
                q[i + 32] = static_cast<uint8_t>(nibbles[i] >> 4 | (fifth[i] >> (g + 1) & 1) << 4);
            }
        }
        return true;
    }
};

// Sixteen scales of 8 bits; per half of 128 weights 64 bytes of nibbles and 32 bytes of upper bits.
struct Q6_K {
    static constexpr int kBytes = 210, kGroups = 8, kParts = 2;
    static constexpr bool kNibbles = false, kMins = false;
    static bool unpack(const uint8_t* p, uint8_t* q, float* scales, float*) {
        const float d = half_to_float(half_at(p + 208));
        for (int i = 0; i < 16; ++i) scales[i] = d * static_cast<float>(static_cast<int8_t>(p[192 + i]));
        for (int half = 0; half < 2; ++half, q += 128) {
            const uint8_t* low = p + half * 64;
            const uint8_t* high = p + 128 + half * 32;
            for (int i = 0; i < 32; ++i) {
                q[i] = static_cast<uint8_t>(((low[i] & 15) | (high[i] & 3) << 4) - 32);
                q[i + 32] = static_cast<uint8_t>(((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4) - 32);
                q[i + 64] = static_cast<uint8_t>((low[i] >> 4 | (high[i] >> 4 & 3) << 4) - 32);
                q[i + 96] = static_cast<uint8_t>((low[i + 32] >> 4 | high[i] >> 6 << 4) - 32);
            }
        }
        return true;
    }
};

// out[quad][16 rows][4] = bytes 4 * quad .. 4 * quad + 3 of q[row].
void interleave(const uint8_t* q, size_t stride, int quads, uint8_t* out) {
    for (int quad = 0; quad < quads; ++quad) {
        for (size_t lane = 0; lane < kTileRows; ++lane) std::memcpy(out + lane * 4, q + lane * stride + quad * 4, 4);
        out += kTileRows * 4;
    }
}

template <class Block, class S>
bool repack_blocks(const uint8_t* rows, size_t row_bytes, int count, int cols, const TilePlace& to) {
    constexpr int kScales = Block::kGroups * Block::kParts;
    constexpr int kRowBytes = Block::kNibbles ? kGroup / 2 : kGroup;  // of a group
    uint8_t q[kTileRows][Block::kGroups * kRowBytes] = {};
    S scales[kScales] = {}, mins[kScales] = {};
    uint8_t* data = to.data;
    auto* out_scales = static_cast<S*>(to.scales);
    auto* out_mins = static_cast<S*>(to.mins);
    bool exact = true;
    for (int block = 0; block < cols / (Block::kGroups * kGroup); ++block, rows += Block::kBytes) {
        for (int lane = 0; lane < count; ++lane) {
            exact &= Block::unpack(rows + static_cast<size_t>(lane) * row_bytes, q[lane], scales, mins);
            for (int i = 0; i < kScales; ++i) out_scales[i * kTileRows + lane] = scales[i];
            if constexpr (Block::kMins)
                for (int i = 0; i < kScales; ++i) out_mins[i * kTileRows + lane] = mins[i];
        }
        for (int g = 0; g < Block::kGroups; ++g, data += kTileRows * kRowBytes)
            interleave(&q[0][g * kRowBytes], sizeof q[0], kRowBytes / 4, data);
        out_scales += kScales * kTileRows;
        if constexpr (Block::kMins) out_mins += kScales * kTileRows;
    }
    return exact;
}

// Types whose scales are f16 in the file.
template <class Block>
bool repack_simple(const uint8_t* rows, size_t row_bytes, int count, int cols, const TilePlace& to) {
    return to.half_scales ? repack_blocks<Block, uint16_t>(rows, row_bytes, count, cols, to)
                          : repack_blocks<Block, float>(rows, row_bytes, count, cols, to);
}

template <class T>
bool interleave_floats(const uint8_t* rows, size_t row_bytes, int count, int cols, const TilePlace& to) {
    uint8_t* out = to.data;
    for (int k = 0; k < cols; ++k, rows += sizeof(T), out += kTileRows * sizeof(T))
        for (int lane = 0; lane < count; ++lane)
            std::memcpy(out + static_cast<size_t>(lane) * sizeof(T), rows + static_cast<size_t>(lane) * row_bytes, sizeof(T));
    return true;
}

}  // namespace

Format format_of(GgmlType type) {
    switch (type) {
        case GgmlType::F32: return Format::F32;
        case GgmlType::F16: return Format::F16;
        case GgmlType::BF16: return Format::BF16;
        case GgmlType::Q4_0:
        case GgmlType::Q4_1:
        case GgmlType::Q4_K: return Format::U4;
        case GgmlType::Q6_K: return Format::I8G16;
        default: return Format::I8;
    }
}

bool has_half_scales(GgmlType type) {
    return type != GgmlType::Q4_K && type != GgmlType::Q5_K && type != GgmlType::Q6_K;
}

bool repack_tile(const GgmlRows& rows, int64_t first, int count, int cols, const TilePlace& to) {
    const size_t step = rows.row_bytes;
    const uint8_t* from = rows.data + static_cast<size_t>(first) * step;
    switch (rows.type) {
        case GgmlType::F32: return interleave_floats<uint32_t>(from, step, count, cols, to);
        case GgmlType::F16:
        case GgmlType::BF16: return interleave_floats<uint16_t>(from, step, count, cols, to);
        case GgmlType::Q4_0: return repack_simple<Q4_0>(from, step, count, cols, to);
        case GgmlType::Q4_1: return repack_simple<Q4_1>(from, step, count, cols, to);
        case GgmlType::Q5_0: return repack_simple<Q5_0>(from, step, count, cols, to);
        case GgmlType::Q5_1: return repack_simple<Q5_1>(from, step, count, cols, to);
        case GgmlType::Q8_0: return repack_simple<Q8_0>(from, step, count, cols, to);
        case GgmlType::Q4_K: return repack_blocks<Q4_K, float>(from, step, count, cols, to);
        case GgmlType::Q5_K: return repack_blocks<Q5_K, float>(from, step, count, cols, to);
        case GgmlType::Q6_K: return repack_blocks<Q6_K, float>(from, step, count, cols, to);
    }
    return false;
}

}  // namespace millstream
