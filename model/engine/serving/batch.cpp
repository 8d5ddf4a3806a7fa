// A pass takes one token of every answer that runs, and slices of prompts that together are at most one block: so a stream waits
// for one block of somebody's prompt at most. Prompts take turns at being first. The slices of a prompt are those that it would
// have alone (BlockKernels::slice, cut at the pauses for checkpoints), so its bits do not depend on the other requests. A
// sequence that is alone runs many blocks of its prompt in a pass, which several devices overlap, and its answer is sampled by
// the device ahead; answers are drafted (answers.cpp). Two errors do not end a pass's requests. If pages run out, make_room() has
// the last request give way, and the pass is tried again. If a value is not finite, each part is run on its own (run_apart), and
// only the parts at fault fail. A pass with a draft that fails in this way is run again without one. Other errors make recover()
// open the device again.
#include "model/engine/serving/batch.h"
#include "model/engine/speculation/speculation.h"
#include "model/prefix/cold.h"
#include <algorithm>
#include <new>

namespace tq::serving {
namespace {

constexpr uint32_t separate_slice = 256;   // ids of a prompt in a pass, if the kernels know no blocks
constexpr uint32_t min_part_tokens = 2048; // of a prompt in a pass, if it is alone
constexpr size_t max_background = 8;       // that wait; older ones are dropped

using Clock = Sequence::Clock;

} // namespace

Batch::Batch(Model model, Reopen reopen, BatchOptions options)
    : model_(model), reopen_(std::move(reopen)), options_(std::move(options)), slots_(model_.forward->cache().shape().slots) {}

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
        if (!model_.forward) model_ = reopen_(nullptr);
        drop_cancelled();
        admit();
        run_pass();
    } catch (const DeviceLost& lost) {
        recover(lost);
    } catch (const Error& error) {
        if (options_.one_caller)
            fail_all(error.what(), std::current_exception());
        else
            recover(error);
    } catch (const std::bad_alloc&) {
        fail_all("the machine is out of memory: close other programs, or start the server with fewer slots (-np) or a smaller "
                 "context (-c)",
                 std::current_exception());
    }
    std::erase_if(running_, [](const auto& sequence) { return sequence->done; });
    if (model_.prefix && options_.warn)
        for (const std::string& warning : model_.prefix->take_warnings()) options_.warn(warning);
}

// A token of every answer, with a draft; and of the prompts, each in its turn, a block together.
std::vector<Batch::Part> Batch::next_parts() {
    std::vector<Part> parts;
    std::vector<Sequence*> prompts;
    for (const auto& sequence : running_) {
        const uint32_t done = position(*sequence);
        if (done < sequence->prompt_tokens()) {
            prompts.push_back(sequence.get());
            continue;
        }
        parts.push_back({sequence.get(), done, done + 1, done + 1 == sequence->ids.size()});
    }
    add_drafts(parts, !prompts.empty());
    BlockKernels kernels = model_.forward->block_kernels();
    if (kernels.block == 0) kernels.block = separate_slice;
    uint32_t room = kernels.block;
    std::ranges::rotate(prompts, prompts.begin() + (prompts.empty() ? 0 : next_prompt_++ % ptrdiff_t(prompts.size())));
    for (Sequence* sequence : prompts) {
        const uint32_t done = position(*sequence), count = slice(*sequence, done, kernels);
        if (count > room && !is_alone()) break;
        const bool last = done + count == sequence->ids.size();
        parts.push_back({sequence, done, done + count, last && sequence->request.max_tokens > 0});
        room -= std::min(room, count);
    }
    return parts;
}

// Returns how many ids of a prompt run in this pass. The parts of a sequence that is alone are of whole blocks, so their slices
// are those of one run.
uint32_t Batch::slice(const Sequence& sequence, uint32_t done, const BlockKernels& kernels) const {
    const uint32_t left = sequence.next_pause(done) - done;
    if (!is_alone()) return kernels.slice(left);
    const uint32_t part = (min_part_tokens + kernels.block - 1) / kernels.block * kernels.block;
    return left > 2 * part ? part : left;
}

void Batch::run_pass() {
    if (running_.empty()) return;
    const auto start = Clock::now();
    std::vector<Part> parts = next_parts();
    if (all_cancelled(parts)) return; // while a prompt was read for drafts
    const bool has_draft = std::ranges::any_of(parts, [](const Part& part) { return !part.draft.empty(); });
    try {
        if (!has_draft && run_sampled(start)) return;
        run_parts(parts);
        if (parts.front().wants_logits) drafts_ = true; // not after tokens that were run again
    } catch (const NonFinite&) {
        if (has_draft) return drop_drafts(parts);
        run_apart(parts);
    } catch (const OutOfMemory& error) {
        if (has_draft) return drop_drafts(parts);
        if (make_room()) return;
        fail(*running_.front(), error.what(), true, std::current_exception());
    }
    note_pass(parts, elapsed_ns(start, Clock::now()));
}

