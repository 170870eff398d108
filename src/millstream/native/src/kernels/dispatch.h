// The choice of the ISA level, in steps that can be tried on any machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels.h"
#include "processor.h"

namespace millstream {

// The levels of this build: those that can run, slowest first, and the others' obstacles.
struct Levels {
    std::vector<const Kernels*> items;
    std::vector<std::pair<std::string, std::string>> refused;  // name, why

    // The level of that name, or the best if it is empty. Throws std::runtime_error if it cannot run.
    const Kernels& choose(const std::string& wanted) const;
};

// What CPUID and XGETBV say here; all zero on other processors than x86.
Processor this_processor();

// Asks the system to let this process use AMX tiles. All threads and children by fork have the permission then.
bool tiles_permitted();

Levels find_levels(const Processor& processor, bool (*permitted)());

}  // namespace millstream
