// Attention over f16 pages with the bf16 products of AMX. A number is the sum of two bf16 numbers: hi, its upper bits, and lo,
// what they leave; exactly so if it is an f16, else within 2^-16 of it. A product is hi * lo + hi * hi + lo * hi. Spans,
// softmax, parts and their merging are those of attention.h. Included only by amx.cpp, inside the level's own namespace.
//
// Every row comes this way, however few there are, so that its result has the same bits in any company: a row of a tile's sums
// depends on nothing but the row. Sums go in steps of 32 terms (dimensions of a score, positions of a weighted value), always
// the same ones. What a row does not see has weight zero there, and adding zero changes no sum but the sign of a zero, which
// is taken away at the end.
//
// Work goes in units: a part of the positions for two blocks of 16 query vectors. The softmax of a unit takes the vector units
// as long as its products take the tile unit. So while one unit's query vectors become weights one by one, the tile unit makes
// the scores of the unit after it and the weighted values of the one before.
//
// Term k of a step is paired with term k + 16, on both sides, as that is how two vectors become one of pairs most cheaply.

typedef uint32_t U16x32 __attribute__((vector_size(64)));

constexpr int kStep = 32;
constexpr int kTileBytes = 16 * 64, kSplitBytes = 2 * kTileBytes;  // a tile; hi and lo of one
static_assert(kStep == kBlockSize && kWidth == 16);

LANES U16x32 bits_of(FW v) { return reinterpret_cast<U16x32>(v); }
LANES FW upper_part(U16x32 v) { return reinterpret_cast<FW>(v & 0xffff0000u); }

// Dword i: the upper half of a[i] below that of b[i].
LANES U16x32 upper_halves(U16x32 a, U16x32 b) {
#if defined(MILLSTREAM_EMULATE)
    return (a >> 16) | (b & 0xffff0000u);
#else
    const __m512i down = _mm512_set4_epi32(0x00000f0e, 0x00000b0a, 0x00000706, 0x00000302);
    return reinterpret_cast<U16x32>(_mm512_mask_shuffle_epi8(reinterpret_cast<__m512i>(b), 0x3333333333333333,
                                                             reinterpret_cast<__m512i>(a), down));
#endif
}

// Pairs (a[i], b[i]) of bf16 numbers.
struct Split {
    U16x32 hi, lo;
};

LANES void store_split(const Split& split, void* hi, void* lo) {
    __builtin_memcpy(hi, &split.hi, sizeof split.hi);
    __builtin_memcpy(lo, &split.lo, sizeof split.lo);
}

// Of f16 numbers.
LANES Split split_exactly(FW a, FW b) {
    const U16x32 x = bits_of(a), y = bits_of(b);
    return {upper_halves(x, y), upper_halves(bits_of(a - upper_part(x)), bits_of(b - upper_part(y)))};
}

// Of f32 numbers. hi is rounded, so that lo, and what a product leaves out, has either sign. NaN and infinity leave NaN in lo.
LANES Split split_rounded(FW a, FW b) {
    const U16x32 x = bits_of(a) + 0x8000u, y = bits_of(b) + 0x8000u;
    return {upper_halves(x, y), upper_halves(bits_of(a - upper_part(x)), bits_of(b - upper_part(y)))};
}

// Pages of a part: [begin, end).
struct Pages {
    int begin, end;
};

// Those that any of the query vectors [first, last] sees; there may be fewer.
LANES Pages pages_seen(const AttentionItem& item, int part, int first, int last) {
    const int row = last / item.group < item.rows ? last / item.group : item.rows - 1;
    const int begin = visible(item, first / item.group, part).begin, end = visible(item, row, part).end;
    if (begin >= end) return {0, 0};
    return {begin / kBlockSize, (end + kBlockSize - 1) / kBlockSize};
}

