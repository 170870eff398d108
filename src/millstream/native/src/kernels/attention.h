// Attention over KV pages. Positions are cut into parts of 256 at fixed places; each part gives (max, sum, weighted values)
// and parts are merged in order, so a row's result does not depend on how the prompt was chunked or who computed what.
// Included only by the levels' .cpp files, inside the level's own namespace.

// The visible positions of row r within a part: [begin, end), relative to the part's first position; may be empty.
struct Span {
    int begin, end;
};

LANES Span visible(const AttentionItem& item, int row, int part) {
    const int position = item.first_position + row;
    const int start = part * kPartSize;
    int begin = item.window > 0 && position - item.window + 1 > start ? position - item.window + 1 - start : 0;
    int end = position + 1 - start;
    if (end < 0) end = 0;
    if (end > kPartSize) end = kPartSize;
    if (begin > end) begin = end;
    return {begin, end};
}

LANES int padded16(int n) { return (n + 15) / 16 * 16; }

// Pages are converted to f32 once if more query vectors share them than two pieces hold.
constexpr int kQueriesToConvert = 2 * kRowsAtOnce + 1;

// The numbers of one head in a page: HalfWeights, or ByteWeights whose scales stand behind them.
template <class Numbers>
LANES Numbers numbers_of(const uint8_t* page) {
    return {reinterpret_cast<decltype(Numbers::p)>(page)};
}

// Scales [32 positions] of the group of dimensions that d belongs to, for ByteWeights.
LANES const float* scales_of(const uint8_t* page, int head_dim, int d) {
    return reinterpret_cast<const float*>(page + head_dim * kBlockSize) + d / kGroup * kBlockSize;
}

// Asks for the first n bytes of a page, which may be null.
LANES void prefetch(const uint8_t* page, int n) {
    if (!page) return;
    for (int i = 0; i < n; i += 64) __builtin_prefetch(page + i, 0, 2);
}

LANES float load_one(HalfWeights from, int i) { return half_to_float(from.p[i]); }
LANES float load_one(ByteWeights from, int i) { return static_cast<float>(from.p[i]); }

// to[i] = from[i] as f32.
template <class Numbers>
static void load_floats(Numbers from, int n, float* to) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) store_wide(to + i, load_lanes(from, i));
    for (; i < n; ++i) to[i] = load_one(from, i);
}

// Whether each group of dimensions has scales of its own.
template <class Numbers>
constexpr bool kScaled = false;
template <>
constexpr bool kScaled<ByteWeights> = true;

// scores[query][start..] of one page of keys [dim][32], whose first position is `start` within the part: plus the products of
// dimensions [begin, end), from zero if begin is; with scales [32] of theirs if they are integers, else null. Asks for `next`
// meanwhile. Rows that do not see the page may be left out.
template <class Keys>
static void score_page(const AttentionItem& item, int part, int start, Keys keys, const float* scales, int begin, int end,
                       const uint8_t* next, float* scores) {
    const int queries = item.rows * item.group;
    for (int at = 0, n; at < queries; at += n) {
        n = rows_of_piece(queries - at, kRowsAtOnce);
        if (start >= visible(item, (at + n - 1) / item.group, part).end) continue;
        if (start + kBlockSize <= visible(item, at / item.group, part).begin) continue;
        const float* q[kRowsAtOnce];
        for (int i = 0; i < n; ++i)
            q[i] = item.q + (at + i) / item.group * item.q_stride + (at + i) % item.group * item.head_dim;
        multiply_add_rows<kRowsAtOnce>(q, n, keys, kBlockSize, begin, end, kBlockSize,
                                       {scores + at * kPartSize + start, kPartSize, begin == 0, scales}, at ? nullptr : next);
    }
}

// The page at index `page` of a part; null if the part has no such page or no row of the item sees it.
static const uint8_t* page_of(const AttentionItem& item, const uint8_t* base, int part, int page) {
    const int pages = kPartSize / kBlockSize;
    if (page >= pages || (part * pages + page) * kBlockSize >= item.first_position + item.rows) return nullptr;
    return base + item.block_table[part * pages + page] * item.page_stride;
}

