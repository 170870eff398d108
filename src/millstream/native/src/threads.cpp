#include "threads.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace millstream {

namespace {

// A wait spins while the others are likely to be done soon, a few microseconds; then it offers its processor to whoever
// waits for one, perhaps the very thread that is awaited; then it sleeps.
constexpr int kSpins = 200;
constexpr int kYields = 8;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when the value is no longer `old`.
void wait_while(const std::atomic<unsigned>& value, unsigned old) {
    for (int i = 0; i < kSpins; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
    }
    for (int i = 0; i < kYields; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        std::this_thread::yield();
    }
    while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

int default_threads() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    const unsigned n = std::thread::hardware_concurrency();
    return n ? static_cast<int>(n) : 1;
}

ThreadPool::ThreadPool(int threads) : size_(threads) {
    for (int i = 1; i < size_; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    stopping_ = true;
    region_count_.fetch_add(1, std::memory_order_release);
    region_count_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_function(Function function, void* context) {
    const std::lock_guard<std::mutex> lock(region_);
    function_ = function;
    context_ = context;
    region_count_.fetch_add(1, std::memory_order_release);
    region_count_.notify_all();
    function(context, 0);
    barrier([] {});
}

void ThreadPool::work(int thread) {
    unsigned seen = 0;
    while (true) {
        wait_while(region_count_, seen);
        ++seen;
        if (stopping_) return;
        function_(context_, thread);
        barrier([] {});
    }
}

void ThreadPool::release(unsigned epoch) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch + 1, std::memory_order_release);
    epoch_.notify_all();
}

void ThreadPool::wait_for_release(unsigned epoch) { wait_while(epoch_, epoch); }

}  // namespace millstream