// Query vectors as rows of tiles: each step of 32 numbers as 32 hi, then 32 lo.
static void split_queries(const AttentionItem& item, const AttentionScratch& scratch) {
    const int steps = whole_steps(item.head_dim);
    for (int i = 0; i < item.rows * item.group; ++i) {
        const float* q = item.q + i / item.group * item.q_stride + i % item.group * item.head_dim;
        for (int d = 0; d < steps; d += kStep) {
            alignas(64) float terms[kStep] = {};
            const int n = item.head_dim - d < kStep ? item.head_dim - d : kStep;
            __builtin_memcpy(terms, q + d, n * sizeof(float));
            float* to = scratch.vectors + i * steps + d;
            store_split(split_rounded(load_wide(terms), load_wide(terms + 16)), to, to + 16);
        }
    }
}

// Weights of a part in their place as rows of tiles, likewise. The softmax left them in stretches of 16 positions, with zeros
// where the row sees only some.
static void split_weights(Span span, Pages pages, float* weights) {
    const int first = span.begin / 16 * 16, last = span.begin < span.end ? padded16(span.end) : first;
    const auto stretch = [&](int at) { return at >= first && at < last ? load_wide(weights + at) : FW{}; };
    for (int i = pages.begin * kStep; i < pages.end * kStep; i += kStep)
        store_split(split_rounded(stretch(i), stretch(i + 16)), weights + i, weights + i + 16);
}

// Columns [at, at + 16) of a row of n f16 numbers, zero beyond.
LANES FW load_columns(const uint16_t* row, int at, int n) {
    if (n - at >= 16) return load_half_wide(row + at);
    uint16_t tail[16] = {};
    __builtin_memcpy(tail, row + at, (n - at) * sizeof *row);
    return load_half_wide(tail);
}

// A step of terms as tiles: of terms [begin, end), zero for the others, which are never read. Term t is the row at from +
// t * columns. Tiles are those of 16 columns each, hi and lo. Asks for as much of `next` meanwhile. With kFiniteOnly, what is
// not finite becomes zero, and whether there was anything is returned.
template <bool kFiniteOnly>
static bool split_step(const uint16_t* from, int columns, int begin, int end, const uint8_t* next, uint8_t* to) {
    U16x32 found{};
    const auto load = [&](int term, int column) {
        if (term < begin || term >= end) return FW{};
        const FW v = load_columns(from + term * columns, column, columns);
        if constexpr (!kFiniteOnly) return v;
        const U16x32 outside = reinterpret_cast<U16x32>((bits_of(v) & 0x7fffffffu) >= 0x7f800000u);
        found |= outside;
        return reinterpret_cast<FW>(bits_of(v) & ~outside);
    };
    const int bytes = columns * static_cast<int>(sizeof *from);
    for (int k = 0; k < kStep / 2; ++k) {
        if (next) prefetch(next + 2 * k * bytes, 2 * bytes);
        for (int c = 0; c < columns; c += 16) {
            uint8_t* hi = to + c / 16 * kSplitBytes + k * 64;
            store_split(split_exactly(load(k, c), load(k + kStep / 2, c)), hi, hi + kTileBytes);
        }
    }
    uint32_t any = 0;
    for (int i = 0; kFiniteOnly && i < 16; ++i) any |= found[i];
    return any != 0;
}

// Tile registers: sums of two blocks of 16 query vectors with two tiles of columns at 2 * block + column, operands.
constexpr int kRowTiles = 4, kColumnTiles = 6;

// Products of R blocks and C tiles of columns.
template <int R, int C>
LANES void multiply_split() {
    tile_bfloat_products<0, kRowTiles, kColumnTiles>();
    if constexpr (C > 1) tile_bfloat_products<1, kRowTiles, kColumnTiles + 1>();
    if constexpr (R > 1) tile_bfloat_products<2, kRowTiles + 1, kColumnTiles>();
    if constexpr (R > 1 && C > 1) tile_bfloat_products<3, kRowTiles + 1, kColumnTiles + 1>();
}

