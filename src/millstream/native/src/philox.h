// Philox4x32-10, a counter-based random generator: the number is a pure function of key and counter, so nothing has to
// be kept between tokens. J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
#pragma once

#include <array>
#include <cstdint>

namespace millstream {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

constexpr int kUniformBits = 53;

// 53 random bits for one token: key = seed (low word first), counter = (position, choice, 0, 0).
inline uint64_t random_bits(uint64_t seed, uint32_t choice, uint32_t position) noexcept {
  const PhiloxCounter words = philox4x32({position, choice, 0, 0},
                                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return ((uint64_t{words[1]} << 32) | words[0]) >> (64 - kUniformBits);
}

}  // namespace millstream
