// Attention on emulated tiles: near the generic level's, and a row's bits depend on nothing but the row: not on its company,
// its chunk, how the work is cut, or what positions hold that it does not see. Linked with kernels/generic.cpp and amx.cpp,
// the latter compiled with MILLSTREAM_EMULATE.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernels.h"

namespace millstream {
extern const Kernels kGenericKernels, kAmxKernels;
}

using namespace millstream;

namespace {

// Results are averages of values up to 1. Without one of the three products errors would be above 0.001.
constexpr float kTolerance = 1e-4f;

std::mt19937 rng(1);
int compared = 0, failed = 0;
float largest_error = 0.0f;

int random_int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); }
float random_float(float scale) { return std::uniform_real_distribution<float>(-scale, scale)(rng); }

struct Shape {
    int group, dim, window;
    float softcap;
};

// Keys and values of positions [0, length) of one sequence, and query vectors of each.
struct Sequence {
    Shape shape;
    int length;
    std::vector<float> q;
    std::vector<uint8_t> keys, values;  // pages in reverse order
    std::vector<int32_t> table;
    int64_t stride;

    Sequence(const Shape& shape, int length) : shape(shape), length(length), stride(kv_head_bytes(KvType::F16, shape.dim)) {
        const int pages = (length + kBlockSize - 1) / kBlockSize;
        keys.resize(static_cast<size_t>(pages * stride));
        values.resize(keys.size());
        for (int i = 0; i < pages; ++i) table.push_back(pages - 1 - i);
        q.resize(static_cast<size_t>(length * shape.group * shape.dim));
        for (float& x : q) x = random_float(2.0f);
        hold_anything(0, pages * kBlockSize);
        for (int i = 0; i < length; ++i) store(i, [](int) { return random_float(1.0f); });
    }

    template <class Number>
    void store(int position, Number number) {
        std::vector<float> k(static_cast<size_t>(shape.dim)), v(k.size());
        for (float& x : k) x = random_float(1.0f);
        for (size_t d = 0; d < v.size(); ++d) v[d] = number(static_cast<int>(d));
        const int64_t page = table[static_cast<size_t>(position / kBlockSize)] * stride;
        kGenericKernels.store_kv(KvType::F16, k.data(), v.data(), shape.dim, position % kBlockSize, &keys[page], &values[page]);
    }

    // Positions [begin, end) hold any f16 numbers, many of them NaN or infinite.
    void hold_anything(int begin, int end) {
        for (int i = begin; i < end; ++i) {
            const int64_t page = table[static_cast<size_t>(i / kBlockSize)] * stride;
            auto* k = reinterpret_cast<uint16_t*>(&keys[page]) + i % kBlockSize;
            auto* v = reinterpret_cast<uint16_t*>(&values[page]) + i % kBlockSize * shape.dim;
            for (int d = 0; d < shape.dim; ++d)
                for (uint16_t* number : {k + d * kBlockSize, v + d})
                    *number = static_cast<uint16_t>(rng() % 4 ? rng() : rng() % 2 ? 0x7c00 : 0xfe01);
        }
    }

    int first_seen(int position) const {
        return shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
    }

    // Results of rows [first, first + rows), in `pieces` of so many parts or all at once if it is zero.
    std::vector<float> attend(const Kernels& kernels, int first, int rows, int pieces) const {
        const int width = (shape.dim + 15) / 16 * 16 + 16;
        const auto queries = static_cast<size_t>(scratch_queries(rows * shape.group));
        const auto room = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), 7.0f); };
        auto page = room(converted_floats(shape.dim)), scores = room(queries * kPartSize), state = room(queries * width),
             part = room(queries * width), vectors = room(queries * whole_steps(shape.dim)), tiles = room(tile_floats(shape.dim));
        const AttentionScratch scratch{page.data(), scores.data(), state.data(), part.data(), vectors.data(), tiles.data()};
        const int64_t row = int64_t{shape.group} * shape.dim;
        std::vector<float> out(static_cast<size_t>(rows * row), 1.0f);
        AttentionItem item{.q = q.data() + first * row, .q_stride = row, .rows = rows, .group = shape.group,
                           .head_dim = shape.dim, .state_width = width, .first_position = first, .window = shape.window,
                           .scale = 0.6f, .softcap = shape.softcap, .block_table = table.data(), .kv_type = KvType::F16,
                           .keys = keys.data(), .values = values.data(), .page_stride = stride,
                           .part_begin = first_seen(first) / kPartSize, .part_end = (first + rows - 1) / kPartSize + 1,
                           .out = out.data(), .out_stride = row, .partial = nullptr};
        if (pieces == 0) {
            kernels.attend(item, scratch);
            return out;
        }
        const int begin = item.part_begin, end = item.part_end;
        std::vector<float> partial(static_cast<size_t>((end - begin) * rows * shape.group * width));
        for (int at = begin; at < end; at += pieces) {
            item.part_begin = at, item.part_end = at + pieces < end ? at + pieces : end;
            item.partial = partial.data() + (at - begin) * rows * shape.group * width;
            kernels.attend(item, scratch);
        }
        kernels.merge_parts(partial.data(), end - begin, item, scratch);
        return out;
    }
};

