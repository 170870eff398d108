// Quantisation of activations, and what is stored of keys and values. Included only by the levels' .cpp files, inside the
// level's own namespace.
//
// What a group needs but once, the maximum and the sum over its lanes and the scale, is computed for kWidth groups at a
// time, each in a lane: a sum of lanes of its own takes many operations of which most lanes are of no use.

// The cells of kCell lanes that have even numbers, or odd ones, in both vectors' parts of kPart lanes, a's first.
template <int kCell, int kPart, int kOdd>
constexpr int lane_of_cell(int i) {
    constexpr int cells = kPart / kCell;
    const int cell = i % kPart / kCell * 2 + kOdd;
    return i / kPart * kPart + cell % cells * kCell + i % kCell + cell / cells * kWidth;
}

template <int kCell, int kPart, int kOdd, int... kLane>
LANES FW cells_of(FW a, FW b, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, lane_of_cell<kCell, kPart, kOdd>(kLane)...);
}

// Lane i is the fold of all lanes of v[i], in an order that must not matter.
template <int kVectors, class Op>
LANES IW fold_lanes(const IW* v, const Op& op) {
    if constexpr (kVectors == 1) {
        return v[0];
    } else {
        const FW a = as_float(fold_lanes<kVectors / 2>(v, op)), b = as_float(fold_lanes<kVectors / 2>(v + kVectors / 2, op));
        constexpr int cell = kVectors > 4 ? 4 : 1, part = kVectors > 4 ? kWidth : 4;
        constexpr auto lanes = std::make_integer_sequence<int, kWidth>{};
        return op(as_int(cells_of<cell, part, 0>(a, b, lanes)), as_int(cells_of<cell, part, 1>(a, b, lanes)));
    }
}

LANES IW larger_int(IW a, IW b) { return a > b ? a : b; }

// Numbers x as integers a: x ~ a * scale with scale = max|x| / limit, a = x * inverse to the nearest, which is within the
// limit: what two roundings may add is far less than a half. What is not finite must not turn into numbers: its scale is NaN,
// and a is zero. Below 1e-30, where the inverse would overflow, x is zero for every practical purpose. Magnitudes are compared
// as bits, where NaN is above infinity.
constexpr int32_t kInfinityBits = 0x7f800000;

struct Scaling {
    FW scale, inverse;
};

LANES Scaling scaling_of(FW largest, float limit) {
    const IW practical = largest > splat_wide(1e-30f), finite = largest < splat_wide(__builtin_inff());
    return {select(finite, select(practical, largest / splat_wide(limit), FW{}), splat_wide(__builtin_nanf(""))),
            select(practical, splat_wide(limit) / largest, FW{})};
}

// To the nearest integers, ties to even; |v| < 2^22.
LANES IW nearest(FW v) {
#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
    return nearest_ints(v);
#elif defined(__AVX2__)
    return reinterpret_cast<IW>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(v)));
#else
    const FW magic = splat_wide(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    return as_int(v + magic) - as_int(magic);
#endif
}

using GroupIntegers = IW[kGroup / kWidth];