// sums += a step of rows, which are `stride` bytes apart, times one of columns. Four chains of sums are enough for the tile
// unit, whose products come every 16 cycles and take 52; each operand is loaded twice at most.
template <int R, int C>
LANES void multiply_step(const uint8_t* rows, int64_t stride, const uint8_t* columns) {
    const auto load_row_tiles = [&](const uint8_t* from) {
        tile_load<kRowTiles>(from, stride);
        if constexpr (R > 1) tile_load<kRowTiles + 1>(from + 16 * stride, stride);
    };
    const auto load_column_tiles = [&](const uint8_t* from) {
        tile_load<kColumnTiles>(from, 64);
        if constexpr (C > 1) tile_load<kColumnTiles + 1>(from + kSplitBytes, 64);
    };
    load_row_tiles(rows);
    load_column_tiles(columns + kTileBytes);
    multiply_split<R, C>();
    load_column_tiles(columns);
    multiply_split<R, C>();
    load_row_tiles(rows + 64);
    multiply_split<R, C>();
}

// Sums at `at`: block by block [16][stride], tiles of columns side by side.
template <int R, int C>
LANES void load_sums(const float* at, int64_t stride) {
    tile_load<0>(at, stride * 4);
    if constexpr (C > 1) tile_load<1>(at + 16, stride * 4);
    if constexpr (R > 1) tile_load<2>(at + 16 * stride, stride * 4);
    if constexpr (R > 1 && C > 1) tile_load<3>(at + 16 * stride + 16, stride * 4);
}

template <int R, int C>
LANES void store_sums(float* at, int64_t stride) {
    tile_store<0>(at, stride * 4);
    if constexpr (C > 1) tile_store<1>(at + 16, stride * 4);
    if constexpr (R > 1) tile_store<2>(at + 16 * stride, stride * 4);
    if constexpr (R > 1 && C > 1) tile_store<3>(at + 16 * stride + 16, stride * 4);
}

// One block, if it is the only one, has as many rows as there are query vectors.
LANES TileConfig attention_tiles(int queries) {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
        config.rows[t] = static_cast<uint8_t>(t < kColumnTiles && queries < 16 ? queries : 16);
        config.row_bytes[t] = 64;
    }
    return config;
}

// A part for at most 32 query vectors, from `first` on, which see these pages of it. Its weights and results are where there
// is room for whole blocks.
struct Unit {
    int part, first, queries;
    Pages pages;
    float *scores, *results;
};

// The first page of a unit's keys or values, null if it has none.
LANES const uint8_t* first_page(const AttentionItem& item, const uint8_t* base, const Unit& unit) {
    return unit.queries > 0 ? page_of(item, base, unit.part, unit.pages.begin) : nullptr;
}

// Softmax of a unit, a query vector at a time.
struct Softening {
    const AttentionItem& item;
    const Unit& unit;
    int done = 0;

    bool next() {
        if (done == unit.queries) return false;
        float *scores = unit.scores + done * kPartSize, *results = unit.results + done * item.state_width;
        soften_query(item, unit.part, unit.first + done, scores, results);
        split_weights(visible(item, (unit.first + done) / item.group, unit.part), unit.pages, scores);
        ++done;
        return true;
    }
};

// Keys, or values, of a part as tiles, which the part's first unit makes page by page. Where there are no more units, few
// pages share the same room, so that they stay in the first cache.
struct PartTiles {
    uint8_t* tiles;
    int64_t page_bytes;
    int rooms;
    uint32_t not_finite;  // bit per page: values that only some rows see were left out

    uint8_t* page(int i) const { return tiles + i % rooms * page_bytes; }
};

