// When a thread that computes offers its processor to others.
#pragma once

#include <cstdint>

namespace millstream {

// Beside other work a thread loses its processor for milliseconds every few milliseconds, and whoever waits for the piece
// of work that it has in hand waits as long. So it offers the processor by itself, with nothing in hand, before the system
// takes it: schedulers switch at ticks of 1 to 4 ms. Some never give back what was not used. All times are nanoseconds.
class Turn {
public:
    static constexpr int64_t kLength = 1'000'000;

    // A turn begins at `now`, after so much processor time of this thread.
    void begin(int64_t now, int64_t used) {
        begun_ = now;
        used_ = used;
    }

    // Whether the turn is over at `now`; if so, another begins. `used`, a function, tells the processor time of this thread;
    // as that is a system call, it is asked at most once a turn. A thread that was away for a quarter of the time has just
    // come back: its turn begins only now.
    template <class Used>
    bool over(int64_t now, const Used& used) {
        if (now - begun_ < kLength) return false;
        const int64_t total = used(), ran = total - used_, passed = now - begun_;
        begin(now, total);
        return 4 * ran >= 3 * passed;
    }

private:
    int64_t begun_ = 0, used_ = 0;
};

}  // namespace millstream
