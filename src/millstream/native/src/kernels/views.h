// Plain views that the kernels work on: pointers and sizes, no ownership, no functions.
#pragma once

#include <bit>
#include <cstdint>

namespace millstream {

static_assert(std::endian::native == std::endian::little, "model files and the layouts below are little-endian");

constexpr int kTileRows = 16;      // output rows per weight tile
constexpr int kGroup = 32;         // inputs that share a scale
constexpr int kBlockSize = 32;     // positions per KV page
constexpr int kPartSize = 256;     // positions per attention part

// What activations are quantised to: integers a of 12 bits, |a| <= 2047, or of 8 bits, |a| <= 127.
enum class ActivationType : uint8_t { I12, I8 };

constexpr int max_activation(ActivationType type) { return type == ActivationType::I12 ? 2047 : 127; }

// Bytes of a group in ActivationsView::bytes.
constexpr int activation_bytes(ActivationType type) { return type == ActivationType::I12 ? 2 * kGroup : kGroup; }

// How keys and values are stored: as f16, or as 8-bit integers with an f32 scale for each 32 dimensions of a position.
enum class KvType : uint8_t { F16, I8 };

constexpr int kv_groups(int head_dim) { return (head_dim + kGroup - 1) / kGroup; }

// Bytes of one head's keys, or values, in a page: [head_dim * 32] numbers, for I8 followed by scales [group][32].
constexpr int64_t kv_head_bytes(KvType type, int head_dim) {
    const int64_t numbers = int64_t{head_dim} * kBlockSize;
    return type == KvType::F16 ? numbers * 2 : numbers + int64_t{kv_groups(head_dim)} * kBlockSize * int64_t{sizeof(float)};
}

// Positions whose converted values are weighed in one go: more than a page if they are few enough for the first cache.
constexpr int value_stretch(int padded_dim) { return padded_dim <= 64 ? 2 * kBlockSize : kBlockSize; }

// Floats of AttentionScratch::page.
constexpr int64_t converted_floats(int head_dim) {
    const int padded = (head_dim + 15) / 16 * 16;
    return int64_t{value_stretch(padded)} * (padded + kv_groups(head_dim));
}

// For levels that attend on tiles of 16 rows and 32 terms, several units of 32 query vectors at a time: dimensions in whole
// steps of 32, floats of AttentionScratch::tiles, and query vectors that there must be room for if there are so many.
constexpr int kUnitQueries = 32, kUnitsAtOnce = 3;
constexpr int whole_steps(int head_dim) { return (head_dim + 31) / 32 * 32; }
constexpr int64_t tile_floats(int head_dim) { return int64_t{2} * kPartSize * whole_steps(head_dim); }
constexpr int64_t scratch_queries(int64_t queries) {
    const int64_t whole = (queries + kUnitQueries - 1) / kUnitQueries * kUnitQueries, least = kUnitQueries * kUnitsAtOnce;
    return whole > least ? whole : least;
}

// How a matrix is stored: the integers and scales of its type in GGUF files, in tiles; docs/engine.md, "The native core".
enum class Format : uint8_t { Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, F32, F16, BF16 };

constexpr bool is_integer(Format format) { return format <= Format::Q8_0; }

// What a group adds to its products per output row: nothing, scale * -8, or a number of its own.
enum class Minimum : uint8_t { None, Scaled, Stored };

// An integer format. A group is 64 bytes for each bit of its integers.
//   4 bits  4 lines of [16 rows][4] bytes: quad i in the low nibbles of line i, quad i + 4 in the high ones
//   5 bits  the same, and a line of fifth bits: that of quad i is bit i
//   6 bits  the same, and two lines of upper bits: those of quad 4 * l + i are bits 2 * i and 2 * i + 1 of line l
//   8 bits  8 lines: quad i, signed
// The scales of `run` groups are a record: [16 rows] of f16 scales, and of f16 minimums if they are stored. If there is
// more than one group, those are the scales of what follows for each part of each group: a signed byte per row by which
// the scale is multiplied, and per row one for the minimum.
struct IntegerLayout {
    int bits;
    int offset;  // what is stored above the integers' value
    int parts;   // of a group, each with a scale
    int run;
    Minimum minimum;

