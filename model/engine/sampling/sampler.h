// Samples a token id from logits. The order is the one that Qwen's recommended numbers assume (Hugging Face, vLLM): penalties,
// temperature, top-k, top-p, min-p; llama.cpp applies the temperature last: equal numbers give another distribution.
#pragma once
#include "base/splitmix64.h"
#include "model/engine/sampling/constraint.h"
#include "model/engine/sampling/device_sampling.h"
#include <cstdint>
#include <span>
#include <vector>

namespace tq {

class Tokenizer;

struct SamplerOptions {
    float temperature = 0.7f;    // 0 = greedy
    uint32_t top_k = 20;         // keep the k most probable; 0 = all, 1 = greedy
    float top_p = 0.8f;          // keep the fewest whose probabilities sum to top_p; 1 = all
    float min_p = 0;             // keep those at least min_p times as probable as the best; 0 = all
    float presence_penalty = 0;  // subtracted once from the logit of each token of the answer so far
    float frequency_penalty = 0; // subtracted per occurrence in the answer so far
    float repeat_penalty = 1;    // positive logits of recent tokens are divided by it, negative ones multiplied
    uint32_t repeat_last_n = 64; // how many tokens before the next, prompt included, count as recent; UINT32_MAX = all
    uint64_t seed = 0;
};

// Returns temperature, top-p and top-k of Qwen's model cards for a model that thinks before it answers, or one that does not.
SamplerOptions qwen_sampling(bool thinking);

// True for ids that must never be sampled: rows of the embedding beyond the vocabulary, and its unused entries.
std::vector<bool> unsampled_ids(const Tokenizer& tokenizer, uint32_t vocab_size);

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() { return splitmix64(state_); }
    uint32_t word() { return uint32_t(next() >> 32); }

  private:
    uint64_t state_;
};

class Sampler {
  public:
    // `excluded`: [vocab_size] or empty. Throws Error when an option is outside its range.
    explicit Sampler(const SamplerOptions& options, const std::vector<bool>& excluded = {});

    // From now on only tokens that `constraint` allows are sampled, and it accepts each; null: none. It outlives the sampler. The
    // copy of a sampler has the same constraint.
    void constrain(TokenConstraint* constraint) { constraint_ = constraint; }

    // Returns the next id from logits [vocab_size]. `ids`: everything before it; the answer so far starts at ids[answer_begin].
    // Greedy sampling breaks ties towards the lower id. Throws Error when a logit is not finite, or no id may be sampled.
    uint32_t sample(std::span<const float> logits, std::span<const uint32_t> ids = {}, size_t answer_begin = 0);

    // Returns true if a device can sample the same as sample() from the same logits: at least one id is not excluded, and only
    // the logits decide.
    bool fits_device() const;
    // Returns the inputs for the n tokens after `ids`, valid as long as the sampler; sampled(n) reports that n were taken.
    DeviceSampling device_sampling(uint32_t n, std::span<const uint32_t> ids = {}, size_t answer_begin = 0) const;
    void sampled(uint32_t n);

    const SamplerOptions& options() const { return options_; }

  private:
    struct Candidate {
        float logit;
        uint32_t id;
    };

    static bool precedes(const Candidate& a, const Candidate& b);

    bool penalises() const {
        return options_.presence_penalty != 0 || options_.frequency_penalty != 0 || options_.repeat_penalty != 1;
    }
    std::vector<UsedToken> uses(std::span<const uint32_t> ids, size_t answer_begin) const;
    sampling_settings settings(size_t next) const;
    bool greedy() const { return options_.temperature == 0 || options_.top_k == 1; }
    void load(std::span<const float> logits);
    void penalise(std::span<const uint32_t> ids, size_t answer_begin);
    uint32_t choose();
    void collect(size_t max);
    void order(size_t n);
    uint32_t sample_few();
    uint32_t sample_many();
    void keep_nucleus(uint64_t min_mass, float inverse_temperature);

    SamplerOptions options_;
    std::vector<uint32_t> excluded_, excluded_bits_; // ids; bit id % 32 of word id / 32
    size_t excluded_size_;
    Random random_;
    TokenConstraint* constraint_ = nullptr;
    std::vector<float> logits_; // [vocab_size], penalised
    std::vector<Candidate> candidates_;
    size_t ordered_ = 0; // number of candidates at the front that are the greatest, in descending order
    float max_logit_ = 0;
};

} // namespace tq
