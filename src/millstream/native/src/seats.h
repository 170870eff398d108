// Which processor each thread of a team was last seen on.
#pragma once

#include <atomic>
#include <memory>

namespace millstream {

// Two threads of a team that take turns on one processor are no faster than one. Beside other work the system leaves them
// there for long: three threads on two processors are one too many on either.
class Seats {
public:
    // Turns in a row after which two threads on one processor are no passing matter.
    static constexpr int kPatience = 3;

    explicit Seats(int members) : members_(members), seats_(std::make_unique<Seat[]>(static_cast<size_t>(members))) {}

    // Called by a member that has computed for a turn on this processor. True if it has shared it with another that
    // computes for kPatience turns; then they are counted anew.
    bool crowded(int member, int processor) {
        Seat& own = seats_[static_cast<size_t>(member)];
        own.processor.store(kNowhere, std::memory_order_relaxed);
        own.shared = taken(processor) ? own.shared + 1 : 0;
        own.processor.store(processor, std::memory_order_relaxed);
        if (own.shared < kPatience) return false;
        own.shared = 0;
        return true;
    }

    // Called by a member that is going to sleep.
    void leave(int member) {
        seats_[static_cast<size_t>(member)].processor.store(kNowhere, std::memory_order_relaxed);
    }

    bool taken(int processor) const {
        for (int i = 0; i < members_; ++i)
            if (seats_[static_cast<size_t>(i)].processor.load(std::memory_order_relaxed) == processor) return true;
        return false;
    }

private:
    static constexpr int kNowhere = -1;

    struct alignas(64) Seat {
        std::atomic<int> processor{kNowhere};
        int shared = 0;  // turns in a row
    };

    const int members_;
    std::unique_ptr<Seat[]> seats_;
};

}  // namespace millstream
