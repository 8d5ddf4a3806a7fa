// A pass takes one token of every answer that runs, and slices of prompts that together are at most one block: so a stream waits
// for one block of somebody's prompt at most. Prompts take turns at being first. The slices of a prompt are those that it would
// have alone (BlockKernels::slice, cut at the pauses for checkpoints), so its bits do not depend on the other requests. If one
// answer runs alone, the device samples ahead instead (run_sampled). Two errors do not end a pass's requests. If pages run out,
// make_room() has the last request give way, and the pass is tried again. If a value is not finite, each part is run on its own
// (run_apart), and only those that are at fault fail. Other errors make recover() open the device again.
#include "model/serving/batch.h"
#include "base/ensure.h"
#include "model/prefix/cold.h"
#include "model/serving/logprobs.h"
#include <algorithm>
#include <new>

namespace tq::serving {
namespace {

constexpr uint32_t separate_slice = 256; // ids of a prompt in a pass, where the kernels know no blocks
constexpr size_t max_background = 8;     // that wait; older ones are dropped

using Clock = Sequence::Clock;

} // namespace

Batch::Batch(Scheduler::Model model, Scheduler::Open reopen, const Scheduler::Options& options)
    : model_(std::move(model)), reopen_(std::move(reopen)), options_(options), slots_(model_.forward->cache().shape().slots) {}

Batch::~Batch() = default;

void Batch::add(std::unique_ptr<Sequence> sequence) {
    totals_.requests++;
    waiting_.push_back(std::move(sequence));
    if (waiting_.size() - waiting() <= max_background) return;
    const auto oldest = std::ranges::find_if(waiting_, [](const auto& one) { return one->request.background; });
    (*oldest)->stream->finish(Finish::cancelled, (*oldest)->timings);
    waiting_.erase(oldest);
}

void Batch::step() {
    try {
        if (!model_.forward) model_ = reopen_();
        drop_cancelled();
        admit();
        run_pass();
    } catch (const Error& error) {
        recover(error.what());
    } catch (const std::bad_alloc&) {
        fail_all("the machine is out of memory: close other programs, or start the server with fewer slots (-np) or a smaller "
                 "context (-c)");
    }
    for (const auto& sequence : running_)
        if (sequence->done) leave(*sequence, false); // those with values
    std::erase_if(running_, [](const auto& sequence) { return sequence->done; });
    if (model_.prefix)
        for (const std::string& warning : model_.prefix->take_warnings()) options_.warn(warning);
}

// A token of every answer; and of the prompts, each in its turn, a block together.
std::vector<Batch::Part> Batch::next_parts() {
    std::vector<Part> parts;
    std::vector<Sequence*> prompts;
    for (const auto& sequence : running_) {
        const uint32_t done = position(*sequence);
        if (done < sequence->prompt_tokens())
            prompts.push_back(sequence.get());
        else
            parts.push_back({sequence.get(), done, done + 1, done + 1 == sequence->ids.size()});
    }
    BlockKernels kernels = model_.forward->block_kernels();
    if (kernels.block == 0) kernels.block = separate_slice;
    uint32_t room = kernels.block;
    std::ranges::rotate(prompts, prompts.begin() + (prompts.empty() ? 0 : next_prompt_++ % ptrdiff_t(prompts.size())));
    for (Sequence* sequence : prompts) {
        const uint32_t done = position(*sequence), count = kernels.slice(sequence->next_pause(done) - done);
        if (count > room) break;
        const bool last = done + count == sequence->ids.size();
        parts.push_back({sequence, done, done + count, last && sequence->request.max_tokens > 0});
        room -= count;
    }
    return parts;
}

void Batch::run_pass() {
    if (running_.empty() || run_sampled()) return;
    const auto start = Clock::now();
    const std::vector<Part> parts = next_parts();
    const bool has_prompt = std::ranges::any_of(parts, [](const Part& p) { return p.begin < p.sequence->prompt_tokens(); });
    try {
        run_parts(parts);
    } catch (const NonFinite&) {
        run_apart(parts);
    } catch (const OutOfMemory& error) {
        if (make_room()) return;
        Sequence& only = *running_.front();
        totals_.failed++;
        only.stream->fail(error.what(), true, only.timings);
        only.done = true;
        leave(only, true);
    }
    totals_.passes++;
    const uint64_t ns = elapsed_ns(start, Clock::now());
    (has_prompt ? totals_.prompt_ns : totals_.decode_ns) += ns;
    uint64_t prompt_tokens = 0;
    for (const Part& part : parts)
        if (part.end <= part.sequence->prompt_tokens()) prompt_tokens += part.end - part.begin;
    if (model_.prefix) model_.prefix->note_speed(prompt_tokens, std::chrono::nanoseconds(ns));
}

// What was sampled before an error is taken all the same: samplers and constraints have gone on.
void Batch::run_parts(const std::vector<Part>& parts) {
    std::vector<Sampled> sampled;
    try {
        run_forward(parts, sampled);
    } catch (const Error&) {
        for (const Sampled& one : sampled) take(one);
        throw;
    }
    proved_ = true;
    for (const Part& part : parts) note_run(part);
    for (const Sampled& one : sampled) take(one);
}

void Batch::run_forward(const std::vector<Part>& parts, std::vector<Sampled>& sampled) {
    std::vector<Span> spans;
    for (const Part& part : parts) {
        const auto ids = std::span<const uint32_t>(part.sequence->ids).subspan(part.begin, part.end - part.begin);
        const bool hidden = part.wants_logits && part.sequence->request.hidden;
        spans.push_back({*part.sequence->slot, ids,
                         part.tells_prompt() ? Span::Logits::all
                         : hidden            ? Span::Logits::hidden
                         : part.wants_logits ? Span::Logits::last
                                             : Span::Logits::none});
    }
    const auto each = [&](size_t span, uint32_t i, std::span<const float> logits) {
        const Part& part = parts[span];
        Sequence& sequence = *part.sequence;
        if (part.tells_prompt()) tell_prompt(sequence, part.begin + i, logits);
        if (sequence.wants_values())
            deliver_values(sequence, logits);
        else if (part.wants_logits && part.begin + i + 1 == part.end)
            sampled.push_back(sample(sequence, logits));
    };
    const auto wanted = [&](uint32_t, uint32_t) {
        return !std::ranges::all_of(parts, [](const Part& part) { return part.sequence->stream->cancelled(); });
    };
    model_.forward->run(spans, each, wanted);
}

// After a value that is not finite: those that have it fail, the others go on.
void Batch::run_apart(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
        if (part.sequence->done) continue;
        try {
            run_again(part);
            run_parts({part});
        } catch (const NonFinite& error) {
            totals_.failed++;
            part.sequence->stream->fail(error.what(), true, part.sequence->timings);
            part.sequence->done = true;
            leave(*part.sequence, false);
        }
    }
}

