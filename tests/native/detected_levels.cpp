// The choice of the ISA level for any processor. Linked with kernels/dispatch.cpp, which is compiled as if the build had all
// levels. Arguments: "here", or five words in hexadecimal as in Processor; then "granted" or "refused", or "ask" for the
// system's own answer; then the level wanted, or nothing. Prints the levels, the level chosen, and how often permission was
// asked for.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/dispatch.h"

namespace millstream {
extern const Kernels kGenericKernels, kAvx2Kernels, kAvx512Kernels, kAmxKernels;
const Kernels kGenericKernels{.name = "generic"}, kAvx2Kernels{.name = "avx2"}, kAvx512Kernels{.name = "avx512"},
    kAmxKernels{.name = "amx"};
}  // namespace millstream

using namespace millstream;

namespace {

int asked = 0;

bool granted() { return ++asked, true; }
bool refused() { return ++asked, false; }

uint64_t word(const char* text) { return std::strtoull(text, nullptr, 16); }

}  // namespace

int main(int, char** argv) {
    const char** at = const_cast<const char**>(argv + 1);
    Processor processor = this_processor();
    if (std::strcmp(*at, "here") == 0) {
        ++at;
    } else {
        processor = {static_cast<uint32_t>(word(at[0])), static_cast<uint32_t>(word(at[1])),
                     static_cast<uint32_t>(word(at[2])), static_cast<uint32_t>(word(at[3])), word(at[4])};
        at += 5;
    }
    const auto permitted = std::strcmp(*at, "ask") == 0 ? tiles_permitted : std::strcmp(*at, "granted") == 0 ? granted : refused;
    const Levels levels = find_levels(processor, permitted);
    for (const Kernels* level : levels.items) std::printf("%s ", level->name);
    try {
        std::printf("\n%s\n%d\n", levels.choose(at[1]).name, asked);
    } catch (const std::runtime_error& error) {
        std::printf("\n%s\n%d\n", error.what(), asked);
    }
}
