#include "model/decoder.h"
#include "base/ensure.h"
#include <algorithm>
#include <chrono>

namespace tq {
namespace {

// Adds the time until it goes out of scope.
class Stopwatch {
  public:
    explicit Stopwatch(double& ns) : ns_(ns) {}
    ~Stopwatch() { ns_ += std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_).count(); }

  private:
    double& ns_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void cut(Forward& forward, size_t tokens) {
    if (forward.position() > tokens) forward.truncate(uint32_t(tokens));
}

} // namespace

Decoder::Decoder(Forward& forward, std::vector<uint32_t>& cached, Sampler& sampler, std::span<const float> logits,
                 Speculation* speculation)
    : forward_(forward), cached_(cached), sampler_(sampler), speculation_(speculation), logits_(logits) {}

Decoder::~Decoder() { cut(forward_, cached_.size()); }

uint32_t Decoder::sample(std::span<const uint32_t> all, size_t answer_begin) {
    const Stopwatch stopwatch(ns_);
    if (taken_ >= sampled_.size()) return sampler_.sample(logits_, all, answer_begin);
    sampler_.sampled(1);
    return sampled_[taken_];
}

void Decoder::run(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted) {
    if (take(all.back())) return;
    report_pass();
    const Stopwatch stopwatch(ns_);
    run_pass(all, answer_begin, wanted);
}

// Takes the id from those that were run ahead; returns false where it is not the next of them.
bool Decoder::take(uint32_t id) {
    if (taken_ == ahead_.size() || ahead_[taken_] != id) return false;
    cached_.push_back(id);
    taken_++;
    if (pass_ != Pass::drafted) return true;
    accepted_++;
    logits_ = rows_[taken_];
    return true;
}

// Tells what the last pass brought, when nothing more is taken from it.
void Decoder::report_pass() {
    const double ns = std::exchange(ns_, 0);
    const Pass pass = std::exchange(pass_, Pass::none);
    if (speculation_ == nullptr || pass == Pass::none) return;
    const auto tokens = uint32_t(taken_) + 1;
    if (pass == Pass::drafted)
        speculation_->verified(uint32_t(ahead_.size()) + 1, tokens, ns);
    else
        speculation_->ran_plain(tokens, ns);
}

void Decoder::run_pass(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted) {
    cut(forward_, cached_.size());
    ahead_.clear();
    sampled_.clear();
    taken_ = 0;
    // Memory runs out as if the tokens came one by one.
    const uint32_t most = std::min(wanted, std::max(forward_.cache().room(0), 1u));
    std::vector<uint32_t> draft;
    if (speculation_ != nullptr && most > 1) draft = speculation_->draft(all, std::min(most, forward_.max_separate_rows()) - 1);
    if (!draft.empty())
        verify(all.back(), draft);
    else if (max_sampled() > 0)
        run_ahead(all, answer_begin, std::min({most, max_sampled(), speculation_ ? speculation_->max_ahead() : most}));
    else
        run_one(all.back());
}

void Decoder::run_one(uint32_t id) {
    logits_ = forward_.run(std::span(&id, 1));
    cached_.push_back(id);
    pass_ = Pass::plain;
}

void Decoder::run_ahead(std::span<const uint32_t> all, size_t answer_begin, uint32_t most) {
    const uint32_t id = all.back(), n = pace_.next(most);
    double ns = 0;
    {
        const Stopwatch stopwatch(ns);
        sampled_ = forward_.run_sampled(id, n, sampler_.device_sampling(n, all, answer_begin));
    }
    if (sampled_.empty()) return run_one(id);
    ENSURE(sampled_.size() <= n, "{} of {} tokens sampled", sampled_.size(), n);
    pace_.took(n, uint64_t(ns));
    ahead_.assign(sampled_.begin(), sampled_.end() - 1);
    cached_.push_back(id);
    pass_ = Pass::plain;
}

bool Decoder::run_rows(std::span<const uint32_t> ids) {
    rows_.resize(std::max(rows_.size(), ids.size()));
    const auto keep = [&](uint32_t i, std::span<const float> logits) { rows_[i].assign(logits.begin(), logits.end()); };
    try {
        forward_.run_all(ids, keep);
        return true;
    } catch (const NonFinite&) {
    } catch (const OutOfMemory&) {
    }
    cut(forward_, cached_.size());
    return false;
}

// Where several rows fail, by a value in a row that might be rejected or for want of memory, plain decoding may not: the token
// then runs alone.
void Decoder::verify(uint32_t id, const std::vector<uint32_t>& draft) {
    std::vector<uint32_t> ids{id};
    ids.insert(ids.end(), draft.begin(), draft.end());
    if (!run_rows(ids)) return run_one(id);
    cached_.push_back(id);
    ahead_ = draft;
    logits_ = rows_[0];
    pass_ = Pass::drafted;
    drafted_ += uint32_t(draft.size());
}

} // namespace tq
