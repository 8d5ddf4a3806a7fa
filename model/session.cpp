// The generate loop and the reuse of the cache's prefix.
#include "model/session.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/decoder.h"
#include "model/prefix/cold.h"
#include <algorithm>
#include <chrono>
#include <optional>

namespace tq {

constexpr uint32_t min_part_tokens = 2048; // of a long prompt

static uint64_t now_ns() {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void Session::forget() {
    ids_.clear();
    cold_ = 0;
}

// After an error or a stop the slot may have been cut further than what is known of it.
void Session::keep_to_position() {
    ids_.resize(std::min<size_t>(ids_.size(), forward_.position()));
    cold_ = std::min(cold_, uint32_t(ids_.size()));
}

// ids_ grows only by ids that have been run, so that it matches the cache even after a stop or an exception.
std::span<const float> Session::run_part(std::span<const uint32_t> ids, Span::Logits wanted, const Progress& progress) {
    std::span<const float> logits;
    const Span span{0, ids, wanted};
    const uint32_t begin = uint32_t(ids_.size());
    const uint64_t start = now_ns();
    const bool ran = forward_.run(
        std::span(&span, 1), [&](size_t, uint32_t, std::span<const float> last) { logits = last; }, progress);
    if (forward_.position() < begin) { // a pass that was stopped left no state there
        keep_to_position();
        return {};
    }
    const size_t done = forward_.position() - begin;
    if (prefix_) prefix_->note_speed(done, std::chrono::nanoseconds(now_ns() - start));
    ENSURE(done <= ids.size() && (!ran || done == ids.size()), "{} of {} tokens run", done, ids.size());
    ids_.insert(ids_.end(), ids.begin(), ids.begin() + ptrdiff_t(done));
    if (cold_ == begin) cold_ = tq::cold_tokens(forward_.block_kernels(), begin, begin + uint32_t(done));
    return ran ? logits : std::span<const float>();
}

// Where the run of a prompt pauses: for checkpoints, and with a prefix cache after parts of whole blocks, whose pages are then
// kept. The blocks are those of one run, but for a conversation that goes on: it pauses at all marks.
std::vector<uint32_t> Session::pauses(uint32_t total) const {
    const auto begin = uint32_t(ids_.size());
    const BlockKernels& kernels = forward_.block_kernels();
    if (forward_.cache().shape().has_beside())
        return checkpoint_positions(reuse_ == Reuse::all ? BlockKernels{} : kernels, begin, total, marks_);
    const uint32_t block = std::max(kernels.block, 1u), part = (min_part_tokens + block - 1) / block * block;
    std::vector<uint32_t> out;
    for (uint32_t at = begin; prefix_ && total - at > 2 * part;) out.push_back(at += part);
    return out;
}

std::span<const float> Session::run(std::span<const uint32_t> ids, const Progress& progress) {
    const auto begin = uint32_t(ids_.size()), total = uint32_t(ids.size());
    uint32_t done = 0;
    const auto all = [&](uint32_t now, uint32_t) { return !progress || progress(done + now, total); };
    Cache& cache = forward_.cache();
    cache.checkpoint(0); // to which a run that is stopped goes back
    for (const uint32_t pause : pauses(begin + total)) {
        run_part(ids.subspan(done, pause - begin - done), Span::Logits::none, all);
        if (ids_.size() == pause) cache.checkpoint(0);
        keep();
        if (ids_.size() != pause) return {};
        done = pause - begin;
    }
    return run_part(ids.subspan(done), Span::Logits::last, all);
}

void Session::keep(bool end, bool prompt_end) {
    if (!prefix_) return;
    try {
        const bool is_at_end = end && forward_.position() == ids_.size() && (reuse_ == Reuse::all || cold_ == ids_.size());
        if (is_at_end) forward_.cache().checkpoint(0);
        prefix_->store(0, ids_, cold_, end);
        if (end || prompt_end) prefix_->store_states(0, ids_, cold_, end);
    } catch (const DeviceLost&) { // the next run finds that out, too
    }
}

void Session::require_fits(std::span<const uint32_t> prompt) const {
    if (prompt.empty())
        fail("the prompt is empty, so there is nothing to continue: give a text with -p, -f or on standard input");
    if (prompt.size() > forward_.context_size())
        fail("the prompt has {} tokens but the context holds {}: shorten it, or ask for a larger context with -c", prompt.size(),
             forward_.context_size());
}

std::span<const float> Session::prefill(std::span<const uint32_t> prompt, const Progress& progress,
                                        std::span<const uint32_t> marks) {
    timings_ = {};
    require_fits(prompt);
    marks_.assign(marks.begin(), marks.end());
    const uint64_t start = now_ns();
    uint32_t reused = 0;
    std::span<const float> logits;
    try {
        reused = reuse(prompt, progress);
        logits = run(prompt.subspan(reused), progress);
    } catch (const DeviceLost& lost) {
        logits = run_again(prompt, lost, progress);
        reused = 0;
    }
    timings_.reused_tokens = reused;
    timings_.prompt_tokens = uint32_t(ids_.size() - std::min<size_t>(reused, ids_.size()));
    timings_.prompt_ns = now_ns() - start;
    return logits;
}

// Goes on after the device was lost: runs ids, but for those that the prefix cache has in memory or on the disk.
std::span<const float> Session::run_again(std::span<const uint32_t> ids, const DeviceLost& lost, const Progress& progress) {
    if (!forward_.reopen(lost)) throw lost;
    forget();
    if (prefix_) prefix_->device_lost();
    try {
        return run(ids.subspan(reuse(ids, progress)), progress);
    } catch (const DeviceLost& again) {
        return run_again(ids, again, progress);
    }
}

// Waits for what the shared store has of the prompt, or another machine computes, as long as that is sooner there than computed.
void Session::fetch(std::span<const uint32_t> ids, uint32_t own, bool asks_machine, const Progress& progress) {
    const auto fetch = prefix_ ? prefix_->fetch(ids, own, {}, asks_machine, marks_) : nullptr;
    while (fetch && prefix_->is_coming(*fetch, std::chrono::milliseconds(100)))
        if (progress && !progress(0, uint32_t(ids.size()))) return;
}

// Leaves the beginning of the prompt that is known in the cache. One token must be run for the logits.
uint32_t Session::reuse(std::span<const uint32_t> prompt, const Progress& progress) {
    keep_to_position();
    const auto differ = std::mismatch(ids_.begin(), ids_.end(), prompt.begin(), prompt.end()).first;
    uint32_t reused = uint32_t(std::min(size_t(differ - ids_.begin()), prompt.size() - 1));
    if (forward_.cache().shape().has_beside()) {
        marks_.push_back(reused);
        if (prefix_) marks_.push_back(prefix_->known_tokens(prompt));
    }
    reused = reuse_ == Reuse::cold ? reusable_of_slot(forward_, 0, std::min(reused, cold_), uint32_t(prompt.size()))
                                   : forward_.cache().kept(0, reused);
    fetch(prompt, reused, true, progress);
    const uint32_t found = prefix_ ? prefix_->take(0, prompt, reused) : reused;
    cold_ = found > reused ? found : std::min(cold_, reused);
    ids_.assign(prompt.begin(), prompt.begin() + found);
    forward_.truncate(found);
    return found;
}

uint32_t Session::resume(std::span<const uint32_t> ids) {
    require_fits(ids);
    fetch(ids, 0, false, {}); // the next prompt asks
    const uint32_t found = prefix_ ? prefix_->take(0, ids, 0, false) : 0;
    ids_.assign(ids.begin(), ids.begin() + found);
    cold_ = 0; // it is not known which are
    forward_.truncate(found);
    return found;
}

void Session::read_page(uint32_t position, std::span<std::byte> bytes) const {
    const Cache& cache = forward_.cache();
    const uint32_t tokens = std::min(page_tokens, uint32_t(ids_.size()) - position);
    cache.read_page(cache.table(0)[position / page_tokens], tokens, bytes);
}

void Session::restore(std::vector<uint32_t> ids, uint32_t cold, const PageSource& source, const SavedSlot& saved) {
    forget();
    try {
        forward_.cache().restore(0, uint32_t(ids.size()), source, saved);
    } catch (const DeviceLost& lost) {
        if (!forward_.reopen(lost)) throw;
        if (prefix_) prefix_->device_lost();
        return restore(std::move(ids), cold, source, saved);
    }
    ids_ = std::move(ids);
    cold_ = cold;
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

// Runs the last of `all`. Returns why no token can follow it, if so.
std::optional<Stop> Session::run_next(std::optional<Decoder>& decoder, std::span<const uint32_t> all, size_t answer_begin,
                                      uint32_t wanted, const Progress& go_on, std::string& reason) {
    if (ids_.size() == forward_.context_size()) return Stop::context_full;
    const uint64_t start = now_ns();
    try {
        decoder->run(all, answer_begin, wanted);
    } catch (const OutOfMemory& error) {
        reason = error.what();
        return Stop::memory_full;
    } catch (const DeviceLost& lost) { // without drafts from now on: what makes them may be on that device
        const auto logits = run_again(all, lost, go_on);
        if (logits.empty()) return Stop::interrupted;
        decoder.emplace(forward_, ids_, decoder->sampler(), logits);
    }
    timings_.decode_ns += now_ns() - start;
    ++timings_.decoded_tokens;
    if (ids_.size() % page_tokens == 0) keep();
    timings_.drafted_tokens = decoder->drafted();
    timings_.accepted_tokens = decoder->accepted();
    return std::nullopt;
}

Generated Session::generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options) {
    Generated result;
    const Progress go_on = [&](uint32_t, uint32_t) { return !(options.interrupted && options.interrupted()); };
    const auto logits = prefill(
        prompt,
        [&](uint32_t done, uint32_t total) {
            if (options.on_prompt) options.on_prompt(done, total);
            return go_on(done, total);
        },
        options.marks);
    std::vector<uint32_t> all(prompt.begin(), prompt.end());
    std::optional<Decoder> decoder;
    const auto finish = [&](Stop stop) {
        decoder.reset(); // with it go the tokens that were run ahead
        keep(true);
        result.stop = stop;
        result.timings = timings_;
        return result;
    };
    if (logits.empty() || !begin_speculation(prompt, options)) return finish(Stop::interrupted);
    forward_.cache().checkpoint(0);
    keep(false, true);
    if (options.after_prompt) options.after_prompt();
    decoder.emplace(forward_, ids_, sampler, logits, options.speculation);
    while (result.ids.size() < options.max_tokens) {
        if (options.interrupted && options.interrupted()) return finish(Stop::interrupted);
        uint64_t start = now_ns();
        const uint32_t id = decoder->sample(all, prompt.size());
        (timings_.decoded_tokens == 0 ? timings_.prompt_ns : timings_.decode_ns) += now_ns() - start;
        if (options.is_end && options.is_end(id)) return finish(Stop::end_of_generation);
        result.ids.push_back(id);
        all.push_back(id);
        if (options.on_token) options.on_token(id);
        if (result.ids.size() == options.max_tokens) break;
        const uint32_t wanted = options.max_tokens - uint32_t(result.ids.size());
        if (const auto stop = run_next(decoder, all, prompt.size(), wanted, go_on, result.reason)) return finish(*stop);
    }
    return finish(Stop::length);
}

} // namespace tq
