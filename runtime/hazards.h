// Tracks which commands need a barrier between them. Private to runtime/.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

// A command's access to bytes begin .. end - 1 of a buffer.
struct Access {
    const void* buffer;
    uint64_t begin, end;
    bool reads, writes;
};

// Follows the commands of one queue in order.
class Hazards {
  public:
    // Returns whether a barrier must come before a command with these accesses: it touches bytes that were written since the
    // last barrier, or writes bytes that were read. The command, and its barrier, count as recorded.
    bool add(std::span<const Access> command) {
        bool conflict = false;
        for (const Access& later : command)
            for (const Access& earlier : since_barrier_) conflict |= conflicts(earlier, later);
        if (conflict) since_barrier_.clear();
        since_barrier_.insert(since_barrier_.end(), command.begin(), command.end());
        return conflict;
    }

  private:
    static bool conflicts(const Access& earlier, const Access& later) {
        return earlier.buffer == later.buffer && earlier.begin < later.end && later.begin < earlier.end &&
               (earlier.writes || later.writes);
    }
    std::vector<Access> since_barrier_;
};

} // namespace tq
