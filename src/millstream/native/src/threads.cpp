#include "threads.h"

#include <time.h>

#ifdef __linux__
#include <sched.h>
#endif

namespace millstream {

namespace {

// A wait spins while the others are likely to be done soon, some microseconds; then it sleeps, which the standard library
// precedes by a few yields of its own.
constexpr int kSpins = 500;

// gate_: the region's number in the upper half; below, whether it is open and how many guests are inside.
constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kGuests = kOpen - 1;

int64_t nanoseconds(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

int64_t now() { return nanoseconds(CLOCK_MONOTONIC); }
int64_t processor_time() { return nanoseconds(CLOCK_THREAD_CPUTIME_ID); }

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether a condition holds within a moment.
template <class Condition>
bool soon(const Condition& holds) {
    for (int i = 0; i < kSpins; ++i) {
        if (holds()) return true;
        pause();
    }
    return false;
}

// Returns when the value is no longer `old`.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
    if (soon([&] { return value.load(std::memory_order_acquire) != old; })) return;
    while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Moves this thread to a processor that no member of the team is on, if it may use one. The system is free to move it again.
void take_free_seat(const Seats& seats) {
#ifdef __linux__
    cpu_set_t allowed, free;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    free = allowed;
    for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &free) && seats.taken(i)) CPU_CLR(i, &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return;
    if (sched_setaffinity(0, sizeof allowed, &allowed) == 0) return;
    CPU_ZERO(&allowed);  // a processor of the mask may have gone: then all that there are
    for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
#else
    (void)seats;
#endif
}

int current_processor() {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
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

constinit thread_local ThreadPool::Place ThreadPool::here_{};

ThreadPool::ThreadPool(int threads) : size_(threads), seats_(threads) {
    try {
        for (int i = 1; i < size_; ++i) workers_.emplace_back([this, i] { work(i); });
    } catch (...) {  // the system gives no more threads
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_.store(true, std::memory_order_relaxed);
    region_.fetch_add(1, std::memory_order_release);
    region_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_function(Function function, void* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const unsigned region = region_.load(std::memory_order_relaxed) + 1;
    function_ = function;
    context_ = context;
    first_phase_ = phase_of(claim_.load(std::memory_order_relaxed));
    gate_.store(uint64_t{region} << 32 | kOpen, std::memory_order_release);
    region_.fetch_add(1, std::memory_order_release);  // no store: on x86 notify_all would look for sleepers before it
    region_.notify_all();
    here_.region = region;
    here_.phase = first_phase_;
    here_.thread = 0;
    function(context, 0);
    seats_.leave(0);
    close();
}

void ThreadPool::work(int thread) noexcept {
    unsigned region = 0;
    here_.thread = thread;
    while (true) {
        seats_.leave(thread);
        wait_while(region_, region);
        region = region_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_relaxed)) return;
        if (!enter(region)) continue;
        here_.region = region;
        here_.phase = first_phase_;
        try {
            function_(context_, thread);
            leave();
        } catch (const RegionClosed&) {
        }
    }
}

// False if the region is no longer open. What a region refers to lasts only while guests are inside.
bool ThreadPool::enter(unsigned region) {
    uint64_t gate = gate_.load(std::memory_order_relaxed);
    while (gate >> 32 == region && (gate & kOpen) != 0)
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
    return false;
}

void ThreadPool::leave() {
    const uint64_t gate = gate_.fetch_sub(1, std::memory_order_release) - 1;
    if ((gate & (kOpen | kGuests)) == 0) gate_.notify_all();
}

// All phases are done. Guests that are inside run through what is left between them.
void ThreadPool::close() {
    uint64_t gate = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while ((gate & kGuests) != 0) {
        wait_while(gate_, gate);
        gate = gate_.load(std::memory_order_acquire);
    }
}

// wait() outside of the region, so that it can end meanwhile.
template <class Wait>
void ThreadPool::away(const Wait& wait) {
    if (here_.thread != 0) leave();
    wait();
    if (here_.thread != 0 && !enter(here_.region)) throw RegionClosed{};
}

void ThreadPool::offer_processor() {
    if (!here_.turn.over(now(), processor_time)) return;
    const int processor = current_processor();
    const bool move = processor >= 0 && seats_.crowded(here_.thread, processor) && here_.thread != 0;
    away([&] {
        if (move) {
            seats_.leave(here_.thread);
            take_free_seat(seats_);
        } else {
            std::this_thread::yield();
        }
    });
}

// Threads that see claim_ go on do not wait for ended_, and may end the next phase before it is counted.
void ThreadPool::end_phase(unsigned phase) {
    done_.store(0, std::memory_order_relaxed);
    claim_.store(claim_of(phase + 1), std::memory_order_release);
    ended_.fetch_add(1, std::memory_order_release);
    ended_.notify_all();
}

void ThreadPool::wait_for_end(unsigned phase) {
    const auto ended = [&] { return phase_of(claim_.load(std::memory_order_acquire)) != phase; };
    if (soon(ended)) return;
    away([&] {
        seats_.leave(here_.thread);
        while (true) {
            const unsigned count = ended_.load(std::memory_order_acquire);
            if (ended()) return;
            ended_.wait(count, std::memory_order_acquire);
        }
    });
}

}  // namespace millstream
