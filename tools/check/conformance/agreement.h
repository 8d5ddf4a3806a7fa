// Compares two implementations of a model on the same tokens: the codes in their caches, the residual stream layer by layer,
// logits, and the greedy tokens that follow. Also tells how much of the difference rounding explains.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"
#include <memory>
#include <optional>

namespace tq::conformance {

// Makes a Forward that has this tap.
using MakeForward = std::function<std::unique_ptr<Forward>(const Tap& tap)>;

// The same model, with the weights of each norm off by `relative`, up or down.
struct NoisyWeights {
    Weights weights; // point into `norms`, and where the others did
    std::vector<std::vector<float>> norms;
};
NoisyWeights with_noise(const Weights& weights, float relative, uint64_t seed = 1);
// The perturbation for with_noise() that stands for rounding: fp32 sums in another order, or products of fp16 (`fp16_products`).
float noise_like_rounding(bool fp16_products);

// Counts of equal codes, or of equal values if a type has no codes, and of equal scales.
struct Equal {
    uint64_t of = 0, equal = 0;
    double different() const { return of == 0 ? 0 : double(of - equal) / double(of); } // the share that differs
};

// Returns the greater of two errors, or NaN if either is NaN: nothing is worse.
double worse(double a, double b);

// Agreement of a layer over the tokens of the prompt, or over the tokens after it.
struct LayerAgreement {
    Equal k_codes, k_scales, v_codes, v_scales; // the same on both
    Equal encoded;         // values: vectors that are stored with the bytes that the CPU gives for the same codec input
    double cosine = 1;     // of the residual stream after the layer: the least of all tokens
    double error = 0;      // ||h - the reference's|| / ||the reference's||: the greatest of all runs
    double typical = 0;    // the same of single tokens: the median, which a rare code of a neighbour does not move
    double code_limit = 0; // upper limits of the shares of different codes, of `error` and of `typical`
    double error_limit = 0;
    double typical_limit = 0;

    Equal& codes(KvSide side) { return side == KvSide::key ? k_codes : v_codes; }
    const Equal& codes(KvSide side) const { return side == KvSide::key ? k_codes : v_codes; }
    Equal& scales(KvSide side) { return side == KvSide::key ? k_scales : v_scales; }
};

// The first difference in the order of computation: layers of the prompt, then of each token after it.
struct FirstDifference {
    uint32_t layer;
    KvSide side;
    uint32_t head, position;
};

struct GreedyDifference {
    uint32_t after; // tokens of the continuation before it
    uint32_t id, reference_id;
    double margin, logit_error; // by how much the reference prefers its own; the greatest error of any logit there
    double limit = 0;           // the greatest margin that rounding may reverse
};

struct Agreement {
    uint32_t prompt_tokens = 0;
    std::vector<LayerAgreement> prompt, decoded; // [layers]
    std::optional<FirstDifference> first;        // of the codes
    double logit_error = 0, logit_limit = 0;     // ||logits - the reference's|| / ||the reference's||, the worst run
    double logit_difference = 0;                 // the greatest of any logit
    std::vector<uint32_t> greedy;                // the reference's continuation, which both were given
    uint32_t same = 0;                           // tokens of `greedy` that the other would have sampled too
    std::optional<GreedyDifference> different;   // the clearest of the tokens where the other would have sampled another one
    std::string verdict;                         // the first value, in that order, that exceeds its limit; empty: none

    bool passed() const { return verdict.empty(); }
    const LayerAgreement* worst_layer() const; // the one whose `error` is the worst; null if there are none
};

struct AgreementOptions {
    uint32_t decode = 32;       // tokens after the prompt
    bool fp16_products = false; // products of fp16 in one of them
    Progress keep_going;
    std::vector<std::vector<float>> value_scales = {}; // of each layer, or empty (model/weights/channel_scales.h)
};

// Runs `ids` and a greedy continuation on all three; `noisy` is the reference with weights of with_noise(). A limit is four
// times the noise in that place, or what correct devices have shown, if that is more. Returns nothing if `keep_going` returned
// false. ids: at least one; with `decode` within the context of all (ENSURE). Throws what Forward::run does.
std::optional<Agreement> compare(const Config& config, const MakeForward& measured, const MakeForward& reference,
                                 const MakeForward& noisy, std::span<const uint32_t> ids, const AgreementOptions& options);

} // namespace tq::conformance