    constexpr int numbers() const { return minimum == Minimum::Stored ? 2 : 1; }
    constexpr int group_bytes() const { return bits * kTileRows * kGroup / 8; }
    constexpr int part_bytes() const { return run > 1 ? numbers() * kTileRows : 0; }
    constexpr int record_bytes() const { return numbers() * kTileRows * 2 + run * parts * part_bytes(); }
};

constexpr IntegerLayout layout_of(Format format) {
    switch (format) {
        case Format::Q4_0: return {4, 0, 1, 1, Minimum::Scaled};
        case Format::Q4_1: return {4, 0, 1, 1, Minimum::Stored};
        case Format::Q4_K: return {4, 0, 1, 8, Minimum::Stored};
        case Format::Q5_0: return {5, 16, 1, 1, Minimum::None};
        case Format::Q5_1: return {5, 0, 1, 1, Minimum::Stored};
        case Format::Q5_K: return {5, 0, 1, 8, Minimum::Stored};
        case Format::Q6_K: return {6, 32, 2, 8, Minimum::None};
        default: return {8, 0, 1, 1, Minimum::None};  // Q8_0
    }
}

template <Format kFormat>
constexpr IntegerLayout kLayout = layout_of(kFormat);

template <Format kFormat>
constexpr bool kNibbles = kLayout<kFormat>.bits == 4;

template <Format kFormat>
constexpr int kGroupBytes = kLayout<kFormat>.group_bytes();

template <Format kFormat>
constexpr int kParts = kLayout<kFormat>.parts;

// A weight matrix [rows, cols] in tiles of 16 rows, the last of which may be beyond `rows`: of an integer format
// data [tiles][groups] groups and scales [tiles][groups / run] records, else data [tiles][cols][16 rows].
struct MatrixView {
    Format format;
    int rows, cols, tiles, groups;
    const uint8_t* data;
    const uint8_t* scales;
};

// Rows of activations [n, cols]: as f32, and quantised in groups of 32 inputs to integers a, x ~ a * scale of the group.
struct ActivationsView {
    ActivationType type;
    int cols, groups;
    int64_t stride;   // floats between rows of f32
    float* f32;
    int16_t* words;   // [n][groups][32]: a; each quad of inputs in the order 0, 2, 1, 3, so that a dword pairs with the even
                      // or with the odd bytes of a weight dword
    int8_t* bytes;    // I12: [n][groups][2][32], high (signed), then low (0..15), a = 16 * high + low; I8: [n][groups][32], a
    float* scales;    // [n][groups]
    float* sums;      // [n][groups]: scale * (sum of the integers)
};

// One piece of attention: `rows` consecutive tokens of one sequence, the `group` query heads that share one KV head, and
// the parts [part_begin, part_end) of 256 positions. Query (row, head) is at q + row * q_stride + head * head_dim.
struct AttentionItem {
    const float* q;
    int64_t q_stride;
    int rows, group, head_dim;
    int state_width;            // floats of a query's state: weighted values [head_dim padded to 16], maximum, sum
    int first_position;         // of row 0
    int window;                 // 0: unlimited
    float scale, softcap;       // softcap 0: none
    const int32_t* block_table;
    KvType kv_type;
    const uint8_t* keys;        // page b: keys + b * page_stride, [head_dim][32]
    const uint8_t* values;      // page b: values + b * page_stride, [32][head_dim]
    int64_t page_stride;        // bytes
    int part_begin, part_end;
    // Either the result, laid out like q …
    float* out;
    int64_t out_stride;
    // … or, if not null, unmerged parts: [part - part_begin][row * group + head][state_width].
    float* partial;
};

// One thread's scratch for attention, with room for `queries` = scratch_queries(…) query vectors, in cache lines.
struct AttentionScratch {
    float* page;     // [converted_floats(head_dim)]: a page's keys, or a stretch's values and their scales
    float* scores;   // [queries][256]
    float* state;    // [queries][state_width]
    float* part;     // [queries][state_width]
    float* vectors;  // [queries][whole_steps(head_dim)]: the query vectors, where a level converts them
    float* tiles;    // [tile_floats(head_dim)]: keys and values of a part, where a level has tiles
};

}  // namespace millstream
