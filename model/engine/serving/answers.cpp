// Part of Batch: the tokens of answers. The host samples them from logits; or the device does, several before the host reads any;
// or they are drafted and verified: a draft's tokens are rows of one pass after the last token, and each row has the logits that
// it would have alone (Forward::max_separate_rows). Tokens are sampled from these rows in order until one differs from the
// drafted one. The rows after it are then worthless, and are cut from the cache. The tokens, the sampler's state and the cache
// are the same each way. The device samples only while one sequence is alone. All answers of a pass are drafted together. If the
// pass also runs a prompt, its time says nothing about drafts, so the lengths follow from passes without a prompt.
#include "base/ensure.h"
#include "model/engine/serving/batch.h"
#include "model/engine/serving/logprobs.h"
#include "model/engine/speculation/speculation.h"
#include <algorithm>

namespace tq::serving {

using Clock = Sequence::Clock;

// Returns the request for a part's draft, of no more tokens than may follow: memory runs out as if tokens came one by one.
// Returns nullopt if it has none. No draft begins in a pass with prompts: a draft model would read a whole prompt, and all others
// would wait for it.
std::optional<DraftRequest> Batch::draft_request(Part& part, const Speculation* speculation, bool beside_prompts) {
    Sequence& sequence = *part.sequence;
    const Request& request = sequence.request;
    if (!part.wants_logits || request.speculation != speculation || sequence.answer_tokens() == 0) return std::nullopt;
    const Cache::Shape& shape = model_.forward->cache().shape();
    const uint32_t max = std::min({request.max_tokens - sequence.answer_tokens(), model_.forward->cache().room(*sequence.slot),
                                   shape.recurrent ? shape.pending + 1 : UINT32_MAX});
    if (max <= 1 || (beside_prompts && !sequence.drafts)) return std::nullopt;
    if (!std::exchange(sequence.drafts, true)) begin_drafts(sequence);
    if (sequence.stream->cancelled()) return std::nullopt;
    return DraftRequest{*sequence.slot, sequence.ids, max - 1};
}

// parts: the tokens of answers. They are separate rows; a pass has at most as many as it computes at once.
void Batch::add_drafts(std::span<Part> parts, bool beside_prompts) {
    const auto with = std::ranges::find_if(parts, [](const Part& part) { return part.sequence->request.speculation; });
    const uint32_t streams = uint32_t(parts.size()), rows = model_.forward->max_separate_rows();
    if (with == parts.end() || !drafts_ || streams >= rows) return;
    Speculation* const speculation = with->sequence->request.speculation;
    std::vector<DraftRequest> requests;
    std::vector<Part*> asking;
    for (Part& part : parts)
        if (const auto request = draft_request(part, speculation, beside_prompts)) {
            requests.push_back(*request);
            asking.push_back(&part);
        }
    if (requests.empty()) return;
    std::vector<std::vector<uint32_t>> drafts =
        speculation->draft(*model_.forward, requests, streams, rows - streams, !beside_prompts);
    for (size_t i = 0; i < drafts.size(); i++) asking[i]->draft = std::move(drafts[i]);
}

// Has the drafter read the prompt, which counts as time of the prompt.
void Batch::begin_drafts(Sequence& sequence) {
    const Request& request = sequence.request;
    const auto start = Clock::now();
    const uint32_t all = sequence.prompt_tokens();
    request.speculation->begin(*sequence.slot, request.prompt, [&](uint32_t, uint32_t) {
        if (request.on_prompt && !request.on_prompt(all, all)) sequence.stream->cancel();
        return !sequence.stream->cancelled();
    });
    const auto time = Clock::now() - start;
    sequence.answering += time;
    sequence.timings.prompt_ns += uint64_t(std::chrono::nanoseconds(time).count());
}

// After a pass: the rows of wrong tokens go. A pass that was stopped has run fewer.
void Batch::cut_draft(Part& part) {
    Sequence& sequence = *part.sequence;
    part.end = std::min(part.end + part.accepted, position(sequence));
    model_.forward->cache().truncate(*sequence.slot, part.end);
    sequence.timings.drafted_tokens += uint32_t(part.draft.size());
    sequence.timings.accepted_tokens += part.accepted;
    totals_.drafted_tokens += part.draft.size();
    totals_.accepted_tokens += part.accepted;
}

// After a pass with drafts that failed, the next one has none, and may not fail. Prompt tokens that have been run stay.
void Batch::drop_drafts(std::span<const Part> parts) {
    drafts_ = false;
    for (const Part& part : parts)
        if (part.sequence->slot && part.begin >= part.sequence->prompt_tokens())
            model_.forward->cache().cut(*part.sequence->slot, std::min(part.begin, position(*part.sequence)));
}

// row: of the part's token (0), or of one of its draft, in order.
void Batch::sample(Part& part, uint32_t row, std::span<const float> logits, std::vector<Sampled>& sampled) {
    if (part.rejected) return;
    ENSURE(row == part.accepted, "row {} of a draft after {} tokens", row, part.accepted);
    Sequence& sequence = *part.sequence;
    std::vector<uint32_t> ids;
    if (row > 0) {
        ids = sequence.ids;
        ids.insert(ids.end(), part.draft.begin(), part.draft.begin() + row);
    }
    sampled.push_back(sample(sequence, logits, row > 0 ? ids : sequence.ids));
    const Sampled& last = sampled.back();
    part.rejected =
        !last.error.empty() || row == part.draft.size() || part.draft[row] != last.token.id || is_end(sequence, last.token.id);
    if (!part.rejected) part.accepted++;
}

Batch::Sampled Batch::sample(Sequence& sequence, std::span<const float> logits, std::span<const uint32_t> ids) {
    const Request& request = sequence.request;
    try {
        std::vector<float> biased;
        if (!request.logit_bias.empty()) biased.assign(logits.begin(), logits.end());
        for (const auto& [id, bias] : request.logit_bias) biased[id] += bias;
        const uint32_t id =
            sequence.sampler().sample(biased.empty() ? logits : std::span<const float>(biased), ids, sequence.prompt_tokens());
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
    if (sampled.error.empty()) return add_token(sequence, sampled.token);
    fail(sequence, sampled.error, false, std::make_exception_ptr(Error(sampled.error)));
}

void Batch::add_token(Sequence& sequence, Token token) {
    RequestTimings& timings = sequence.timings;
    const auto now = Clock::now();
    if (sequence.answering == Clock::time_point{}) {
        sequence.answering = now;
        timings.prompt_ns = elapsed_ns(sequence.started, now);
    }
    timings.decode_ns = elapsed_ns(sequence.answering, now);
    if (is_end(sequence, token.id)) return finish(sequence, Finish::end, std::move(token));
    sequence.ids.push_back(token.id);
    timings.decoded_tokens++;
    totals_.decoded_tokens++;
    sequence.stream->push(std::move(token), timings);
    if (sequence.answer_tokens() >= sequence.request.max_tokens) return finish(sequence, Finish::length);
    if (sequence.ids.size() > model_.forward->context_size()) return finish(sequence, Finish::context_full);
}

void Batch::note_values(Sequence& sequence, std::span<const float> values) {
    const Request& request = sequence.request;
    Sequence::Values& out = sequence.values.emplace();
    if (request.hidden) out.hidden.assign(values.begin(), values.end());
    if (request.logits) out.scores.assign(values.begin(), values.end());
    for (const uint32_t id : request.scored) out.scores.push_back(values[id]);
}

void Batch::deliver_values(Sequence& sequence) {
    sequence.timings.prompt_ns = elapsed_ns(sequence.started, Clock::now());
    sequence.stream->finish_values(std::move(sequence.values->hidden), std::move(sequence.values->scores), sequence.timings);
    sequence.done = true;
    leave(sequence, false);
}

// One answer alone is sampled by the device, several tokens before the host reads any.
bool Batch::run_sampled(Clock::time_point start) {
    Forward& forward = *model_.forward;
    Sequence& sequence = *running_.front();
    const Request& request = sequence.request;
    if (running_.size() != 1 || forward.max_sampled() == 0 || request.constraint || request.logprobs ||
        !request.logit_bias.empty() || !sequence.sampler().fits_device() || sequence.wants_values())
        return false;
    const uint32_t slot = *sequence.slot, begin = position(sequence);
    if (sequence.answer_tokens() == 0 || begin + 1 != sequence.ids.size()) return false;
    const uint32_t left = std::min(request.max_tokens - sequence.answer_tokens(), forward.cache().room(slot));
    const uint32_t ahead = waiting_.empty() ? forward.max_sampled() : 1;
    const uint32_t max = std::min({left, ahead, request.speculation ? request.speculation->max_ahead() : ahead});
    if (max == 0) return false;
    const uint32_t n = pace_.next(max);
    const DeviceSampling sampling = sequence.sampler().device_sampling(n, sequence.ids, sequence.prompt_tokens());
    std::vector<uint32_t> ids;
    try {
        ids = forward.run_sampled(slot, sequence.ids.back(), n, sampling);
    } catch (const Error&) { // it is not known which tokens have been run
        forward.cache().cut(slot, begin);
        throw;
    }
    if (ids.empty()) return false;
    ENSURE(ids.size() <= n, "{} of {} tokens sampled", ids.size(), n);
    const uint64_t ns = elapsed_ns(start, Clock::now());
    pace_.took(n, ns);
    losses_ = 0;
    totals_.passes++;
    totals_.decode_ns += ns;
    const uint32_t taken = take_sampled(sequence, ids);
    if (request.speculation) request.speculation->ran_plain(1, taken, double(ns));
    return true;
}

// Takes tokens that the device has sampled and run, up to the end of the answer; those after it are cut. Returns how many were
// taken.
uint32_t Batch::take_sampled(Sequence& sequence, const std::vector<uint32_t>& ids) {
    const auto ends = [&](uint32_t id) { return is_end(sequence, id); };
    const uint32_t begin = uint32_t(sequence.ids.size());
    const uint32_t last = std::min(uint32_t(std::ranges::find_if(ids, ends) - ids.begin()), uint32_t(ids.size()) - 1);
    model_.forward->cache().truncate(*sequence.slot, begin + last);
    sequence.sampler().sampled(last + 1);
    if (model_.forward->block_kernels().tokens_alike() && sequence.cold + 1 == begin) sequence.cold = begin + last;
    for (uint32_t i = 0; i <= last; i++) add_token(sequence, Token{ids[i]});
    if (!sequence.done && (begin - 1) / page_tokens != (begin + last) / page_tokens) keep(sequence, false);
    return last + 1;
}

} // namespace tq::serving
