#include "model/gpu/run_ahead.h"
#include "base/ensure.h"
#include "model/gpu/sampling.h"
#include <algorithm>
#include <cstring>

namespace tq::gpu {

RunAhead::RunAhead(Device& device, const Scratch& scratch, const Buffer& ids, uint32_t vocab_size)
    : device_(device), scratch_(scratch), ids_(ids), vocab_size_(vocab_size),
      upload_(device.allocate("sampling upload", sampling_bytes(vocab_size), Memory::upload)),
      readback_(device.allocate("sampled ids read back", sampled_bytes, Memory::readback)) {}

void RunAhead::sample_next(Pass& pass) const {
    sample_candidates(pass, scratch_.candidates, scratch_.logits, scratch_.sampling, vocab_size_);
    sample(pass, ids_, scratch_.sampling, scratch_.candidates, vocab_size_);
}

void RunAhead::record(const std::function<ForwardPass(Recorder&)>& new_pass, const Record& take_token, const Record& run_token) {
    if (commands_) return;
    Recorder begin(device_), step(device_, Again::at_any_time), end(device_);
    ForwardPass first = new_pass(begin), each = new_pass(step);
    take_token(first);
    begin.copy(scratch_.sampling, upload_);
    run_token(each);
    sample_next(each);
    end.copy(readback_, View(scratch_.sampling, sampled_offset, sampled_bytes));
    commands_.emplace(Recordings{begin.finish(), step.finish(), end.finish()});
}

void RunAhead::write(const DeviceSampling& sampling) {
    ENSURE(sampling.excluded.empty() || sampling.excluded.size() == (vocab_size_ + 31) / 32, "{} words of ids",
           sampling.excluded.size());
    std::byte* to = upload_.host().data();
    std::memset(to, 0, size_t(upload_.bytes()));
    std::memcpy(to, &sampling.settings, sizeof sampling.settings);
    std::memcpy(to + sizeof sampling.settings, sampling.random.data(), sampling.random.size() * 4);
    std::ranges::copy(std::as_bytes(sampling.excluded), to + sampled_offset + sampled_bytes);
}

std::vector<uint32_t> RunAhead::run(uint32_t n, const DeviceSampling& sampling, Step& step) {
    ENSURE(sampling.random.size() >= n && sampling.random.size() <= SAMPLING_STEPS, "{} words for {} tokens",
           sampling.random.size(), n);
    write(sampling);
    if (device_.profile) { // one at a time: each run is charged for its own position
        commands_->begin.run();
        for (uint32_t i = 0; i < n; i++, step.position++) commands_->step.run();
        commands_->end.run();
    } else {
        std::vector<Commands*> all(n + 2, &commands_->step);
        all.front() = &commands_->begin;
        all.back() = &commands_->end;
        Commands::run_all(all);
    }
    std::vector<uint32_t> ids(n);
    std::memcpy(ids.data(), readback_.host().data(), n * 4);
    ids.erase(std::ranges::find(ids, NO_TOKEN), ids.end());
    return ids;
}

} // namespace tq::gpu