// scores[query][position in part] = q . k, for every page that any row sees. Memory takes the time if there are few queries,
// so while a page is read the next one is asked for, which may be the first of the values.
template <class Numbers>
static void score_part(const AttentionItem& item, int part, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group, dim = item.head_dim;
    const bool convert = queries >= kQueriesToConvert;
    const int slice = kScaled<Numbers> ? kGroup : dim;
    const int first = visible(item, 0, part).begin;               // windows move right with the row, so row 0
    const int last = visible(item, item.rows - 1, part).end;      // sees the first position, the last row the last
    for (int start = first / kBlockSize * kBlockSize; start < last; start += kBlockSize) {
        const int page = start / kBlockSize;
        const uint8_t* key_page = page_of(item, item.keys, part, page);
        const uint8_t* next = start + kBlockSize < last ? page_of(item, item.keys, part, page + 1)
                                                        : page_of(item, item.values, part, first / kBlockSize);
        const auto keys = numbers_of<Numbers>(key_page);
        if (convert) {
            load_floats(keys, dim * kBlockSize, scratch.page);
            prefetch(next, dim * kBlockSize * sizeof *keys.p);
        }
        for (int begin = 0; begin < dim; begin += slice) {
            const int end = dim - begin < slice ? dim : begin + slice;
            const float* scales = kScaled<Numbers> ? scales_of(key_page, dim, begin) : nullptr;
            if (convert) {
                score_page(item, part, start, FloatWeights{scratch.page}, scales, begin, end, nullptr, scratch.scores);
            } else {
                score_page(item, part, start, keys, scales, begin, end, next, scratch.scores);
            }
        }
    }
}

// Turns one query's scores of a part into weights e^(s - max), zero where not visible. Sets max and sum.
static void soften(const AttentionItem& item, Span span, float* scores, float* max, float* sum) {
    const int begin = span.begin / 16 * 16, end = padded16(span.end);
    float scale = item.scale;
    if (item.softcap > 0.0f) {
        for (int i = begin; i < end; i += kWidth)
            store_wide(scores + i, softcapped(load_wide(scores + i) * splat_wide(scale), item.softcap));
        scale = 1.0f;
    }
    for (int i = begin; i < span.begin; ++i) scores[i] = -__builtin_inff();
    for (int i = span.end; i < end; ++i) scores[i] = -__builtin_inff();
    exponentials(scores + begin, end - begin, scale, max, sum);
}

// Values of positions [begin, end) of a stretch as f32, [position][padded dims], and behind all of the stretch their scales
// [group][stretch], if they are integers. `start` is the stretch's first position within the part.
template <class Numbers>
static void load_values(const AttentionItem& item, int part, int start, int begin, int end, float* to) {
    const int dim = item.head_dim, dims = padded16(dim), stretch = value_stretch(dims);
    for (int at = begin / kBlockSize * kBlockSize; at < end; at += kBlockSize) {
        const uint8_t* page = page_of(item, item.values, part, (start + at) / kBlockSize);
        const auto values = numbers_of<Numbers>(page);
        const int page_begin = begin > at ? begin - at : 0, page_end = end - at < kBlockSize ? end - at : kBlockSize;
        for (int p = page_begin; p < page_end; ++p) {
            float* row = to + (at + p) * dims;
            load_floats(Numbers{values.p + p * dim}, dim, row);
            for (int i = dim; i < dims; ++i) row[i] = 0.0f;
        }
        if constexpr (kScaled<Numbers>)
            for (int group = 0; group < kv_groups(dim); ++group)
                __builtin_memcpy(to + stretch * dims + group * stretch + at, scales_of(page, dim, group * kGroup),
                                 kBlockSize * sizeof(float));
    }
}

// to[0..n) = weights * scales, n a multiple of 16.
LANES void scale_weights(const float* weights, const float* scales, int n, float* to) {
    for (int j = 0; j < n; j += kWidth) store_wide(to + j, load_wide(weights + j) * load_wide(scales + j));
}

