// The trials that bench --tune times. A trial is one tuning on one model, cut to as many layers as the time and an eighth of the
// free memory allow, with part of the vocabulary. Weights are uploaded once for each interleave and shared between trials.
// Workloads are a token, a token at depth, prompts of several lengths; their sizes grow to what one run may take (measure_sizes),
// so slow devices are tuned on short ones.
// Before a tuning is timed, its logits are compared with the default tuning's: after the first tokens, after the workload, and
// after one more token. A tuning with wrong logits is refused. Times are the device's own timestamps if it has them; whole
// tokens and long prompts are timed by the wall clock, because there the overlap of kernels is what is measured.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "model/gpu/forward.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/bench/random_ids.h"
#include "tools/tq-run/bench/tune.h"
#include <algorithm>
#include <chrono>
#include <random>

namespace tq::bench {
namespace {

using conformance::CutModel;
using gpu::Tuning, gpu::Workload;

constexpr uint32_t first_tokens = 16; // tokens that are run before each workload; even, as repeat_to requires
constexpr uint32_t min_depth = 64;
constexpr uint32_t max_vocabulary = 16384;               // rows of the embedding and the head
constexpr double trial_seconds = 0.01, max_repeats = 64; // of one timing

// Returns how many bytes of weights a trial reads: more than the last-level cache of a device of this type holds.
uint64_t requested_bytes(DeviceType type) { return uint64_t(type == DeviceType::cpu ? 48 : 256) << 20; }

TrialSizes largest_sizes(DeviceType type) {
    return type == DeviceType::cpu ? TrialSizes{1024, 256, 64, 64, 512} : TrialSizes{8192, 2048, 512, 512, 2048};
}

// All layers of a model take the same time, so a few of them are enough; the vocabulary is cut because its matrix would outweigh
// the few layers. What is left must still exceed the device's caches (requested_bytes), or the weights would be read faster than
// a whole model reads them.
CutModel cut(const Config& config, const Weights& weights, uint32_t layers) {
    CutModel out = conformance::cut_layers(config, weights, layers);
    out.config.vocab_size = std::min(config.vocab_size, max_vocabulary);
    for (Tensor* tensor : {&out.weights.token_embd, &out.weights.output}) {
        tensor->rows = out.config.vocab_size;
        if (!tensor->source) tensor->data = tensor->data.first(tensor->bytes());
    }
    return out;
}

// The position at which a workload begins, and its tokens.
struct Extent {
    uint32_t depth, tokens;
};

Extent extent(Workload workload, const TrialSizes& sizes) {
    switch (workload) {
    case Workload::token:
    case Workload::whole_token: return {first_tokens, 1};
    case Workload::deep_token: return {sizes.deep, 1};
    case Workload::prompt: return {first_tokens, sizes.prompt};
    case Workload::deep_prompt: return {sizes.deep_prompt_at, sizes.deep_prompt};
    case Workload::long_prompt: return {first_tokens, sizes.long_prompt};
    }
    return {};
}

} // namespace

struct Trials::Subject {
    std::string name;
    CutModel model;
    std::map<uint32_t, std::weak_ptr<const gpu::DeviceWeights>> uploaded; // by interleave
    std::map<Workload, Logits> expected;                                  // of the default tuning
    std::map<Workload, uint32_t> repeats;                                 // in one timing

    // Trials share uploaded weights if their layout is the same; weak pointers, so that no layout stays longer than a trial
    // needs it.
    std::shared_ptr<const gpu::DeviceWeights> weights(Device& device, uint32_t interleave) {
        if (auto there = uploaded[interleave].lock()) return there;
        ThreadPool pool;
        auto made = std::make_shared<const gpu::DeviceWeights>(
            gpu::upload_weights(device, pool, model.weights, interleave, [](uint64_t, uint64_t) { return keep_going(); }));
        uploaded[interleave] = made;
        return made;
    }
};

// A tuning on a model.
class Trials::Trial {
  public:
    Trial(Device& device, Subject& subject, const KvOptions& kv, const Tuning& tuning)
        : device_(device), vocab_size_(subject.model.config.vocab_size) {
        const TrialSizes max = largest_sizes(device.capabilities().type);
        const ForwardOptions options{.kv = kv, .context_size = first_tokens + max.deep + max.long_prompt};
        forward_ =
            make_gpu_forward(device, subject.model.config, subject.weights(device, tuning.weight_interleave), options, tuning);
    }

