// One thread has the model. It takes new requests, runs one step of the Batch, and publishes the state; nothing else touches
// the model or the batch, so neither needs a lock. All others meet it at `mutex_`, which is never held during a pass: submit()
// leaves requests in new_, page_content() leaves a question in looks_ and waits until it is answered between two passes, and
// status() returns a state that was published up to 100 ms ago. A pass of several blocks, of a prompt that is alone, ends early
// if has_news_ is set. The queue is bounded by streams that are not done (open_), not by the lists of the batch, which lag behind
// by a pass. So a client that was answered can ask again at once. Work in the background has no place in that count. Answers are
// streams of token ids (stream.cpp): the thread pushes, a handler's thread waits. After the loss of a device the thread opens the
// model again: reopen() ends the prefix cache before the forward pass that it refers to.
#include "model/engine/serving/scheduler.h"
#include "model/engine/serving/batch.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>

namespace tq::serving {

// The thread, and the state that it shares with threads that submit.
class Scheduler::Loop {
  public:
    Loop(Scheduler::Model model, Scheduler::Open open, Scheduler::Options options)
        : options_(std::move(options)), open_again_(std::move(open)), model_(std::move(model)),
          batch_(
              parts(), [this](const Error*) { return reopen(); }, batch_options()),
          context_size_(batch_.forward().context_size()), slots_(batch_.forward().cache().shape().slots),
          kv_(batch_.forward().kv()), bytes_per_token_(batch_.forward().kv_bytes_per_token()), status_(batch_.status()),
          thread_([this] { run(); }) {}

    ~Loop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = draining_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    std::shared_ptr<Stream> submit(Request request);
    std::optional<std::vector<std::byte>> page_content(std::vector<uint32_t> ids, std::string tenant);
    Status status() const;
    bool drain(std::chrono::milliseconds timeout);

    uint32_t context_size() const { return context_size_; }
    uint32_t slots() const { return slots_; }
    const KvOptions& kv() const { return kv_; }
    uint64_t kv_bytes_per_token() const { return bytes_per_token_; }

  private:
    Batch::Model parts() const { return {model_.forward.get(), model_.prefix.get()}; }
    Batch::Model reopen() {
        model_.prefix.reset(); // before its forward pass
        model_.forward.reset();
        model_ = open_again_();
        return parts();
    }
    BatchOptions batch_options() {
        BatchOptions out;
        out.is_end = options_.is_end;
        out.reuse = options_.reuse;
        out.memory_bytes = options_.memory_bytes;
        out.has_news = [this] { return has_news_.load(); };
        out.warn = options_.warn;
        return out;
    }
    void check(const Request& request) const;
    void require_place();
    void run();
    bool take_new();
    void publish(bool at_once);
    void answer_looks();

    const Scheduler::Options options_;
    const Scheduler::Open open_again_;
    std::atomic<bool> has_news_ = false; // requests or looks for pages that the thread has not taken
    Scheduler::Model model_;             // this and the batch are of the thread alone, from its start on
    Batch batch_;
    const uint32_t context_size_, slots_;
    const KvOptions kv_;
    const uint64_t bytes_per_token_;

