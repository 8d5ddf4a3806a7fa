// A stream is a mailbox, not a queue of bounded length: what happens is added to one Update, and wait() takes it away. So the
// scheduler's thread never waits for a client. A client that reads slowly gets more tokens at a time, and no more memory is
// held than its answer takes. Lists of tokens are taken; totals, such as timings and prompt_done, stay and are told again.
// The end stays, too: after finish() or fail() each wait() returns at once with `done`, and later changes are ignored, so a
// token that was sampled while a client cancelled does no harm. cancel() only leaves a mark, which the scheduler finds between
// passes (Batch::drop_cancelled). A Bell lets one thread wait for several streams: it remembers a ring that came while nobody
// waited.
#include "model/engine/serving/request.h"

namespace tq::serving {

void Bell::ring() {
    {
        const std::lock_guard lock(mutex_);
        rings_ = true;
    }
    rung_.notify_one();
}

bool Bell::wait_until(std::chrono::steady_clock::time_point end) {
    std::unique_lock lock(mutex_);
    const bool rung = rung_.wait_until(lock, end, [&] { return rings_; });
    rings_ = false;
    return rung;
}

Update Stream::wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return new_; });
    new_ = pending_.done; // done is final
    Update out = pending_;
    pending_.tokens.clear();
    pending_.prompt.clear();
    return out;
}

void Stream::cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
}

bool Stream::cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
}

bool Stream::done() const {
    const std::lock_guard lock(mutex_);
    return pending_.done;
}

void Stream::change(const RequestTimings& timings, const std::function<void(Update&)>& change) {
    {
        const std::lock_guard lock(mutex_);
        if (pending_.done) return;
        pending_.timings = timings;
        change(pending_);
        new_ = true;
    }
    changed_.notify_all();
    if (bell_) bell_->ring();
}

void Stream::push(Token token, const RequestTimings& timings) {
    change(timings, [&](Update& update) { update.tokens.push_back(std::move(token)); });
}

void Stream::push_prompt(Token token, const RequestTimings& timings) {
    change(timings, [&](Update& update) { update.prompt.push_back(std::move(token)); });
}

void Stream::progress(uint32_t prompt_done, const RequestTimings& timings) {
    change(timings, [&](Update& update) { update.prompt_done = prompt_done; });
}

void Stream::finish(Finish finish, const RequestTimings& timings, std::optional<Token> end) {
    change(timings, [&](Update& update) { update.finish = finish, update.done = true, update.end = std::move(end); });
}

void Stream::finish_values(std::vector<float> hidden, std::vector<float> scores, const RequestTimings& timings) {
    change(timings, [&](Update& update) {
        update.hidden = std::move(hidden);
        update.scores = std::move(scores);
        update.done = true;
    });
}

void Stream::fail(std::string error, bool server_fault, const RequestTimings& timings, std::exception_ptr exception) {
    change(timings, [&](Update& update) {
        update.error = std::move(error);
        update.exception = std::move(exception);
        update.server_fault = server_fault;
        update.finish = Finish::failed;
        update.done = true;
    });
}

} // namespace tq::serving
