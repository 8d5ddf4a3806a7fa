// A model whose layers are divided among devices, as one Stage. A block is cut into slices, which go through the devices one
// after the other: while slice 2 is in the first device, slice 1 is in the second. Each device has a thread of its own, which
// takes the next slice that is ready for it.
// A slice is ready for a part if it has done all parts before, and the slice ahead of it has done this one (is_ready()):
// attention of a later slice reads the keys that the earlier one stored. So no two slices are ever in one part, and a device that
// has several parts takes the foremost slice first. Parts whose weights are streamed are the exception: there all slices go
// through a part before its weights are replaced.
// All state of flights is under one mutex; only the work itself, run_part(), is outside. An exception of a thread stops all, and
// is thrown by the caller's thread once no slice is running.
// With a tap, or if there is only one slice, the caller's thread does all in turn. The bits are the same.
#include "model/stages/pipeline.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numeric>

namespace tq {

Pipeline::Pipeline(const Config& config, const Tensor& token_embd, Split split, Stages stages, const PassLimits& slice_limits,
                   const PassLimits& limits, Tap tap)
    : config_(config), token_embd_(token_embd), split_(std::move(split)), parts_(split_.parts()),
      streamed_parts_(split_.streamed_parts()), stages_(std::move(stages)), vectors_(split_, stages_),
      slice_limits_(slice_limits), limits_(limits), tap_(std::move(tap)) {}

Pipeline::~Pipeline() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

// The embedding is read on the host, whatever device comes first: a row of a token is all that is needed of it.
void Pipeline::embed(const PassRows& rows) {
    const size_t cols = config_.hidden_size;
    h_.resize(rows.count() * cols);
    for (uint32_t i = 0; i < rows.count(); i++) token_embd_.decode(rows.ids[i], std::span(h_).subspan(i * cols, cols), scratch_);
    if (tap_) tap_("embed", h_);
}

// Cuts a block, so that each slice has the kernels of blocks.
std::vector<Pipeline::Flight> Pipeline::slices_of(const PassRows& rows) {
    std::vector<Flight> out;
    const size_t cols = config_.hidden_size;
    for (const RowSpan& span : rows.spans)
        for (uint32_t first = span.first, count; first < span.end; first += count) {
            count = slice_limits_.slice(span.end - first);
            out.push_back({rows.part(first, count), std::span(h_).subspan(first * cols, count * cols)});
        }
    return out;
}

// Cuts separate rows into as many groups as the devices take at the same time, none smaller than what a pass takes at no cost.
// Each group costs each device a read of its weights, so there are no more groups than devices, and none that is smaller than the
// rows a pass takes at hardly more cost than one (min_separate_rows).
std::vector<Pipeline::Flight> Pipeline::groups_of(const PassRows& rows) {
    const uint32_t count = rows.count(), max = slice_limits_.max_separate_rows,
                   useful = std::min(split_.devices(), count / slice_limits_.min_separate_rows),
                   groups = parts_.size() == 1 ? 1 : std::max({1u, useful, (count + max - 1) / max});
    std::vector<Flight> out;
    const size_t cols = config_.hidden_size;
    for (uint32_t i = 0, first = 0, end; i < groups; i++, first = end) {
        end = uint32_t(uint64_t(count) * (i + 1) / groups);
        out.push_back({rows.part(first, end - first), std::span(h_).subspan(first * cols, (end - first) * cols)});
    }
    return out;
}

uint32_t Pipeline::device_of(size_t step) const { return step < parts().size() ? parts()[step].device : split_.device_of_head(); }

static std::vector<uint32_t> all_rows(uint32_t count) {
    std::vector<uint32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

void Pipeline::run_head_of(const Flight& group) {
    const std::span<const float> logits = head_stage().run_head(all_rows(group.rows.count()), group.h, true);
    const auto first = size_t(group.h.data() - h_.data()) / config_.hidden_size;
    std::ranges::copy(logits, logits_.begin() + std::ptrdiff_t(first * config_.vocab_size));
}

bool Pipeline::run_part(Flight& flight, const KeepGoing& keep_going) {
    if (flight.next == parts().size()) return run_head_of(flight), true;
    const Part& part = parts()[flight.next];
    if (separate_) return stages_[part.device]->run_separate(part.halves, flight.rows, flight.h, nullptr, keep_going);
    return stages_[part.device]->run_block(part.halves, flight.rows, whole_, flight.h, keep_going);
}

bool Pipeline::run_in_turn(const KeepGoing& keep_going) {
    for (Flight& flight : flights_)
        for (; flight.next < steps(); flight.next++)
            if (!run_part(flight, keep_going) || (keep_going && !keep_going())) return false;
    return true;
}

bool Pipeline::is_ready(size_t i, uint32_t device) const {
    const Flight& flight = flights_[i];
    return !flight.running && flight.next < steps() && device_of(flight.next) == device &&
           (i == 0 || flights_[i - 1].next > flight.next);
}

// Returns the slice that a device takes next, if any: the first, or of streamed parts the first in the earliest of them.
Pipeline::Flight* Pipeline::ready(uint32_t device) {
    Flight* best = nullptr;
    for (size_t i = 0; i < flights_.size() && !stopped_; i++)
        if (is_ready(i, device) && (best == nullptr || (streaming_ && flights_[i].next < best->next))) best = &flights_[i];
    return best;
}

bool Pipeline::finished() const {
    if (std::ranges::any_of(flights_, &Flight::running)) return false;
    return stopped_ || flights_.back().next == steps();
}

// The thread of a device.
// It holds the lock except while it works. A flight that is running belongs to this thread alone; is_ready() keeps others away.
void Pipeline::work(uint32_t device) {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || ready(device) != nullptr; });
        if (ending_) return;
        Flight& flight = *ready(device);
        flight.running = true;
        lock.unlock();
        bool done = false;
        std::exception_ptr error;
        try {
            done = run_part(flight, [this] {
                const std::lock_guard look(mutex_);
                return !stopped_;
            });
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        flight.running = false;
        flight.next++;
        stopped_ = stopped_ || !done;
        if (error && !error_) error_ = error;
        changed_.notify_all();
    }
}