// What a slot with recurrent states has lost of the tokens before the part, as they were run before.
void Batch::run_again(const Part& part) {
    const Sequence& sequence = *part.sequence;
    BlockKernels kernels = model_.forward->block_kernels();
    if (kernels.block == 0) kernels.block = separate_slice;
    for (uint32_t done = position(sequence), count; done < part.begin; done += count) {
        count = done < sequence.prompt_tokens() ? kernels.slice(std::min(part.begin, sequence.prompt_tokens()) - done) : 1;
        const Span span{*sequence.slot, std::span<const uint32_t>(sequence.ids).subspan(done, count), Span::Logits::none};
        model_.forward->run(std::span(&span, 1), [](size_t, uint32_t, std::span<const float>) {});
    }
}

void Batch::note_run(const Part& part) {
    Sequence& sequence = *part.sequence;
    const uint32_t end = std::min(part.end, position(sequence));
    if (end <= part.begin) return;
    const BlockKernels kernels = model_.forward->block_kernels();
    if (sequence.cold == part.begin && (part.end <= sequence.prompt_tokens() || kernels.block == 0))
        sequence.cold = cold_tokens(kernels, part.begin, end);
    const uint32_t prompt = std::min(end, sequence.prompt_tokens());
    if (prompt > sequence.counted) { // tokens that are run again do not count again
        sequence.timings.prompt_tokens += prompt - sequence.counted;
        totals_.prompt_tokens += prompt - sequence.counted;
        sequence.counted = prompt;
        sequence.timings.prompt_ns = elapsed_ns(sequence.started, Clock::now());
        sequence.stream->progress(prompt, sequence.timings);
    }
    const bool prompt_ends = end == sequence.prompt_tokens();
    if (std::ranges::binary_search(sequence.pauses, end) || (prompt_ends && !model_.prefix)) checkpoint(sequence);
    if (end / page_tokens != part.begin / page_tokens || prompt_ends) keep(sequence, false);
    if (end == sequence.prompt_tokens() && sequence.request.max_tokens == 0) finish(sequence, Finish::length);
}

