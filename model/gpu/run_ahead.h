// Running ahead: the device samples each token and runs it at once, up to SAMPLING_STEPS of them, before the host sees one, so
// that no token waits for the host. This takes three recordings: one uploads the settings and the first id; one runs a token and
// samples the next, and is submitted once for each; one reads the ids back. If the host finds that the text ended earlier, it
// takes the rest back (Cache::truncate()); a window of the cache keeps that many additional tokens. Drafts of the model's own
// head run ahead in the same way: the second recording is then that of the head.
#pragma once
#include "model/engine/sampling/device_sampling.h"
#include "model/gpu/steps.h"
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace tq::gpu {

class RunAhead {
  public:
    // ids: the ids of the pass; the first one is run next. All arguments must outlive this.
    RunAhead(Device& device, const Scratch& scratch, const Buffer& ids, uint32_t vocab_size);

    // A step that runs ahead: a token that is sampled from few candidates or from any number, or a draft, from all ids or from
    // the likely ones.
    enum class Step { token_of_few, token_of_many, draft, likely_draft };

    // Records the sampling of the token that follows scratch.logits; it becomes ids[0].
    void sample_next(Pass& pass, Step step) const;

    // Makes the recordings for a step, unless they exist. take_token records the upload of a token from the host, run_token the
    // pass from ids[0] to its logits.
    using Record = std::function<void(ForwardPass&)>;
    void record(const std::function<ForwardPass(Recorder&)>& new_pass, const Record& take_token, const Record& run_token,
                Step step);
    void forget() { commands_.reset(); } // the buffers of the cache that they use have changed

    // Runs n steps, 1 <= n <= SAMPLING_STEPS, after record(), and returns the sampled tokens: fewer than n if the logits after
    // the last one are not finite. `now` is the first token's, and is charged for each if the device profiles.
    std::vector<uint32_t> run(Step step, uint32_t n, const DeviceSampling& sampling, gpu::Step& now);

  private:
    struct Recordings {
        Commands begin, begin_with_uses, end; // with_uses: uploads those of tokens, for penalties
        std::map<Step, Commands> steps;
    };
    void write(const DeviceSampling& sampling);

    Device& device_;
    const Scratch& scratch_;
    const Buffer& ids_;
    const uint32_t vocab_size_;
    Buffer upload_, readback_;
    std::optional<Recordings> commands_;
};

} // namespace tq::gpu
