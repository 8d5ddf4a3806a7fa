// Several sequences at once, each with the logits, bit for bit, that it has alone: checks for every implementation of Forward.
#pragma once
#include "tests/support/small_model.h"
#include "tests/support/stored_pages.h"
#include <map>

namespace tq {

using MakeForward = std::function<std::unique_ptr<Forward>(const ForwardOptions&)>;
using Ids = std::vector<uint32_t>;
using Logits = std::map<std::pair<size_t, uint32_t>, std::vector<float>>; // or states, of a span and an id in it

constexpr uint32_t spans_context = 601;

KvOptions with_window(KvType k, KvType v, uint32_t tokens);

std::vector<KvOptions> all_types();

// Comparisons have the same slots on both sides: the size of a cache decides whether a CPU driver reads it by texel buffers.
ForwardOptions options_of(const KvOptions& kv, uint32_t slots);

Logits run(Forward& forward, std::span<const Span> spans);

std::vector<float> run_one(Forward& forward, uint32_t slot, const Ids& ids, Span::Logits wanted = Span::Logits::last);

// Layers with attention have keys and values, recurrent ones states.
bool same_stored(Cache& a, uint32_t slot_a, Cache& b, uint32_t slot_b);

// Whether two slots of the same tokens have the same states, and windows, as far back as both are kept.
bool same_beside(const Cache& a, uint32_t slot_a, const Cache& b, uint32_t slot_b);

// Gives the slots pages that follow no order.
void mix_pages(Cache& cache, std::mt19937& random);

// In company as alone: the logits or the state of each sequence, with pages in any order.
void check_company(const MakeForward& make, const std::vector<KvOptions>& types);

// The logits of a span's last id are computed from its state: the last norm's result. Checks spans of all lengths, together with
// spans that want logits or nothing.
void check_hidden(const MakeForward& make, uint32_t slots);

// A fork, cut anywhere, or with a window if that is kept, goes on as a serial run.
void check_fork(const MakeForward& make, const std::vector<KvOptions>& types);

// Deterministic: however the ids are divided among runs, and runs into blocks.
void check_deterministic(const MakeForward& make, const std::vector<KvOptions>& types);

// Restores what was stored into another slot, with its window: the sequence goes on as it would have in its own slot.
void check_restored(const MakeForward& make);

// Too few pages are noticed before anything is run, and progress stops between passes.
void check_pages(const MakeForward& make);

// A value that is not finite is found in its slot, and all slots are where the run began.
void check_nonfinite(const MakeForward& make);

} // namespace tq
