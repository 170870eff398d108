// Laws of the thread pool, of turns and of seats: says which does not hold, or that all do.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "seats.h"
#include "threads.h"
#include "turn.h"

using namespace millstream;

namespace {

void check(bool ok, const char* what) {
    if (ok) return;
    std::printf("does not hold: %s\n", what);
    std::exit(1);
}

// Phases of many sizes, each of which reads what the one before it wrote; items, tails and their order.
void phases_follow_each_other(int threads) {
    ThreadPool pool(threads);
    constexpr int kItems = 97, kRegions = 60;
    std::vector<int> a(kItems, 0), b(kItems, 0);
    std::vector<int> tails;
    for (int r = 0; r < kRegions; ++r) {
        auto region = [&](int thread) {
            check(thread >= 0 && thread < threads, "threads are numbered");
            pool.for_each(kItems, 1 + r % 7, [&](int begin, int end) {
                check(begin >= 0 && begin < end && end <= kItems, "pieces lie within the phase");
                for (int i = begin; i < end; ++i) ++a[static_cast<size_t>(i)];
            });
            const auto add = [&](int begin, int end) {
                for (int i = begin; i < end; ++i) b[static_cast<size_t>(i)] += a[static_cast<size_t>(kItems - 1 - i)];
            };
            const auto nothing = [](int, int) { check(false, "an empty phase has no pieces"); };
            pool.for_shares(kItems, 8, add, [&] { tails.push_back(b[0]); });
            pool.for_each(0, 4, nothing, [&] { tails.push_back(-1); });
            pool.for_each(1, 4, [&](int, int) { tails.push_back(-2); });
        };
        pool.run(region);
        const int sum = (r + 1) * (r + 2) / 2;
        for (int i = 0; i < kItems; ++i) {
            check(a[static_cast<size_t>(i)] == r + 1, "every item is done once");
            check(b[static_cast<size_t>(i)] == sum, "a phase sees all of the one before it");
        }
        check(tails == std::vector<int>{sum, -1, -2}, "tails run once, in order");
        tails.clear();
    }
}

// The others stand still in the midst of a region until the caller is through with all its phases.
void absent_threads_hold_nobody_up(int threads) {
    ThreadPool pool(threads);
    for (int r = 0; r < 30; ++r) {
        std::atomic<bool> through{false};
        std::atomic<int> items{0};
        auto region = [&](int thread) {
            pool.for_each(3, 1, [&](int, int) { ++items; });
            while (thread != 0 && !through) std::this_thread::yield();
            for (int p = 0; p < 20; ++p) pool.for_each(5, 1, [&](int, int) { ++items; });
            if (thread == 0) through = true;
        };
        pool.run(region);
        check(items == 3 + 20 * 5, "the caller does what is left");
    }
}

// What a region refers to is gone after it; threads that were away must not touch it. For the sanitizers.
void nobody_stays_behind(int threads) {
    ThreadPool pool(threads);
    for (int r = 0; r < 300; ++r) {
        auto data = std::make_unique<std::vector<int>>(64, 1);
        std::atomic<int> inside{0};
        auto region = [&](int) {
            for (int p = 0; p < 4; ++p)
                pool.for_each(64, 1, [&](int begin, int) {
                    ++inside;
                    if (r % 50 == 0 && begin % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
                    (*data)[static_cast<size_t>(begin)] += 1;
                    --inside;
                });
        };
        pool.run(region);
        check(inside == 0, "nobody is inside after a region");
        for (const int value : *data) check(value == 5, "every item is done in every phase");
    }
}

void two_pools_share_a_thread() {
    ThreadPool one(2), other(3);
    std::atomic<int> items{0};
    const auto count = [&](int, int) { ++items; };
    for (int r = 0; r < 50; ++r) {
        auto in_one = [&](int) {
            for (int p = 0; p < 3; ++p) one.for_each(4, 1, count);
        };
        auto in_other = [&](int) { other.for_each(4, 1, count); };
        one.run(in_one);
        other.run(in_other);
    }
    check(items == 50 * 16, "each pool counts its own phases");
}

void turns_end() {
    constexpr int64_t L = Turn::kLength;
    Turn turn;
    int asked = 0;
    int64_t used = 0;
    const auto cpu = [&] {
        ++asked;
        return used;
    };
    turn.begin(100, 0);
    used = L - 1;
    check(!turn.over(100 + L - 1, cpu) && asked == 0, "nothing is asked within a turn");
    used = L;
    check(turn.over(100 + L, cpu) && asked == 1, "a turn of computing ends");
    used = 2 * L - 1;
    check(!turn.over(100 + 2 * L - 1, cpu) && asked == 1, "and another begins there");
    used = L + L / 4;
    check(!turn.over(100 + 4 * L, cpu) && asked == 2, "who was away has just come back");
    used = 2 * L;
    check(!turn.over(100 + 5 * L - 1, cpu) && asked == 2, "its turn begins only then");
    used = 2 * L + L / 4;
    check(turn.over(100 + 5 * L, cpu) && asked == 3, "and ends after its length");
    used += 3 * L / 4;
    check(turn.over(100 + 6 * L, cpu), "a thread without a processor for a quarter of a turn still computes");
    used += 3 * L / 4 - 1;
    check(!turn.over(100 + 7 * L, cpu), "for more than a quarter it does not");
}

void seats_are_told_apart() {
    Seats seats(3);
    const auto turns = [&](int member, int processor, int n) {
        bool crowded = false;
        for (int i = 0; i < n; ++i) {
            check(!crowded, "only the last of the turns is too many");
            crowded = seats.crowded(member, processor);
        }
        return crowded;
    };
    check(!seats.taken(7), "at first nobody sits anywhere");
    check(!turns(0, 7, 20) && seats.taken(7), "who is alone on a processor is not crowded, however long");
    check(!turns(1, 5, 20), "nor are two on two");
    check(turns(1, 7, Seats::kPatience), "two on one are, after some turns");
    check(!turns(1, 7, Seats::kPatience - 1), "which are then counted anew");
    check(!turns(1, 5, 1) && !turns(1, 7, Seats::kPatience - 1), "and after a turn alone");
    seats.leave(0);
    check(!turns(1, 7, 20), "a sleeping thread takes no seat");
    check(!turns(0, 7, Seats::kPatience - 1) && turns(0, 7, 1), "each counts its own turns");
    seats.leave(0);
    seats.leave(1);
    check(!seats.taken(7), "a seat that all have left is free");
}

}  // namespace

int main() {
    turns_end();
    seats_are_told_apart();
    for (const int threads : {1, 2, 3, 8}) {
        phases_follow_each_other(threads);
        absent_threads_hold_nobody_up(threads);
        nobody_stays_behind(threads);
    }
    two_pools_share_a_thread();
    std::puts("all hold");
}
