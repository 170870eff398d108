// A persistent team of threads. One parallel region runs a whole step; phases inside it end at barriers, which spin for a
// moment and then park.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

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

    // Runs body(thread) on every thread and waits for all. The body must not throw.
    template <class Body>
    void run(Body& body) {
        run_function([](void* context, int thread) { (*static_cast<Body*>(context))(thread); }, &body);
    }

    // Inside a region, called by every thread with the same arguments: body(begin, end) for pieces of [0, n), `chunk` at a
    // time, whoever is free; returns when all are done. The last thread that is done calls last() before anyone returns:
    // work that is too small to be shared out costs no barrier of its own.
    template <class Body, class Last>
    void for_each(int n, int chunk, Body&& body, Last&& last) {
        while (true) {
            const int begin = next_.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= n) break;
            body(begin, n - begin < chunk ? n : begin + chunk);
        }
        barrier(last);
    }

    template <class Body>
    void for_each(int n, int chunk, Body&& body) {
        for_each(n, chunk, body, [] {});
    }

    // As for_each, for equal items: pieces begin with the threads' share of half of what is left and shrink to one item,
    // but no piece is larger than `most`. So each thread streams through long runs, and yet all are done at one time.
    template <class Body, class Last>
    void for_shares(int n, int most, Body&& body, Last&& last) {
        int begin = next_.load(std::memory_order_relaxed);
        while (begin < n) {
            const int piece = std::clamp((n - begin) / (2 * size_), 1, most);
            if (!next_.compare_exchange_weak(begin, begin + piece, std::memory_order_relaxed)) continue;
            body(begin, begin + piece);
            begin = next_.load(std::memory_order_relaxed);
        }
        barrier(last);
    }

private:
    void run_function(Function function, void* context);
    void work(int thread);
    void release(unsigned epoch);
    void wait_for_release(unsigned epoch);

    // Returns when every thread has called it; the last one calls last() before the others go on.
    template <class Last>
    void barrier(Last&& last) {
        const unsigned epoch = epoch_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            last();
            release(epoch);
        } else {
            wait_for_release(epoch);
        }
    }

    const int size_;
    std::mutex region_;  // one region at a time
    std::vector<std::thread> workers_;
    Function function_ = nullptr;
    void* context_ = nullptr;
    bool stopping_ = false;

    alignas(64) std::atomic<int> next_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> epoch_{0};
    alignas(64) std::atomic<unsigned> region_count_{0};
};

}  // namespace millstream
