// The protocol of `ablate`. Stages change one thing each, from the forward pass in blocks over f16, 8-bit codes, conditioning and
// rotation to few bits, so the first that fails names what is wrong. Failing means a KL divergence above a limit: a number for
// stages in which only rounding may differ, and for stages of few bits a factor of another run's cost, derived from the types'
// mean squared errors (for small errors the divergence is proportional to them).
// Then the staircase (climb): the fewest bits of the keys that keep perplexity within the budget, with values of 8 bits; then of
// the values; then variants that cost few bytes more. Perplexity decides what passes, the divergence which of two is better,
// because it is less noisy.
// A cache that two trials share is measured once.
#include "tools/check/quality/ablation.h"
#include "model/kv/window.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tq::quality {
namespace {

constexpr double pass_change = 0.3, pass_relative = 0.05, warn_change = 1.0;

// KL divergences of rounding alone: fp32 in another order and fp16 next to nothing, 8 bits little. Faults cost tenths and more.
constexpr double rounding_kl = 0.01, eight_bit_kl = 0.05;

KvOptions both(KvType type) { return {type, type}; }

KvOptions ruled(ScaleRule rule) {
    KvOptions kv = both(KvType::tq8);
    kv.scale_rule = rule;
    return kv;
}

KvOptions dense(KvType type) {
    KvOptions kv = both(type);
    kv.rotation = RotationKind::haar;
    return kv;
}

KvOptions with_window(KvTypes types, uint32_t tokens) {
    KvOptions kv{types.k, types.v};
    kv.window = tokens;
    return kv;
}

KvOptions unconditioned(KvType type) {
    KvOptions kv = both(type);
    kv.conditioning.kind = KeyConditioning::Kind::none;
    return kv;
}

// A stage; its limit is a number, or for few bits a factor of the cost of another run.
struct Stage {
    const char *run, *isolates, *look;
    KvOptions kv;
    double limit;        // of the KL divergence, or that factor
    const char* of = ""; // the name of that run
    bool blocks = false;
};

// Each stage changes one thing. A window of as many tokens as a chunk has leaves the rotation alone: all vectors are read in
// fp16, rotated. How sensitive a model is to few bits is not a matter of right or wrong, so their limits are what the mean
// squared errors of the types explain (some 4e-5 of the square at 8 bits, 0.0092 at 4, 0.034 at 3, 0.024 with a trellis), by a
// margin of two to eight: for small errors the KL divergence is proportional to them, and for large ones it grows more slowly.
const std::vector<Stage>& stages() {
    static const std::vector<Stage> all{
        {"identity", "blocks of tokens", "the forward pass in blocks: order of heads and tokens, positions, masks",
         ablation_reference, rounding_kl, "", true},
        {"store", "f16", "the way into the cache and out of it: order of heads and tokens, positions, fp16", both(KvType::f16),
         rounding_kl},
        {"blocks", "codes",
         "coded types in general: order of heads and tokens, packing, places of codes and scales; q8_0's blocks",
         unconditioned(KvType::q8_0), eight_bit_kl},
        {"conditioning", "channel scaling and means",
         "channel scaling: of keys and queries, of values and outputs; means of keys, scores of pages", both(KvType::q8_0),
         eight_bit_kl},
        {"rotation", "rotation, in a window",
         "the rotation: seeds of layer and side equal in encoding and attention, its gain, the way back; the window",
         with_window({KvType::tq8, KvType::tq8}, max_window_tokens), eight_bit_kl},
        {"TurboQuant", "codes after the rotation", "tq types: levels, the scale and its rule, what attention multiplies with",
         both(KvType::tq8), eight_bit_kl},
        {"least-squares", "scale rule least-squares", "the rule least-squares alone", ruled(ScaleRule::least_squares),
         eight_bit_kl},
        {"norm", "scale rule norm", "the rule norm alone", ruled(ScaleRule::norm), eight_bit_kl},
        {"haar", "dense rotation", "the dense rotation: its matrices, products and transpose", dense(KvType::tq8), eight_bit_kl},
        {"3-bit keys",
         "codebook",
         "Lloyd-Max levels and thresholds of 3 bits, the planes they are packed in",
         {KvType::tq3, KvType::tq8},
         5000,
         "TurboQuant"},
        {"4-bit values", "codebook", "tq4's levels, thresholds and packing", {KvType::tq8, KvType::tq4}, 2000, "TurboQuant"},
        {"trellis",
         "trellis of the keys",
         "trellises: levels, the search, bits around a run",
         {KvType::tq3t, KvType::tq8},
         3,
         "3-bit keys"},
        {"unequal bits",
         "bits by quarters of the keys",
         "unequal bits: order of channels, the quarters' rotation and scales, packing",
         {KvType::tq4u, KvType::tq8},
         15,
         "3-bit keys"},
        {"window", "window of 16", "the window: which tokens are read from it, and which as codes",
         with_window({KvType::tq3, KvType::tq8}, 16), 2, "3-bit keys"},
    };
    return all;
}

const Outcome* find(std::span<const Outcome> outcomes, std::string_view run) {
    const auto found = std::ranges::find_if(outcomes, [&](const Outcome& o) { return o.trial.run == run; });
    return found == outcomes.end() ? nullptr : &*found;
}

Trial make_trial(const Stage& stage, std::span<const Outcome> before) {
    Trial trial{stage.run, stage.isolates, stage.look, stage.kv, stage.blocks};
    if (*stage.of == 0) {
        trial.max_kl = stage.limit;
        trial.because = "more than rounding to such values costs";
        return trial;
    }
    trial.few_bits = true;
    if (const Outcome* other = find(before, stage.of); other && other->cost) {
        trial.max_kl = stage.limit * other->cost->summary.kl.value + rounding_kl;
        trial.because =
            fmt::format("more than its bits explain: {} costs {:.2g}", describe(other->trial.kv), other->cost->summary.kl.value);
    }
    return trial;
}

KvType turboquant(uint32_t bits, const char* kind = "") { return parse_kv_type(fmt::format("tq{}{}", bits, kind)); }

Trial step_trial(const std::string& run, const std::string& isolates, const KvOptions& kv) {
    return {.run = run, .isolates = isolates, .kv = kv, .few_bits = true};
}

// Runs trials and keeps their outcomes.
class Protocol {
  public:
    Protocol(const MeasureTrial& measure, const std::function<void(const Outcome&)>& on_outcome)
        : measure_(measure), on_outcome_(on_outcome) {}

