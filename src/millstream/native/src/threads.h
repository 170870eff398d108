// A persistent team of threads. One parallel region runs a whole step; phases inside it end at barriers, which spin for a
// moment and then park.
#pragma once

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
    // time, whoever is free; returns when all are done.
    template <class Body>
    void for_each(int n, int chunk, Body&& body) {
        while (true) {
            const int begin = next_.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= n) break;
            body(begin, n - begin < chunk ? n : begin + chunk);
        }
        barrier();
    }

    // Inside a region: returns when every thread has called it.
    void barrier();

private:
    void run_function(Function function, void* context);
    void work(int thread);

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
