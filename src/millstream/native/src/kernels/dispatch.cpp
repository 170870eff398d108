// Chooses the ISA level at run time.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels.h"

#ifdef MILLSTREAM_HAVE_AVX2
#include <cpuid.h>
#endif
#ifdef MILLSTREAM_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace millstream {

extern const Kernels kGenericKernels, kAvx2Kernels, kAvx512Kernels, kAmxKernels;

namespace {

// __builtin_cpu_supports also checks that the system saves the wide registers.
#ifdef MILLSTREAM_HAVE_AVX2
bool machine_has_avx2() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    __builtin_cpu_init();
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#ifdef MILLSTREAM_HAVE_AVX512
bool machine_has_avx512() {
    return machine_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

#ifdef MILLSTREAM_HAVE_AMX
// The processor has the tile unit, the system saves its registers, and lets this process use them.
bool machine_has_amx() {
    constexpr unsigned amx_tile = 1u << 24, amx_int8 = 1u << 25, osxsave = 1u << 27;
    constexpr unsigned tile_state = 3u << 17;                     // XTILECFG and XTILEDATA in XCR0
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!machine_has_avx512() || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & osxsave)) return false;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & amx_tile) || !(edx & amx_int8)) return false;
    unsigned xcr0 = 0, high = 0;
    asm volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    return (xcr0 & tile_state) == tile_state && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

struct Levels {
    const Kernels* items[4] = {&kGenericKernels};
    int count = 1;

    Levels() {
#ifdef MILLSTREAM_HAVE_AVX2
        if (machine_has_avx2()) items[count++] = &kAvx2Kernels;
#endif
#ifdef MILLSTREAM_HAVE_AVX512
        if (machine_has_avx512()) items[count++] = &kAvx512Kernels;
#endif
#ifdef MILLSTREAM_HAVE_AMX
        if (machine_has_amx()) items[count++] = &kAmxKernels;
#endif
    }
};

const Levels& levels() {
    static const Levels instance;
    return instance;
}

}  // namespace

const Kernels* const* kernel_levels(int* count) {
    *count = levels().count;
    return levels().items;
}

const Kernels& active_kernels() {
    const char* wanted = std::getenv("MILLSTREAM_ISA");
    int count = 0;
    const Kernels* const* items = kernel_levels(&count);
    if (!wanted || !*wanted) return *items[count - 1];
    std::string names;
    for (int i = 0; i < count; ++i) {
        if (std::string(wanted) == items[i]->name) return *items[i];
        names += (i ? ", " : "") + std::string(items[i]->name);
    }
    throw std::runtime_error("MILLSTREAM_ISA=" + std::string(wanted) + ": this build and machine have " + names);
}

}  // namespace millstream