    // The logits of the first tokens, of the workload, and of a token after it.
    Logits answer(const Extent& extent) {
        forward_->truncate(0);
        Logits out;
        for (const uint32_t tokens : {first_tokens, extent.tokens, 1u}) {
            if (tokens == extent.tokens && out.size() == 1) go_to(extent.depth);
            const auto logits = run(tokens);
            out.emplace_back(logits.begin(), logits.end());
        }
        return out;
    }

    // Each repetition returns to the same place of the cache, so that all of them attend to as many tokens. Profiles are taken
    // away before, or they would count earlier runs.
    double seconds(const Extent& extent, uint32_t repeats) {
        go_to(extent.depth);
        device_.take_profile();
        const Stopwatch stopwatch;
        for (uint32_t i = 0; i < repeats; i++) {
            forward_->cache().return_to(0, filled_);
            run(extent.tokens);
        }
        const double wall = stopwatch.seconds();
        double ns = 0;
        for (const ProfileRow& row : device_.take_profile()) ns += row.ns;
        return (ns > 0 ? ns * 1e-9 : wall) / repeats;
    }

  private:
    std::span<const float> run(uint32_t tokens) {
        const auto logits = forward_->run(random_ids(tokens, vocab_size_), keep_going);
        if (logits.empty() || interrupted()) throw LoadStopped();
        return logits;
    }

    // Filling the cache takes time, cutting it does not: so a cache that is deep enough is cut. Otherwise the first tokens are
    // run, and repeated up to the depth.
    void go_to(uint32_t depth) {
        if (forward_->cache().cut(0, std::min(depth, forward_->position())) < depth) {
            forward_->truncate(0);
            run(std::min(first_tokens, depth));
            if (depth > first_tokens) forward_->repeat_to(depth);
        }
        filled_ = forward_->cache().mark(0);
    }

    Device& device_;
    const uint32_t vocab_size_;
    std::unique_ptr<Forward> forward_;
    SavedSlot filled_; // at the depth of the last workload
};

class Trials::Contest final : public gpu::Contestant {
  public:
    Contest(Trials& trials, Workload workload) : workload_(workload), extent_(extent(workload, trials.sizes_)) {}

    void add(std::shared_ptr<Subject> subject, std::unique_ptr<Trial> trial) {
        entries_.emplace_back(std::move(subject), std::move(trial));
    }

    std::vector<double> seconds() override {
        std::vector<double> out;
        for (const auto& [subject, trial] : entries_) {
            uint32_t& repeats = subject->repeats[workload_];
            if (repeats == 0)
                repeats = uint32_t(std::clamp(trial_seconds / std::max(trial->seconds(extent_, 1), 1e-9), 1.0, max_repeats));
            out.push_back(trial->seconds(extent_, repeats));
        }
        return out;
    }

