// The generate loop and the reuse of the cache's prefix.
#include "model/session.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/decoder.h"
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

// Lets a draft model read the prompt, too. Returns false where that was interrupted.
bool Session::begin_speculation(std::span<const uint32_t> prompt, const GenerateOptions& options) {
    if (options.speculation == nullptr) return true;
    const uint64_t start = now_ns();
    const bool done =
        options.speculation->begin(prompt, [&](uint32_t, uint32_t) { return !(options.interrupted && options.interrupted()); });
    timings_.prompt_ns += now_ns() - start;
    return done;
}

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
    if (logits.empty() || !begin_speculation(prompt, options)) return finish(Stop::interrupted);
    if (options.after_prompt) options.after_prompt();
    Decoder decoder(forward_, ids_, sampler, logits, options.speculation);
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
        timings_.drafted_tokens = decoder.drafted();
        timings_.accepted_tokens = decoder.accepted();
    }
    return finish(Stop::length);
}

} // namespace tq
