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

// Pages are converted to f32 once if that many query vectors share them; fewer read f16 as they go.
constexpr int kQueriesToConvert = 12;

// to[i] = from[i] as f32.
static void load_halves(const uint16_t* from, int n, float* to) {
    int i = 0;
    for (; i + 8 <= n; i += 8) store8(to + i, load_half8(from + i));
    for (; i < n; ++i) to[i] = half_to_float(from[i]);
}

// scores[query][0..32) = q . k for one page of keys [dim][32].
template <class Keys>
static void score_page(const AttentionItem& item, Keys keys, float* scores) {
    const int queries = item.rows * item.group;
    constexpr int at_once = 3;
    for (int at = 0; at < queries; at += at_once) {
        const int n = queries - at < at_once ? queries - at : at_once;
        const float* q[at_once];
        for (int i = 0; i < n; ++i) {
            const int row = (at + i) / item.group, head = (at + i) % item.group;
            q[i] = item.q + row * item.q_stride + head * item.head_dim;
            for (int j = 0; j < kBlockSize; ++j) scores[(at + i) * kPartSize + j] = 0.0f;
        }
        float* to = scores + at * kPartSize;
        switch (n) {
            case 3: multiply_add<3, kBlockSize>(q, keys, kBlockSize, 0, item.head_dim, to, kPartSize); break;
            case 2: multiply_add<2, kBlockSize>(q, keys, kBlockSize, 0, item.head_dim, to, kPartSize); break;
            default: multiply_add<1, kBlockSize>(q, keys, kBlockSize, 0, item.head_dim, to, kPartSize); break;
        }
    }
}

// scores[query][position in part] = q . k, for every page that any row sees.
static void score_part(const AttentionItem& item, int part, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group;
    const int pages = kPartSize / kBlockSize;
    const int first = visible(item, 0, part).begin;               // windows move right with the row, so row 0
    const int last = visible(item, item.rows - 1, part).end;      // sees the first position, the last row the last
    for (int page = first / kBlockSize; page * kBlockSize < last; ++page) {
        const uint16_t* keys = item.keys + item.block_table[part * pages + page] * item.page_stride;
        float* scores = scratch.scores + page * kBlockSize;
        if (queries < kQueriesToConvert) {
            score_page(item, HalfWeights{keys}, scores);
        } else {
            load_halves(keys, item.head_dim * kBlockSize, scratch.page);
            score_page(item, FloatWeights{scratch.page}, scores);
        }
    }
}

// Turns one query's scores of a part into weights e^(s - max), zero where not visible; state = {max, sum}.
static void soften(const AttentionItem& item, Span span, float* scores, float* state) {
    const F8 lowest = splat(-__builtin_inff());
    const int begin = span.begin / 16 * 16, end = (span.end + 15) / 16 * 16;
    const I8x32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    F8 m0 = lowest, m1 = lowest;
    for (int i = begin; i < end; i += 8) {
        F8 s = load8(scores + i) * splat(item.scale);
        if (item.softcap > 0.0f) s = softcap8(s, item.softcap);
        const I8x32 at = lane + splat_int(i);
        s = select((at >= splat_int(span.begin)) & (at < splat_int(span.end)), s, lowest);
        store8(scores + i, s);
        if ((i & 8) == 0) {
            m0 = max8(s, m0);
        } else {
            m1 = max8(s, m1);
        }
    }
    const float largest = max16(m0, m1);
    F8 s0 = splat(0.0f), s1 = splat(0.0f);
    for (int i = begin; i < end; i += 16) {
        const F8 a = exp8(load8(scores + i) - splat(largest));
        const F8 b = exp8(load8(scores + i + 8) - splat(largest));
        store8(scores + i, a);
        store8(scores + i + 8, b);
        s0 = s0 + a;
        s1 = s1 + b;
    }
    state[0] = largest;
    state[1] = sum16(s0, s1);
}

// page[position][padded dims] = values of positions [begin, end) of one page as f32.
static void load_values(const uint16_t* values, int dims, int begin, int end, float* page) {
    const int stride = padded16(dims);
    for (int p = begin; p < end; ++p) {
        load_halves(values + p * dims, dims, page + p * stride);
        for (int i = dims; i < stride; ++i) page[p * stride + i] = 0.0f;
    }
}

// acc[i][padded dims] += weights[i] times the values of positions [begin, end) of one page, for n queries.
template <class Values>
static void weigh_values(const float* const* weights, int n, Values values, int dims, int begin, int end, float* acc) {
    const int width = dims + 2;
    int d = 0;
    if (n == 3) {
        for (; d + 32 <= dims; d += 32)
            multiply_add<3, 32>(weights, Values{values.p + d}, dims, begin, end, acc + d, width);
        for (; d < dims; d += 16)
            multiply_add<3, 16>(weights, Values{values.p + d}, dims, begin, end, acc + d, width);
        return;
    }
    for (int i = 0; i < n; ++i) {
        for (d = 0; d + 64 <= dims; d += 64)
            multiply_add<1, 64>(weights + i, Values{values.p + d}, dims, begin, end, acc + i * width + d, width);
        for (; d < dims; d += 16)
            multiply_add<1, 16>(weights + i, Values{values.p + d}, dims, begin, end, acc + i * width + d, width);
    }
}

