// Chooses the ISA level at run time.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels.h"

#ifdef MILLSTREAM_HAVE_AVX2
#include <cpuid.h>
#endif

namespace millstream {

extern const Kernels kGenericKernels;
#ifdef MILLSTREAM_HAVE_AVX2
extern const Kernels kAvx2Kernels;
#endif

namespace {

#ifdef MILLSTREAM_HAVE_AVX2
bool machine_has_avx2() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    __builtin_cpu_init();
    return f16c && __builtin_cpu_supports("avx2");  // which also checks that the system saves the wide registers
}
#endif

struct Levels {
    const Kernels* items[2] = {&kGenericKernels};
    int count = 1;

    Levels() {
#ifdef MILLSTREAM_HAVE_AVX2
        if (machine_has_avx2()) items[count++] = &kAvx2Kernels;
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
