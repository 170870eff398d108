// Integer matrix products for AVX-512 VNNI. A vector is a tile of 16 output rows.
//
// As for AVX2, a few activation rows are multiplied straight from the packed weights, more rows from a panel of unpacked
// ones. A line of weights is what four bytes of a row of activations are multiplied by, for all 16 output rows: nibbles
// become bytes, 8-bit weights 16-bit words. Included only by avx512.cpp and amx.cpp, inside the level's own namespace.

#include "matmul_vnni_few.h"

constexpr int kPanelLines = 256;  // of a tile at a time, at most: 16 KiB
constexpr int kMaxRows = 8;       // activation rows of a block

template <Format kFormat, ActivationType kType>
constexpr int kGroupLines = (kNibbles<kFormat> ? activation_bytes(kType) : 2 * kGroup) / 4;

// The lines of one group, in the order of ActivationsView::bytes (nibbles) or words. Where activations are 16 * high + low,
// the lines for `high` are 16 times the nibbles, at most 240, so that one sum takes both. A quad of 8-bit weights gives two
// lines, its even and its odd bytes.
template <Format kFormat, ActivationType kType>
LANES void unpack(const uint8_t* w, I16x32* lines) {
    if constexpr (kNibbles<kFormat>) {
        constexpr int low = kGroupLines<kFormat, kType> - 8;
        for (int quad = 0; quad < 4; ++quad) {
            U32 packed;
            __builtin_memcpy(&packed, w + quad * 64, sizeof packed);
            lines[low + quad] = reinterpret_cast<I16x32>(packed & 0x0f0f);
            lines[low + quad + 4] = reinterpret_cast<I16x32>((packed >> 4) & 0x0f0f);
            if constexpr (low > 0) {
                lines[quad] = reinterpret_cast<I16x32>((packed << 4) & 0xf0f0);
                lines[quad + 4] = reinterpret_cast<I16x32>(packed & 0xf0f0);
            }
        }
    } else {
        for (int quad = 0; quad < 8; ++quad) {
            const auto bytes = reinterpret_cast<W32>(load_quad<kFormat>(w, quad));
            lines[quad * 2] = reinterpret_cast<I16x32>(reinterpret_cast<W32>(reinterpret_cast<U32>(bytes) << 8) >> 8);
            lines[quad * 2 + 1] = reinterpret_cast<I16x32>(bytes >> 8);
        }
    }
}

// Sums stay in 32 bits: a group has at most 64 products of 240 * 128, or 32 of 128 * 2047.
template <Format kFormat>
LANES I16x32 add_products(I16x32 sum, I16x32 line, I16x32 activations) {
    return kNibbles<kFormat> ? dot_bytes(sum, line, activations) : dot_words(sum, line, activations);
}

// Adds `count` groups from `first` on to R rows of one tile's outputs, which are written anew if `first` is 0. `lines` and
// `weight_scales` belong to these groups.
template <Format kFormat, ActivationType kType, int R>
LANES void multiply_lines(const I16x32* lines, const FW* weight_scales, int first, int count, const ActivationsView& a,
                          int row, float* out, int64_t out_stride) {
    constexpr int n = kGroupLines<kFormat, kType> / kParts<kFormat>;
    constexpr int64_t record = kGroupLines<kFormat, kType> * 4;  // bytes of a group of activations
    const int64_t at = static_cast<int64_t>(row) * a.groups + first;
    const auto* integers = (kNibbles<kFormat> ? reinterpret_cast<const uint8_t*>(a.bytes)
                                                  : reinterpret_cast<const uint8_t*>(a.words)) + at * record;
    FW acc[R];
    for (int r = 0; r < R; ++r) acc[r] = first ? load_wide(out + r * out_stride) : FW{};
    for (int i = 0; i < count * kParts<kFormat>; ++i) {
        const uint8_t* x = integers + i * n * 4;
        I16x32 dots[R];
        for (int r = 0; r < R; ++r) dots[r] = I16x32{};
        for (int line = 0; line < n; ++line)
            for (int r = 0; r < R; ++r)
                dots[r] = add_products<kFormat>(dots[r], lines[i * n + line],
                                                broadcast_dword(x + static_cast<int64_t>(r) * a.groups * record + line * 4));
        for (int r = 0; r < R; ++r) {
            const float scale = a.scales[at + static_cast<int64_t>(r) * a.groups + i / kParts<kFormat>];
            acc[r] = accumulate(acc[r], dots[r], weight_scales[i], scale);
        }
    }
    for (int r = 0; r < R; ++r) store_wide(out + r * out_stride, acc[r]);
}