// Stores a group's integers as ActivationsView has them; the sum of the result's lanes is theirs.
#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
template <ActivationType kType>
LANES IW store_integers(const GroupIntegers& a, int16_t* words, int8_t* bytes) {
    const I32x16 v = pack_ints(a[0], a[1]);  // quads 0, 4, 1, 5, …
    const I32x16 ordered = __builtin_shufflevector(v, v, 0, 2, 1, 3, 8, 10, 9, 11, 16, 18, 17, 19, 24, 26, 25, 27,  //
                                                   4, 6, 5, 7, 12, 14, 13, 15, 20, 22, 21, 23, 28, 30, 29, 31);
    __builtin_memcpy(words, &ordered, sizeof ordered);
    const bool halves = kType == ActivationType::I12;
    const IW packed = halves ? pack_words(v >> 4, v & 15) : pack_words(v, v);  // of the high parts and the low ones by turns
    const IW lines = __builtin_shufflevector(packed, packed, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __builtin_memcpy(bytes, &lines, activation_bytes(kType));
    return pair_sums(v);
}
#elif defined(__AVX2__)
template <ActivationType kType>
LANES IW store_integers(const GroupIntegers& a, int16_t* words, int8_t* bytes) {
    // Quads 0, 2, 1, 3 and 4, 6, 5, 7.
    __m256i packed[2];
    for (int i = 0; i < 2; ++i) {
        packed[i] = _mm256_packs_epi32(reinterpret_cast<__m256i>(a[2 * i]), reinterpret_cast<__m256i>(a[2 * i + 1]));
        const __m256i swap = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                              0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 16 * i),
                            _mm256_permute4x64_epi64(_mm256_shuffle_epi8(packed[i], swap), 0xd8));
    }
    const auto store = [&](__m256i low, __m256i high, int8_t* to) {
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
    };
    if constexpr (kType == ActivationType::I8) {
        store(packed[0], packed[1], bytes);
    } else {
        const __m256i nibble = _mm256_set1_epi16(15);
        store(_mm256_srai_epi16(packed[0], 4), _mm256_srai_epi16(packed[1], 4), bytes);
        store(_mm256_and_si256(packed[0], nibble), _mm256_and_si256(packed[1], nibble), bytes + kGroup);
    }
    return reinterpret_cast<IW>(_mm256_madd_epi16(_mm256_add_epi16(packed[0], packed[1]), _mm256_set1_epi16(1)));
}
#else
template <ActivationType kType>
LANES IW store_integers(const GroupIntegers& a, int16_t* words, int8_t* bytes) {
    IW total{};
    for (const IW& v : a) total = total + v;
    for (int i = 0; i < kGroup; ++i) {
        const int in_quad = i % 4, from = in_quad == 1 ? i + 1 : in_quad == 2 ? i - 1 : i;
        words[i] = static_cast<int16_t>(a[from / kWidth][from % kWidth]);
        const int32_t number = a[i / kWidth][i % kWidth];
        bytes[i] = static_cast<int8_t>(kType == ActivationType::I8 ? number : number >> 4);
        if constexpr (kType == ActivationType::I12) bytes[kGroup + i] = static_cast<int8_t>(number & 15);
    }
    return total;
}
#endif

// Groups: the numbers of each, and its place among all groups of all rows. So many that while one waits for a sum of lanes or
// a quotient there is work in another.
struct Groups {
    static constexpr int kMost = 4 * kWidth;
    const float* x[kMost];
    int64_t at[kMost];
    int n = 0;
};

template <ActivationType kType>
static void quantize_groups(const ActivationsView& a, const Groups& groups) {
    float largest[Groups::kMost], scales[Groups::kMost], inverses[Groups::kMost], sums[kWidth];
    for (int first = 0; first < groups.n; first += kWidth) {
        const int n = groups.n - first < kWidth ? groups.n - first : kWidth;
        IW lanes[kWidth];
        for (int i = 0; i < n; ++i) {
            lanes[i] = as_int(magnitude(load_wide(groups.x[first + i])));
            for (int j = kWidth; j < kGroup; j += kWidth)
                lanes[i] = larger_int(lanes[i], as_int(magnitude(load_wide(groups.x[first + i] + j))));
        }
        for (int i = n; i < kWidth; ++i) lanes[i] = lanes[0];  // for nobody
        const FW magnitudes = as_float(fold_lanes<kWidth>(lanes, larger_int));
        const Scaling scaling = scaling_of(magnitudes, static_cast<float>(max_activation(kType)));
        store_wide(largest + first, magnitudes);
        store_wide(scales + first, scaling.scale);
        store_wide(inverses + first, scaling.inverse);
    }
    for (int first = 0; first < groups.n; first += kWidth) {
        const int n = groups.n - first < kWidth ? groups.n - first : kWidth;
        IW lanes[kWidth];
        for (int i = 0; i < n; ++i) {
            const int64_t at = groups.at[first + i];
            GroupIntegers integers = {};
            if (__builtin_bit_cast(int32_t, largest[first + i]) < kInfinityBits)
                for (int j = 0; j < kGroup / kWidth; ++j)
                    integers[j] = nearest(load_wide(groups.x[first + i] + j * kWidth) * splat_wide(inverses[first + i]));
            lanes[i] = store_integers<kType>(integers, a.words + at * kGroup, a.bytes + at * activation_bytes(kType));
            a.scales[at] = scales[first + i];
        }
        for (int i = n; i < kWidth; ++i) lanes[i] = lanes[0];
        const IW totals = fold_lanes<kWidth>(lanes, [](IW p, IW q) { return p + q; });
        store_wide(sums, load_wide(scales + first) * __builtin_convertvector(totals, FW));
        // As bytes and one by one, else GCC scatters or takes lanes out of the vector, by units that are busy enough.
#pragma GCC unroll 1
        for (int i = 0; i < n; ++i) __builtin_memcpy(a.sums + groups.at[first + i], sums + i, sizeof *sums);
    }
}