// scores[query][position in part] = q . k of the pages that a unit sees, for R blocks. Asks for the page `then` in the end.
template <int R>
static void score_unit(const AttentionItem& item, const Unit& unit, const PartTiles& keys, const uint8_t* then,
                       const AttentionScratch& scratch, Softening& meanwhile) {
    const int dim = item.head_dim, width = whole_steps(dim);
    const Pages all = unit.first == 0 ? pages_seen(item, unit.part, 0, item.rows * item.group - 1) : unit.pages;
    for (int page = all.begin; page < all.end; ++page) {
        uint8_t* tiles = keys.page(page);
        const auto step_tiles = [&](int d) { return tiles + d / kStep * 2 * kSplitBytes; };
        if (unit.first == 0) {
            const auto* from = reinterpret_cast<const uint16_t*>(page_of(item, item.keys, unit.part, page));
            const uint8_t* next = page + 1 < all.end ? page_of(item, item.keys, unit.part, page + 1) : then;
            for (int d = 0; d < width; d += kStep)
                split_step<false>(from + d * kBlockSize, kBlockSize, 0, dim - d, next ? next + d * kBlockSize * 2 : nullptr,
                                  step_tiles(d));
        }
        if (page < unit.pages.begin || page >= unit.pages.end) continue;
        tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
        for (int d = 0; d < width; d += kStep) {
            const float* vectors = scratch.vectors + unit.first * width + d;
            multiply_step<R, 2>(reinterpret_cast<const uint8_t*>(vectors), width * 4, step_tiles(d));
            meanwhile.next();
        }
        store_sums<R, 2>(unit.scores + page * kBlockSize, kPartSize);
    }
}

// Makes NaN what the query vectors of a unit get from values of a page that they see and that are not finite.
static void spread_not_finite(const AttentionItem& item, const Unit& unit, int page) {
    const auto* values = reinterpret_cast<const uint16_t*>(page_of(item, item.values, unit.part, page));
    for (int i = 0; i < unit.queries; ++i) {
        const Span span = visible(item, (unit.first + i) / item.group, unit.part);
        for (int p = 0; p < kBlockSize; ++p) {
            if (page * kBlockSize + p < span.begin || page * kBlockSize + p >= span.end) continue;
            for (int d = 0; d < item.head_dim; ++d)
                if ((values[p * item.head_dim + d] & 0x7c00) == 0x7c00)
                    unit.results[i * item.state_width + d] = __builtin_nanf("");
        }
    }
}

// Values of a page as tiles: of the positions that any row sees. If not all of them see the same ones, then values that are
// not finite would give NaN times a weight of zero to those that do not see them, so they are left out and dealt with apart.
static void split_values(const AttentionItem& item, int part, int page, const uint8_t* next, PartTiles& tiles) {
    const auto in_page = [&](int position) {
        const int p = position - page * kBlockSize;
        return p < 0 ? 0 : p < kBlockSize ? p : kBlockSize;
    };
    const Span first = visible(item, 0, part), last = visible(item, item.rows - 1, part);
    const int begin = in_page(first.begin), end = in_page(last.end);
    const auto* values = reinterpret_cast<const uint16_t*>(page_of(item, item.values, part, page));
    tiles.not_finite &= ~(1u << page);
    if (begin == in_page(last.begin) && end == in_page(first.end)) {
        split_step<false>(values, item.head_dim, begin, end, next, tiles.page(page));
    } else if (split_step<true>(values, item.head_dim, begin, end, next, tiles.page(page))) {
        tiles.not_finite |= 1u << page;
    }
}

// results[query] += the weighted values of the pages [begin, end) of a unit, for R blocks and C tiles of dimensions from d on.
template <int R, int C>
LANES void weigh_columns(const AttentionItem& item, const Unit& unit, Pages pages, int d, const PartTiles& values,
                         Softening& meanwhile) {
    float* sums = unit.results + d;
    load_sums<R, C>(sums, item.state_width);
    for (int page = pages.begin; page < pages.end; ++page) {
        const float* weights = unit.scores + page * kBlockSize;
        multiply_step<R, C>(reinterpret_cast<const uint8_t*>(weights), kPartSize * 4, values.page(page) + d / 16 * kSplitBytes);
        meanwhile.next();
    }
    store_sums<R, C>(sums, item.state_width);
}

