// A persistent team of threads. One parallel region runs a whole step, in phases, each of which ends when all its items are
// done: by whichever threads are there. A thread that is late, asleep or without a processor holds nobody up, unless it has
// items in hand or is between two phases when the region ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "seats.h"
#include "turn.h"

namespace millstream {

// Processors in the affinity mask of this process.
int default_threads();

class ThreadPool {
public:
    using Function = void (*)(void* context, int thread);

    // The caller's thread counts as one of `threads`.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return size_; }

    // Another number whenever a region has got on since the last look, from any thread.
    uint64_t progress() const { return claim_.load(std::memory_order_relaxed); }

    // Runs body(thread) on the caller's thread, 0, and on those of the others that come before it ends there. All run the
    // same phases; what stands between them, each thread runs at its own time, some never, some to the middle. It must
    // neither write what others read nor throw, nor catch everything.
    template <class Body>
    void run(Body& body) {
        run_function([](void* context, int thread) { (*static_cast<Body*>(context))(thread); }, &body);
    }

    // A phase, inside a region: body(begin, end) for pieces of [0, n), `chunk` at a time, whoever is free; returns when all
    // are done. The thread that ends the phase calls last() before anyone returns: work that is too small to be shared out
    // costs no phase of its own.
    template <class Body, class Last>
    void for_each(int n, int chunk, Body&& body, Last&& last) {
        phase(n, [chunk](int left) { return std::min(chunk, left); }, body, last);
    }

    template <class Body>
    void for_each(int n, int chunk, Body&& body) {
        for_each(n, chunk, body, [] {});
    }

    // As for_each, for equal items: pieces begin with the threads' share of half of what is left and shrink to one item,
    // but no piece is larger than `most`. So each thread streams through long runs, and yet all are done at one time.
    template <class Body, class Last>
    void for_shares(int n, int most, Body&& body, Last&& last) {
        phase(n, [&](int left) { return std::clamp(left / (2 * size_), 1, most); }, body, last);
    }

private:
    // Thrown out of a region by a thread that finds it closed when it comes back.
    struct RegionClosed {};

    // Where this thread is in the region that it runs.
    struct Place {
        int thread;  // 0: the caller's, all others are guests
        unsigned region, phase;
        Turn turn;
    };
    static thread_local Place here_;

    template <class Size, class Body, class Last>
    void phase(int n, const Size& size, Body& body, Last& last) {
        const unsigned phase = here_.phase++;
        const int items = std::max(n, 1);  // an empty phase has one, for whoever calls last()
        uint64_t claim = claim_.load(std::memory_order_acquire);
        while (true) {
            if (phase_of(claim) != phase) return;  // the others are through with it
            const int begin = item_of(claim);
            if (begin >= items) return wait_for_end(phase);
            const int piece = n > 0 ? size(n - begin) : 1;
            if (!claim_.compare_exchange_weak(claim, claim + static_cast<uint64_t>(piece), std::memory_order_acquire))
                continue;
            if (n > 0) body(begin, begin + piece);
            if (done_.fetch_add(piece, std::memory_order_acq_rel) + piece == items) {
                last();
                end_phase(phase);
                return offer_processor();
            }
            offer_processor();
            claim = claim_.load(std::memory_order_acquire);
        }
    }

    static uint64_t claim_of(unsigned phase) { return uint64_t{phase} << 32; }
    static unsigned phase_of(uint64_t claim) { return static_cast<unsigned>(claim >> 32); }
    static int item_of(uint64_t claim) { return static_cast<int>(static_cast<uint32_t>(claim)); }

    void stop();
    void run_function(Function function, void* context);
    void work(int thread) noexcept;
    bool enter(unsigned region);
    void leave();
    void close();
    template <class Wait>
    void away(const Wait& wait);
    void offer_processor();
    void end_phase(unsigned phase);
    void wait_for_end(unsigned phase);

    const int size_;
    std::mutex mutex_;  // one region at a time
    Seats seats_;
    std::vector<std::thread> workers_;

    // Of the open region; read by guests.
    Function function_ = nullptr;
    void* context_ = nullptr;
    unsigned first_phase_ = 0;

    std::atomic<bool> stopping_{false};
    alignas(64) std::atomic<unsigned> region_{0};  // the latest
    alignas(64) std::atomic<uint64_t> gate_{0};    // its number, whether it is open, and the guests inside
    alignas(64) std::atomic<uint64_t> claim_{0};   // the phase, and the first of its items that nobody has claimed
    alignas(64) std::atomic<int> done_{0};         // items of the phase
    alignas(64) std::atomic<unsigned> ended_{0};   // phases so far, counted after claim_ has gone on; waited for
};

}  // namespace millstream