// out += sum over groups of minimum * sum of the group's activations, for R rows of T tiles.
template <Format kFormat, int T, int R>
LANES void add_minimums(const MatrixView& w, int tile, const ActivationsView& a, int row, float* out, int64_t out_stride) {
    const float* sums = a.sums + static_cast<int64_t>(row) * a.groups;
    FW acc[R * T];  // [row][tile]
#pragma GCC unroll 16  // else GCC keeps them in memory
    for (int k = 0; k < R * T; ++k) acc[k] = FW{};
    for (int g = 0; g < w.groups; ++g) {
        FW mins[T];
        for (int t = 0; t < T; ++t)
            mins[t] = load_minimums<kFormat>(w, static_cast<int64_t>(tile + t) * w.groups + g, 0);
#pragma GCC unroll 16
        for (int k = 0; k < R * T; ++k)
            acc[k] = fused(mins[k % T], splat_wide(sums[int64_t{k / T} * a.groups + g]), acc[k]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < R * T; ++k) {
        float* to = out + k / T * out_stride + k % T * kTileRows;
        store_wide(to, load_wide(to) + acc[k]);
    }
}

template <int R>
struct Rows {
    static constexpr int count = R;
};

// Calls body(Rows<R>, row) for blocks of rows.
template <class Body>
LANES void over_row_blocks(int row, int row_end, const Body& body) {
    for (; row + kMaxRows <= row_end; row += kMaxRows) body(Rows<kMaxRows>{}, row);
    for (; row + 4 <= row_end; row += 4) body(Rows<4>{}, row);
    for (; row + 2 <= row_end; row += 2) body(Rows<2>{}, row);
    if (row < row_end) body(Rows<1>{}, row);
}

template <Format kFormat>
static void add_all_minimums(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                             int row_end, float* out, int64_t out_stride) {
    if constexpr (kLayout<kFormat>.minimum == Minimum::None) return;
    for (int tile = tile_begin; tile < tile_end; tile += 2)
        over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
            const auto add = tile_end - tile < 2 ? add_minimums<kFormat, 1, rows.count> : add_minimums<kFormat, 2, rows.count>;
            add(w, tile, a, row, out + row * out_stride + tile * kTileRows, out_stride);
        });
}

// More rows: groups outside, tiles inside, so that the activations of a panel's groups stay in the caches.
template <Format kFormat, ActivationType kType>
static void multiply_many(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    constexpr int group_lines = kGroupLines<kFormat, kType>, panel_groups = kPanelLines / group_lines;
    I16x32 lines[kPanelLines];
    FW scales[panel_groups * kParts<kFormat>];
    const int panels = (w.groups + panel_groups - 1) / panel_groups, most = panels ? (w.groups + panels - 1) / panels : 1;
    for (int first = 0; first < w.groups; first += most) {
        const int count = w.groups - first < most ? w.groups - first : most;
        for (int tile = tile_begin; tile < tile_end; ++tile) {
            const int64_t group = static_cast<int64_t>(tile) * w.groups + first;
            for (int g = 0; g < count; ++g) {
                prefetch_group<kFormat>(w, group + g + w.groups);  // of the next tile
                unpack<kFormat, kType>(w.data + (group + g) * kGroupBytes<kFormat>, lines + g * group_lines);
            }
            for (int i = 0; i < count * kParts<kFormat>; ++i)
                scales[i] = load_scales<kFormat>(w, group + i / kParts<kFormat>, i % kParts<kFormat>, 0);
            over_row_blocks(row_begin, row_end, [&](auto rows, int row) {
                multiply_lines<kFormat, kType, rows.count>(lines, scales, first, count, a, row,
                                                           out + row * out_stride + tile * kTileRows, out_stride);
            });
        }
    }
}

template <Format kFormat, ActivationType kType>
static void multiply_vnni(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                          int row_end, float* out, int64_t out_stride) {
    constexpr ActivationType type = kNibbleType<kFormat, kType>;
    if (row_end - row_begin <= kFewRows)
        return multiply_few<kFormat, type>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    multiply_many<kFormat, type>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
    add_all_minimums<kFormat>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
