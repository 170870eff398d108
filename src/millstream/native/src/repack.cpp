// Block layouts: ggml's quantisation formats (ggml-common.h); checked against gguf.quants.
//
// Per block type: one function that turns a block of one row into the bytes that its groups have in a tile, four in each
// line of IntegerLayout, and one that reads its scales. A tile then has the rows' bytes interleaved, four at a time. All
// loops are over bytes or words, so that compilers vectorise them for any processor.
#include "repack.h"

#include <array>
#include <cstring>

namespace millstream {

namespace {

uint16_t half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half;
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

uint32_t word_at(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}

// kFifths[b]: the lowest bits of byte j are bits j and j + 4 of b.
constexpr auto kFifths = [] {
    std::array<uint32_t, 256> table{};
    for (unsigned b = 0; b < 256; ++b)
        for (unsigned j = 0; j < 4; ++j) table[b] |= ((b >> j & 1) | (b >> (j + 4) & 1) << 1) << (8 * j);
    return table;
}();

// 32 integers of five bits: nibbles as they are, and the line of fifth bits from the file's, bit i for integer i.
void copy_fives(const uint8_t* nibbles, const uint8_t* fifth, uint8_t* q) {
    copy<16>(nibbles, q);
    uint32_t line = 0;
    for (int i = 0; i < 4; ++i) line |= kFifths[fifth[i]] << (2 * i);
    std::memcpy(q + 16, &line, sizeof line);
}

// Two groups that share 32 bytes, as low and high nibbles, to lines of nibbles of each, `step` bytes apart.
void split_nibbles(const uint8_t* pair, uint8_t* q, size_t step) {
    for (int i = 0; i < 16; ++i) {
        q[i] = static_cast<uint8_t>((pair[i] & 15) | pair[i + 16] << 4);
        q[step + static_cast<size_t>(i)] = static_cast<uint8_t>(pair[i] >> 4 | (pair[i + 16] & 0xf0));
    }
}

// The scale and minimum of a block as f16: weight = scale * q + minimum. For K types those of its parts and groups are
// scale * multipliers[i] and minimum * min_multipliers[i] instead.
struct BlockScales {
    uint16_t scale, minimum;
    uint8_t multipliers[16], min_multipliers[8];
};

// Those of Q4_K and Q5_K, which pack eight 6-bit (scale, min) pairs into 12 bytes.
BlockScales scales_k(const uint8_t* p) {
    BlockScales s{half_at(p), static_cast<uint16_t>(half_at(p + 2) ^ 0x8000), {}, {}};  // minimums are subtracted
    p += 4;
    for (int i = 0; i < 4; ++i) {
        s.multipliers[i] = p[i] & 63;
        s.min_multipliers[i] = p[i + 4] & 63;
        s.multipliers[i + 4] = static_cast<uint8_t>((p[i + 8] & 15) | (p[i] >> 6) << 4);
        s.min_multipliers[i + 4] = static_cast<uint8_t>((p[i + 8] >> 4) | (p[i + 4] >> 6) << 4);
    }
    return s;
}

// The block types. unpack: q [groups][4 bytes for each bit of an integer].

struct Q4_0 {
    static constexpr Format kFormat = Format::Q4_0;
    static constexpr int kBytes = 18;
    static BlockScales scales(const uint8_t* p) { return {half_at(p), 0, {}, {}}; }
    static void unpack(const uint8_t* p, uint8_t* q) { copy<16>(p + 2, q); }
};

struct Q4_1 {
    static constexpr Format kFormat = Format::Q4_1;
    static constexpr int kBytes = 20;
    static BlockScales scales(const uint8_t* p) { return {half_at(p), half_at(p + 2), {}, {}}; }
    static void unpack(const uint8_t* p, uint8_t* q) { copy<16>(p + 4, q); }
};

struct Q5_0 {
    static constexpr Format kFormat = Format::Q5_0;
    static constexpr int kBytes = 22;
    static BlockScales scales(const uint8_t* p) { return {half_at(p), 0, {}, {}}; }
    static void unpack(const uint8_t* p, uint8_t* q) { copy_fives(p + 6, p + 2, q); }
};

struct Q5_1 {
    static constexpr Format kFormat = Format::Q5_1;
    static constexpr int kBytes = 24;
    static BlockScales scales(const uint8_t* p) { return {half_at(p), half_at(p + 2), {}, {}}; }
    static void unpack(const uint8_t* p, uint8_t* q) { copy_fives(p + 8, p + 4, q); }
};

struct Q8_0 {
    static constexpr Format kFormat = Format::Q8_0;
    static constexpr int kBytes = 34;
    static BlockScales scales(const uint8_t* p) { return {half_at(p), 0, {}, {}}; }
    static void unpack(const uint8_t* p, uint8_t* q) { copy<32>(p + 2, q); }
};

// Groups 2i and 2i + 1 share 32 bytes, low and high nibbles.
struct Q4_K {
    static constexpr Format kFormat = Format::Q4_K;
    static constexpr int kBytes = 144;
    static BlockScales scales(const uint8_t* p) { return scales_k(p); }
    static void unpack(const uint8_t* p, uint8_t* q) {
        for (const uint8_t* pair = p + 16; pair < p + kBytes; pair += 32, q += 32) split_nibbles(pair, q, 16);
    }
};

// As Q4_K; bit g of byte i is the fifth bit of weight i of group g.
struct Q5_K {
    static constexpr Format kFormat = Format::Q5_K;
    static constexpr int kBytes = 176;
    static BlockScales scales(const uint8_t* p) { return scales_k(p); }
    static void unpack(const uint8_t* p, uint8_t* q) {
        for (int g = 0; g < 8; g += 2) split_nibbles(p + 48 + g * 16, q + g * 20, 20);
        for (int g = 0; g < 8; ++g) {
            uint32_t line = 0;
            for (int quad = 0; quad < 8; ++quad) line |= (word_at(p + 16 + quad * 4) >> g & 0x01010101) << quad;
            std::memcpy(q + g * 20 + 16, &line, sizeof line);
        }
    }
};

// Sixteen scales of 8 bits; per half of 128 weights, four groups, 64 bytes of nibbles and 32 bytes of upper bits.
struct Q6_K {
    static constexpr Format kFormat = Format::Q6_K;
    static constexpr int kBytes = 210;
    static BlockScales scales(const uint8_t* p) {
        BlockScales s{half_at(p + 208), 0, {}, {}};
        std::memcpy(s.multipliers, p + 192, sizeof s.multipliers);
        return s;
    }
    static void unpack(const uint8_t* p, uint8_t* q) {
        for (int half = 0; half < 2; ++half, q += 4 * 24) {
            for (int i = 0; i < 2; ++i) split_nibbles(p + half * 64 + i * 32, q + i * 24, 48);  // groups i and i + 2
            for (int g = 0; g < 4; ++g)
                for (int line = 0; line < 2; ++line) {
                    uint32_t upper = 0;
                    for (int i = 0; i < 4; ++i)
                        upper |= (word_at(p + 128 + half * 32 + (line * 4 + i) * 4) >> g * 2 & 0x03030303) << i * 2;
                    std::memcpy(q + g * 24 + 16 + line * 4, &upper, sizeof upper);
                }
        }
    }
};

// out[line][16 rows][4] = bytes 4 * line .. 4 * line + 3 of q[row].
void interleave(const uint8_t* q, size_t stride, int lines, uint8_t* out) {
    for (int line = 0; line < lines; ++line) {
        for (size_t lane = 0; lane < kTileRows; ++lane) std::memcpy(out + lane * 4, q + lane * stride + line * 4, 4);
        out += kTileRows * 4;
    }
}

template <IntegerLayout kLayoutOfBlock>
void put_scales(const BlockScales& scales, int lane, uint8_t* record) {
    constexpr IntegerLayout layout = kLayoutOfBlock;
    std::memcpy(record + lane * 2, &scales.scale, sizeof scales.scale);
    if constexpr (layout.numbers() == 2) std::memcpy(record + (kTileRows + lane) * 2, &scales.minimum, sizeof scales.minimum);
    if constexpr (layout.run > 1) {
        uint8_t* bytes = record + layout.numbers() * kTileRows * 2 + lane;
        for (int i = 0; i < layout.run * layout.parts; ++i) bytes[i * layout.part_bytes()] = scales.multipliers[i];
        if constexpr (layout.numbers() == 2)
            for (int i = 0; i < layout.run; ++i) bytes[i * layout.part_bytes() + kTileRows] = scales.min_multipliers[i];
    }
}

template <class Block>
void repack_blocks(const uint8_t* rows, size_t row_bytes, int count, int cols, const TilePlace& to) {
    constexpr IntegerLayout layout = layout_of(Block::kFormat);
    constexpr int group_bytes = layout.bits * 4;  // of a row
    uint8_t q[kTileRows][layout.run * group_bytes] = {};
    uint8_t *data = to.data, *record = to.scales;
    for (int block = 0; block < cols / (layout.run * kGroup); ++block, rows += Block::kBytes, record += layout.record_bytes()) {
        for (int lane = 0; lane < count; ++lane) {
            const uint8_t* from = rows + static_cast<size_t>(lane) * row_bytes;
            Block::unpack(from, q[lane]);
            put_scales<layout>(Block::scales(from), lane, record);
        }
        for (int g = 0; g < layout.run; ++g, data += layout.group_bytes())
            interleave(&q[0][g * group_bytes], sizeof q[0], layout.bits, data);
    }
}

template <class T>
void interleave_floats(const uint8_t* rows, size_t row_bytes, int count, int cols, const TilePlace& to) {
    uint8_t* out = to.data;
    for (int k = 0; k < cols; ++k, rows += sizeof(T), out += kTileRows * sizeof(T))
        for (int lane = 0; lane < count; ++lane)
            std::memcpy(out + static_cast<size_t>(lane) * sizeof(T), rows + static_cast<size_t>(lane) * row_bytes, sizeof(T));
}

}  // namespace

Format format_of(GgmlType type) {
    switch (type) {
        case GgmlType::F32: return Format::F32;
        case GgmlType::F16: return Format::F16;
        case GgmlType::BF16: return Format::BF16;
        case GgmlType::Q4_0: return Format::Q4_0;
        case GgmlType::Q4_1: return Format::Q4_1;
        case GgmlType::Q4_K: return Format::Q4_K;
        case GgmlType::Q5_0: return Format::Q5_0;
        case GgmlType::Q5_1: return Format::Q5_1;
        case GgmlType::Q5_K: return Format::Q5_K;
        case GgmlType::Q6_K: return Format::Q6_K;
        case GgmlType::Q8_0: break;
    }
    return Format::Q8_0;
}

void repack_tile(const GgmlRows& rows, int64_t first, int count, int cols, const TilePlace& to) {
    const size_t step = rows.row_bytes;
    const uint8_t* from = rows.data + static_cast<size_t>(first) * step;
    switch (rows.type) {
        case GgmlType::F32: return interleave_floats<uint32_t>(from, step, count, cols, to);
        case GgmlType::F16:
        case GgmlType::BF16: return interleave_floats<uint16_t>(from, step, count, cols, to);
        case GgmlType::Q4_0: return repack_blocks<Q4_0>(from, step, count, cols, to);
        case GgmlType::Q4_1: return repack_blocks<Q4_1>(from, step, count, cols, to);
        case GgmlType::Q5_0: return repack_blocks<Q5_0>(from, step, count, cols, to);
        case GgmlType::Q5_1: return repack_blocks<Q5_1>(from, step, count, cols, to);
        case GgmlType::Q8_0: return repack_blocks<Q8_0>(from, step, count, cols, to);
        case GgmlType::Q4_K: return repack_blocks<Q4_K>(from, step, count, cols, to);
        case GgmlType::Q5_K: return repack_blocks<Q5_K>(from, step, count, cols, to);
        case GgmlType::Q6_K: return repack_blocks<Q6_K>(from, step, count, cols, to);
    }
}

}  // namespace millstream
