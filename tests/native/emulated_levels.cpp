// Compares the kernels of AVX-512 and AMX, built over emulations of their instructions, with the generic ones, bit for bit;
// for attention on tiles there is emulated_attention.cpp.
// Linked with kernels/generic.cpp, avx512.cpp and amx.cpp; the last two compiled with MILLSTREAM_EMULATE.
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernels.h"

namespace millstream {
extern const Kernels kGenericKernels, kAvx512Kernels, kAmxKernels;
}

using namespace millstream;

namespace {

std::mt19937 rng(1);
int compared = 0, failed = 0;

float random_float(float scale) { return std::uniform_real_distribution<float>(-scale, scale)(rng); }

void compare(const std::string& what, const void* expected, const void* found, size_t bytes) {
    ++compared;
    if (std::memcmp(expected, found, bytes) == 0) return;
    ++failed;
    std::printf("differs: %s\n", what.c_str());
}

struct Activations {
    std::vector<float> f32, scales, sums;
    std::vector<int16_t> words;
    std::vector<int8_t> bytes;
    ActivationsView view;

    Activations(ActivationType type, int n, int cols, const std::vector<float>& values) : f32(values) {
        const int groups = cols / kGroup;
        const auto records = static_cast<size_t>(n * groups);
        scales.resize(records), sums.resize(records), words.resize(records * kGroup);
        bytes.resize(records * static_cast<size_t>(activation_bytes(type)));
        view = {type, cols, groups, cols, f32.data(), words.data(), bytes.data(), scales.data(), sums.data()};
    }
};

struct RandomMatrix {
    std::vector<uint8_t> data, scales;
    MatrixView view;

    // extreme: all bits of the integers are set, or they are the smallest bytes.
    RandomMatrix(Format format, int tiles, int cols, bool extreme) {
        const int groups = cols / kGroup;
        const IntegerLayout layout = layout_of(format);
        const size_t bits = is_integer(format) ? static_cast<size_t>(layout.bits) : format == Format::F32 ? 32 : 16;
        data.resize(static_cast<size_t>(tiles) * 16 * static_cast<size_t>(cols) * bits / 8);
        for (uint8_t& byte : data) byte = extreme ? layout.bits < 8 ? 0xff : 0x80 : static_cast<uint8_t>(rng());
        if (is_integer(format)) {
            fill_scales(layout, tiles * groups / layout.run);
        } else {
            fill_floats(format);
        }
        view = {format, tiles * 16, cols, tiles, groups, data.data(), scales.data()};
    }

    void fill_scales(const IntegerLayout& layout, int records) {
        scales.resize(static_cast<size_t>(records) * static_cast<size_t>(layout.record_bytes()));
        for (uint8_t& byte : scales) byte = static_cast<uint8_t>(rng());
        for (int i = 0; i < records; ++i)
            for (int j = 0; j < layout.numbers() * kTileRows; ++j) {
                const uint16_t half = float_to_half(random_float(0.1f));
                std::memcpy(&scales[static_cast<size_t>(i * layout.record_bytes() + j * 2)], &half, 2);
            }
    }

