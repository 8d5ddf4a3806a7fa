// Drafts that are right or wrong at random, on a model whose states must be those of plain decoding.
#pragma once
#include "tests/support/hybrids.h"

namespace tq::test {

// `drafted` verifies drafts in several slots, as options.pending allows, takes back wrong ones, sometimes saves, forks or cuts a
// slot, and runs blocks in between; `plain` runs the tokens that stay, and no drafts. Logits and states are the same bits.
void check_pending(Forward& drafted, Forward& plain, uint32_t seed, uint32_t rounds);

// The share of n drafts of the model's own head that greedy decoding of `count` tokens confirms; its tokens are those without
// drafts.
double acceptance(Forward& forward, std::span<const uint32_t> prompt, uint32_t n, uint32_t count);

// Needs a model with a head and some more ids than likely_ids. Drafts among likely_ids are the most probable of these, with the
// same bits, and the drafter makes them for texts of these ids alone.
void check_likely_drafts(Forward& forward);

} // namespace tq::test