void report(const char* what, const Sequence& s, int first, int rows, bool right) {
    ++compared;
    if (right) return;
    ++failed;
    std::printf("differs: %s, group %d dim %d window %d softcap %g, rows %d + %d\n", what, s.shape.group, s.shape.dim,
                s.shape.window, s.shape.softcap, first, rows);
}

// A NaN is a NaN.
bool same_bits(const float* a, const float* b, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (float_to_bits(a[i]) != float_to_bits(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
    return true;
}

void check_nearness(const Sequence& s, int first, int rows) {
    const auto expected = s.attend(kGenericKernels, first, rows, 0), found = s.attend(kAmxKernels, first, rows, 0);
    bool near = true;
    for (size_t i = 0; i < expected.size(); ++i) {
        const float error = std::fabs(expected[i] - found[i]);
        near &= error <= kTolerance;
        largest_error = std::fmax(largest_error, error);
    }
    report("from generic", s, first, rows, near);
}

// Rows in chunks of any size, whole and in pieces, against each row alone in pages that hold nothing else.
void check_company(const Sequence& s, int first, int rows) {
    const size_t row = static_cast<size_t>(s.shape.group) * static_cast<size_t>(s.shape.dim);
    std::vector<float> alone;
    for (int i = first; i < first + rows; ++i) {
        Sequence other = s;
        other.hold_anything(0, s.first_seen(i));
        other.hold_anything(i + 1, static_cast<int>(s.table.size()) * kBlockSize);
        const auto found = other.attend(kAmxKernels, i, 1, 0);
        alone.insert(alone.end(), found.begin(), found.end());
    }
    for (const int pieces : {0, 1, 2})
        for (int at = first, n; at < first + rows; at += n) {
            n = pieces == 0 && at == first ? rows : random_int(1, first + rows - at);
            const auto found = s.attend(kAmxKernels, at, n, pieces);
            report("in company", s, at, n, same_bits(&alone[static_cast<size_t>(at - first) * row], found.data(), found.size()));
        }
}

// A value that is not finite is for those who see it.
void check_infinite_values(const Shape& shape, int length, int rows) {
    Sequence s(shape, length);
    const int at = length - rows / 2 - 1, dim = random_int(0, shape.dim - 1);
    s.store(at, [&](int d) { return d == dim ? 1e30f : 0.5f; });
    check_company(s, length - rows, rows);
    const auto found = s.attend(kAmxKernels, length - rows, rows, 0);
    bool right = true;
    for (int i = 0; i < rows * shape.group * shape.dim; ++i) {
        const int position = length - rows + i / shape.dim / shape.group;
        const bool sees = position >= at && s.first_seen(position) <= at && i % shape.dim == dim;
        right &= std::isfinite(found[static_cast<size_t>(i)]) != sees;
    }
    report("infinite value", s, length - rows, rows, right);
}

}  // namespace

int main() {
    for (int i = 0; i < 24; ++i) {
        const int dims[] = {16, 32, 48, 64, 80, 128, 256, random_int(1, 100)};
        const Shape shape{random_int(1, 8), dims[i % 8], i % 3 == 2 ? random_int(1, 300) : 0, i % 5 == 4 ? 3.0f : 0.0f};
        const int rows = shape.dim > 100 ? random_int(1, 3) : random_int(1, 6), length = rows + random_int(0, shape.dim > 100 ? 100 : 560);
        const Sequence s(shape, length);
        check_nearness(s, length - rows, rows);
        check_company(s, length - rows, rows);
        if (i % 4 == 0) check_infinite_values({shape.group, 16 + i % 3 * 16, shape.window, 0.0f}, 40 + i, 8);
    }
    const Sequence many({3, 64, 0, 0.0f}, 300);  // several pairs of blocks, the last not full
    check_nearness(many, 262, 38);
    check_company(many, 262, 38);
    std::printf("largest error %.2g; %d comparisons, %d differ\n", static_cast<double>(largest_error), compared, failed);
    return failed ? 1 : 0;
}
