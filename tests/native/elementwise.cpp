// The elementwise kernels and quantisation of two levels, compared bit for bit. Compiled with -DLEVEL=generic, with
// -DLEVEL=other and that level's instructions or MILLSTREAM_EMULATE, and without LEVEL: the program that runs both.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/half.h"
#include "kernels/kernels.h"

namespace millstream {

struct Level {
    void (*quantize)(const ActivationsView& a, int begin, int end, int group_begin, int group_end);
    void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);
    void (*silu_mul)(float* gate, const float* up, int n);
    void (*gelu_tanh_mul)(float* gate, const float* up, int n);
    void (*softcap)(float* x, float cap, int n);
    void (*exps)(float* x, int n);  // n a multiple of 16
    void (*exponentials)(float* scores, int n, float scale, float* max, float* sum);
    void (*store_kv)(KvType type, const float* k, const float* v, int dims, int slot, uint8_t* keys, uint8_t* values);
};

#if defined(LEVEL)
namespace {
#include "kernels/lanes.h"
#if defined(__AVX512F__) || defined(MILLSTREAM_EMULATE)
#include "kernels/vnni.h"
#endif
#include "kernels/elementwise.h"
#include "kernels/quantize.h"

void exps(float* x, int n) {
    for (int i = 0; i < n; i += kWidth) store_wide(x + i, exp_wide(load_wide(x + i)));
}

void exponentials_of(float* scores, int n, float scale, float* max, float* sum) {
    exponentials(scores, n, scale, max, sum);
}
}  // namespace

extern const Level LEVEL;
const Level LEVEL = {quantize, rms_norm, silu_mul, gelu_tanh_mul, softcap, exps, exponentials_of, store_kv};
}  // namespace millstream
#else
extern const Level generic, other;
}  // namespace millstream

using namespace millstream;

namespace {

std::mt19937 rng(1);
int compared = 0, failed = 0;

bool is_nan(float x) { return (float_to_bits(x) & 0x7fffffffu) > 0x7f800000u; }

// A NaN is NaN, whichever.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i)
        if (float_to_bits(a[i]) != float_to_bits(b[i]) && !(is_nan(a[i]) && is_nan(b[i]))) return false;
    return a.size() == b.size();
}

void expect(bool right, const std::string& what) {
    ++compared;
    if (right) return;
    ++failed;
    std::printf("differs: %s\n", what.c_str());
}

enum Kind { kUsual, kTiny, kDenormal, kHuge, kZeros, kTies, kSpecial, kAnyBits, kKinds };

float special() {
    const float values[] = {__builtin_inff(), -__builtin_inff(), __builtin_nanf(""), 3.4e38f, -87.0f, 88.5f, -88.4f, 1e-45f};
    return values[rng() % 8];
}

std::vector<float> numbers(Kind kind, int n) {
    std::normal_distribution<float> usual(0.0f, 2.0f);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) {
        v = usual(rng);
        if (kind == kTiny) v *= 1e-30f;
        if (kind == kDenormal) v *= 1e-40f;
        if (kind == kHuge) v *= 3e37f;
        if (kind == kZeros) v = v < 0.0f ? -0.0f : 0.0f;
        if (kind == kTies) v = static_cast<float>(static_cast<int>(rng() % 4094) - 2047) + 0.5f;
        if (kind == kSpecial && rng() % 40 == 0) v = special();
        if (kind == kAnyBits) v = bits_to_float(static_cast<uint32_t>(rng()));
    }
    if (kind == kTies)
        for (size_t i = 0; i < x.size(); i += kGroup) x[i] = 2047.0f;
    return x;
}

struct Quantised {
    std::vector<int16_t> words;
    std::vector<int8_t> bytes;
    std::vector<float> scales, sums;
    ActivationsView view;

    Quantised(ActivationType type, int rows, int groups, std::vector<float>& x) {
        const auto n = static_cast<size_t>(rows * groups);
        words.assign(n * kGroup, 99);
        bytes.assign(n * static_cast<size_t>(activation_bytes(type)), 99);
        scales.assign(n, 99.0f);
        sums.assign(n, 99.0f);
        view = {type, groups * kGroup, groups, groups * kGroup, x.data(), words.data(), bytes.data(), scales.data(), sums.data()};
    }
};

// What ActivationsView says, number by number.
void quantize_plainly(const ActivationsView& a, int rows) {
    for (int g = 0; g < rows * a.groups; ++g) {
        const float* x = a.f32 + g * kGroup;
        float largest = 0.0f;
        bool finite = true;
        for (int i = 0; i < kGroup; ++i) {
            if (is_nan(x[i]) || is_nan(x[i] - x[i])) finite = false;
            largest = std::abs(x[i]) > largest ? std::abs(x[i]) : largest;
        }
        const auto limit = static_cast<float>(max_activation(a.type));
        const bool zero = !finite || largest <= 1e-30f;
        int sum = 0;
        for (int i = 0; i < kGroup; ++i) {
            const int n = zero ? 0 : static_cast<int>(__builtin_rintf(x[i] * (limit / largest)));
            const int quad = i % 4, at = quad == 1 ? i + 1 : quad == 2 ? i - 1 : i;
            a.words[g * kGroup + at] = static_cast<int16_t>(n);
            int8_t* bytes = a.bytes + g * activation_bytes(a.type);
            bytes[i] = static_cast<int8_t>(a.type == ActivationType::I8 ? n : n >> 4);
            if (a.type == ActivationType::I12) bytes[kGroup + i] = static_cast<int8_t>(n & 15);
            sum += n;
        }
        a.scales[g] = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / limit;
        a.sums[g] = a.scales[g] * static_cast<float>(sum);
    }
}