Batch::Sampled Batch::sample(Sequence& sequence, std::span<const float> logits) {
    const Request& request = sequence.request;
    try {
        std::vector<float> biased;
        if (!request.logit_bias.empty()) biased.assign(logits.begin(), logits.end());
        for (const auto& [id, bias] : request.logit_bias) biased[id] += bias;
        const uint32_t id = sequence.sampler->sample(biased.empty() ? logits : std::span<const float>(biased), sequence.ids,
                                                     sequence.prompt_tokens());
        return {&sequence, request.logprobs ? with_logprobs(id, logits, request.top_logprobs) : Token{id}, {}};
    } catch (const Error& error) {
        return {&sequence, {}, error.what()};
    }
}

// `logits` follow the prompt's token at `position`. Tokens that are run again are not told again.
void Batch::tell_prompt(Sequence& sequence, uint32_t position, std::span<const float> logits) {
    const uint32_t next = position + 1;
    if (next >= sequence.prompt_tokens() || next != sequence.told + 1) return;
    sequence.told = next;
    sequence.stream->push_prompt(with_logprobs(sequence.ids[next], logits, sequence.request.top_logprobs), sequence.timings);
}

void Batch::take(const Sampled& sampled) {
    Sequence& sequence = *sampled.sequence;
    if (sequence.done) return;
    if (sampled.error.empty()) {
        add_token(sequence, sampled.token);
        return;
    }
    totals_.failed++;
    sequence.stream->fail(sampled.error, false, sequence.timings);
    sequence.done = true;
    leave(sequence, true);
}

void Batch::add_token(Sequence& sequence, Token token) {
    RequestTimings& timings = sequence.timings;
    const auto now = Clock::now();
    if (sequence.answering == Clock::time_point{}) {
        sequence.answering = now;
        timings.prompt_ns = elapsed_ns(sequence.started, now);
    }
    timings.decode_ns = elapsed_ns(sequence.answering, now);
    if (!sequence.request.ignore_end && options_.is_end && options_.is_end(token.id))
        return finish(sequence, Finish::end, std::move(token));
    sequence.ids.push_back(token.id);
    timings.decoded_tokens++;
    totals_.decoded_tokens++;
    sequence.stream->push(std::move(token), timings);
    if (sequence.answer_tokens() >= sequence.request.max_tokens) return finish(sequence, Finish::length);
    if (sequence.ids.size() > model_.forward->context_size()) return finish(sequence, Finish::context_full);
}

void Batch::deliver_values(Sequence& sequence, std::span<const float> values) {
    std::vector<float> hidden, scores;
    if (sequence.request.hidden) hidden.assign(values.begin(), values.end());
    for (const uint32_t id : sequence.request.scored) scores.push_back(values[id]);
    sequence.timings.prompt_ns = elapsed_ns(sequence.started, Clock::now());
    sequence.stream->finish_values(std::move(hidden), std::move(scores), sequence.timings);
    sequence.done = true;
}

// One answer alone is sampled by the device, several tokens before the host reads any.
bool Batch::run_sampled() {
    Forward& forward = *model_.forward;
    Sequence& sequence = *running_.front();
    const Request& request = sequence.request;
    if (running_.size() != 1 || *sequence.slot != 0 || forward.max_sampled() == 0 || request.constraint || request.logprobs ||
        !request.logit_bias.empty() || !sequence.sampler->fits_device() || sequence.wants_values())
        return false;
    const uint32_t begin = forward.position();
    if (sequence.answer_tokens() == 0 || begin + 1 != sequence.ids.size()) return false;
    const uint32_t left = std::min(request.max_tokens - sequence.answer_tokens(), forward.cache().room(0));
    const uint32_t most = std::min(left, waiting_.empty() ? forward.max_sampled() : 1);
    if (most == 0) return false;
    const uint32_t n = pace_.next(most);
    const auto start = Clock::now();
    const auto ids =
        forward.run_sampled(sequence.ids.back(), n, sequence.sampler->device_sampling(n, sequence.ids, sequence.prompt_tokens()));
    if (ids.empty()) return false;
    const uint64_t ns = elapsed_ns(start, Clock::now());
    pace_.took(n, ns);
    proved_ = true;
    totals_.passes++;
    totals_.decode_ns += ns;
    take_sampled(sequence, ids);
    return true;
}

