// Products with up to four activation rows, for AVX-512 VNNI: the memory takes longer than they do. Each weight is read once,
// nothing but the sums of a tile is stored. Included only by matmul_vnni.h.

typedef int16_t W32 __attribute__((vector_size(64)));
typedef uint16_t U32 __attribute__((vector_size(64)));

LANES I16x32 broadcast_dword(const void* p) {
    int32_t dword;
    __builtin_memcpy(&dword, p, sizeof dword);
    return dword - I16x32{};
}

// acc + dots * (weight scales * activation scale)
LANES FW accumulate(FW acc, I16x32 dots, FW weight_scales, float scale) {
    return fused(__builtin_convertvector(dots, FW), weight_scales * splat_wide(scale), acc);
}

constexpr int kFewRows = 4;
constexpr int kGroupsAhead = 8;  // of the one at work: 2 or 4 KiB of weights

// The type matters for nibbles; words, which 8-bit weights take, hold integers of either.
template <Format kFormat, ActivationType kType>
constexpr ActivationType kNibbleType = kNibbles<kFormat> ? kType : ActivationType::I12;

// Asks for memory that may lie beyond the end of the weights, which does no harm but must not be a pointer.
LANES void prefetch_bytes(const void* p, int64_t offset, int n) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(offset);
    for (int i = 0; i < n; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(from + static_cast<uintptr_t>(i)));
}

// Asks for group `group` of all groups of the matrix: its weights, and the record of scales that begins with it.
template <Format kFormat>
LANES void prefetch_group(const MatrixView& w, int64_t group) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    prefetch_bytes(w.data, group * kGroupBytes<kFormat>, kGroupBytes<kFormat>);
    if (group % layout.run == 0)
        prefetch_bytes(w.scales, group / layout.run * layout.record_bytes(), layout.record_bytes());
}

// A quad of weights as signed bytes.
template <Format kFormat>
LANES U32 load_quad(const uint8_t* group, int quad) {
    constexpr IntegerLayout layout = kLayout<kFormat>;
    constexpr int upper_bits = layout.bits - 4, quads = 8 / (upper_bits ? upper_bits : 8);  // of a line of upper bits
    const auto line = [&](int i) {
        U32 v;
        __builtin_memcpy(&v, group + i * kTileRows * 4, sizeof v);
        return v;
    };
    if constexpr (layout.bits == 8) return line(quad);
    const U32 low = (quad < 4 ? line(quad) : line(quad - 4) >> 4) & 0x0f0f;
    if constexpr (layout.bits == 4) return low;
    const int shift = 4 - quad % quads * upper_bits;  // to the place above the nibble
    const U32 upper = line(4 + quad / quads);
    const U32 moved = shift > 0 ? upper << shift : upper >> -shift;
    constexpr uint16_t mask = ((1 << upper_bits) - 1) * 0x1010;
    const U32 whole = low | (moved & mask);
    typedef uint8_t Bytes __attribute__((vector_size(64)));
    return reinterpret_cast<U32>(reinterpret_cast<Bytes>(whole) - static_cast<uint8_t>(layout.offset));
}

// dots[r] of one group of nibbles. Halves of activations are summed apart: for so few rows that takes less than the lines
// of weights times 16 which one sum would need. `record` is the bytes between rows.
template <ActivationType kType, int R>
LANES void dot_nibbles(const uint8_t* w, const uint8_t* x, int64_t record, I16x32* dots) {
    constexpr int halves = kType == ActivationType::I12 ? 2 : 1;
    I16x32 sums[R][halves];
    for (int r = 0; r < R; ++r)
        for (int h = 0; h < halves; ++h) sums[r][h] = I16x32{};
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
        U32 packed;
        __builtin_memcpy(&packed, w + line % 4 * 64, sizeof packed);
        const U32 weights = (line < 4 ? packed : packed >> 4) & 0x0f0f;
        for (int r = 0; r < R; ++r)
            for (int h = 0; h < halves; ++h)
                sums[r][h] = dot_bytes(sums[r][h], reinterpret_cast<I16x32>(weights),
                                       broadcast_dword(x + r * record + h * kGroup + line * 4));
    }
    for (int r = 0; r < R; ++r) dots[r] = halves == 2 ? (sums[r][0] << 4) + sums[r][1] : sums[r][0];
}