  private:
    const Workload workload_;
    const Extent extent_;
    std::vector<std::pair<std::shared_ptr<Subject>, std::unique_ptr<Trial>>> entries_;
};

Trials::Trials(Device& device, const KvOptions& kv, double run_seconds)
    : device_(device), kv_(kv), run_seconds_(run_seconds), sizes_(largest_sizes(device.capabilities().type)) {}

bool Trials::by_timestamps() const { return device_.capabilities().timestamp_ns > 0; }

std::vector<std::string> Trials::names() const {
    std::vector<std::string> out;
    for (const auto& subject : subjects_)
        out.push_back(fmt::format("{} ({} layers)", subject->name, subject->model.config.num_hidden_layers));
    return out;
}

// The largest sizes that the time for a run allows; measures short workloads first.
void Trials::measure_sizes(Trial& first) {
    const TrialSizes max = sizes_;
    const auto seconds = [&](const Extent& extent) {
        first.seconds(extent, 1);
        return first.seconds(extent, 1);
    };
    const auto affordable = [&](uint32_t depth) {
        return uint32_t(std::min(run_seconds_ / seconds({depth, first_tokens}), 1e6)) * first_tokens;
    };
    const uint32_t tokens = affordable(first_tokens);
    sizes_.prompt = std::clamp(tokens, first_tokens, max.prompt);
    sizes_.long_prompt = std::clamp(4 * tokens, sizes_.prompt, max.long_prompt);
    for (sizes_.deep = min_depth; sizes_.deep < max.deep && 2 * seconds({sizes_.deep, 1}) <= run_seconds_;) sizes_.deep *= 2;
    sizes_.deep_prompt_at = std::max(sizes_.deep / 4, min_depth);
    sizes_.deep_prompt = std::clamp(affordable(sizes_.deep_prompt_at), first_tokens, max.deep_prompt);
}

void Trials::add(const std::string& name, const Config& config, const Weights& weights) {
    const Tuning by_default = gpu::choose_tuning(device_.capabilities());
    const double layer_weights = conformance::weight_count(weights.layers.at(0));
    device_.profile = false;
    if (subjects_.empty()) {
        Subject one{name, cut(config, weights, 1), {}, {}, {}};
        Trial trial(device_, one, kv_, by_default);
        trial.seconds({first_tokens, first_tokens}, 1); // the first run is slower
        seconds_per_weight_ =
            trial.seconds({first_tokens, first_tokens}, 1) / (layer_weights * one.model.config.num_hidden_layers);
    }
    const double affordable = run_seconds_ / (seconds_per_weight_ * layer_weights);
    if (!subjects_.empty() && affordable < 1) return;
    const LayerWeights& layer = weights.layers[0];
    const uint64_t bytes = std::min(requested_bytes(device_.capabilities().type), device_.available_bytes() / 8);
    const double fitting = double(bytes) / double(layer.ffn_gate.bytes() * 2 + layer.ffn_down.bytes()); // most of a layer
    const auto layers = uint32_t(std::min({affordable, fitting, 1e6}));
    const auto subject = std::make_shared<Subject>(Subject{name, cut(config, weights, layers), {}, {}, {}});
    Trial trial(device_, *subject, kv_, by_default);
    if (subjects_.empty()) measure_sizes(trial);
    for (const gpu::TuningGroup& group : gpu::tuning_groups())
        subject->expected[group.workload] = trial.answer(extent(group.workload, sizes_));
    subjects_.push_back(subject);
}

// A tuning is judged before it is timed, and by exactly the workload that it will be timed with: a variant may be wrong for long
// prompts only.
std::unique_ptr<gpu::Contestant> Trials::make(const Tuning& tuning, Workload workload) {
    device_.profile = by_timestamps() && workload != Workload::long_prompt && workload != Workload::whole_token;
    // Either the default, whose logits count, or this one may compute in fp16.
    const bool fp16_products = tuning.rounds_to_fp16() || gpu::choose_tuning(device_.capabilities()).rounds_to_fp16();
    const double limit = conformance::error_limit(kv_, fp16_products);
    auto contest = std::make_unique<Contest>(*this, workload);
    for (const auto& subject : subjects_) {
        auto trial = std::make_unique<Trial>(device_, *subject, kv_, tuning);
        const Logits got = trial->answer(extent(workload, sizes_)), &want = subject->expected.at(workload);
        for (size_t i = 0; i < want.size(); i++) {
            const double error = conformance::relative_error(got[i], want[i]);
            if (!(error <= limit))
                fail(
                    "the relative error of the logits of {} against the default kernels is {:.3g}, and at most {:.0e} is allowed",
                    subject->name, error, limit);
        }
        contest->add(subject, std::move(trial));
    }
    return contest;
}

} // namespace tq::bench
