// The tokens after a prompt, one by one, however they are computed: plainly, sampled by the device ahead of what the caller has
// seen, or drafted and verified. The tokens, the sampler's state and the cache are the same as those of plain decoding.
//
// A draft is verified in one pass: its tokens after the last one, as separate rows (Forward::max_separate_rows), which give each
// the logits that it would get alone. The sampler takes one token after the other from these logits, when the caller asks for it;
// the first that is not the drafted one makes the rows after it worthless, and they are cut from the cache.
#pragma once
#include "model/forward.h"
#include "model/pace.h"
#include "model/sampling/sampler.h"
#include "model/speculation/speculation.h"

namespace tq {

class Decoder {
  public:
    // cached: the ids in the cache, slot 0, to which those that are run are appended. logits: [vocab_size], those that follow
    // them. With `speculation`, `forward` was made with ForwardOptions::speculative. All must outlive the decoder.
    Decoder(Forward& forward, std::vector<uint32_t>& cached, Sampler& sampler, std::span<const float> logits,
            Speculation* speculation = nullptr);
    ~Decoder(); // discards the tokens that were run ahead
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    // Returns the next token. `all`: the prompt and the answer so far, which starts at all[answer_begin].
    uint32_t sample(std::span<const uint32_t> all, size_t answer_begin);
    // Appends the last of `all`, any id, to the cache; at most `wanted` tokens will follow it. Throws what Forward::run() throws;
    // nothing is appended then.
    void run(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted);

    Sampler& sampler() const { return sampler_; }
    uint32_t drafted() const { return drafted_; }   // tokens that were verified
    uint32_t accepted() const { return accepted_; } // of those, the ones that stayed

  private:
    bool take(uint32_t id);
    void run_pass(std::span<const uint32_t> all, size_t answer_begin, uint32_t wanted);
    void run_one(uint32_t id);
    uint32_t max_sampled() const { return sampler_.fits_device() ? forward_.max_sampled() : 0; } // at once; 0: the host samples
    void run_ahead(std::span<const uint32_t> all, size_t answer_begin, uint32_t n);
    bool run_rows(std::span<const uint32_t> ids);
    void verify(uint32_t id, const std::vector<uint32_t>& draft);
    void report_pass();

    Forward& forward_;
    std::vector<uint32_t>& cached_;
    Sampler& sampler_;
    Speculation* const speculation_;

    // The last pass.
    std::span<const float> logits_; // those that follow cached_
    std::vector<uint32_t> ahead_;   // ids in the cache after cached_, of which the first `taken_` belong to it by now
    size_t taken_ = 0;
    std::vector<uint32_t> sampled_;        // by the device; the last of them is not in the cache
    std::vector<std::vector<float>> rows_; // logits that follow each row of a verified draft
    double ns_ = 0;                        // with the sampling of the tokens that follow
    enum class Pass { none, plain, drafted } pass_ = Pass::none;

    Pace pace_;
    uint32_t drafted_ = 0, accepted_ = 0;
};

} // namespace tq