void check_quantize(const Level& level, const std::string& name, ActivationType type, Kind kind, int rows, int groups) {
    std::vector<float> x = numbers(kind, rows * groups * kGroup);
    Quantised expected(type, rows, groups, x), found(type, rows, groups, x);
    quantize_plainly(expected.view, rows);
    const int row = rows / 3, group = groups / 3;  // any split of rows and groups
    level.quantize(found.view, 0, row, 0, groups);
    level.quantize(found.view, row, rows, 0, group);
    level.quantize(found.view, row, rows, group, groups);
    const std::string what = name + " quantise, type " + std::to_string(static_cast<int>(type)) +
                             " numbers " + std::to_string(kind) + " rows " + std::to_string(rows) + " groups " +
                             std::to_string(groups);
    expect(expected.words == found.words, what + ": words");
    expect(expected.bytes == found.bytes, what + ": bytes");
    expect(same(expected.scales, found.scales), what + ": scales");
    expect(same(expected.sums, found.sums), what + ": sums");
}

// change(level, x): x as the level's kernel leaves it.
template <class Change>
void check(const std::string& kernel, Kind kind, int n, const Change& change) {
    const std::vector<float> x = numbers(kind, n);
    std::vector<float> expected = x, found = x;
    change(generic, expected);
    change(other, found);
    expect(same(expected, found), kernel + ", numbers " + std::to_string(kind) + " n " + std::to_string(n));
}

void check_elementwise(Kind kind, int n) {
    const std::vector<float> other = numbers(kUsual, n);
    check("norm", kind, n, [&](const Level& l, auto& x) { l.rms_norm(x.data(), other.data(), n, 1e-6f, x.data()); });
    check("silu", kind, n, [&](const Level& l, auto& x) { l.silu_mul(x.data(), other.data(), n); });
    check("gelu", kind, n, [&](const Level& l, auto& x) { l.gelu_tanh_mul(x.data(), other.data(), n); });
    check("softcap", kind, n, [&](const Level& l, auto& x) { l.softcap(x.data(), 30.0f, n); });
    if (n % 16) return;
    check("exp", kind, n, [&](const Level& l, auto& x) { l.exps(x.data(), n); });
    for (const float scale : {0.125f, 1.0f, 40.0f})
        check("exponentials", kind, n, [&](const Level& l, auto& x) {
            float max = 0.0f, sum = 0.0f;
            l.exponentials(x.data(), n, scale, &max, &sum);
            x.push_back(max);
            x.push_back(sum);
        });
}

void check_store_kv(KvType type, Kind kind, int dims) {
    const std::vector<float> k = numbers(kind, dims), v = numbers(kind, dims);
    const auto size = static_cast<size_t>(kv_head_bytes(type, dims));
    std::vector<uint8_t> expected(2 * size), found(2 * size);
    generic.store_kv(type, k.data(), v.data(), dims, 5, expected.data(), expected.data() + size);
    other.store_kv(type, k.data(), v.data(), dims, 5, found.data(), found.data() + size);
    expect(expected == found, "keys and values, type " + std::to_string(static_cast<int>(type)) +
                                  " numbers " + std::to_string(kind) + " dims " + std::to_string(dims));
}

// Every value around where exp changes its ways, and a sample of all others.
void check_exp_everywhere() {
    constexpr int n = 1 << 12;
    for (uint32_t block = 0; block < (1u << 20); block += 1021)
        for (const bool edges : {false, true}) {
            std::vector<float> x(n);
            for (uint32_t i = 0; i < n; ++i) {
                const uint32_t edge = float_to_bits(block % 2 ? -87.0f : 88.0f) + (block / 1021 * n + i) % 400000;
                x[i] = bits_to_float(edges ? edge : block * n + i);
            }
            std::vector<float> expected = x, found = x;
            generic.exps(expected.data(), n);
            other.exps(found.data(), n);
            expect(same(expected, found), "exp, block " + std::to_string(block));
        }
}

}  // namespace

int main() {
    for (int kind = 0; kind < kKinds; ++kind) {
        const auto numbers_of = static_cast<Kind>(kind);
        for (const ActivationType type : {ActivationType::I12, ActivationType::I8})
            for (const int rows : {1, 2, 7})
                for (const int groups : {1, 3, 8, 17, 18, 48, 70}) {
                    check_quantize(generic, "generic", type, numbers_of, rows, groups);
                    check_quantize(other, "other", type, numbers_of, rows, groups);
                }
        for (const int n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 256, 577}) check_elementwise(numbers_of, n);
        for (const KvType type : {KvType::F16, KvType::I8})
            for (const int dims : {1, 10, 16, 31, 32, 33, 64, 80}) check_store_kv(type, numbers_of, dims);
    }
    check_exp_everywhere();
    std::printf("%d comparisons, %d differ\n", compared, failed);
    return failed ? 1 : 0;
}
#endif
