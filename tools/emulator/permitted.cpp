// Runs a comparison of tests/native, whose main is `compare` here, over the built kernels and with permission to use tiles.
#include <cstdio>

#include "kernels/dispatch.h"

int compare();

int main() {
    if (!millstream::tiles_permitted()) std::printf("WRONG: the system refuses tiles\n");
    return compare();
}