// dots[r] of quads [kBegin, kEnd) of one group of bytes, with words.
template <Format kFormat, int kBegin, int kEnd, int R>
LANES void dot_wide_bytes(const uint8_t* w, const uint8_t* x, int64_t record, I16x32* dots) {
    I16x32 sums[R][2];  // of even and odd bytes
    for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = I16x32{};
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
        const auto bytes = reinterpret_cast<W32>(load_quad<kFormat>(w, quad));
        const W32 even = reinterpret_cast<W32>(reinterpret_cast<U32>(bytes) << 8) >> 8, odd = bytes >> 8;
        for (int r = 0; r < R; ++r) {
            const uint8_t* words = x + r * record + quad * 8;
            sums[r][0] = dot_words(sums[r][0], reinterpret_cast<I16x32>(even), broadcast_dword(words));
            sums[r][1] = dot_words(sums[r][1], reinterpret_cast<I16x32>(odd), broadcast_dword(words + 4));
        }
    }
    for (int r = 0; r < R; ++r) dots[r] = sums[r][0] + sums[r][1];
}

template <Format kFormat, ActivationType kType, int R>
static void multiply_few_rows(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row,
                              float* out, int64_t out_stride) {
    constexpr int parts = kParts<kFormat>;
    constexpr bool minimums = kLayout<kFormat>.minimum != Minimum::None;
    constexpr int bytes = kNibbles<kFormat> ? activation_bytes(kType) : kGroup * 2;  // of a group of activations
    const int64_t first = static_cast<int64_t>(row) * a.groups, record = int64_t{a.groups} * bytes;
    const auto* integers = (kNibbles<kFormat> ? reinterpret_cast<const uint8_t*>(a.bytes)
                                                  : reinterpret_cast<const uint8_t*>(a.words)) + first * bytes;
    const float *scales = a.scales + first, *sums = a.sums + first;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        FW acc[R], acc_min[R];
        for (int r = 0; r < R; ++r) acc[r] = acc_min[r] = FW{};
        for (int g = 0; g < w.groups; ++g) {
            const int64_t group = static_cast<int64_t>(tile) * w.groups + g;
            const uint8_t *weights = w.data + group * kGroupBytes<kFormat>, *x = integers + g * bytes;
            prefetch_group<kFormat>(w, group + kGroupsAhead);
            I16x32 dots[parts][R];
            if constexpr (kNibbles<kFormat>) {
                dot_nibbles<kType, R>(weights, x, record, dots[0]);
            } else {
                dot_wide_bytes<kFormat, 0, 8 / parts, R>(weights, x, record, dots[0]);
                if constexpr (parts == 2) dot_wide_bytes<kFormat, 4, 8, R>(weights, x, record, dots[1]);
            }
            for (int part = 0; part < parts; ++part) {
                const FW weight_scales = load_scales<kFormat>(w, group, part, 0);
                for (int r = 0; r < R; ++r)
                    acc[r] = accumulate(acc[r], dots[part][r], weight_scales, scales[int64_t{r} * a.groups + g]);
            }
            if constexpr (!minimums) continue;
            const FW mins = load_minimums<kFormat>(w, group, 0);
            for (int r = 0; r < R; ++r) acc_min[r] = fused(mins, splat_wide(sums[int64_t{r} * a.groups + g]), acc_min[r]);
        }
        for (int r = 0; r < R; ++r)
            store_wide(out + (row + r) * out_stride + tile * kTileRows, minimums ? acc[r] + acc_min[r] : acc[r]);
    }
}

template <Format kFormat, ActivationType kType, int R = kFewRows>
static void multiply_few(const MatrixView& w, int tile_begin, int tile_end, const ActivationsView& a, int row_begin,
                         int row_end, float* out, int64_t out_stride) {
    if (row_end - row_begin == R)
        return multiply_few_rows<kFormat, kType, R>(w, tile_begin, tile_end, a, row_begin, out, out_stride);
    if constexpr (R > 1) multiply_few<kFormat, kType, R - 1>(w, tile_begin, tile_end, a, row_begin, row_end, out, out_stride);
}