// results[query] += the weighted values of a part, for the R blocks of a unit. Asks for the page `then` in the end.
template <int R>
static void weigh_unit(const AttentionItem& item, const Unit& unit, PartTiles& values, const uint8_t* then,
                       Softening& meanwhile) {
    const int dims = padded16(item.head_dim), together = value_stretch(dims) / kBlockSize;
    const Pages all = unit.first == 0 ? pages_seen(item, unit.part, 0, item.rows * item.group - 1) : unit.pages;
    for (int begin = all.begin, end; begin < all.end; begin = end) {
        end = begin + together < all.end ? begin + together : all.end;
        for (int page = begin; page < end && unit.first == 0; ++page) {
            const uint8_t* next = page + 1 < all.end ? page_of(item, item.values, unit.part, page + 1) : then;
            split_values(item, unit.part, page, next, values);
        }
        const Pages seen{unit.pages.begin > begin ? unit.pages.begin : begin, unit.pages.end < end ? unit.pages.end : end};
        if (seen.begin >= seen.end) continue;
        for (int page = seen.begin; page < seen.end; ++page)
            if (values.not_finite >> page & 1) spread_not_finite(item, unit, page);
        int d = 0;
        for (; d + 32 <= dims; d += 32) weigh_columns<R, 2>(item, unit, seen, d, values, meanwhile);
        if (d < dims) weigh_columns<R, 1>(item, unit, seen, d, values, meanwhile);
    }
}

// Unit i of an item, part by part; one without query vectors if there is none.
static Unit unit_of(const AttentionItem& item, const AttentionScratch& scratch, int i) {
    const int queries = item.rows * item.group, units = (queries + kUnitQueries - 1) / kUnitQueries;
    if (i < 0 || i >= (item.part_end - item.part_begin) * units) return {};
    const int part = item.part_begin + i / units, first = i % units * kUnitQueries, room = i % kUnitsAtOnce * kUnitQueries;
    const int count = queries - first < kUnitQueries ? queries - first : kUnitQueries;
    return {part, first, count, pages_seen(item, part, first, first + count - 1), scratch.scores + room * kPartSize,
            scratch.part + room * item.state_width};
}

static void take_unit(const AttentionItem& item, const Unit& unit, float* states) {
    for (int i = 0; i < unit.queries; ++i) {
        float* result = unit.results + i * item.state_width;
        for (int d = 0; d < item.head_dim; ++d) result[d] += 0.0f;  // -0 becomes 0
        take_part(item, unit.part, unit.first + i, result, states);
    }
}

// Nothing in here throws, so the tiles are released in any case.
static void attend_on_tiles(const AttentionItem& item, const AttentionScratch& scratch) {
    if (item.kv_type != KvType::F16) return attend(item, scratch);
    const int queries = item.rows * item.group, width = whole_steps(item.head_dim), dims = padded16(item.head_dim);
    const bool one_unit = queries <= kUnitQueries;
    auto* tiles = reinterpret_cast<uint8_t*>(scratch.tiles);
    const PartTiles keys{tiles, width / kStep * 2 * kSplitBytes, one_unit ? 1 : kPartSize / kBlockSize, 0};
    PartTiles values{tiles + kPartSize * width * 4, dims / 16 * kSplitBytes,
                     one_unit ? value_stretch(dims) / kBlockSize : kPartSize / kBlockSize, 0};
    configure_tiles(attention_tiles(queries));
    split_queries(item, scratch);
    begin_states(item, scratch.state);
    Unit before{}, now{}, after = unit_of(item, scratch, 0);
    for (int i = 1; after.queries + now.queries + before.queries > 0; ++i) {
        const Unit next = unit_of(item, scratch, i);
        const uint8_t* next_keys = first_page(item, item.keys, next);
        const uint8_t* then = before.queries > 0 ? first_page(item, item.values, before) : next_keys;
        Softening softening{item, now};
        if (after.queries > 16) score_unit<2>(item, after, keys, then, scratch, softening);
        else if (after.queries > 0) score_unit<1>(item, after, keys, then, scratch, softening);
        if (before.queries > 16) weigh_unit<2>(item, before, values, next_keys, softening);
        else if (before.queries > 0) weigh_unit<1>(item, before, values, next_keys, softening);
        while (softening.next()) {}
        take_unit(item, before, scratch.state);
        before = now, now = after, after = next;
    }
    release_tiles();
    write_results(item, scratch.state);
}