// Adds one page, whose first position is `start` within the part, to scratch.part. Rows of `values` are as long as the
// padded dimensions.
template <class Values>
static void weigh_page(const AttentionItem& item, int part, int start, Values values, const AttentionScratch& scratch) {
    constexpr int at_once = 3;
    const int queries = item.rows * item.group, dims = padded16(item.head_dim), width = dims + 2;
    for (int at = 0; at < queries; at += at_once) {
        const int n = queries - at < at_once ? queries - at : at_once;
        const float* weights[at_once];
        int begin[at_once], end[at_once];
        int common_begin = 0, common_end = kBlockSize;
        for (int i = 0; i < n; ++i) {
            const Span span = visible(item, (at + i) / item.group, part);
            weights[i] = scratch.scores + (at + i) * kPartSize + start;
            begin[i] = span.begin > start ? span.begin - start : 0;
            end[i] = span.end - start < kBlockSize ? span.end - start : kBlockSize;
            common_begin = begin[i] > common_begin ? begin[i] : common_begin;
            common_end = end[i] < common_end ? end[i] : common_end;
        }
        float* acc = scratch.part + at * width + 2;
        if (common_begin >= common_end) {
            for (int i = 0; i < n; ++i) weigh_values(weights + i, 1, values, dims, begin[i], end[i], acc + i * width);
            continue;
        }
        for (int i = 0; i < n; ++i)
            if (begin[i] < common_begin) weigh_values(weights + i, 1, values, dims, begin[i], common_begin, acc + i * width);
        weigh_values(weights, n, values, dims, common_begin, common_end, acc);
        for (int i = 0; i < n; ++i)
            if (common_end < end[i]) weigh_values(weights + i, 1, values, dims, common_end, end[i], acc + i * width);
    }
}

// part[query] = {max, sum, acc[padded dims]} of one part. Positions outside a row's span are never read: other
// sequences may have left anything there.
static void weigh_part(const AttentionItem& item, int part, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group;
    const int dims = padded16(item.head_dim), width = dims + 2;
    for (int i = 0; i < queries; ++i) {
        const Span span = visible(item, i / item.group, part);
        float* state = scratch.part + i * width;
        for (int d = 0; d < width; ++d) state[d] = 0.0f;
        if (span.begin < span.end) soften(item, span, scratch.scores + i * kPartSize, state);
    }
    const int pages = kPartSize / kBlockSize;
    const int first = visible(item, 0, part).begin, last = visible(item, item.rows - 1, part).end;
    for (int page = first / kBlockSize; page * kBlockSize < last; ++page) {
        const int start = page * kBlockSize;
        const int page_begin = first > start ? first - start : 0;
        const int page_end = last - start < kBlockSize ? last - start : kBlockSize;
        const uint16_t* values = item.values + item.block_table[part * pages + page] * item.page_stride;
        if (queries < kQueriesToConvert && item.head_dim % 16 == 0) {
            weigh_page(item, part, start, HalfWeights{values}, scratch);
        } else {
            load_values(values, item.head_dim, page_begin, page_end, scratch.page);
            weigh_page(item, part, start, FloatWeights{scratch.page}, scratch);
        }
    }
}

// state = state merged with the next part; both {max, sum, acc}. A state with sum 0 is empty.
static void fold_part(float* state, const float* part, int dims) {
    if (part[1] == 0.0f) return;
    if (state[1] == 0.0f) {
        for (int i = 0; i < dims + 2; ++i) state[i] = part[i];
        return;
    }
    const float largest = part[0] > state[0] ? part[0] : state[0];
    float factors[8];
    store8(factors, exp8(F8{state[0] - largest, part[0] - largest}));
    const float old_factor = factors[0], new_factor = factors[1];
    state[0] = largest;
    state[1] = state[1] * old_factor + part[1] * new_factor;
    for (int i = 2; i < dims + 2; ++i) state[i] = state[i] * old_factor + part[i] * new_factor;
}

static void write_result(const AttentionItem& item, int query, const float* state) {
    float* out = item.out + query / item.group * item.out_stride + query % item.group * item.head_dim;
    for (int d = 0; d < item.head_dim; ++d) out[d] = state[2 + d] / state[1];
}

static void attend(const AttentionItem& item, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group;
    const int dims = padded16(item.head_dim), width = dims + 2;
    if (!item.partial)
        for (int i = 0; i < queries; ++i) scratch.state[i * width + 1] = 0.0f;
    for (int part = item.part_begin; part < item.part_end; ++part) {
        score_part(item, part, scratch);
        weigh_part(item, part, scratch);
        for (int i = 0; i < queries; ++i) {
            const float* result = scratch.part + i * width;
            if (item.partial) {
                float* to = item.partial + (static_cast<int64_t>(part - item.part_begin) * queries + i) * width;
                for (int d = 0; d < width; ++d) to[d] = result[d];
            } else {
                fold_part(scratch.state + i * width, result, dims);
            }
        }
    }
    if (!item.partial)
        for (int i = 0; i < queries; ++i) write_result(item, i, scratch.state + i * width);
}

static void merge_parts(const float* partial, int parts, const AttentionItem& item, const AttentionScratch& scratch) {
    const int queries = item.rows * item.group;
    const int dims = padded16(item.head_dim), width = dims + 2;
    for (int i = 0; i < queries; ++i) {
        scratch.state[1] = 0.0f;
        for (int part = 0; part < parts; ++part)
            fold_part(scratch.state, partial + (static_cast<int64_t>(part) * queries + i) * width, dims);
        write_result(item, i, scratch.state);
    }
}