template <ActivationType kType>
static void quantize_rows(const ActivationsView& a, int begin, int end, int group_begin, int group_end) {
    Groups groups;
    for (int row = begin; row < end; ++row)
        for (int g = group_begin; g < group_end; ++g) {
            groups.x[groups.n] = a.f32 + row * a.stride + g * kGroup;
            groups.at[groups.n++] = static_cast<int64_t>(row) * a.groups + g;
            if (groups.n == Groups::kMost) {
                quantize_groups<kType>(a, groups);
                groups.n = 0;
            }
        }
    quantize_groups<kType>(a, groups);
}

static void quantize(const ActivationsView& a, int begin, int end, int group_begin, int group_end) {
    const auto rows = a.type == ActivationType::I12 ? quantize_rows<ActivationType::I12> : quantize_rows<ActivationType::I8>;
    rows(a, begin, end, group_begin, group_end);
}

static void store_halves(const float* k, const float* v, int dims, int slot, uint16_t* keys, uint16_t* values) {
    uint16_t *key = keys + slot, *value = values + slot * dims;
    uint16_t halves[8];
    int i = 0;
    for (; i + 8 <= dims; i += 8) {
        store_half8(halves, load8(k + i));
        for (int j = 0; j < 8; ++j) key[(i + j) * kBlockSize] = halves[j];
        store_half8(value + i, load8(v + i));
    }
    for (; i < dims; ++i) {
        key[i * kBlockSize] = float_to_half(k[i]);
        value[i] = float_to_half(v[i]);
    }
}

// n <= 32 numbers of a group: to[i * step] = x[i] as 8-bit integers.
static void store_bytes(const float* x, int n, int8_t* to, int step, float* scale) {
    constexpr int vectors = kGroup / kWidth;
    FW v[vectors];
    IW lanes[kWidth] = {};
    for (int i = 0; i < vectors; ++i) {
        const int left = n - i * kWidth;
        v[i] = left >= kWidth ? load_wide(x + i * kWidth) : load_tail(x + i * kWidth, left);
        lanes[0] = larger_int(lanes[0], as_int(magnitude(v[i])));
    }
    const FW largest = as_float(fold_lanes<kWidth>(lanes, larger_int));
    const Scaling scaling = scaling_of(largest, 127.0f);
    const bool finite = largest[0] < __builtin_inff();
    int32_t integers[kGroup];
    for (int i = 0; i < vectors; ++i) {
        const IW a = nearest(finite ? v[i] * splat_wide(scaling.inverse[0]) : FW{});
        __builtin_memcpy(integers + i * kWidth, &a, sizeof a);
    }
    for (int i = 0; i < n; ++i) to[i * step] = static_cast<int8_t>(integers[i]);
    *scale = scaling.scale[0];
}

static void store_kv(KvType type, const float* k, const float* v, int dims, int slot, uint8_t* keys, uint8_t* values) {
    if (type == KvType::F16)
        return store_halves(k, v, dims, slot, reinterpret_cast<uint16_t*>(keys), reinterpret_cast<uint16_t*>(values));
    auto *key = reinterpret_cast<int8_t*>(keys) + slot, *value = reinterpret_cast<int8_t*>(values) + slot * dims;
    float* key_scales = reinterpret_cast<float*>(keys + dims * kBlockSize) + slot;
    float* value_scales = reinterpret_cast<float*>(values + dims * kBlockSize) + slot;
    for (int d = 0; d < dims; d += kGroup) {
        const int n = dims - d < kGroup ? dims - d : kGroup;
        store_bytes(k + d, n, key + d * kBlockSize, kBlockSize, key_scales + d / kGroup * kBlockSize);
        store_bytes(v + d, n, value + d, 1, value_scales + d / kGroup * kBlockSize);
    }
}