// A pass with any part of a prompt counts as time of prompts: a token of an answer in it costs nearly nothing beside the block.
// Speculation learns only from passes of answers, with the number of rows verified and of tokens gained.
void Batch::note_pass(const std::vector<Part>& parts, uint64_t ns) {
    const bool has_prompt = std::ranges::any_of(parts, [](const Part& p) { return p.begin < p.sequence->prompt_tokens(); });
    totals_.passes++;
    (has_prompt ? totals_.prompt_ns : totals_.decode_ns) += ns;
    uint64_t prompt_tokens = 0;
    uint32_t rows = 0, tokens = 0;
    Speculation* speculation = nullptr;
    for (const Part& part : parts) {
        if (part.end <= part.sequence->prompt_tokens()) prompt_tokens += part.end - part.begin;
        rows += uint32_t(part.draft.size()) + 1;
        tokens += part.accepted + 1;
        if (!speculation) speculation = part.sequence->request.speculation;
    }
    if (speculation && !has_prompt)
        rows == parts.size() ? speculation->ran_plain(rows, 1, double(ns)) : speculation->verified(rows, tokens, double(ns));
    if (model_.prefix) model_.prefix->note_speed(prompt_tokens, std::chrono::nanoseconds(ns));
}

// Tokens that were sampled before an error are taken all the same, because samplers and constraints have moved on.
void Batch::run_parts(std::vector<Part>& parts) {
    std::vector<Sampled> sampled;
    try {
        run_forward(parts, sampled);
    } catch (const Error&) {
        for (const Sampled& one : sampled) {
            count_prompt(*one.sequence, one.sequence->prompt_tokens());
            take(one);
        }
        throw;
    }
    losses_ = 0;
    for (Part& part : parts) {
        if (!part.draft.empty()) cut_draft(part);
        part.end = std::max(part.begin, std::min(part.end, position(*part.sequence))); // less if the pass was stopped
        note_run(part);
        if (part.sequence->values) deliver_values(*part.sequence);
    }
    for (const Sampled& one : sampled) take(one);
}

// A part with a draft needs the logits of all its rows, since each may reject the next token. A prompt's last part needs those of
// its last row. Other parts need none, so the head is not run for them. Logits are valid only within `each`, where tokens are
// sampled at once.
void Batch::run_forward(std::vector<Part>& parts, std::vector<Sampled>& sampled) {
    std::vector<Span> spans;
    std::list<std::vector<uint32_t>> with_drafts; // a list: spans look into it
    for (const Part& part : parts) {
        const Sequence& sequence = *part.sequence;
        auto ids = std::span<const uint32_t>(sequence.ids).subspan(part.begin, part.end - part.begin);
        if (!part.draft.empty()) {
            std::vector<uint32_t>& all = with_drafts.emplace_back(ids.begin(), ids.end());
            all.insert(all.end(), part.draft.begin(), part.draft.end());
            ids = all;
        }
        const bool hidden = part.wants_logits && sequence.request.hidden;
        const auto logits = part.tells_prompt() || !part.draft.empty() ? Span::Logits::all
                            : hidden                                   ? Span::Logits::hidden
                            : part.wants_logits                        ? Span::Logits::last
                                                                       : Span::Logits::none;
        spans.push_back({*sequence.slot, ids, logits, part.draft.empty() ? UINT32_MAX : 1});
    }
    const auto each = [&](size_t span, uint32_t i, std::span<const float> logits) {
        Part& part = parts[span];
        Sequence& sequence = *part.sequence;
        if (part.tells_prompt()) tell_prompt(sequence, part.begin + i, logits);
        if (sequence.wants_values())
            note_values(sequence, logits);
        else if (part.wants_logits && part.begin + i + 1 >= part.end)
            sample(part, part.begin + i + 1 - part.end, logits, sampled);
    };
    run_ids_ = 0;
    model_.forward->run(spans, each, [&](uint32_t done, uint32_t) { return goes_on(parts, done); });
}

bool Batch::all_cancelled(const std::vector<Part>& parts) {
    return std::ranges::all_of(parts, [](const Part& part) { return part.sequence->stream->cancelled(); });
}

// Called during a pass, with the ids of it that have been run. A pass of several blocks ends at the end of one for somebody new.
bool Batch::goes_on(const std::vector<Part>& parts, uint32_t done) {
    const bool ends_block = std::exchange(run_ids_, done) != done;
    const Part& part = parts.front();
    const Sequence& sequence = *part.sequence;
    const uint32_t known = sequence.timings.cached_tokens, total = sequence.prompt_tokens();
    if (parts.size() == 1 && part.begin < total && sequence.request.on_prompt &&
        !sequence.request.on_prompt(part.begin + done - std::min(known, part.begin), total - std::min(known, part.begin)))
        sequence.stream->cancel();
    if (all_cancelled(parts)) return false;
    const uint32_t block = model_.forward->block_kernels().block; // which may be run in several passes
    const bool is_between = ends_block && parts.size() == 1 && part.begin < total && part.begin + done < part.end &&
                            (block == 0 || done % block == 0);
    return !(is_between && options_.has_news && options_.has_news());
}