    mutable std::mutex mutex_; // guards all that follows
    std::condition_variable changed_, idle_;
    std::vector<std::unique_ptr<Sequence>> new_;
    struct Look { // for a page, by a thread that waits
        std::vector<uint32_t> ids;
        std::string tenant;
        std::optional<std::vector<std::byte>> content{};
        bool done = false;
    };
    std::vector<std::shared_ptr<Look>> looks_;
    std::condition_variable looked_;
    std::vector<std::shared_ptr<Stream>> open_; // of requests that are not answered yet, but for those in the background
    uint64_t submitted_ = 0, rejected_ = 0;
    Status status_;
    std::chrono::steady_clock::time_point published_{};
    bool stopping_ = false, draining_ = false, is_idle_ = true;
    std::thread thread_;
};

// Runs in the caller's thread, so that a request which cannot be answered takes no place and no time of the model's thread. Ids
// come from clients and become indices into logits.
void Scheduler::Loop::check(const Request& request) const {
    if (request.prompt.empty()) fail("the prompt is empty, so there is nothing to continue");
    if (request.prompt.size() > context_size_)
        fail("the prompt has {} tokens but the context holds {}", request.prompt.size(), context_size_);
    const size_t vocabulary = options_.excluded.size();
    const auto known = [&](uint32_t id) { return vocabulary == 0 || id < vocabulary; };
    for (const uint32_t id : request.prompt)
        if (!known(id)) fail("token {} of the prompt does not exist: the vocabulary has {}", id, vocabulary);
    for (const auto& [id, bias] : request.logit_bias)
        if (!known(id)) fail("logit_bias names token {}, which does not exist: the vocabulary has {}", id, vocabulary);
    for (const uint32_t id : request.scored)
        if (!known(id)) fail("token {} does not exist: the vocabulary has {}", id, vocabulary);
}

std::shared_ptr<Stream> Scheduler::Loop::submit(Request request) {
    check(request);
    auto sequence = std::make_unique<Sequence>();
    sequence->ids = request.prompt;
    sequence->own_sampler.emplace(request.sampling, request.ignore_end ? options_.excluded_ends : options_.excluded);
    sequence->own_sampler->constrain(request.constraint.get());
    sequence->stream = std::make_shared<Stream>(request.bell);
    if (!request.speculation) request.speculation = options_.speculation;
    sequence->request = std::move(request);
    auto stream = sequence->stream;
    {
        const std::lock_guard lock(mutex_);
        if (draining_) throw Draining("the server is shutting down and takes no new requests");
        if (!sequence->request.background) require_place();
        sequence->number = ++submitted_;
        if (!sequence->request.background) open_.push_back(stream);
        new_.push_back(std::move(sequence));
        is_idle_ = false;
        has_news_ = true;
    }
    changed_.notify_all();
    return stream;
}

// Throws QueueFull. Counts streams, not the scheduler's lists, which lag behind by a pass.
void Scheduler::Loop::require_place() {
    std::erase_if(open_, [](const auto& stream) { return stream->done(); });
    if (open_.size() < uint64_t(options_.queue) + slots_) return;
    rejected_++;
    const uint64_t waiting = open_.size() - slots_;
    const auto retry_after_s = uint32_t(std::clamp<uint64_t>(waiting / slots_, 1, 60)); // as if each took a second
    throw QueueFull(fmt::format("{} requests are waiting, as many as the queue holds: try again later", waiting), retry_after_s);
}

// Returns false when the thread is to end. Waits if there is nothing to do.
bool Scheduler::Loop::take_new() {
    std::unique_lock lock(mutex_);
    if (batch_.idle() && new_.empty()) {
        is_idle_ = true;
        idle_.notify_all();
    }
    changed_.wait(lock, [&] { return stopping_ || !new_.empty() || !looks_.empty() || !batch_.idle(); });
    for (auto& sequence : new_) batch_.add(std::move(sequence));
    new_.clear();
    has_news_ = false;
    status_.waiting = batch_.waiting();
    return !stopping_;
}

// Others see the state of a moment ago: counting it takes longer than a small model's token.
void Scheduler::Loop::publish(bool at_once) {
    const auto now = std::chrono::steady_clock::now();
    if (!at_once && now - published_ < std::chrono::milliseconds(100)) return;
    published_ = now;
    Status status = batch_.status();
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
}

void Scheduler::Loop::run() {
    while (take_new()) {
        answer_looks();
        if (batch_.idle()) continue;
        batch_.step();
        publish(batch_.idle());
    }
    answer_looks();
    batch_.fail_all("the server is shutting down");
}

void Scheduler::Loop::answer_looks() {
    std::unique_lock lock(mutex_);
    const auto looks = std::exchange(looks_, {});
    lock.unlock();
    for (const auto& look : looks) look->content = batch_.page_content(look->ids, look->tenant);
    lock.lock();
    for (const auto& look : looks) look->done = true;
    looked_.notify_all();
}

std::optional<std::vector<std::byte>> Scheduler::Loop::page_content(std::vector<uint32_t> ids, std::string tenant) {
    const auto look = std::make_shared<Look>(Look{std::move(ids), std::move(tenant)});
    std::unique_lock lock(mutex_);
    if (stopping_) return std::nullopt;
    looks_.push_back(look);
    has_news_ = true;
    changed_.notify_all();
    looked_.wait(lock, [&] { return look->done; });
    return std::move(look->content);
}

Status Scheduler::Loop::status() const {
    const std::lock_guard lock(mutex_);
    Status status = status_;
    status.waiting += uint32_t(new_.size());
    status.rejected = rejected_;
    return status;
}

bool Scheduler::Loop::drain(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    return idle_.wait_for(lock, timeout, [&] { return is_idle_ && new_.empty(); });
}

Scheduler::Scheduler(Model model, Open reopen, Options options)
    : loop_(std::make_unique<Loop>(std::move(model), std::move(reopen), std::move(options))) {}
Scheduler::~Scheduler() = default;

std::shared_ptr<Stream> Scheduler::submit(Request request) { return loop_->submit(std::move(request)); }
std::optional<std::vector<std::byte>> Scheduler::page_content(std::vector<uint32_t> ids, std::string tenant) {
    return loop_->page_content(std::move(ids), std::move(tenant));
}
Status Scheduler::status() const { return loop_->status(); }
bool Scheduler::drain(std::chrono::milliseconds timeout) { return loop_->drain(timeout); }
uint32_t Scheduler::context_size() const { return loop_->context_size(); }
uint32_t Scheduler::slots() const { return loop_->slots(); }
const KvOptions& Scheduler::kv() const { return loop_->kv(); }
uint64_t Scheduler::kv_bytes_per_token() const { return loop_->kv_bytes_per_token(); }

} // namespace tq::serving
