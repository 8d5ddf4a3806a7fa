// Why no answer of the host is needed between two tokens. All that a token's pass reads, and that differs from the pass before
// it, is in device memory and is changed there: the sampling kernel writes the id to ids[0], and steps the row's position and
// the number of sampled tokens (shaders/sampled_token.glsl). The host's data is uploaded once for all tokens:
// page tables with room for them, and by write() settings, one random word for each, excluded ids. So one recording, submitted n
// times, is n different passes (Again::at_any_time in runtime/recorder.cpp).
// The uses of ids, for penalties, are as long as the vocabulary: a second recording of the upload has them, and is run only if
// there are penalties.
// If a logit is not finite, the sampled id is NO_TOKEN. The submitted passes cannot be taken back: they run on with id 0,
// run() leaves their tokens out, and the caller cuts them from the cache. If the device profiles, each recording is submitted
// by itself, so that its time counts for its own position.
#include "model/gpu/run_ahead.h"
#include "base/ensure.h"
#include "model/forward.h"
#include "model/gpu/sampling.h"
#include <algorithm>
#include <cstring>

namespace tq::gpu {

RunAhead::RunAhead(Device& device, const Scratch& scratch, const Buffer& ids, uint32_t vocab_size)
    : device_(device), scratch_(scratch), ids_(ids), vocab_size_(vocab_size),
      upload_(device.allocate("sampling upload", sampling_bytes(vocab_size), Memory::upload)),
      readback_(device.allocate("sampled ids read back", sampled_bytes, Memory::readback)) {}

void RunAhead::sample_next(Pass& pass, Step step) const {
    if (step == Step::token_of_many) return sample_all(pass, ids_, scratch_.sampling, scratch_.logits, vocab_size_);
    const uint32_t ids = step == Step::likely_draft ? std::min(vocab_size_, likely_ids) : vocab_size_;
    sample_candidates(pass, scratch_.candidates, scratch_.logits, scratch_.sampling, ids);
    sample(pass, ids_, scratch_.sampling, scratch_.candidates, ids);
}

void RunAhead::record(const std::function<ForwardPass(Recorder&)>& new_pass, const Record& take_token, const Record& run_token,
                      Step step) {
    if (!commands_) {
        Recorder begin(device_), begin_with_uses(device_), end(device_);
        ForwardPass first = new_pass(begin), first_with_uses = new_pass(begin_with_uses);
        take_token(first);
        take_token(first_with_uses);
        const uint64_t without_uses = uses_offset(vocab_size_);
        begin.copy(View(scratch_.sampling, 0, without_uses), View(upload_, 0, without_uses));
        begin_with_uses.copy(scratch_.sampling, upload_);
        end.copy(readback_, View(scratch_.sampling, sampled_offset, sampled_bytes));
        commands_.emplace(Recordings{begin.finish(), begin_with_uses.finish(), end.finish(), {}});
    }
    if (commands_->steps.contains(step)) return;
    Recorder recorder(device_, Again::at_any_time);
    ForwardPass each = new_pass(recorder);
    run_token(each);
    sample_next(each, step);
    commands_->steps.emplace(step, recorder.finish());
}

void RunAhead::write(const DeviceSampling& sampling) {
    ENSURE(sampling.excluded.empty() || sampling.excluded.size() == (vocab_size_ + 31) / 32, "{} words of ids",
           sampling.excluded.size());
    std::byte *to = upload_.host().data(), *uses = to + uses_offset(vocab_size_);
    std::memset(to, 0, size_t(sampling.settings.penalises ? upload_.bytes() : uses_offset(vocab_size_)));
    std::memcpy(to, &sampling.settings, sizeof sampling.settings);
    std::memcpy(to + sizeof sampling.settings, sampling.random.data(), sampling.random.size() * 4);
    std::ranges::copy(std::as_bytes(sampling.excluded), to + sampled_offset + sampled_bytes);
    for (const auto& [id, use] : sampling.used)
        if (id < vocab_size_) std::memcpy(uses + id * sizeof use, &use, sizeof use);
}

std::vector<uint32_t> RunAhead::run(Step step, uint32_t n, const DeviceSampling& sampling, gpu::Step& now) {
    ENSURE(sampling.random.size() >= n && sampling.random.size() <= SAMPLING_STEPS, "{} words for {} tokens",
           sampling.random.size(), n);
    write(sampling);
    Commands& step_commands = commands_->steps.at(step);
    Commands& begin = sampling.settings.penalises ? commands_->begin_with_uses : commands_->begin;
    if (device_.profile) { // one at a time: each run is charged for its own position
        begin.run();
        for (uint32_t i = 0; i < n; i++, now.position++) step_commands.run();
        commands_->end.run();
    } else {
        std::vector<Commands*> all(n + 2, &step_commands);
        all.front() = &begin;
        all.back() = &commands_->end;
        Commands::run_all(all);
    }
    std::vector<uint32_t> ids(n);
    std::memcpy(ids.data(), readback_.host().data(), n * 4);
    ids.erase(std::ranges::find(ids, NO_TOKEN), ids.end());
    return ids;
}

} // namespace tq::gpu
