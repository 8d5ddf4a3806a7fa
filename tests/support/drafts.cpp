#include "tests/support/drafts.h"
#include "base/statistics.h"
#include "model/engine/speculation/mtp.h"
#include "tests/support/one_drafter.h"
#include <algorithm>

namespace tq::test {
namespace {

uint32_t most_probable(std::span<const float> logits) { return uint32_t(std::ranges::max_element(logits) - logits.begin()); }

Logits run_span(Forward& forward, const Span& span) {
    Logits out(span.ids.size());
    forward.run(std::span(&span, 1),
                [&](size_t, uint32_t i, std::span<const float> logits) { out[i].assign(logits.begin(), logits.end()); });
    return out;
}

// A draft of up to `max` tokens, whose first ones are those of `next` that are to follow.
std::vector<uint32_t> random_draft(std::mt19937& random, std::span<const uint32_t> next, uint32_t max, uint32_t& right) {
    std::vector<uint32_t> draft = random_ids(random, uint32_t(random() % (max + 1)));
    right = uint32_t(random() % (draft.size() + 1));
    for (uint32_t i = 0; i < draft.size(); i++) {
        if (i < right) draft[i] = next[i];
        if (i == right && draft[i] == next[i]) draft[i] ^= 1; // it is wrong
    }
    return draft;
}

} // namespace

void check_pending(Forward& drafted, Forward& plain, uint32_t seed, uint32_t rounds) {
    std::mt19937 random(seed);
    Cache &a = drafted.cache(), &b = plain.cache();
    const uint32_t slots = a.shape().slots, pending = a.shape().pending;
    for (uint32_t round = 0; round < rounds; round++) {
        CAPTURE(round);
        const uint32_t slot = uint32_t(random() % slots);
        if (a.position(slot) + 40 > drafted.context_size()) a.truncate(slot, 0), b.truncate(slot, 0);
        const uint32_t start = a.position(slot);
        REQUIRE(b.position(slot) == start);
        const std::vector<uint32_t> next = random_ids(random, pending + 2);
        uint32_t right = 0;
        const uint32_t certain = uint32_t(random() % 2);
        const std::vector<uint32_t> draft = random_draft(random, std::span(next).subspan(1), pending - (1 - certain), right);
        std::vector<uint32_t> ids{next[0]};
        ids.insert(ids.end(), draft.begin(), draft.end());
        const Logits got = run_span(drafted, {slot, ids, Span::Logits::all, certain});
        a.truncate(slot, start + 1 + right);
        CHECK(a.settled(slot) >= start);
        const Logits want = run_span(plain, {slot, std::span(next).first(1 + right), Span::Logits::all});
        for (uint32_t i = 0; i <= right; i++) {
            CAPTURE(i);
            CHECK(got[i] == want[i]);
        }
        const uint32_t act = uint32_t(random() % 10), other = (slot + 1) % slots;
        if (act == 0) CHECK(a.save_slot(slot).state == b.save_slot(slot).state);
        if (act == 1) a.fork(slot, other, a.position(slot)), b.fork(slot, other, b.position(slot));
        if (act == 2) a.checkpoint(slot), b.checkpoint(slot);
        if (act == 3) {
            const uint32_t n = b.kept(slot, b.position(slot) - 1);
            a.cut(slot, n), b.truncate(slot, n);
            if (a.position(slot) != n) a.truncate(slot, 0), b.truncate(slot, 0); // not all checkpoints are the same
        }
        if (act < 5) continue;
        if (act == 5) { // a block
            const auto block = random_ids(random, 20);
            CHECK(run_span(drafted, {slot, block, Span::Logits::all}) == run_span(plain, {slot, block, Span::Logits::all}));
        }
    }
    for (uint32_t slot = 0; slot < slots; slot++) CHECK(a.save_slot(slot).state == b.save_slot(slot).state);
}

double acceptance(Forward& forward, std::span<const uint32_t> prompt, uint32_t n, uint32_t count) {
    forward.truncate(0);
    std::vector<uint32_t> want{most_probable(forward.run(prompt))};
    while (want.size() < count) want.push_back(most_probable(forward.run({&want.back(), 1})));
    forward.truncate(0);
    std::vector<uint32_t> out{most_probable(forward.run(prompt))};
    uint32_t drafted = 0, accepted = 0;
    while (out.size() < count) {
        const uint32_t start = forward.position();
        const DraftStart from{0, out.back()};
        const std::vector<uint32_t> draft = forward.draft(std::span(&from, 1), n)[0];
        std::vector<uint32_t> ids{out.back()};
        ids.insert(ids.end(), draft.begin(), draft.end());
        const Logits logits = run_span(forward, {0, ids, Span::Logits::all, 1});
        uint32_t right = 0;
        while (right < draft.size() && most_probable(logits[right]) == draft[right]) right++;
        for (uint32_t i = 0; i <= right; i++) out.push_back(most_probable(logits[i]));
        forward.truncate(start + 1 + right);
        drafted += uint32_t(draft.size());
        accepted += right;
    }
    out.resize(count);
    CHECK(out == want);
    return double(accepted) / drafted;
}

void check_likely_drafts(Forward& forward) {
    std::mt19937 random(4);
    std::vector<uint32_t> text(60), others(60, likely_ids + 1);
    for (uint32_t& id : text) id = random() % 500;
    forward.truncate(0);
    forward.run(text);
    MtpDrafter drafter;
    uint32_t unlikely = 0;
    for (uint32_t id = 0; id < 40; id++) {
        const DraftStart start{0, id};
        std::vector<float> all, likely;
        const auto draft = [&](DraftIds ids, std::vector<float>& to) {
            return forward.draft(std::span(&start, 1), 1, ids, [&](size_t, uint32_t, std::span<const float> logits) {
                to.assign(logits.begin(), logits.end());
            })[0];
        };
        const auto of_all = draft(DraftIds::all, all), of_likely = draft(DraftIds::likely, likely);
        REQUIRE(all.size() > likely_ids);
        all.resize(likely_ids);
        CHECK(likely == all);
        CHECK(of_likely == std::vector{argmax(likely)});
        unlikely += of_all[0] >= likely_ids ? 1 : 0;
        text.push_back(id), others.push_back(id);
        CHECK(draft_one(drafter, forward, text, 1) == of_likely);
        CHECK(draft_one(drafter, forward, others, 1) == of_all);
        text.pop_back(), others.pop_back();
    }
    CHECK(unlikely > 0);
}

} // namespace tq::test