    void fill_floats(Format format) {
        for (size_t i = 0; i + 4 <= data.size(); i += format == Format::F32 ? 4 : 2) {
            const float value = random_float(1.0f);
            const uint32_t bits = float_to_bits(value);
            const auto half = format == Format::F16 ? float_to_half(value) : static_cast<uint16_t>(bits >> 16);
            if (format == Format::F32) std::memcpy(&data[i], &bits, 4);
            else std::memcpy(&data[i], &half, 2);
        }
    }
};

void check_products(const Kernels& level, Format format, ActivationType type, int tiles, int cols, int n, bool extreme = false) {
    const RandomMatrix w(format, tiles, cols, extreme);
    std::vector<float> values(static_cast<size_t>(n * cols));
    for (float& v : values) v = extreme ? -8.0f : random_float(8.0f);
    Activations expected(type, n, cols, values), found(type, n, cols, values);
    const std::string name = std::string(level.name) + " format " + std::to_string(static_cast<int>(format)) + " type " +
                             std::to_string(static_cast<int>(type)) + " tiles " + std::to_string(tiles) + " cols " + std::to_string(cols) + " rows " + std::to_string(n);
    if (is_integer(format)) {
        kGenericKernels.quantize(expected.view, 0, n, 0, cols / kGroup);
        level.quantize(found.view, 0, n, 0, cols / kGroup);
        compare(name + ": words", expected.words.data(), found.words.data(), expected.words.size() * 2);
        compare(name + ": bytes", expected.bytes.data(), found.bytes.data(), expected.bytes.size());
        compare(name + ": scales", expected.scales.data(), found.scales.data(), expected.scales.size() * 4);
        compare(name + ": sums", expected.sums.data(), found.sums.data(), expected.sums.size() * 4);
    }
    std::vector<float> a(static_cast<size_t>(n * tiles * 16)), b(a.size(), 1.0f);
    kGenericKernels.matmul(w.view, 0, tiles, expected.view, 0, n, a.data(), tiles * 16);
    const int cut = n / 3;  // any split of rows and tiles
    level.matmul(w.view, 0, 1, found.view, 0, cut, b.data(), tiles * 16);
    level.matmul(w.view, 0, 1, found.view, cut, n, b.data(), tiles * 16);
    level.matmul(w.view, 1, tiles, found.view, 0, n, b.data(), tiles * 16);
    compare(name, a.data(), b.data(), a.size() * sizeof(float));
}

void check_attention(const Kernels& level, KvType type, int rows, int group, int dim, int first, int window, float softcap) {
    const int pages = (first + rows + 31) / 32, dims = (dim + 15) / 16 * 16, width = dims + 16;
    const int64_t stride = kv_head_bytes(type, dim);
    const auto size = static_cast<size_t>(pages * stride), row = static_cast<size_t>(dim);
    std::vector<uint8_t> keys(size), values(size), level_keys(size), level_values(size);
    for (int i = 0; i < first + rows; ++i) {
        std::vector<float> k(row), v(row);
        for (float& x : k) x = i == 5 ? 0.0f : random_float(1.0f);
        for (float& x : v) x = random_float(1.0f);
        const int64_t at = i / 32 * stride;
        kGenericKernels.store_kv(type, k.data(), v.data(), dim, i % 32, keys.data() + at, values.data() + at);
        level.store_kv(type, k.data(), v.data(), dim, i % 32, level_keys.data() + at, level_values.data() + at);
    }
    compare(std::string(level.name) + " keys", keys.data(), level_keys.data(), size);
    compare(std::string(level.name) + " values", values.data(), level_values.data(), size);
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (int i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = pages - 1 - i;
    const int queries = rows * group;
    std::vector<float> q(static_cast<size_t>(queries * dim));
    for (float& x : q) x = random_float(1.0f);
    const auto run = [&](const Kernels& kernels, std::vector<float>& out) {
        std::vector<float> page(static_cast<size_t>(converted_floats(dim))), scores(static_cast<size_t>(queries * kPartSize)),
            state(static_cast<size_t>(queries * width)), part(static_cast<size_t>(queries * width));
        const AttentionItem item{.q = q.data(), .q_stride = group * dim, .rows = rows, .group = group, .head_dim = dim,
                                 .state_width = width, .first_position = first, .window = window, .scale = 0.3f,
                                 .softcap = softcap, .block_table = table.data(), .kv_type = type,
                                 .keys = keys.data(), .values = values.data(), .page_stride = stride, .part_begin = 0,
                                 .part_end = (first + rows - 1) / kPartSize + 1, .out = out.data(),
                                 .out_stride = group * dim, .partial = nullptr};
        kernels.attend(item, {page.data(), scores.data(), state.data(), part.data(), nullptr, nullptr});
    };
    std::vector<float> expected(q.size()), found(q.size(), 1.0f);
    run(kGenericKernels, expected);
    run(level, found);
    compare(std::string(level.name) + " attention", expected.data(), found.data(), expected.size() * sizeof(float));
}

}  // namespace

int main() {
    for (const Kernels* level : {&kAvx512Kernels, &kAmxKernels}) {
        for (const Format format : {Format::Q4_0, Format::Q4_1, Format::Q4_K, Format::Q5_0, Format::Q5_1, Format::Q5_K,
                                    Format::Q6_K, Format::Q8_0, Format::F32, Format::F16, Format::BF16})
            for (const ActivationType type : {ActivationType::I12, ActivationType::I8}) {
                const int run = is_integer(format) ? layout_of(format).run : 1;
                const int narrow = kGroup * (run > 1 ? run : 5), wide = kGroup * (run > 1 ? 3 * run : 19);
                for (const int n : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 49, 64})
                    check_products(*level, format, type, 2 + n % 4, n % 3 ? narrow : wide, n);
                check_products(*level, format, type, 4, narrow, 51, true);
            }
        for (const int dim : {10, 16, 48, 64, 80})
            for (const int rows : {1, 3, 10, 33})
                for (const int group : {1, 3, 7})
                    for (const int window : {0, 40})
                        for (const KvType type : {KvType::F16, KvType::I8}) {
                            if (level == &kAmxKernels && type == KvType::F16) continue;
                            check_attention(*level, type, rows, group, dim, 250 + rows, window, dim == 48 ? 2.0f : 0.0f);
                        }
    }
    // A thread has tiles of its own, and may have to do with them first in any product.
    for (const Format format : {Format::Q4_1, Format::Q6_K})
        std::thread([&] { check_products(kAmxKernels, format, ActivationType::I12, 3, kGroup * 8, 21); }).join();
    std::printf("%d comparisons, %d differ\n", compared, failed);
    return failed ? 1 : 0;
}