// After a value that is not finite: the sequences that have it fail, the others go on.
void Batch::run_apart(std::vector<Part>& parts) {
    for (Part& part : parts) {
        if (part.sequence->done) continue;
        part.wants_logits &= part.end == part.sequence->ids.size(); // not if a token was sampled before the error
        std::vector<Part> alone{part};
        try {
            run_again(part);
            run_parts(alone);
        } catch (const NonFinite& error) {
            fail(*part.sequence, error.what(), true, std::current_exception());
        }
    }
}

// Runs again the tokens before the part that a slot with recurrent states has lost, as they were run before.
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

// Notes that the first `end` tokens of a prompt have run. Tokens that are run again do not count again.
void Batch::count_prompt(Sequence& sequence, uint32_t end) {
    const uint32_t prompt = std::min(end, sequence.prompt_tokens());
    if (prompt <= sequence.counted) return;
    sequence.timings.prompt_tokens += prompt - sequence.counted;
    totals_.prompt_tokens += prompt - sequence.counted;
    sequence.counted = prompt;
    sequence.timings.prompt_ns = elapsed_ns(sequence.started, Clock::now());
    sequence.stream->progress(prompt, sequence.timings);
}

void Batch::note_run(const Part& part) {
    Sequence& sequence = *part.sequence;
    const uint32_t end = part.end;
    if (end <= part.begin) return;
    const BlockKernels kernels = model_.forward->block_kernels();
    if (sequence.cold == part.begin && (end <= sequence.prompt_tokens() || kernels.tokens_alike()))
        sequence.cold = cold_tokens(kernels, part.begin, end);
    count_prompt(sequence, end);
    const bool prompt_ends = end == sequence.prompt_tokens();
    if (std::ranges::binary_search(sequence.pauses, end) || (prompt_ends && !model_.prefix)) checkpoint(sequence);
    if (end / page_tokens != part.begin / page_tokens || prompt_ends) keep(sequence, false);
    if (end == sequence.prompt_tokens() && sequence.request.max_tokens == 0) finish(sequence, Finish::length);
}

void Batch::finish(Sequence& sequence, Finish finish, std::optional<Token> end) {
    sequence.stream->finish(finish, sequence.timings, std::move(end));
    sequence.done = true;
    leave(sequence, true);
}

void Batch::fail(Sequence& sequence, const std::string& why, bool server_fault, std::exception_ptr exception) {
    totals_.failed++;
    sequence.stream->fail(why, server_fault, sequence.timings, std::move(exception));
    sequence.done = true;
    leave(sequence, true);
}

// If the device is lost, the next pass tells.
void Batch::checkpoint(Sequence& sequence) {
    try {
        model_.forward->cache().checkpoint(*sequence.slot);
    } catch (const Error& error) {
        warn(error.what());
    }
}

// If keeping fails, nothing is kept; if the device is lost, the next pass tells. States are kept when the prompt or the answer is
// complete.
void Batch::keep(Sequence& sequence, bool end) {
    if (!model_.prefix) return;
    // If a draft was just accepted, the slot has tokens that the sequence does not know yet.
    const auto ids = std::span<const uint32_t>(sequence.ids).first(std::min<size_t>(position(sequence), sequence.ids.size()));
    end = end && !sequence.wants_values();
    if (end && (options_.reuse == Reuse::all || sequence.cold == ids.size())) checkpoint(sequence);
    try {
        model_.prefix->store(*sequence.slot, ids, sequence.cold, end, sequence.request.tenant);
        if (end || ids.size() == sequence.prompt_tokens())
            model_.prefix->store_states(*sequence.slot, ids, sequence.cold, end, sequence.request.tenant);
    } catch (const Error& error) {
        warn(error.what());
    }
}

// Gives up the slot. Its content stays there, unless all of it is to be found in a prefix cache.
void Batch::leave(Sequence& sequence, bool end) {
    if (!sequence.slot) return;
    keep(sequence, end);
    Content content = this->content(*sequence.slot);
    const uint32_t slot = *std::exchange(sequence.slot, std::nullopt);
    slots_[slot] = {};
    if (model_.prefix && !options_.one_caller && options_.reuse == Reuse::cold) return model_.forward->cache().truncate(slot, 0);
    slots_[slot].content = std::move(content);
    slots_[slot].tenant = sequence.request.tenant;
}

Batch::Content Batch::content(uint32_t slot) const {
    if (!model_.forward) return {};
    const Slot& at = slots_[slot];
    const uint32_t tokens = model_.forward->cache().position(slot);
    Content out{at.sequence ? at.sequence->ids : at.content.ids, at.sequence ? at.sequence->cold : at.content.cold};
    if (out.ids.size() > tokens) out.ids.resize(tokens);
    out.cold = std::min(out.cold, uint32_t(out.ids.size()));
    return out;
}

std::optional<std::vector<std::byte>> Batch::page_content(std::span<const uint32_t> ids, const std::string& tenant) {
    if (!model_.forward || !model_.prefix) return std::nullopt;
    try {
        return model_.prefix->content(ids, tenant);
    } catch (const Error& error) { // if the device is lost, the next pass tells
        warn(error.what());
    } catch (const std::bad_alloc&) {
        warn("there is no memory for a page that another machine has asked for");
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
