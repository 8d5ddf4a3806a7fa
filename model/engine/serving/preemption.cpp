// Part of Batch: what happens when the pages are used up, and when the device is lost. The answers go on as if nothing had
// happened. If pages run out in a pass, an idle slot's tokens go first; then the sequence that was admitted last gives way: it
// returns to the front of those that wait. If its answer has begun, its pages, window and states are kept in host memory, if
// there is room, so that it goes on with the same bits. Otherwise its prompt is found in the prefix cache or run again, and the
// tokens of its answer run again one by one, as they were sampled: these are the same bits, too. If the device is lost, all
// running sequences return to the waiting ones in the same way, without their slots, and the model is opened again. A server ends
// all requests if it is lost again before a pass has succeeded.
#include "model/engine/serving/batch.h"
#include "model/engine/speculation/speculation.h"
#include <algorithm>

namespace tq::serving {

// Gives up an idle slot's tokens, which are worth the least, but not those of the slot `kept`. Returns false if there is no idle
// slot with tokens.
bool Batch::forget_idle_slot(std::optional<uint32_t> kept) {
    for (uint32_t slot = 0; slot < slots_.size(); slot++)
        if (slot != kept && !slots_[slot].sequence && model_.forward->cache().position(slot) > 0) {
            model_.forward->cache().truncate(slot, 0);
            slots_[slot] = {};
            return true;
        }
    return false;
}

// Makes a running sequence give way, the one that was admitted last. Returns false if there is no other.
bool Batch::make_room() {
    if (forget_idle_slot()) return true;
    if (running_.size() < 2) return false;
    const auto last = std::ranges::max_element(running_, {}, [](const auto& sequence) { return sequence->admitted; });
    preempt(**last);
    waiting_.splice(waiting_.begin(), running_, last);
    totals_.preempted++;
    return true;
}

void Batch::preempt(Sequence& sequence) {
    save(sequence);
    leave(sequence, true);
}

// Only answers are kept: a prompt's beginning is found in the prefix cache, or run again.
void Batch::save(Sequence& sequence) {
    const Cache& cache = model_.forward->cache();
    const uint32_t tokens = position(sequence);
    if (sequence.answer_tokens() == 0 || tokens <= sequence.prompt_tokens()) return;
    const PageLayout layout = cache.page_layout();
    uint64_t bytes = 0;
    for (uint32_t at = 0; at < tokens; at += page_tokens) bytes += layout.bytes(std::min(page_tokens, tokens - at));
    SavedSlot beside = cache.save_slot(*sequence.slot);
    bytes += beside.bytes();
    if (saved_bytes_ + bytes > options_.memory_bytes) return;
    for (uint32_t at = 0; at < tokens; at += page_tokens) {
        const uint32_t count = std::min(page_tokens, tokens - at);
        std::vector<std::byte>& page = sequence.saved.emplace_back(layout.bytes(count));
        cache.read_page(cache.table(*sequence.slot)[at / page_tokens], count, page);
    }
    sequence.saved_slot = std::move(beside);
    sequence.saved_tokens = tokens;
    sequence.saved_cold = sequence.cold;
    saved_bytes_ += bytes;
}

// Opens the device again, and lets all running sequences wait for it: pages in memory or on the disk come back, other tokens are
// run again. If the device was lost too often, it is given up until the next request.
void Batch::recover(const Error& error) {
    const std::exception_ptr exception = std::current_exception();
    const std::string why = error.what();
    totals_.device_losses++;
    warn(why);
    std::erase_if(running_, [](const auto& sequence) { return sequence->done; });
    for (const auto& sequence : running_) sequence->slot.reset();
    for (Slot& slot : slots_) slot = {};
    waiting_.splice(waiting_.begin(), running_);
    for (const auto& sequence : waiting_)
        if (sequence->request.speculation) sequence->request.speculation->device_lost(); // before the device goes
    model_ = {};
    if (losses_++ > 0 && !options_.one_caller) fail_all(why, exception);
    pace_ = {};
    try {
        model_ = reopen_(&error);
        warn("the device was opened again; answers go on");
    } catch (const Error& again) {
        fail_all(fmt::format("{}; opening the device again failed: {}", why, again.what()), std::current_exception());
        warn(again.what());
    }
}

void Batch::fail_all(const std::string& why, std::exception_ptr exception) {
    for (const auto& sequence : running_)
        if (sequence->slot) leave(*sequence, false);
    waiting_.splice(waiting_.begin(), running_);
    for (const auto& sequence : waiting_) {
        totals_.failed++;
        sequence->stream->fail(why, true, sequence->timings, exception);
    }
    waiting_.clear();
    saved_bytes_ = 0;
}

} // namespace tq::serving
