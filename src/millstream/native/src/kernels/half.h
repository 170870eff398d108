// IEEE half precision and bfloat16 in software, bit for bit what F16C does (round to nearest even, quiet NaNs).
// Functions are static on purpose: this header is included by translation units compiled for different ISA levels.
#pragma once

#include <cstdint>

namespace millstream {

static inline float bits_to_float(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return bits_to_float(float_to_bits(magnitude) | sign);
    }
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | (mantissa ? 0x400000u | (mantissa << 13) : 0u));
    return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

static inline uint16_t float_to_half(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
    if (magnitude < 0x38800000u) {  // below 2^-14: subnormal; adding 0.5 leaves the rounded integer in the low bits
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (float_to_bits(shifted) - 0x3f000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float bfloat_to_float(uint16_t value) { return bits_to_float(static_cast<uint32_t>(value) << 16); }

}  // namespace millstream