// Adds dimensions [d, d_end) of a stretch of positions, the first of which is `start` within the part, to scratch.part. Rows
// of `values` are as long as the padded dimensions. Integers come with their scales [stretch], which go into the weights.
// Asks for `next` meanwhile.
template <class Values>
static void weigh_stretch(const AttentionItem& item, int part, int start, int stretch, Values values, const float* scales,
                          int d, int d_end, const uint8_t* next, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group, dims = padded16(item.head_dim), width = item.state_width;
    for (int at = 0, n; at < queries; at += n) {
        n = rows_of_piece(queries - at, kRowsAtOnce);
        const float* weights[kRowsAtOnce];
        float scaled[kRowsAtOnce][2 * kBlockSize];
        int begin[kRowsAtOnce], end[kRowsAtOnce];
        int common_begin = 0, common_end = stretch;
        for (int i = 0; i < n; ++i) {
            const Span span = visible(item, (at + i) / item.group, part);
            weights[i] = scratch.scores + (at + i) * kPartSize + start;
            if (scales) {
                scale_weights(weights[i], scales, stretch, scaled[i]);
                weights[i] = scaled[i];
            }
            begin[i] = span.begin > start ? span.begin - start : 0;
            end[i] = span.end - start < stretch ? span.end - start : stretch;
            common_begin = begin[i] > common_begin ? begin[i] : common_begin;
            common_end = end[i] < common_end ? end[i] : common_end;
        }
        float* acc = scratch.part + at * width + d;
        const uint8_t* ahead = next && at == 0 ? next + d * kBlockSize * sizeof *values.p : nullptr;
        const auto add = [&](int first, int count, int from, int to) {
            multiply_add_rows<kRowsAtOnce>(weights + first, count, Values{values.p + d}, dims, from, to, d_end - d,
                                           {acc + first * width, width, false, nullptr}, first ? nullptr : ahead);
        };
        if (common_begin >= common_end) {
            for (int i = 0; i < n; ++i)
                if (begin[i] < end[i]) add(i, 1, begin[i], end[i]);
            continue;
        }
        for (int i = 0; i < n; ++i)
            if (begin[i] < common_begin) add(i, 1, begin[i], common_begin);
        add(0, n, common_begin, common_end);
        for (int i = 0; i < n; ++i)
            if (common_end < end[i]) add(i, 1, common_end, end[i]);
    }
}

// One query's scores of a part into weights, and state = {0 [padded dims], max, sum}.
static void soften_query(const AttentionItem& item, int part, int query, float* scores, float* state) {
    const int dims = padded16(item.head_dim);
    const Span span = visible(item, query / item.group, part);
    for (int d = 0; d < dims + 2; ++d) state[d] = 0.0f;
    if (span.begin < span.end) soften(item, span, scores, state + dims, state + dims + 1);
}

// part[query] += the weighted values of one part. Positions outside a row's span are never read: other sequences may have
// left anything there.
template <class Numbers>
static void weigh_part(const AttentionItem& item, int part, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group, dims = padded16(item.head_dim);
    const bool convert = queries >= kQueriesToConvert || item.head_dim % 16 != 0;
    const int stretch = convert ? value_stretch(dims) : kBlockSize, slice = kScaled<Numbers> ? kGroup : dims;
    const int first = visible(item, 0, part).begin, last = visible(item, item.rows - 1, part).end;
    for (int start = first / stretch * stretch; start < last; start += stretch) {
        const int page = start / kBlockSize, next_page = (start + stretch) / kBlockSize;
        const uint8_t* value_page = page_of(item, item.values, part, page);
        const uint8_t* next = start + stretch < last ? page_of(item, item.values, part, next_page)
                                                     : page_of(item, item.keys, part + 1, 0);
        const auto values = numbers_of<Numbers>(value_page);
        const int numbers = item.head_dim * kBlockSize * sizeof *values.p;
        if (convert) {
            load_values<Numbers>(item, part, start, first > start ? first - start : 0,
                                 last - start < stretch ? last - start : stretch, scratch.page);
            prefetch(next, numbers);
            if (stretch > kBlockSize) prefetch(page_of(item, item.values, part, next_page + 1), numbers);
        }
        for (int d = 0; d < dims; d += slice) {
            const int end = dims - d < slice ? dims : d + slice;
            if (convert) {
                const float* scales = kScaled<Numbers> ? scratch.page + stretch * (dims + d / kGroup) : nullptr;
                weigh_stretch(item, part, start, stretch, FloatWeights{scratch.page}, scales, d, end, nullptr, scratch);
            } else {
                const float* scales = kScaled<Numbers> ? scales_of(value_page, item.head_dim, d) : nullptr;
                weigh_stretch(item, part, start, stretch, values, scales, d, end, next, scratch);
            }
        }
    }
}

