// The generate loop and the reuse of the cache's prefix.
#include "model/session.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/pace.h"
#include <algorithm>
#include <chrono>

namespace tq {

static uint64_t now_ns() {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// ids_ grows only by ids that have been run, so that it matches the cache even after a stop or an exception.
std::span<const float> Session::run(std::span<const uint32_t> ids, const Progress& progress) {
    const auto logits = forward_.run(ids, progress);
    const size_t done = forward_.position() - ids_.size();
    ENSURE(done <= ids.size() && (logits.empty() || done == ids.size()), "{} of {} tokens run", done, ids.size());
    ids_.insert(ids_.end(), ids.begin(), ids.begin() + ptrdiff_t(done));
    return logits;
}

void Session::require_fits(std::span<const uint32_t> prompt) const {
    if (prompt.empty())
        fail("the prompt is empty, so there is nothing to continue: give a text with -p, -f or on standard input");
    if (prompt.size() > forward_.context_size())
        fail("the prompt has {} tokens but the context holds {}: shorten it, or ask for a larger context with -c", prompt.size(),
             forward_.context_size());
}

std::span<const float> Session::prefill(std::span<const uint32_t> prompt, const Progress& progress) {
    timings_ = {};
    require_fits(prompt);
    const uint64_t start = now_ns();
    const auto differ = std::mismatch(ids_.begin(), ids_.end(), prompt.begin(), prompt.end()).first;
    const size_t reused = std::min(size_t(differ - ids_.begin()), prompt.size() - 1); // one token must be run for the logits
    ids_.resize(reused);
    forward_.truncate(uint32_t(reused));
    const auto logits = run(prompt.subspan(reused), progress);
    timings_.reused_tokens = uint32_t(reused);
    timings_.prompt_tokens = uint32_t(ids_.size() - reused);
    timings_.prompt_ns = now_ns() - start;
    return logits;
}

StoredSide Session::stored(uint32_t layer, KvSide side) {
    forward_.truncate(uint32_t(ids_.size()));
    return forward_.stored(layer, side);
}

void Session::restore(std::vector<uint32_t> ids, const StoredSource& source) {
    ids_.clear();
    forward_.restore(uint32_t(ids.size()), source);
    ids_ = std::move(ids);
}

// The tokens after a prompt: sampled by the host from the last logits, or by the device, ahead of what the caller has seen.
class Session::Decoder {
  public:
    Decoder(Session& session, Sampler& sampler, std::span<const float> logits)
        : session_(session), sampler_(sampler), logits_(logits),
          most_(sampler.fits_device() ? session.forward_.max_sampled() : 0) {}
    ~Decoder() { // discards the tokens that were run ahead
        if (most_ > 0) session_.forward_.truncate(uint32_t(std::min<size_t>(session_.ids_.size(), session_.forward_.position())));
    }
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    uint32_t sample(std::span<const uint32_t> all, size_t answer_begin) {
        if (taken_ == ahead_.size()) return sampler_.sample(logits_, all, answer_begin);
        sampler_.sampled(1);
        return ahead_[taken_++];
    }

    // Appends the last of `all` to the cache; at most `wanted` tokens will follow it.
    void run(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted) {
        const uint32_t id = all.back();
        if (most_ == 0) {
            logits_ = session_.run(std::span(&id, 1), {});
            return;
        }
        if (taken_ == ahead_.size()) run_ahead(all, answer_begin, wanted);
        session_.ids_.push_back(id);
    }

  private:
    void run_ahead(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted) {
        Forward& forward = session_.forward_;
        // Memory runs out as if the tokens came one by one.
        const uint32_t room = std::max(forward.cache().room(0), 1u);
        const uint32_t n = pace_.next(std::min({wanted, room, most_}));
        const uint64_t start = now_ns();
        ahead_ = forward.run_sampled(all.back(), n, sampler_.device_sampling(n, all, answer_begin));
        taken_ = 0;
        pace_.took(n, now_ns() - start);
    }

    Session& session_;
    Sampler& sampler_;
    std::span<const float> logits_;
    const uint32_t most_;         // tokens that the device samples at once; 0: the host samples
    std::vector<uint32_t> ahead_; // in the cache, except the last
    size_t taken_ = 0;
    Pace pace_;
};

Generated Session::generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options) {
    Generated result;
    const auto logits = prefill(prompt, [&](uint32_t done, uint32_t total) {
        if (options.on_prompt) options.on_prompt(done, total);
        return !(options.interrupted && options.interrupted());
    });
    std::vector<uint32_t> all(prompt.begin(), prompt.end());
    const auto finish = [&](Stop stop) {
        result.stop = stop;
        result.timings = timings_;
        return result;
    };
    if (logits.empty()) return finish(Stop::interrupted);
    if (options.after_prompt) options.after_prompt();
    Decoder decoder(*this, sampler, logits);
    while (result.ids.size() < options.max_tokens) {
        if (options.interrupted && options.interrupted()) return finish(Stop::interrupted);
        uint64_t start = now_ns();
        const uint32_t id = decoder.sample(all, prompt.size());
        (timings_.decoded_tokens == 0 ? timings_.prompt_ns : timings_.decode_ns) += now_ns() - start;
        if (options.is_end && options.is_end(id)) return finish(Stop::end_of_generation);
        result.ids.push_back(id);
        all.push_back(id);
        if (options.on_token) options.on_token(id);
        if (result.ids.size() == options.max_tokens) break;
        if (ids_.size() == forward_.context_size()) return finish(Stop::context_full);
        start = now_ns();
        try {
            decoder.run(all, prompt.size(), options.max_tokens - uint32_t(result.ids.size()));
        } catch (const OutOfMemory& error) {
            result.reason = error.what();
            return finish(Stop::memory_full);
        }
        timings_.decode_ns += now_ns() - start;
        ++timings_.decoded_tokens;
    }
    return finish(Stop::length);
}

} // namespace tq
