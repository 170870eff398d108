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

// How a matrix is stored; docs/engine.md, "The native core".
enum class Format : uint8_t { U4, I8, I8G16, F32, F16, BF16 };

// Bytes of a group of a tile, for integer formats.
template <Format kFormat>
constexpr int kGroupBytes = kFormat == Format::U4 ? kTileRows * kGroup / 2 : kTileRows * kGroup;

// Scales of a group, for each output row.
template <Format kFormat>
constexpr int kParts = kFormat == Format::I8G16 ? 2 : 1;

// A weight matrix [rows, cols] in tiles of 16 rows. For integer formats, with T tiles and G groups of 32 inputs:
//   data    U4: [T][G][4 quads][16 rows][4] bytes, quad i in the low and quad i + 4 in the high nibbles
//           I8, I8G16: [T][G][8 quads][16 rows][4] signed bytes
//   scales  [T][G][16], for I8G16 [T][G][2][16]; f16 if half_scales, else f32
//   mins    like scales, or null
// For float formats: data [T][cols][16 rows]. Rows beyond `rows` are zero.
struct MatrixView {
    Format format;
    bool half_scales;
    int rows, cols, tiles, groups;
    const uint8_t* data;
    const void* scales;
    const void* mins;
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

// One thread's scratch for attention of at most `queries` query vectors.
struct AttentionScratch {
    float* page;    // [converted_floats(head_dim)]: a page's keys, or a stretch's values and their scales
    float* scores;  // [queries][256]
    float* state;   // [queries][state_width]
    float* part;    // [queries][state_width]
};

}  // namespace millstream