    bool ablate(bool past_bugs);
    void climb();
    Findings take();

  private:
    const Outcome* run(const Trial& trial);
    bool first_that_passes(const char* step, const char* isolates, std::span<const uint32_t> bits,
                           const std::function<KvOptions(uint32_t)>& kv);
    bool variant(const char* run, const char* isolates, KvTypes types, uint32_t window);
    void win(const Outcome& outcome) { findings_.winner = outcome; }

    const MeasureTrial& measure_;
    const std::function<void(const Outcome&)>& on_outcome_;
    Findings findings_;
};

// Nothing when it was stopped. The result is valid until the next call.
const Outcome* Protocol::run(const Trial& trial) {
    std::optional<CacheCost> cost;
    const auto same = [&](const Outcome& o) { return !o.trial.blocks && o.cost && describe(o.trial.kv) == describe(trial.kv); };
    if (const auto before = std::ranges::find_if(findings_.outcomes, same); before != findings_.outcomes.end())
        cost = before->cost;
    else
        try {
            cost = measure_(trial);
            if (!cost) findings_.stopped = true;
        } catch (const NonFinite&) {
        }
    if (findings_.stopped) return nullptr;
    findings_.outcomes.push_back(judge(trial, cost));
    if (findings_.outcomes.back().bug && !findings_.bug) findings_.bug = findings_.outcomes.back();
    on_outcome_(findings_.outcomes.back());
    return &findings_.outcomes.back();
}

// Returns whether the staircase follows.
bool Protocol::ablate(bool past_bugs) {
    for (const Stage& stage : stages()) {
        const Outcome* outcome = run(make_trial(stage, findings_.outcomes));
        if (!outcome) return false;
        if (outcome->bug && !past_bugs) return false;
    }
    return true;
}

// The fewest bits that pass become the winner; false if none pass.
bool Protocol::first_that_passes(const char* step, const char* isolates, std::span<const uint32_t> bits,
                                 const std::function<KvOptions(uint32_t)>& kv) {
    for (const uint32_t b : bits) {
        const Outcome* outcome = run(step_trial(fmt::format("{} {}", step, b), isolates, kv(b)));
        if (!outcome) return false;
        if (outcome->verdict != Verdict::pass) continue;
        win(*outcome);
        return true;
    }
    findings_.winner.reset();
    return false;
}

// The variant becomes the winner if it passes and costs less. Returns false if it was stopped.
bool Protocol::variant(const char* name, const char* isolates, KvTypes types, uint32_t window) {
    const Outcome* outcome = run(step_trial(name, isolates, with_window(types, window)));
    if (!outcome) return false;
    if (outcome->verdict == Verdict::pass && outcome->cost->summary.kl.value < findings_.winner->cost->summary.kl.value)
        win(*outcome);
    return true;
}

// At most 13 steps: keys, values, and what costs few bytes more than they do.
void Protocol::climb() {
    constexpr std::array<uint32_t, 5> key_bits{3, 4, 5, 6, 8}, value_bits{2, 3, 4, 6, 8};
    if (!first_that_passes("keys", "bits of the keys, values of 8", key_bits, [](uint32_t b) {
            return KvOptions{turboquant(b), KvType::tq8};
        }))
        return;
    const KvType k = findings_.winner->trial.kv.k;
    if (!first_that_passes("values", "bits of the values", value_bits, [&](uint32_t b) { return KvOptions{k, turboquant(b)}; }))
        return;
    const auto now = [&] { return findings_.winner->trial.kv; };
    if (code_bits(now().v) <= 4 && !variant("trellis values", "trellis", {k, turboquant(code_bits(now().v), "t")}, 0)) return;
    if (!variant("window 64", "window", {k, now().v}, 64)) return;
    // Unequal bits exist for 4 and 5 bits, trellises for up to 4.
    if (code_bits(k) == 3)
        variant("trellis keys", "trellis of the keys", {turboquant(3, "t"), now().v}, now().window);
    else if (code_bits(k) <= 5)
        variant("unequal keys", "unequal bits of the keys", {turboquant(code_bits(k), "u"), now().v}, now().window);
}

Findings Protocol::take() {
    if (const auto& winner = findings_.winner) {
        const double change = std::fabs(winner->change()) + 2 * winner->change_error();
        findings_.confirmed = change <= pass_change && change / winner->cost->summary.reference_perplexity.value <= pass_relative;
    }
    return std::move(findings_);
}

} // namespace

