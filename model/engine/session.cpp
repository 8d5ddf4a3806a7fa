// One conversation on a Batch, for chat, generate and the lab: requests are submitted one at a time, and the batch is stepped in
// the caller's thread until the stream is done. So a chat at the terminal and a server compute by the same code. Callbacks may
// throw. The request is cancelled then, and one more step lets the batch take its slot back, before the exception goes on. A
// device that is lost is opened again within the step (reopen()); the tokens of the slot are run again from their ids, and the
// answer goes on.
#include "model/engine/session.h"
#include "model/engine/serving/batch.h"
#include "model/engine/speculation/speculation.h"
#include <algorithm>

namespace tq {

using serving::Finish;
using serving::Request;
using serving::Sequence;
using serving::Stream;
using serving::Update;

Session::Session(Forward& forward, PrefixCache* prefix, Reuse reuse)
    : forward_(forward), prefix_(prefix), batch_(make_batch(reuse)) {}

Session::~Session() = default;

std::unique_ptr<serving::Batch> Session::make_batch(Reuse reuse) {
    const serving::Batch::Model model{&forward_, prefix_};
    const auto reopened = [this, model](const Error* error) {
        reopen(error);
        return model;
    };
    serving::BatchOptions options;
    options.is_end = [this](uint32_t id) { return is_end_ && is_end_(id); };
    options.reuse = reuse;
    options.one_caller = true;
    return std::make_unique<serving::Batch>(model, reopened, options);
}

// A device that is lost again and again is given up by Forward::reopen().
void Session::reopen(const Error* error) {
    if (const auto* lost = dynamic_cast<const DeviceLost*>(error)) {
        lost_ = true;
        bool reopened = false;
        try {
            reopened = forward_.reopen(*lost);
        } catch (const Error&) { // the cache is another one all the same
            if (prefix_) prefix_->device_lost();
            throw;
        }
        if (!reopened) throw *lost;
        if (prefix_) prefix_->device_lost();
    }
}

void Session::require_fits(std::span<const uint32_t> prompt) const {
    if (prompt.empty())
        fail("the prompt is empty, so there is nothing to continue: give a text with -p, -f or on standard input");
    if (prompt.size() > forward_.context_size())
        fail("the prompt has {} tokens but the context holds {}: shorten it, or ask for a larger context with -c", prompt.size(),
             forward_.context_size());
}

std::shared_ptr<Stream> Session::submit(std::span<const uint32_t> prompt, Request request) {
    auto sequence = std::make_unique<Sequence>();
    request.prompt.assign(prompt.begin(), prompt.end());
    sequence->ids = request.prompt;
    sequence->request = std::move(request);
    auto stream = sequence->stream = std::make_shared<Stream>();
    timings_ = {};
    batch_->add(std::move(sequence));
    return stream;
}

Update Session::take(Stream& stream) {
    Update update = stream.wait(std::chrono::milliseconds(0));
    note_timings(update);
    return update;
}

// A token counts as decoded if a pass was run for it. The first token of an answer comes from the prompt's pass, and an end token
// costs a pass without being a token of the answer: hence the corrections.
void Session::note_timings(const Update& update) {
    const serving::RequestTimings& t = update.timings;
    const bool has_end = update.done && update.finish == Finish::end;
    timings_ = {.reused_tokens = t.cached_tokens,
                .prompt_tokens = t.prompt_tokens,
                .prompt_ns = t.queue_ns + t.prompt_ns,
                .decoded_tokens = t.decoded_tokens + (has_end ? 1 : 0) - (t.decoded_tokens > 0 || has_end ? 1 : 0),
                .decode_ns = t.decode_ns,
                .drafted_tokens = t.drafted_tokens,
                .accepted_tokens = t.accepted_tokens};
}

// Before the first block there may be nothing to report, as pages are read from a disk or another machine. `progress` is asked
// then, too, so that Ctrl-C works while waiting.
std::span<const float> Session::prefill(std::span<const uint32_t> prompt, const Progress& progress,
                                        std::span<const uint32_t> marks) {
    require_fits(prompt);
    Request request{.marks = {marks.begin(), marks.end()}, .logits = true, .on_prompt = progress};
    const auto stream = submit(prompt, std::move(request));
    Update update;
    try {
        do {
            batch_->step();
            update = take(*stream);
            const bool waits = !update.done && update.prompt_done == 0; // for pages
            if (waits && progress && !progress(0, uint32_t(prompt.size()))) stream->cancel();
        } while (!update.done);
    } catch (...) { // of progress
        stream->cancel();
        batch_->step();
        take(*stream);
        throw;
    }
    if (update.exception) std::rethrow_exception(update.exception);
    logits_ = std::move(update.scores);
    return logits_;
}

Generated Session::generate(std::span<const uint32_t> prompt, Sampler& sampler, const GenerateOptions& options) {
    require_fits(prompt);
    const auto goes_on = [&] { return !(options.interrupted && options.interrupted()); };
    Request request{.max_tokens = options.max_tokens, .marks = options.marks};
    request.sampler = &sampler;
    request.speculation = options.speculation;
    if (lost_ && options.speculation) options.speculation->device_lost(); // the loss may have been in prefill()
    request.on_prompt = [&](uint32_t done, uint32_t total) {
        if (options.on_prompt) options.on_prompt(done, total);
        return goes_on();
    };
    is_end_ = options.is_end;
    const auto stream = submit(prompt, std::move(request));
    Generated result;
    Update update;
    bool prompt_done = false;
    try {
        do {
            batch_->step();
            update = take(*stream);
            if (!prompt_done && update.prompt_done == prompt.size()) {
                prompt_done = true;
                if (options.after_prompt) options.after_prompt();
            }
            for (const serving::Token& token : update.tokens) {
                result.ids.push_back(token.id);
                if (options.on_token) options.on_token(token.id);
            }
            if (!update.done && !goes_on()) stream->cancel();
        } while (!update.done);
    } catch (...) { // of a callback
        stream->cancel();
        batch_->step();
        take(*stream);
        throw;
    }
    return finish(std::move(result), update, prompt_done);
}

// Throws if there is no answer.
Generated Session::finish(Generated result, const Update& update, bool has_answer) const {
    result.timings = timings_;
    switch (update.finish) {
    case Finish::end: result.stop = Stop::end_of_generation; break;
    case Finish::length: result.stop = Stop::length; break;
    case Finish::context_full: result.stop = Stop::context_full; break;
    case Finish::cancelled: result.stop = Stop::interrupted; break;
    case Finish::failed: try { std::rethrow_exception(update.exception);
        } catch (const OutOfMemory& error) {
            if (!has_answer) throw;
            result.stop = Stop::memory_full;
            result.reason = error.what();
        }
    }
    return result;
}

uint32_t Session::context_size() const { return forward_.context_size(); }

SavedSlot Session::save_slot() const { return forward_.cache().save_slot(slot); }

std::vector<uint32_t> Session::cached_ids() const { return batch_->content(slot).ids; }

uint32_t Session::cold_tokens() const { return batch_->content(slot).cold; }

void Session::read_page(uint32_t position, std::span<std::byte> bytes) const {
    const Cache& cache = forward_.cache();
    const uint32_t tokens = std::min(page_tokens, uint32_t(cached_ids().size()) - position);
    cache.read_page(cache.table(slot)[position / page_tokens], tokens, bytes);
}

void Session::restore(std::vector<uint32_t> ids, uint32_t cold, const PageSource& source, const SavedSlot& saved) {
    batch_->restore(slot, {std::move(ids), cold}, source, saved);
}

uint32_t Session::resume(std::span<const uint32_t> ids) {
    require_fits(ids);
    return batch_->resume(slot, ids);
}

} // namespace tq
