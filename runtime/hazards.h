// Tracks which commands need a barrier between them. Private to runtime/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tq {

// A command's access to bytes begin .. end - 1 of a buffer.
struct Access {
    const void* buffer;
    uint64_t begin, end;
    bool reads, writes;
};

enum class CommandKind { kernel, copy };

// Commands that a barrier must order besides kernels before it and kernels after it.
struct NeededBarrier {
    bool copies_before, copies_after;
};

// Follows the commands of one queue in order. Most barriers are between kernels alone. Copies do not wait for a barrier between
// kernels, so a copy is compared with all commands since the last barrier that copies waited for, and a kernel with those since
// the last barrier.
class Hazards {
  public:
    // Returns the barrier that must come before a command with these accesses, if any: it touches bytes that were written and not
    // yet waited for, or writes bytes that were read. The command, and its barrier, count as recorded.
    std::optional<NeededBarrier> add(std::span<const Access> command, CommandKind kind) {
        const bool copies = kind == CommandKind::copy;
        bool conflict = false;
        for (size_t i = copies ? 0 : since_barrier_; i < earlier_.size(); i++)
            for (const Access& later : command) conflict |= conflicts(earlier_[i], later);
        std::optional<NeededBarrier> needed;
        if (conflict) {
            needed = {copied_ || copies, copies};
            if (copies) earlier_.clear();
            since_barrier_ = earlier_.size();
            copied_ = false;
        }
        earlier_.insert(earlier_.end(), command.begin(), command.end());
        copied_ |= copies;
        return needed;
    }

  private:
    static bool conflicts(const Access& earlier, const Access& later) {
        return earlier.buffer == later.buffer && earlier.begin < later.end && later.begin < earlier.end &&
               (earlier.writes || later.writes);
    }
    std::vector<Access> earlier_; // since the last barrier that copies waited for
    size_t since_barrier_ = 0;    // the first of these since the last barrier
    bool copied_ = false;         // a copy came since the last barrier
};

} // namespace tq
