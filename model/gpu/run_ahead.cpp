// Part of GpuStage: running ahead. The device samples each token and runs it at once, up to SAMPLING_STEPS of them, before the
// host sees one, so that no token waits for the host. This takes three recordings: one uploads the settings and the first id; one
// runs a token and samples the next, and is submitted once for each; one reads the ids back. If the host finds that the text
// ended earlier, it takes the rest back (Cache::truncate()); a window of the cache keeps that many additional tokens. Drafts of
// the model's own head run ahead in the same way: the second recording is then that of the head.
//
// Why no answer of the host is needed between two tokens. All that a token's pass reads, and that differs from the pass before
// it, is in device memory and is changed there: the sampling kernel writes the id to ids[0], and steps the row's position and
// the number of sampled tokens (shaders/sampled_token.glsl). The host's data is uploaded once for all tokens:
// page tables with room for them, and by write_sampling() settings, one random word for each, excluded ids. So one recording,
// submitted n times, is n different passes (Again::at_any_time in runtime/recorder.cpp). The uses of ids, for penalties, are as
// long as the vocabulary: a second recording of the upload has them, and is run only if there are penalties. If a logit is not
// finite, the sampled id is NO_TOKEN. The submitted passes cannot be taken back: they run on with id 0, run_ahead() leaves their
// tokens out, and the caller cuts them from the cache. If the device profiles, each recording is submitted by itself, so that its
// time counts for its own position.
#include "base/ensure.h"
#include "model/gpu/gpu_stage.h"
#include "model/gpu/sampling.h"
#include <algorithm>
#include <cstring>

namespace tq::gpu {

bool GpuStage::samples() const { return tuning_.sampling && !options_.tap && config_.vocab_size <= max_sampling_logits; }

// Records the sampling of the token that follows scratch_.logits; it becomes ids_[0].
void GpuStage::sample_next(Pass& pass, Ahead step) const {
    const uint32_t all = config_.vocab_size;
    if (step == Ahead::token_of_many) return sample_all(pass, ids_, scratch_.sampling, scratch_.logits, all);
    const uint32_t ids = step == Ahead::likely_draft ? std::min(all, likely_ids) : all;
    sample_candidates(pass, scratch_.candidates, scratch_.logits, scratch_.sampling, ids);
    sample(pass, ids_, scratch_.sampling, scratch_.candidates, ids);
}

// Makes the recordings for a step, unless they exist. Those of the beginning and of the end serve every kind of step, since
// begin_step() copies the same for tokens and for drafts.
void GpuStage::record_ahead(Ahead step) {
    const Shape shape = step == Ahead::draft          ? Shape{1, true, {}, Head::draft}
                        : step == Ahead::likely_draft ? Shape{1, true, {}, Head::draft_likely}
                                                      : Shape{1, true, all_halves(), Head::logits};
    Taps none;
    step_ = {options_.context_size - 1, 1};
    if (!ahead_) {
        Recorder begin(device_), begin_with_uses(device_), end(device_);
        for (Recorder* recorder : {&begin, &begin_with_uses}) {
            ForwardPass first = new_pass(*recorder, none, shape);
            begin_step(first, shape.halves, shape.head);
        }
        const uint64_t without_uses = uses_offset(config_.vocab_size);
        begin.copy(View(scratch_.sampling, 0, without_uses), View(sampling_upload_, 0, without_uses));
        begin_with_uses.copy(scratch_.sampling, sampling_upload_);
        end.copy(sampled_readback_, View(scratch_.sampling, sampled_offset, sampled_bytes));
        ahead_.emplace(AheadCommands{begin.finish(), begin_with_uses.finish(), end.finish(), {}});
    }
    if (ahead_->steps.contains(step)) return;
    Recorder recorder(device_, Again::at_any_time);
    ForwardPass each = new_pass(recorder, none, shape);
    record_steps(each, shape);
    sample_next(each, step);
    ahead_->steps.emplace(step, recorder.finish());
}

void GpuStage::write_sampling(const DeviceSampling& sampling) {
    const uint32_t all = config_.vocab_size;
    ENSURE(sampling.excluded.empty() || sampling.excluded.size() == (all + 31) / 32, "{} words of ids", sampling.excluded.size());
    std::byte *to = sampling_upload_.host().data(), *uses = to + uses_offset(all);
    std::memset(to, 0, size_t(sampling.settings.penalises ? sampling_upload_.bytes() : uses_offset(all)));
    std::memcpy(to, &sampling.settings, sizeof sampling.settings);
    std::memcpy(to + sizeof sampling.settings, sampling.random.data(), sampling.random.size() * 4);
    std::ranges::copy(std::as_bytes(sampling.excluded), to + sampled_offset + sampled_bytes);
    for (const auto& [id, use] : sampling.used)
        if (id < all) std::memcpy(uses + id * sizeof use, &use, sizeof use);
}

std::vector<uint32_t> GpuStage::run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling,
                                          std::optional<DraftIds> head) {
    ENSURE(sampling.random.size() >= n && sampling.random.size() <= SAMPLING_STEPS, "{} words for {} tokens",
           sampling.random.size(), n);
    const Ahead step = head                                    ? *head == DraftIds::likely ? Ahead::likely_draft : Ahead::draft
                       : has_few_candidates(sampling.settings) ? Ahead::token_of_few
                                                               : Ahead::token_of_many;
    record_ahead(step);
    write(row);
    write_sampling(sampling);
    Commands& each = ahead_->steps.at(step);
    Commands& begin = sampling.settings.penalises ? ahead_->begin_with_uses : ahead_->begin;
    if (device_.profile) { // one at a time: each run is charged for its own position
        begin.run();
        for (uint32_t i = 0; i < n; i++, step_.position++) each.run();
        ahead_->end.run();
    } else {
        std::vector<Commands*> all(n + 2, &each);
        all.front() = &begin;
        all.back() = &ahead_->end;
        Commands::run_all(all);
    }
    std::vector<uint32_t> ids(n);
    std::memcpy(ids.data(), sampled_readback_.host().data(), n * 4);
    ids.erase(std::ranges::find(ids, NO_TOKEN), ids.end());
    return ids;
}

} // namespace tq::gpu
