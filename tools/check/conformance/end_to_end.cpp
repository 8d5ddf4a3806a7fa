// Rows of whole forward passes: the demo model on the device and on the CPU, tap by tap, on the same tokens.
#include "base/error.h"
#include "base/statistics.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/model.h"
#include "tools/check/conformance/logits.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <optional>

namespace tq::conformance {
namespace {

constexpr uint32_t decoded_tokens = 40;

struct Tapped {
    std::string name;
    std::vector<float> values;
};

// The limit for the tap of that name.
using Limit = double (*)(std::string_view tap);

// fp32 caches: only the order of sums and the rounding of functions differ, through all layers.
double exact_limit(std::string_view) { return 2e-5; }

// If cooperative matrices round weights and activations to fp16: the worst tap was 6.7e-4 off on a driver that rounds to
// nearest; one that truncates is off by twice as much.
double limit_of_fp16_products(std::string_view) { return 3e-3; }

// A key within rounding of a threshold may get another code than on the CPU, and everything that follows depends on it. With
// k_norm weights that differ by 1e-5, which changes far more codes than rounding does, no tap of this run came out more than
// 0.048 apart (30 seeds, CPU against CPU). A wrong scale, sign or rotation is off by 1. Before the first cache is read, nothing
// is coded.
double limit_of_codes(std::string_view tap) {
    for (const char* name : {"embed", "layer 0 attn_norm", "layer 0 k", "layer 0 v", "layer 0 q"})
        if (tap == name) return exact_limit(tap);
    return 0.1;
}

// With fp16 products more codes change, and the worst tap was 0.08 off.
double limit_of_rounded_codes(std::string_view) { return 0.2; }

// Compares each tap of one pass, in order, with the kept taps of the other.
class Follower {
  public:
    explicit Follower(Limit limit) : limit_(limit) {}

    void keep(std::string_view name, std::span<const float> values) {
        kept_.push_back({std::string(name), {values.begin(), values.end()}});
    }
    void follow(std::string_view name, std::span<const float> values) {
        if (next_ >= kept_.size()) return fail(name, "comes after the last of the CPU's");
        const Tapped& want = kept_[next_++];
        if (want.name != name || want.values.size() != values.size())
            return fail(
                name, fmt::format("of {} values comes where the CPU has {} of {}", values.size(), want.name, want.values.size()));
        Outcome here = compare(values, want.values, limit_(name));
        if (!here.passed) return fail(name, here.reason, here.error, here.limit);
        outcome_ = worse(outcome_, here);
    }
    void next_run(uint32_t position) {
        if (next_ < kept_.size() && !failed_) fail(kept_[next_].name, "did not come");
        kept_.clear();
        next_ = 0;
        position_ = position;
    }
    bool failed() const { return failed_; }
    Outcome outcome() const { return outcome_; }

  private:
    void fail(std::string_view tap, const std::string& what, double error = 1, double limit = 0) {
        if (failed_) return; // the first divergence is the relevant one
        failed_ = true;
        outcome_ = {false, error, limit,
                    fmt::format("position {}: the first tap that diverges is \"{}\": {}", position_, tap, what)};
    }

    Limit limit_;
    std::vector<Tapped> kept_;
    size_t next_ = 0;
    uint32_t position_ = 0;
    bool failed_ = false;
    Outcome outcome_{true, 0, 1, {}};
};

// A prompt in blocks of `batch` tokens, then greedy tokens one by one, chosen by the CPU; both get the same tokens.
Outcome decode(Rig& rig, KvOptions kv, uint32_t batch, Limit limit) {
    if (rig.model.empty()) fail("the demo model is not installed: name its file in the environment variable TQ_DEMO_MODEL");
    const Model model = load_model(rig.model);
    Follower follower(limit);
    ForwardOptions options{.kv = kv, .context_size = 128, .batch_size = batch};
    options.tap = [&](std::string_view name, std::span<const float> v) { follower.keep(name, v); };
    const auto leader = make_cpu_forward(model.config, model.weights, options);
    options.tap = [&](std::string_view name, std::span<const float> v) { follower.follow(name, v); };
    const auto device = make_gpu_forward(rig.device, model.config, model.weights, options);

    // Long enough for the CPU's kernels of blocks. Both get it in the same parts, since the CPU alone takes more rows than a
    // short block.
    std::vector<uint32_t> ids = model.tokenizer.encode(
        "Once upon a time there was a tailor named Tom. On a rainy morning Tom went to the market with his dog");
    for (uint32_t i = 0; i <= decoded_tokens && !follower.failed(); i++) {
        std::span<const float> logits;
        for (size_t at = 0; at < ids.size() && !follower.failed(); at += batch) {
            const auto part = std::span<const uint32_t>(ids).subspan(at, std::min<size_t>(batch, ids.size() - at));
            follower.next_run(device->position());
            logits = leader->run(part);
            device->run(part);
        }
        if (!follower.failed()) ids = {argmax(logits)};
    }
    follower.next_run(device->position());
    return follower.outcome();
}

} // namespace

void add_end_to_end(Rows& rows, const Capabilities& device) {
    const auto add = [&](KvType type, uint32_t batch, Limit limit) {
        rows.push_back({"demo model", fmt::format("{}/{}, every tap", name(type), name(type)),
                        fmt::format("a prompt in blocks of {}, then {} tokens", batch, decoded_tokens), [=](Rig& rig) {
                            return decode(rig, {type, type}, batch, limit);
                        }});
    };
    const uint32_t tile = gpu::tuning_for(device).matmul_tokens; // blocks are a multiple of it
    const bool fp16_products = gpu::tuning_for(device).rounds_to_fp16(), digits = gpu::tuning_for(device).matvec_dot != 0;
    for (const uint32_t batch : {tile, 8 * tile}) {
        const bool few = batch == tile; // too few for matmul_coopmat; and attention_coopmat does not support f32
        add(KvType::f32, batch, !fp16_products || (few && !digits) ? exact_limit : limit_of_fp16_products);
        add(KvType::tq4, batch, fp16_products ? limit_of_rounded_codes : limit_of_codes);
    }
}

} // namespace tq::conformance
