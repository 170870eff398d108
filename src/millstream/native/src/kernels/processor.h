// Which ISA levels an x86 processor and its system allow, from what they say about themselves.
#pragma once

#include <cstdint>

namespace millstream {

// Words of CPUID, zero where the processor has no such leaf, and XCR0: the registers that the system keeps for each thread,
// zero if it does not tell. A virtual machine may show an instruction whose registers are not kept.
struct Processor {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx;
    uint64_t xcr0;
};

// What keeps a level from running, to follow "the processor" or "the system"; null if nothing does.
using Obstacle = const char*;

constexpr bool all_of(uint64_t word, uint64_t bits) { return (word & bits) == bits; }
constexpr uint32_t bit(int i) { return uint32_t{1} << i; }

constexpr Obstacle avx2_obstacle(const Processor& p) {
    constexpr uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29), avx2 = bit(5);
    constexpr uint64_t sse_and_avx_state = 0x6;
    if (!all_of(p.leaf1_ecx, fma | avx | f16c) || !all_of(p.leaf7_ebx, avx2))
        return "the processor lacks AVX2, FMA or F16C";
    if (!all_of(p.leaf1_ecx, osxsave) || !all_of(p.xcr0, sse_and_avx_state)) return "the system does not keep AVX registers";
    return nullptr;
}

constexpr Obstacle avx512_obstacle(const Processor& p) {
    constexpr uint32_t f = bit(16), dq = bit(17), bw = bit(30), vl = bit(31), vnni = bit(11);
    constexpr uint64_t mask_and_zmm_state = 0xe0;
    if (const Obstacle obstacle = avx2_obstacle(p)) return obstacle;
    if (!all_of(p.leaf7_ebx, f | dq | bw | vl) || !all_of(p.leaf7_ecx, vnni))
        return "the processor lacks AVX-512 F, BW, DQ, VL or VNNI";
    if (!all_of(p.xcr0, mask_and_zmm_state)) return "the system does not keep AVX-512 registers";
    return nullptr;
}

// `tiles_permitted` asks the system for this process's permission, if all else allows the level.
constexpr Obstacle amx_obstacle(const Processor& p, bool (*tiles_permitted)()) {
    constexpr uint32_t tile = bit(24), int8 = bit(25), bf16 = bit(22);
    constexpr uint64_t tile_state = 0x60000;  // XTILECFG, XTILEDATA
    if (const Obstacle obstacle = avx512_obstacle(p)) return obstacle;
    if (!all_of(p.leaf7_edx, tile | int8 | bf16)) return "the processor lacks AMX with int8 or bf16";
    if (!all_of(p.xcr0, tile_state)) return "the system does not keep AMX tiles (Linux does from 5.16)";
    if (!tiles_permitted()) return "the system refuses this process the use of AMX tiles";
    return nullptr;
}

}  // namespace millstream
