// Drafts are copied from an earlier place of the sequence. Places are found by the last two tokens: last_ has the latest place
// of each pair, previous_ chains earlier ones, so adding and taking back a token (of a rejected draft) are both a few
// steps. At most 64 places are compared; the one with the most tokens in common before it wins.
// A copy that is under way is worth more than another place with as many common tokens. After a long copy, a token that
// differs often is an edit: a name was changed, or a line inserted. The copy is then resumed at the place where it would be,
// or the nearest one with the last token (resumed), before two tokens match again. These drafts are kinds of their own, with
// their own share of right tokens.
#include "model/engine/speculation/ngram.h"
#include <algorithm>

namespace tq {
namespace {

constexpr uint32_t no_place = UINT32_MAX;
constexpr uint32_t max_places = 64;     // with the same pair that are compared
constexpr uint32_t max_matched = 32;    // tokens that are compared at each
constexpr uint32_t resumed_within = 16; // tokens after a copy in which it can be resumed
constexpr uint32_t resumed_around = 8;  // tokens that it may have moved by
constexpr uint32_t long_copy = 8;       // tokens of a copy that is worth resuming

uint64_t pair(uint32_t first, uint32_t second) { return uint64_t(first) << 32 | second; }

// Kinds of drafts. 0 to 3 resume a long copy: kind n after n tokens that match, 3 also after more. The others are by the number
// of tokens that match.
constexpr uint32_t kind_of(uint32_t matched, bool resumes) {
    if (resumes && matched < 16) return std::min(matched, 3u);
    return matched < 3 ? 4 : matched < 4 ? 5 : matched < 8 ? 6 : matched < 16 ? 7 : 8;
}

} // namespace

std::vector<double> NgramDrafter::priors() const { return {0.3, 0.6, 0.8, 0.85, 0.25, 0.4, 0.7, 0.85, 0.9}; }

NgramLookup& NgramDrafter::of(uint32_t slot) {
    if (slot >= slots_.size()) slots_.resize(slot + 1);
    return slots_[slot];
}

bool NgramDrafter::read(uint32_t slot, std::span<const uint32_t> prompt, const Progress&) {
    of(slot).read(prompt);
    return true;
}

std::vector<Draft> NgramDrafter::draft(Forward&, std::span<const DraftRequest> requests) {
    std::vector<Draft> out;
    for (const auto& [slot, ids, max] : requests) out.push_back(of(slot).draft(ids, max));
    return out;
}

void NgramLookup::read(std::span<const uint32_t> prompt) {
    follow(prompt);
    source_.reset();
}

void NgramLookup::add(uint32_t id) {
    const auto at = uint32_t(ids_.size());
    ids_.push_back(id);
    uint32_t before = no_place;
    if (at > 0) {
        const auto [place, is_new] = last_.try_emplace(pair(ids_[at - 1], id), at);
        if (!is_new) before = std::exchange(place->second, at);
    }
    previous_.push_back(before);
}

void NgramLookup::remove_last() {
    const size_t at = ids_.size() - 1;
    if (at > 0) {
        const auto place = last_.find(pair(ids_[at - 1], ids_[at]));
        if (previous_[at] == no_place)
            last_.erase(place);
        else
            place->second = previous_[at];
    }
    ids_.pop_back();
    previous_.pop_back();
}

// Makes ids_ those of the sequence.
void NgramLookup::follow(std::span<const uint32_t> ids) {
    const auto same = size_t(std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end()).first - ids_.begin());
    if (same < ids_.size()) source_.reset();
    while (ids_.size() > same) remove_last();
    for (const uint32_t id : ids.subspan(same)) add(id);
}

// Returns how many tokens up to `at` are those up to the end.
uint32_t NgramLookup::matched(uint32_t at) const {
    const size_t end = ids_.size() - 1;
    uint32_t n = 0;
    while (n < max_matched && n <= at && ids_[at - n] == ids_[end - n]) n++;
    return n;
}

// Returns whether the copy that is under way goes on there, perhaps after tokens were inserted or left out.
bool NgramLookup::continues(uint32_t at, std::optional<uint32_t> expected) const {
    return expected && copied_ >= long_copy && at + resumed_around >= *expected && at <= *expected + resumed_around;
}

std::optional<NgramLookup::Place> NgramLookup::longest(std::optional<uint32_t> expected) const {
    std::optional<Place> best;
    uint32_t best_worth = 0, at = previous_.back();
    for (uint32_t i = 0; i < max_places && at != no_place; i++, at = previous_[at]) {
        const uint32_t n = matched(at), worth = 2 * (n + (continues(at, expected) ? long_copy : 0)) + (at == expected ? 1 : 0);
        if (worth <= best_worth) continue;
        best = {at, n};
        best_worth = worth;
    }
    return best;
}

// Returns the place nearest to `expected` with the last token, or `expected` itself if the text has another token.
std::optional<NgramLookup::Place> NgramLookup::resumed(uint32_t expected) const {
    const auto end = uint32_t(ids_.size() - 1);
    for (uint32_t by = 0; by <= resumed_around; by++)
        for (const uint32_t at : {expected + by, expected - std::min(by, expected)})
            if (at < end && ids_[at] == ids_[end]) return Place{at, 1};
    return expected < end ? std::optional(Place{expected, 0}) : std::nullopt;
}

Draft NgramLookup::draft(std::span<const uint32_t> ids, uint32_t max) {
    follow(ids);
    const auto size = uint32_t(ids_.size());
    const auto expected = source_ ? std::optional(source_->at + (size - end_)) : std::nullopt;
    std::optional<Place> place = longest(expected);
    const bool is_short = !place || (place->matched < 4 && !continues(place->at, expected));
    if (is_short && expected && copied_ >= long_copy && size - end_ <= resumed_within) place = resumed(*expected);
    if (!place) return {};
    const bool resumes = continues(place->at, expected);
    if (place->matched >= 2) { // others are guesses, from which no further one is made
        copied_ = resumes ? std::max(copied_, place->matched) : place->matched;
        source_ = place;
        end_ = size;
    }
    Draft out{{}, kind_of(place->matched, resumes)};
    const uint32_t first = place->at + 1;
    for (uint32_t i = 0; i < max; i++) // a repetition goes on into what is proposed
        out.ids.push_back(first + i < size ? ids_[first + i] : out.ids[first + i - size]);
    return out;
}

} // namespace tq