const char* name(Verdict verdict) { return std::array{"pass", "warn", "fail", "invalid"}[size_t(verdict)]; }

double Outcome::change() const {
    if (!cost) return std::numeric_limits<double>::quiet_NaN();
    return cost->summary.perplexity.value - cost->summary.reference_perplexity.value;
}

double Outcome::relative_change() const {
    return cost ? change() / cost->summary.reference_perplexity.value : std::numeric_limits<double>::quiet_NaN();
}

// Both ran the same tokens, so the error is that of the difference of their losses.
double Outcome::change_error() const {
    return cost ? cost->summary.perplexity.value * cost->summary.loss_change.error : std::numeric_limits<double>::quiet_NaN();
}

Outcome judge(const Trial& trial, const std::optional<CacheCost>& cost) {
    Outcome out{trial, cost};
    if (!std::isfinite(out.change())) {
        out.bug = true;
        out.reason = "a logit or the perplexity is not finite";
        return out;
    }
    const double change = std::fabs(out.change()), relative = std::fabs(out.relative_change()), kl = cost->summary.kl.value;
    out.verdict = change <= pass_change && relative <= pass_relative ? Verdict::pass
                  : change <= warn_change                            ? Verdict::warn
                                                                     : Verdict::fail;
    if (trial.max_kl && kl > *trial.max_kl) {
        out.verdict = Verdict::fail;
        out.bug = true;
        out.reason = fmt::format("its KL divergence is {:.3g}, and above {:.3g} is {}", kl, *trial.max_kl, trial.because);
    } else if (out.verdict == Verdict::fail) {
        // With few tokens, or a text that the model cannot predict, a perplexity changes by chance.
        out.bug = !trial.few_bits && change - 2 * out.change_error() > warn_change && relative > pass_relative;
        out.reason = fmt::format("the perplexity changes by {:.3g}, more than {}", change, warn_change);
    }
    return out;
}

Findings run_protocol(const MeasureTrial& measure, const std::function<void(const Outcome&)>& on_outcome, bool past_bugs) {
    Protocol protocol(measure, on_outcome);
    if (protocol.ablate(past_bugs)) protocol.climb();
    return protocol.take();
}

} // namespace tq::quality
