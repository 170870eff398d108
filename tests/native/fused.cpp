// Compares a level's fused multiply-add with the C library's, bit for bit except that any NaN is a NaN. Compiled with the
// level's flags.
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"

namespace millstream {
namespace {
#include "kernels/lanes.h"
}  // namespace
}  // namespace millstream

using namespace millstream;

namespace {

constexpr int kMost = 16;  // lanes

std::mt19937_64 rng(1);
long compared = 0, failed = 0;
float pending[3][kMost];
int waiting = 0;

void compare(float a, float b, float c, float found) {
    const float expected = std::fma(a, b, c);
    ++compared;
    if (std::isnan(expected) ? std::isnan(found) : float_to_bits(expected) == float_to_bits(found)) return;
    if (++failed <= 20) std::printf("differs: %a * %a + %a is %a, not %a\n", a, b, c, expected, found);
}

// Lanes differ, so that a mix-up of lanes shows too.
template <class Lanes>
void check_lanes(const float* a, const float* b, const float* c) {
    Lanes x, y, z;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    std::memcpy(&z, c, sizeof z);
    z = fused(x, y, z);
    for (size_t i = 0; i < sizeof z / sizeof(float); ++i) compare(a[i], b[i], c[i], z[i]);
}

void check(float a, float b, float c) {
    pending[0][waiting] = a, pending[1][waiting] = b, pending[2][waiting] = c;
    if (++waiting < kMost) return;
    waiting = 0;
    for (int i = 0; i < kMost; i += 8) check_lanes<F8>(pending[0] + i, pending[1] + i, pending[2] + i);
    for (int i = 0; i < kMost; i += kWidth) check_lanes<FW>(pending[0] + i, pending[1] + i, pending[2] + i);
}

// With every sign.
void check_signs(float a, float b, float c) {
    for (int signs = 0; signs < 4; ++signs) check(signs & 1 ? -a : a, b, signs & 2 ? -c : c);
}

uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng() % n); }
float any_float() { return bits_to_float(static_cast<uint32_t>(rng())); }

// Neighbours, in both directions, of what matters.
std::vector<float> special_values() {
    std::vector<float> values;
    const float limits[] = {0.0f, 0x1p-149f, 0x1p-127f, 0x1p-126f, 0x1p-75f, 0x1p-24f, 0.5f, 1.0f, 0x1p24f, 0x1p63f, 0x1p127f,
                            std::numeric_limits<float>::max()};
    for (const float limit : limits)
        for (const float value : {std::nextafter(limit, 0.0f), limit, std::nextafter(limit, HUGE_VALF)})
            for (const float x : {value, -value}) values.push_back(x);
    values.push_back(std::numeric_limits<float>::quiet_NaN());
    return values;
}

// A product near half a unit of c's last place, so that the sum is at, or next to, the middle between two floats; the
// distance is often too small for double.
void check_middle() {
    const int exponent = static_cast<int>(below(276)) - 149;  // of c
    const float c = std::ldexp(1.0f + static_cast<float>(below(1 << 23)) * 0x1p-23f, exponent);
    const int unit = exponent - 23 < -149 ? -149 : exponent - 23;
    const int half = unit - 1 + static_cast<int>(below(3)) - 1, split = static_cast<int>(below(40)) - 20;
    const float up = 1.0f + static_cast<float>(below(4)) * 0x1p-23f, down = 1.0f - static_cast<float>(below(4)) * 0x1p-24f;
    const float odd = static_cast<float>(1 + 2 * below(2));
    check_signs(std::ldexp(up * odd, half / 2 + split), std::ldexp(down, half - half / 2 - split), c);
}

// c takes away nearly all of the product.
void check_cancellation() {
    const float a = std::ldexp(1.0f + static_cast<float>(below(1 << 23)) * 0x1p-23f, static_cast<int>(below(140)) - 70);
    const float b = std::ldexp(1.0f + static_cast<float>(below(1 << 23)) * 0x1p-23f, static_cast<int>(below(140)) - 70);
    const uint32_t bits = float_to_bits(a * b) + below(5) - 2;
    check_signs(a, b, bits_to_float(bits));
}

}  // namespace

int main() {
    const std::vector<float> values = special_values();
    for (const float a : values)
        for (const float b : values)
            for (const float c : values) check(a, b, c);
    for (int i = 0; i < 200'000; ++i) {
        check(any_float(), any_float(), any_float());
        check(any_float(), std::ldexp(1.0f, -static_cast<int>(below(60))), any_float());
        check_middle();
        check_cancellation();
    }
    std::printf("%ld comparisons, %ld differ\n", compared, failed);
    return failed ? 1 : 0;
}