bool Pipeline::run_at_once(const KeepGoing& keep_going) {
    for (uint32_t device = uint32_t(workers_.size()); device < split_.devices(); device++)
        workers_.emplace_back([this, device] { work(device); });
    std::unique_lock lock(mutex_);
    changed_.notify_all();
    constexpr std::chrono::milliseconds look_around{50};
    while (!changed_.wait_for(lock, look_around, [&] { return finished(); })) {
        lock.unlock();
        const bool go_on = !keep_going || keep_going();
        lock.lock();
        if (!go_on) stopped_ = true;
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return !stopped_;
}

bool Pipeline::run_block(HalfRange, const PassRows& rows, uint32_t whole, std::span<float>, const KeepGoing& keep_going) {
    embed(rows);
    bool in_turn = true;
    {
        const std::lock_guard lock(mutex_);
        flights_ = slices_of(rows);
        whole_ = whole;
        separate_ = with_head_ = false;
        streaming_ = split_.stream_rows() != 0 && whole >= split_.stream_rows();
        in_turn = tap_ || flights_.size() == 1 || parts().size() == 1;
        stopped_ = in_turn; // which leaves the workers asleep
    }
    return in_turn ? run_in_turn(keep_going) : run_at_once(keep_going);
}

bool Pipeline::run_separate(HalfRange, const PassRows& rows, std::span<float>, std::span<const float>* logits,
                            const KeepGoing& keep_going) {
    embed(rows);
    if (logits != nullptr) logits_.resize(size_t(rows.count()) * config_.vocab_size);
    bool in_turn = true;
    {
        const std::lock_guard lock(mutex_);
        flights_ = groups_of(rows);
        separate_ = true;
        with_head_ = logits != nullptr;
        streaming_ = false;
        in_turn = tap_ || flights_.size() == 1;
        stopped_ = in_turn; // which leaves the workers asleep
    }
    if (logits != nullptr) *logits = logits_;
    return in_turn ? run_in_turn(keep_going) : run_at_once(keep_going);
}

std::span<const float> Pipeline::run_head(std::span<const uint32_t> rows, std::span<const float>, bool separate) {
    return head_stage().run_head(rows, h_, separate);
}

std::span<const float> Pipeline::run_last_norm(std::span<const uint32_t> rows, std::span<const float>) {
    return head_stage().run_last_norm(rows, h_);
}

void Pipeline::record_again() {
    for (const auto& stage : stages_)
        if (stage) stage->record_again();
}

std::string Pipeline::computation() const {
    std::string text = fmt::format("slices of {}", slice_limits_.batch_size);
    if (split_.stream_rows() != 0) text += fmt::format(", weights streamed from {} rows on", split_.stream_rows());
    for (const Part& part : parts_) text += fmt::format(", halves to {} on {}", part.halves.end, part.device);
    for (const auto& stage : stages_)
        if (stage) text += "; " + stage->computation();
    return text;
}

} // namespace tq
