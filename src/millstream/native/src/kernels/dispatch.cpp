// Chooses the ISA level at run time.
#include "dispatch.h"

#include <cstdlib>
#include <stdexcept>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef MILLSTREAM_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace millstream {

extern const Kernels kGenericKernels, kAvx2Kernels, kAvx512Kernels, kAmxKernels;

namespace {

// Null if the build lacks the level.
#ifdef MILLSTREAM_HAVE_AVX2
constexpr const Kernels* kAvx2 = &kAvx2Kernels;
#else
constexpr const Kernels* kAvx2 = nullptr;
#endif
#ifdef MILLSTREAM_HAVE_AVX512
constexpr const Kernels* kAvx512 = &kAvx512Kernels;
#else
constexpr const Kernels* kAvx512 = nullptr;
#endif
#ifdef MILLSTREAM_HAVE_AMX
constexpr const Kernels* kAmx = &kAmxKernels;
#else
constexpr const Kernels* kAmx = nullptr;
#endif

// Whether the last two levels run on any processor, slowly.
#ifdef MILLSTREAM_EMULATE
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

}  // namespace

Processor this_processor() {
    Processor found{};
#if defined(__x86_64__)
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) found.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        found.leaf7_ebx = ebx, found.leaf7_ecx = ecx, found.leaf7_edx = edx;
    if (found.leaf1_ecx & bit_OSXSAVE) {
        asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
        found.xcr0 = uint64_t{edx} << 32 | eax;
    }
#endif
    return found;
}

bool tiles_permitted() {
#ifdef MILLSTREAM_HAVE_AMX
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

Levels find_levels(const Processor& processor, bool (*permitted)()) {
    Levels found;
    // A level that is not built is not looked for: nobody is asked to permit its use.
    const auto add = [&](const char* name, const Kernels* level, auto obstacle_to) {
        const Obstacle obstacle = level ? obstacle_to() : "this build lacks it";
        if (!obstacle) found.items.push_back(level);
        else found.refused.emplace_back(name, obstacle);
    };
    add("generic", &kGenericKernels, [] { return Obstacle{}; });
    add("avx2", kAvx2, [&] { return avx2_obstacle(processor); });
    add("avx512", kAvx512, [&] { return kEmulated ? nullptr : avx512_obstacle(processor); });
    add("amx", kAmx, [&] { return kEmulated ? nullptr : amx_obstacle(processor, permitted); });
    return found;
}

const Kernels& Levels::choose(const std::string& wanted) const {
    if (wanted.empty()) return *items.back();
    std::string names, why;
    for (const Kernels* level : items) {
        if (wanted == level->name) return *level;
        names += (names.empty() ? "" : ", ") + std::string(level->name);
    }
    for (const auto& [name, obstacle] : refused)
        if (wanted == name) why = obstacle + std::string("; ");
    throw std::runtime_error("MILLSTREAM_ISA=" + wanted + ": " + why + "this build and machine have " + names);
}

namespace {

const Levels& levels() {
    static const Levels instance = find_levels(this_processor(), tiles_permitted);
    return instance;
}

}  // namespace

const Kernels* const* kernel_levels(int* count) {
    *count = static_cast<int>(levels().items.size());
    return levels().items.data();
}

const Kernels& active_kernels() {
    const char* wanted = std::getenv("MILLSTREAM_ISA");
    return levels().choose(wanted ? wanted : "");
}

}  // namespace millstream
