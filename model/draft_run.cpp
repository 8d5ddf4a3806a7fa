// Runs the model's head for multi-token prediction, draft after draft. The head reads a token and the model's hidden state before
// it, and gives the next token's logits; its most probable id is the draft, and the input of the next step. All slots that draft
// take a step together, as separate rows of a pass, so a step reads the head's weights once. The rows of a draft are at the
// positions after the slot's last token, but the slot is not advanced: an id counts only when the caller has verified it in a
// pass of the whole model. Pages for them are reserved first; a slot whose pages or context end earlier drafts fewer, and does
// not fail. A value that is not finite ends the draft of its slot alone. If only one slot drafts, and nobody wants its logits, it
// runs ahead on the device if that can (Stage::run_ahead): all steps in one submission, at most SAMPLING_STEPS.
#include "model/draft_run.h"
#include "base/ensure.h"
#include "base/statistics.h"
#include "shaders/sampling.h"
#include <algorithm>
#include <optional>

namespace tq {
namespace {

// Returns how many drafts of a slot have room, at most n; the slot then has their pages.
uint32_t room_for(Cache& cache, uint32_t slot, uint32_t n) {
    const uint32_t max = std::min({n, cache.shape().context_size - cache.position(slot), cache.room(slot)});
    try {
        cache.reserve(slot, max);
        return max;
    } catch (const OutOfMemory&) { // other slots took the pages
        return 0;
    }
}

// Returns the most probable id, of equal ones the lowest; nothing if a value is not finite.
std::optional<uint32_t> most_probable(std::span<const float> logits) {
    return all_finite(logits) ? std::optional(argmax(logits)) : std::nullopt;
}

} // namespace

std::vector<std::vector<uint32_t>> run_drafts(Cache& cache, std::span<const DraftStart> starts, uint32_t n, DraftIds ids,
                                              uint32_t max_rows, const RunDraft& run, const DraftLogits& each,
                                              const RunDraftsAhead& ahead) {
    ENSURE(n <= cache.shape().pending + 1, "{} drafts where {} tokens can be pending", n, cache.shape().pending);
    std::vector<std::vector<uint32_t>> out(starts.size());
    std::vector<uint32_t> room;
    for (const DraftStart& start : starts) {
        ENSURE(cache.position(start.slot) > 0, "slot {} is empty", start.slot);
        room.push_back(room_for(cache, start.slot, n));
    }
    if (ahead && !each && starts.size() == 1 && room[0] > 0) {
        const DraftStart& start = starts[0];
        PassRows row;
        row.add(start.slot, cache.position(start.slot), {&start.id, 1}, cache.window(start.slot).begin, true);
        out[0] = ahead(row, std::min<uint32_t>(room[0], SAMPLING_STEPS), ids);
        return out;
    }
    for (uint32_t step = 0; step < n; step++) {
        std::vector<size_t> left; // starts that go on
        for (size_t i = 0; i < starts.size(); i++)
            if (step < room[i]) left.push_back(i);
        for (size_t first = 0; first < left.size(); first += max_rows) {
            const auto some = std::span(left).subspan(first, std::min<size_t>(max_rows, left.size() - first));
            PassRows rows;
            for (const size_t i : some) {
                const uint32_t slot = starts[i].slot, &id = step == 0 ? starts[i].id : out[i].back();
                rows.add(slot, cache.position(slot) + step, {&id, 1}, cache.window(slot).begin, true);
            }
            const std::span<const float> logits = run(rows, ids);
            const size_t cols = logits.size() / some.size();
            for (size_t row = 0; row < some.size(); row++) {
                const size_t i = some[row];
                const auto row_logits =
                    logits.subspan(row * cols, ids == DraftIds::likely ? std::min<size_t>(cols, likely_ids) : cols);
                const auto id = most_probable(row_logits);
                if (id && each) each(i, step, row_logits);
                id ? out[i].push_back(*id) : void(room[i] = step);
            }
        }
    }
    return out;
}

} // namespace tq
