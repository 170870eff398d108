// Compares the kernels of AVX-512 and AMX, built over emulations of their instructions, with the generic ones, bit for bit.
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
    std::vector<uint8_t> data, scales, mins;
    MatrixView view;

    // extreme: integers are the largest nibbles, or the smallest bytes.
    RandomMatrix(Format format, int tiles, int cols, bool half, bool with_mins, bool extreme) {
        const int groups = cols / kGroup;
        const bool integer = format <= Format::I8G16;
        const size_t weight_bits = format == Format::U4 ? 4 : integer ? 8 : format == Format::F32 ? 32 : 16;
        data.resize(static_cast<size_t>(tiles) * 16 * static_cast<size_t>(cols) * weight_bits / 8);
        for (uint8_t& byte : data) byte = extreme ? format == Format::U4 ? 0xff : 0x80 : static_cast<uint8_t>(rng());
        if (!integer) fill_floats(format);
        const size_t lanes = static_cast<size_t>(tiles * groups * 16) * (format == Format::I8G16 ? 2 : 1);
        if (integer) fill(scales, lanes, half);
        if (integer && with_mins) fill(mins, lanes, half);
        view = {format, half, tiles * 16, cols, tiles, groups, data.data(), scales.data(), mins.empty() ? nullptr : mins.data()};
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

    static void fill(std::vector<uint8_t>& out, size_t n, bool half) {
        out.resize(n * (half ? 2 : 4));
        for (size_t i = 0; i < n; ++i) {
            const float value = random_float(0.1f);
            const uint16_t bits = float_to_half(value);
            if (half) std::memcpy(&out[i * 2], &bits, 2);
            else std::memcpy(&out[i * 4], &value, 4);
        }
    }
};

void check_products(const Kernels& level, Format format, ActivationType type, bool half, bool mins, int tiles, int cols, int n,
                    bool extreme = false) {
    const RandomMatrix w(format, tiles, cols, half, mins, extreme);
    std::vector<float> values(static_cast<size_t>(n * cols));
    for (float& v : values) v = extreme ? -8.0f : random_float(8.0f);
    Activations expected(type, n, cols, values), found(type, n, cols, values);
    const std::string name = std::string(level.name) + " format " + std::to_string(static_cast<int>(format)) + " type " +
                             std::to_string(static_cast<int>(type)) + " tiles " + std::to_string(tiles) + " cols " + std::to_string(cols) + " rows " + std::to_string(n);
    if (format <= Format::I8G16) {
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
        kernels.attend(item, {page.data(), scores.data(), state.data(), part.data()});
    };
    std::vector<float> expected(q.size()), found(q.size(), 1.0f);
    run(kGenericKernels, expected);
    run(level, found);
    compare(std::string(level.name) + " attention", expected.data(), found.data(), expected.size() * sizeof(float));
}

}  // namespace

int main() {
    for (const Kernels* level : {&kAvx512Kernels, &kAmxKernels}) {
        for (const Format format : {Format::U4, Format::I8, Format::I8G16, Format::F32, Format::F16, Format::BF16})
            for (const ActivationType type : {ActivationType::I12, ActivationType::I8}) {
                for (const bool half : {false, true})
                    for (const bool mins : {false, true})
                        for (const int n : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 49, 64})
                            check_products(*level, format, type, half, mins && format != Format::I8G16, 2 + n % 4,
                                           kGroup * (n % 3 ? 5 : 19), n);
                check_products(*level, format, type, true, false, 4, kGroup * 3, 51, true);
            }
        for (const int dim : {10, 16, 48, 64, 80})
            for (const int rows : {1, 3, 10, 33})
                for (const int group : {1, 3, 7})
                    for (const int window : {0, 40})
                        for (const KvType type : {KvType::F16, KvType::I8})
                            check_attention(*level, type, rows, group, dim, 250 + rows, window, dim == 48 ? 2.0f : 0.0f);
    }
    // A thread has tiles of its own, and may have to do with them first in any product.
    for (const Format format : {Format::U4, Format::I8G16})
        std::thread([&] { check_products(kAmxKernels, format, ActivationType::I12, true, false, 3, kGroup * 5, 21); }).join();
    std::printf("%d comparisons, %d differ\n", compared, failed);
    return failed ? 1 : 0;
}