// Of the tokens that the device has sampled and run, those after the end of the answer are cut.
void Batch::take_sampled(Sequence& sequence, const std::vector<uint32_t>& ids) {
    const auto ends = [&](uint32_t id) { return !sequence.request.ignore_end && options_.is_end && options_.is_end(id); };
    const uint32_t begin = uint32_t(sequence.ids.size());
    const uint32_t last = std::min(uint32_t(std::ranges::find_if(ids, ends) - ids.begin()), uint32_t(ids.size()) - 1);
    model_.forward->truncate(begin + last);
    sequence.sampler->sampled(last + 1);
    if (model_.forward->block_kernels().block == 0 && sequence.cold + 1 == begin) sequence.cold = begin + last;
    for (uint32_t i = 0; i <= last; i++) add_token(sequence, Token{ids[i]});
    if (!sequence.done && begin / page_tokens != (begin + last) / page_tokens) keep(sequence, false);
}

void Batch::finish(Sequence& sequence, Finish finish, std::optional<Token> end) {
    sequence.stream->finish(finish, sequence.timings, std::move(end));
    sequence.done = true;
    leave(sequence, true);
}

// If the device is lost, the next pass tells.
void Batch::checkpoint(Sequence& sequence) {
    try {
        model_.forward->cache().checkpoint(*sequence.slot);
    } catch (const Error& error) {
        options_.warn(error.what());
    }
}

// Where that fails nothing is kept; if the device is lost, the next pass tells. States are kept when the prompt or the answer is
// complete.
void Batch::keep(Sequence& sequence, bool end) {
    if (!model_.prefix) return;
    const auto ids = std::span<const uint32_t>(sequence.ids).first(position(sequence));
    end = end && !sequence.wants_values();
    if (end && sequence.cold == ids.size()) checkpoint(sequence);
    try {
        model_.prefix->store(*sequence.slot, ids, sequence.cold, end, sequence.request.tenant);
        if (end || ids.size() == sequence.prompt_tokens())
            model_.prefix->store_states(*sequence.slot, ids, sequence.cold, end, sequence.request.tenant);
    } catch (const Error& error) {
        options_.warn(error.what());
    }
}

// Gives up the slot. Without a prefix cache its content stays there.
void Batch::leave(Sequence& sequence, bool end) {
    if (!sequence.slot) return;
    keep(sequence, end);
    const uint32_t slot = *sequence.slot, tokens = position(sequence);
    slots_[slot] = {};
    sequence.slot.reset();
    if (model_.prefix) return model_.forward->cache().truncate(slot, 0);
    slots_[slot].ids.assign(sequence.ids.begin(), sequence.ids.begin() + tokens);
    slots_[slot].cold = std::min(sequence.cold, tokens);
    slots_[slot].tenant = sequence.request.tenant;
}

std::optional<std::vector<std::byte>> Batch::page_content(std::span<const uint32_t> ids, const std::string& tenant) {
    if (!model_.forward || !model_.prefix) return std::nullopt;
    try {
        return model_.prefix->content(ids, tenant);
    } catch (const Error& error) { // if the device is lost, the next pass tells
        options_.warn(error.what());
    } catch (const std::bad_alloc&) {
        options_.warn("there is no memory for a page that another machine has asked for");
    }
    return std::nullopt;
}

Status Batch::status() const {
    Status status = totals_;
    status.slots.resize(slots_.size());
    status.running = uint32_t(running_.size());
    status.waiting = waiting();
    if (!model_.forward) return status;
    const Cache& cache = model_.forward->cache();
    for (const auto& sequence : running_) {
        if (!sequence->slot) continue;
        const uint32_t tokens = position(*sequence);
        status.slots[*sequence->slot] = {.busy = true,
                                         .cached_tokens = sequence->timings.cached_tokens,
                                         .prompt_tokens = sequence->timings.prompt_tokens,
                                         .decoded_tokens = sequence->timings.decoded_tokens,
                                         .tokens = tokens,
                                         .pages = pages_of(tokens),
                                         .checkpoints = cache.checkpoints(*sequence->slot),
                                         .request = sequence->number};
    }
    status.pages = cache.shape().pages;
    status.free_pages = cache.free_pages();
    if (model_.prefix) {
        status.spare_pages = model_.prefix->spare_pages();
        status.found = model_.prefix->statistics();
    }
    return status;
}

} // namespace tq::serving
