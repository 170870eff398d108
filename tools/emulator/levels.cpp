// Which ISA levels are found and chosen on a processor that has them all (or an emulator of one), the system's permission, and
// products on tiles that threads and signals interrupt. Linked with the built kernels.
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/dispatch.h"

using namespace millstream;

namespace {

int failures = 0;

void check(bool right, const std::string& what) {
    if (!right) ++failures;
    std::printf("%s: %s\n", right ? "ok" : "WRONG", what.c_str());
    std::fflush(stdout);
}

// What waitpid says of a child that does this.
template <class Work>
int status_of(Work&& work) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// Bytes that LDTILECFG reads: 8 tiles of 16 rows of 64 bytes.
struct alignas(64) Config {
    uint8_t bytes[64] = {1};
    Config() {
        for (int t = 0; t < 8; ++t) bytes[16 + 2 * t] = 64, bytes[48 + t] = 16;
    }
};

alignas(64) uint8_t tile[1024];  // of a signal handler: one at a time

void use_tiles() {
    static const Config config;
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
    asm volatile(
        "tilezero %%tmm0\n tileloadd (%0,%1,1), %%tmm4\n tileloadd (%0,%1,1), %%tmm6\n tdpbssd %%tmm6, %%tmm4, %%tmm0\n"
        "tilestored %%tmm0, (%0,%1,1)\n tilerelease"
        :
        : "r"(tile), "r"(int64_t{64})
        : "memory");
}

void check_permission() {
    const int before = status_of(use_tiles);
    check(WIFSIGNALED(before) && WTERMSIG(before) == SIGILL, "without permission, tiles end the process");
    check(status_of([] { if (tiles_permitted()) use_tiles(); else _exit(1); }) == 0, "with permission, they do not");
}

void check_choice() {
    const Levels levels = find_levels(this_processor(), tiles_permitted);
    std::string names;
    for (const Kernels* level : levels.items) names += std::string(" ") + level->name;
    check(names == " generic avx2 avx512 amx", "levels found:" + names);
    for (const auto& [name, why] : levels.refused) std::printf("refused: %s: %s\n", name.c_str(), why.c_str());
    unsetenv("MILLSTREAM_ISA");
    check(std::string(active_kernels().name) == "amx", std::string("chosen: ") + active_kernels().name);
    for (const char* name : {"generic", "avx2", "avx512", "amx"}) {
        setenv("MILLSTREAM_ISA", name, 1);
        check(std::string(active_kernels().name) == name, std::string("MILLSTREAM_ISA=") + name);
    }
    unsetenv("MILLSTREAM_ISA");
}

// A product of its own matrix and rows, again and again. Every result is compared with the generic level's.
struct Products {
    static constexpr int cols = 256, tiles = 3, groups = cols / kGroup;
    int rows;
    std::vector<uint8_t> weights = std::vector<uint8_t>(size_t{tiles} * 16 * cols);
    std::vector<uint8_t> scales;
    std::vector<float> values, activation_scales, sums, expected, found;
    std::vector<int16_t> words;
    std::vector<int8_t> bytes;
    MatrixView w;
    ActivationsView a;

    Products(const Kernels& generic, int rows, unsigned seed) : rows(rows) {
        const IntegerLayout layout = layout_of(Format::Q8_0);
        const auto next = [&] { return (seed = seed * 1664525 + 1013904223) >> 24; };
        for (uint8_t& byte : weights) byte = static_cast<uint8_t>(next());
        scales.resize(static_cast<size_t>(tiles * groups / layout.run * layout.record_bytes()));
        for (size_t i = 0; i + 2 <= scales.size(); i += 2) scales[i] = static_cast<uint8_t>(next()), scales[i + 1] = 0x20;
        const auto size = static_cast<size_t>(rows * cols);
        values.resize(size), words.resize(size), bytes.resize(size * static_cast<size_t>(activation_bytes(ActivationType::I12)));
        for (float& x : values) x = static_cast<float>(next()) - 128.0f;
        activation_scales.resize(size / kGroup), sums.resize(size / kGroup);
        expected.resize(static_cast<size_t>(rows * tiles * 16)), found.resize(expected.size());
        w = {Format::Q8_0, tiles * 16, cols, tiles, groups, weights.data(), scales.data()};
        a = {ActivationType::I12, cols, groups, cols, values.data(), words.data(), bytes.data(), activation_scales.data(), sums.data()};
        generic.quantize(a, 0, rows, 0, groups);
        generic.matmul(w, 0, tiles, a, 0, rows, expected.data(), tiles * 16);
    }

    bool same(const Kernels& level) {
        level.quantize(a, 0, rows, 0, groups);
        level.matmul(w, 0, tiles, a, 0, rows, found.data(), tiles * 16);
        return std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0;
    }
};

volatile std::sig_atomic_t signals = 0;

void on_timer(int) {
    signals = signals + 1;
    use_tiles();  // another configuration than the interrupted product has
}

// Threads with products of different shapes, which the system interrupts for one another and for a signal's handler.
void check_interruptions() {
    const Levels levels = find_levels(this_processor(), tiles_permitted);
    std::atomic<int> products = 0, wrong = 0;
    struct sigaction action {};
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    std::vector<std::thread> threads;
    for (const int rows : {21, 16, 40})
        threads.emplace_back([&, rows] {
            Products own(*levels.items.front(), rows, static_cast<unsigned>(rows));
            while (signals < 300) {
                ++products;
                if (!own.same(*levels.items.back())) ++wrong;
            }
        });
    for (std::thread& thread : threads) thread.join();
    setitimer(ITIMER_REAL, nullptr, nullptr);
    std::signal(SIGALRM, SIG_IGN);
    check(wrong == 0 && products > 100, std::to_string(products) + " products of 3 threads interrupted by " +
                                          std::to_string(signals) + " signals: " + std::to_string(wrong) + " wrong");
}

}  // namespace

int main() {
    check_permission();
    check_choice();
    check_interruptions();
    std::printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
