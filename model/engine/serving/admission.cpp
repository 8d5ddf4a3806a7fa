// Part of Batch: which of the waiting requests gets a slot, and how much of its prompt is already in the cache. Requests are
// admitted in the order of arrival. A later one is not preferred for lack of room. A request lets others pass only while it gains
// by waiting: another sequence is just computing a beginning of its prompt (waits_for_company), or pages of it come from the
// shared store or another machine (waits_for_pages). Work in the background waits until nobody else does. A request that gave way
// gets back its pages and states (restore). Tokens that are already computed are looked for in the order of cost; a later place
// counts only if it has more of them: a free slot (reuse), the one with the most of the prompt; the prefix cache, from the device
// to the disk (PrefixCache::take); a slot that runs (fork), also within a page. Each counts cold tokens alone
// (model/prefix/cold.h), unless a conversation goes on in its own slot. If the prompt's own probabilities are wanted, all of it
// runs.
#include "model/engine/serving/batch.h"
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq::serving {
namespace {

constexpr auto max_look = std::chrono::milliseconds(20); // for pages, before others are looked after
constexpr uint32_t min_company = 32;                     // tokens of a common beginning that are worth waiting for

uint32_t common_ids(std::span<const uint32_t> a, std::span<const uint32_t> b) {
    return uint32_t(std::ranges::mismatch(a, b).in1 - a.begin());
}

} // namespace

uint32_t Batch::waiting() const {
    return uint32_t(std::ranges::count_if(waiting_, [](const auto& one) { return !one->request.background; }));
}

void Batch::drop_cancelled() {
    const auto cancelled = [](const auto& sequence) { return sequence->stream->cancelled(); };
    for (const auto& sequence : running_)
        if (cancelled(sequence)) {
            totals_.cancelled++;
            finish(*sequence, Finish::cancelled);
        }
    std::erase_if(running_, [](const auto& sequence) { return sequence->done; });
    std::erase_if(waiting_, [&](const auto& sequence) {
        if (!cancelled(sequence)) return false;
        totals_.cancelled++;
        saved_bytes_ -= sequence->saved_bytes();
        sequence->stream->finish(Finish::cancelled, sequence->timings);
        return true;
    });
}

// Work in the background gives way as soon as somebody comes.
bool Batch::may_run(const Sequence& sequence) const {
    if (!sequence.request.background) return true;
    return running_.empty() && waiting() == 0;
}

// Another sequence is about to put a beginning of this prompt into the cache.
bool Batch::waits_for_company(const Sequence& sequence) const {
    if (sequence.request.prompt_logprobs) return false;
    return std::ranges::any_of(running_, [&](const auto& other) {
        const uint32_t done = position(*other);
        return done < other->prompt_tokens() && other->request.tenant == sequence.request.tenant && !other->request.background &&
               std::min(common_ids(other->request.prompt, sequence.request.prompt), sequence.prompt_tokens() - 1) >=
                   done + min_company;
    });
}

// Returns true while pages of its prompt come from the shared store or another machine, or pages that it shares with another
// request for which they come. Others go on meanwhile; if nobody runs, there is time to wait a little.
bool Batch::waits_for_pages(Sequence& sequence) {
    if (!model_.prefix || !sequence.saved.empty() || sequence.request.prompt_logprobs) return false;
    if (!sequence.asked) {
        const auto comes_for = [&](const auto& other) {
            return other->fetch && other->request.tenant == sequence.request.tenant &&
                   common_ids(other->request.prompt, sequence.request.prompt) >= page_tokens;
        };
        if (std::ranges::any_of(waiting_, comes_for)) return true;
        sequence.asked = true;
        sequence.fetch = model_.prefix->fetch(sequence.request.prompt, 0, sequence.request.tenant, !sequence.request.from_machine,
                                              sequence.request.marks);
    }
    if (!sequence.fetch) return false;
    if (model_.prefix->is_coming(*sequence.fetch, running_.empty() ? max_look : std::chrono::milliseconds(0))) return true;
    sequence.fetch.reset();
    return false;
}

// The free slot that has the most of the prompt, or the first. All slots busy: their number. A server whose slots keep
// conversations (Reuse::all) leaves them to those while others are empty: only a slot most of whose tokens the prompt has counts.
uint32_t Batch::free_slot(const Sequence& sequence) const {
    const bool keeps = options_.reuse == Reuse::all && !options_.one_caller;
    uint32_t best = uint32_t(slots_.size());
    std::pair<uint32_t, bool> max; // common tokens; whether the slot is empty
    for (uint32_t slot = 0; slot < slots_.size(); slot++) {
        if (slots_[slot].sequence) continue;
        const std::vector<uint32_t>& ids = slots_[slot].content.ids;
        const bool own = slots_[slot].tenant == sequence.request.tenant;
        const uint32_t common = own ? common_ids(ids, sequence.request.prompt) : 0;
        const bool goes_on = !keeps || uint64_t(common) * 4 > uint64_t(ids.size()) * 3;
        const std::pair worth{goes_on ? common : 0, keeps && ids.empty()};
        if (best == slots_.size() || worth > max) best = slot, max = worth;
    }
    return best;
}

// Whether its tokens fit, and one more page for each running sequence. Pages that it shares with others are counted as its own.
bool Batch::has_room(const Sequence& sequence) const {
    const Cache& cache = model_.forward->cache();
    uint64_t available = cache.free_pages() + (model_.prefix ? model_.prefix->spare_pages() : 0);
    for (const Slot& slot : slots_)
        if (!slot.sequence) available += pages_of(slot.content.ids.size());
    return running_.empty() || pages_of(sequence.ids.size() + 1) + running_.size() <= available;
}

// Gives up idle slots whose pages the prompt needs: PrefixCache::take() loads no more than there are pages for.
void Batch::forget_for(const Sequence& sequence, uint32_t slot) {
    const Cache& cache = model_.forward->cache();
    const auto own = uint32_t(slots_[slot].content.ids.size() / page_tokens);
    const auto missing = [&] {
        return cache.free_pages() + model_.prefix->spare_pages() + own < pages_of(sequence.ids.size() + 1);
    };
    while (model_.prefix && missing() && forget_idle_slot(slot)) {
    }
}

void Batch::admit() {
    if (waiting() > 0)
        for (const auto& sequence : running_)
            if (sequence->request.background) finish(*sequence, Finish::cancelled);
    std::erase_if(running_, [](const auto& sequence) { return sequence->done; });
    for (auto at = waiting_.begin(); at != waiting_.end();) {
        const auto next = std::next(at);
        if (may_run(**at) && !waits_for_company(**at) && !waits_for_pages(**at)) {
            if (free_slot(**at) == slots_.size() || !has_room(**at)) return; // in turn: nobody overtakes for want of room
            if (admit(**at))
                running_.splice(running_.end(), waiting_, at);
            else if ((*at)->done)
                waiting_.erase(at);
        }
        at = next;
    }
}

// Returns false if there is no room yet, or never will be; in the latter case it is done.
bool Batch::admit(Sequence& sequence) {
    const uint32_t slot = free_slot(sequence);
    forget_for(sequence, slot);
    try {
        place(sequence, slot);
    } catch (const OutOfMemory& error) {
        model_.forward->cache().truncate(slot, 0);
        if (forget_idle_slot() || !running_.empty()) return false;
        saved_bytes_ -= sequence.saved_bytes();
        fail(sequence, error.what(), true, std::current_exception());
        return false;
    }
    slots_[slot] = {.sequence = &sequence};
    sequence.slot = slot;
    sequence.pauses = pauses(sequence);
    if (options_.reuse == Reuse::all) checkpoint(sequence); // to which a run that is stopped goes back
    sequence.admitted = ++admissions_;
    if (sequence.started == Sequence::Clock::time_point{}) {
        sequence.started = Sequence::Clock::now();
        sequence.timings.queue_ns = elapsed_ns(sequence.submitted, sequence.started);
        sequence.timings.cached_tokens = sequence.counted = std::min(position(sequence), sequence.prompt_tokens());
        totals_.cached_tokens += sequence.counted;
    }
    sequence.stream->progress(sequence.counted, sequence.timings);
    return true;
}

// Lengths at which its prompt's run pauses for checkpoints; a conversation that goes on has them at all its marks.
std::vector<uint32_t> Batch::pauses(const Sequence& sequence) const {
    if (!model_.forward->cache().shape().has_beside()) return {};
    const BlockKernels kernels = options_.reuse == Reuse::all ? BlockKernels{} : model_.forward->block_kernels();
    return checkpoint_positions(kernels, position(sequence), sequence.prompt_tokens(), sequence.request.marks);
}

void Batch::place(Sequence& sequence, uint32_t slot) {
    Request& request = sequence.request;
    if (restore(sequence, slot)) return;
    if (request.prompt_logprobs) { // tokens in the cache have no logits
        model_.forward->cache().truncate(slot, 0);
        slots_[slot] = {};
        sequence.cold = 0;
        return;
    }
    const uint32_t own = reuse(sequence, slot);
    uint32_t known = own;
    if (model_.prefix) {
        if (model_.forward->cache().shape().has_beside())
            for (const uint32_t mark : {// at the lengths where the prompt branches off, and where a conversation goes on
                                        model_.prefix->known_tokens(request.prompt, request.tenant), sequence.prompt_tokens()})
                request.marks.push_back(mark);
        const bool exact = options_.one_caller || options_.reuse == Reuse::cold;
        known = model_.prefix->take(slot, request.prompt, own, exact, request.tenant);
        if (known > own)
            sequence.cold = exact ? known : std::min(known, model_.prefix->known_tokens(request.prompt, request.tenant));
    }
    const uint32_t forked = fork(sequence, slot, known);
    if (forked > known) sequence.cold = forked;
    model_.forward->cache().truncate(slot, forked);
}

// Returns how many of the prompt's first tokens its slot has and keeps, and notes how many of them are cold.
uint32_t Batch::reuse(Sequence& sequence, uint32_t slot) {
    const Content idle = content(slot);
    const bool is_own = slots_[slot].tenant == sequence.request.tenant;
    slots_[slot] = {};
    uint32_t known = is_own ? std::min(common_ids(idle.ids, sequence.request.prompt), sequence.prompt_tokens() - 1) : 0;
    if (model_.forward->cache().shape().has_beside() && known > 0) sequence.request.marks.push_back(known);
    if (options_.reuse == Reuse::all)
        known = model_.forward->cache().kept(slot, known);
    else
        known = reusable_of_slot(*model_.forward, slot, std::min(known, idle.cold), sequence.prompt_tokens());
    sequence.cold = std::min(idle.cold, known);
    if (!model_.prefix) model_.forward->cache().truncate(slot, known);
    return known;
}

// Takes the beginning of the prompt from a slot that has more of it than `known` tokens: also tokens that are not in a full page
// yet.
uint32_t Batch::fork(Sequence& sequence, uint32_t slot, uint32_t known) {
    Cache& cache = model_.forward->cache();
    const Sequence* from = nullptr;
    for (const auto& other : running_) {
        if (other->request.tenant != sequence.request.tenant) continue;
        const uint32_t common = common_ids(other->ids, sequence.request.prompt), there = std::min(other->cold, position(*other));
        const uint32_t n = reusable_of_slot(*model_.forward, *other->slot, std::min(common, there), sequence.prompt_tokens());
        if (n > known) from = other.get(), known = n;
    }
    if (from) cache.fork(*from->slot, slot, known);
    return known;
}

// Puts back the pages and states that a sequence had when it gave way.
bool Batch::restore(Sequence& sequence, uint32_t slot) {
    if (sequence.saved.empty()) return false;
    model_.forward->cache().restore(
        slot, sequence.saved_tokens,
        [&](uint32_t at, std::span<std::byte> bytes) {
            const auto& page = sequence.saved[at / page_tokens];
            std::copy_n(page.begin(), std::min(page.size(), bytes.size()), bytes.begin());
        },
        sequence.saved_slot);
    slots_[slot] = {};
    sequence.cold = sequence.saved_cold;
    saved_bytes_ -= sequence.saved_bytes();
    sequence.saved.clear();
    sequence.saved_slot = {};
    return true;
}

void Batch::restore(uint32_t slot, Content content, const PageSource& source, const SavedSlot& saved) {
    slots_[slot] = {};
    try {
        model_.forward->cache().restore(slot, uint32_t(content.ids.size()), source, saved);
    } catch (const DeviceLost& lost) {
        model_ = reopen_(&lost);
        return restore(slot, std::move(content), source, saved);
    }
    slots_[slot].content = std::move(content);
}

uint32_t Batch::resume(uint32_t slot, std::span<const uint32_t> ids) {
    if (!model_.prefix) return 0;
    slots_[slot] = {};
    const auto fetch = model_.prefix->fetch(ids, 0, {}, false); // the next prompt asks another machine
    while (fetch && model_.prefix->is_coming(*fetch, max_look)) {
    }
    const uint32_t found = model_.prefix->take(slot, ids, 0, false);
    model_.forward->cache().truncate(slot, found);
    slots_[slot].content.ids.assign(ids.begin(), ids.begin() + found); // it is not known which of them are cold
    return found;
}

} // namespace tq::serving