// state = state merged with the next part; both {acc[dims], max, sum}. A state with sum 0 is empty.
static void fold_part(float* state, const float* part, int dims) {
    float *max = state + dims, *sum = max + 1;
    const float part_max = part[dims], part_sum = part[dims + 1];
    if (part_sum == 0.0f) return;
    if (*sum == 0.0f) {
        for (int i = 0; i < dims + 2; ++i) state[i] = part[i];
        return;
    }
    const float largest = part_max > *max ? part_max : *max;
    const FW factors = exp_wide(FW{*max - largest, part_max - largest});
    const float old_factor = factors[0], new_factor = factors[1];
    *max = largest;
    *sum = *sum * old_factor + part_sum * new_factor;
    for (int i = 0; i < dims; ++i) state[i] = state[i] * old_factor + part[i] * new_factor;
}

static void write_result(const AttentionItem& item, int query, const float* state) {
    float* out = item.out + query / item.group * item.out_stride + query % item.group * item.head_dim;
    const float sum = state[padded16(item.head_dim) + 1];
    for (int d = 0; d < item.head_dim; ++d) out[d] = state[d] / sum;
}

// Before the first part.
static void begin_states(const AttentionItem& item, float* states) {
    if (item.partial) return;
    for (int i = 0; i < item.rows * item.group; ++i)
        states[i * item.state_width + padded16(item.head_dim) + 1] = 0.0f;
}

// Takes a query's {weighted values, max, sum} of a part: merged with those of the parts before, or unmerged as they are.
static void take_part(const AttentionItem& item, int part, int query, const float* result, float* states) {
    const int dims = padded16(item.head_dim);
    if (!item.partial) return fold_part(states + query * item.state_width, result, dims);
    const int64_t at = static_cast<int64_t>(part - item.part_begin) * item.rows * item.group + query;
    for (int d = 0; d < dims + 2; ++d) item.partial[at * item.state_width + d] = result[d];
}

// After the last part.
static void write_results(const AttentionItem& item, const float* states) {
    if (item.partial) return;
    for (int i = 0; i < item.rows * item.group; ++i) write_result(item, i, states + i * item.state_width);
}

template <class Numbers>
static void attend_pages(const AttentionItem& item, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group, width = item.state_width;
    begin_states(item, scratch.state);
    for (int part = item.part_begin; part < item.part_end; ++part) {
        score_part<Numbers>(item, part, scratch);
        for (int i = 0; i < queries; ++i)
            soften_query(item, part, i, scratch.scores + i * kPartSize, scratch.part + i * width);
        weigh_part<Numbers>(item, part, scratch);
        for (int i = 0; i < queries; ++i) take_part(item, part, i, scratch.part + i * width, scratch.state);
    }
    write_results(item, scratch.state);
}

static void attend(const AttentionItem& item, const AttentionScratch& scratch) {
    return item.kv_type == KvType::F16 ? attend_pages<HalfWeights>(item, scratch) : attend_pages<ByteWeights>(item, scratch);
}

static void merge_parts(const float* partial, int parts, const AttentionItem& item, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group;
    const int dims = padded16(item.head_dim), width = item.state_width;
    for (int i = 0; i < queries; ++i) {
        scratch.state[dims + 1] = 0.0f;
        for (int part = 0; part < parts; ++part)
            fold_part(scratch.state, partial + (static_cast<int64_t>(part) * queries + i) * width, dims);
        write_result(item, i, scratch.state);
    }
}
