#include "base/ensure.h"
#include "base/error.h"
#include "model/gpu/block_pace.h"
#include "model/gpu/context.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/run_ahead.h"
#include "model/gpu/steps.h"
#include "model/gpu/tuning_file.h"
#include "model/kv/window.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

namespace tq {
namespace {

using namespace gpu;

std::shared_ptr<const DeviceWeights> load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                          const LoadProgress& on_load) {
    ThreadPool pool(threads);
    return std::make_shared<const DeviceWeights>(upload_weights(device, pool, weights, tuning.weight_interleave, on_load));
}

constexpr uint32_t max_rows_of_logits = 32; // computed by run_all() at a time

class GpuForward final : public Forward {
  public:
    GpuForward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights, const ForwardOptions& options,
               const Tuning& tuning, std::optional<double> layer_seconds)
        : device_(device), config_(config), options_(options), tuning_(tuning),
          pace_(device.capabilities().type, config, tuning,
                layer_seconds.value_or(max_layer_seconds(device.capabilities().type))),
          weights_(std::move(weights)), head_norms_(upload_head_norms(device, *weights_, options.kv, config.num_key_value_heads)),
          cache_(device, config, options.kv, options.first_capacity()),
          context_(make_context(device, config, options.context_size)),
          scratch_(make_scratch(device, ScratchBytes(config, tuning, options))),
          ids_(device.allocate("ids", 4ull * options.batch_size)),
          step_upload_(device.allocate("step", context_header_bytes, Memory::upload)),
          ids_upload_(device.allocate("step ids", 4ull * options.batch_size, Memory::upload)),
          logits_readback_(device.allocate("logits read back", 4ull * config.vocab_size, Memory::readback)),
          run_ahead_(device, scratch_, ids_, config.vocab_size) {
        if (options_.kv.layers_with_window(config.num_hidden_layers) != 0) {
            window_.tokens = options_.kv.window;
            cache_.keep_window(device, window_.tokens, options_.batch_size);
        }
        prepare();
        record_again();
    }

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override;

    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) override;

    uint32_t max_sampled() const override {
        return tuning_.sampling && !options_.tap && config_.vocab_size <= max_sampling_logits ? SAMPLING_STEPS : 0;
    }
    std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) override;

    void truncate(uint32_t n) override {
        ENSURE(n <= position_, "{} of {}", n, position_);
        go_back(position_, n);
    }

    void repeat_to(uint32_t n) override {
        ENSURE(position_ <= n && n <= options_.context_size, "{} to {}", position_, n);
        make_room(n - position_);
        cache_.repeat(device_, position_, n);
        window_.repeated(position_, n, kept_window_tokens(window_.tokens));
        position_ = n;
    }

    StoredSide stored(uint32_t layer, KvSide side) override {
        ENSURE(layer < config_.num_hidden_layers, "layer {} of {}", layer, config_.num_hidden_layers);
        return cache_.stored(device_, layer, side, position_);
    }

    void restore(uint32_t tokens, const StoredSource& source) override {
        ENSURE(tokens <= options_.context_size, "{} of {}", tokens, options_.context_size);
        position_ = 0;
        make_room(tokens);
        cache_.restore(device_, tokens, source);
        position_ = window_.begin = tokens;
    }

    void record_again() override {
        forget_recordings();
        head_.emplace(record(options_.batch_size, false, true));
        record_layers();
    }

    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return options_.context_size; }
    uint32_t capacity() const override { return cache_.capacity(); }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }

  private:
    // A recorded pass and its taps.
    struct Recording {
        Taps taps;
        Commands commands;
    };
    // The recording of run_all(), for blocks of `tokens` tokens: made on first use.
    struct AllLogits {
        uint32_t tokens;
        Buffer logits, readback;
        std::optional<Commands> commands; // empty after the cache has grown
    };
    void prepare();
    void record_all();
    void forget_recordings() {
        token_.reset();
        block_.reset();
        short_blocks_.clear();
        run_ahead_.forget();
        if (all_) all_->commands.reset();
    }
    Recording record(uint32_t tokens, bool with_layers, bool with_head);
    void record_layers();
    void record_run_ahead(bool few_candidates);
    Recording& recorded_block(uint32_t tokens);
    void make_room(uint32_t tokens);
    void begin_step(Pass& pass);
    ForwardPass new_pass(Recorder& recorder, Taps& taps, uint32_t tokens) const {
        return {{recorder, tuning_, context_, tokens, config_.head_dim, step_}, config_, scratch_, taps};
    }
    Activations activations(const Buffer& logits) const {
        const Scratch& s = scratch_;
        return {ids_, s.h, s.a, s.q, s.k, s.v, s.attn, s.ffn, logits};
    }
    void record_logits(ForwardPass& pass);
    void write_step(std::span<const uint32_t> ids);
    bool run_block(Commands& commands, std::span<const uint32_t> ids, const std::function<bool()>& keep_going);
    // Returns to position `to`, when tokens up to position `end` may have been stored.
    void go_back(uint32_t end, uint32_t to) {
        window_.forget(end, to);
        position_ = to;
    }
    [[noreturn]] void report_nonfinite(uint32_t start);

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    BlockPace pace_;
    const std::shared_ptr<const DeviceWeights> weights_;
    const std::vector<HeadNormBuffers> head_norms_;
    KvCache cache_;
    const Network net_{config_, *weights_, head_norms_, cache_};
    Buffer context_;
    Scratch scratch_;
    Buffer ids_, step_upload_, ids_upload_, logits_readback_;
    RunAhead run_ahead_;
    Step step_{};
    // All but head_ are empty after the cache has grown.
    std::optional<Recording> token_, block_, head_;
    std::map<uint32_t, Recording> short_blocks_; // by their tokens
    std::optional<AllLogits> all_;
    uint32_t position_ = 0;
    WindowPositions window_;
};

// Uploads the inputs of a run: position and number of tokens, and their ids.
void GpuForward::begin_step(Pass& pass) {
    pass.recorder.copy(View(context_, 0, context_header_bytes), step_upload_);
    pass.recorder.copy(View(ids_, 0, 4ull * pass.tokens), View(ids_upload_, 0, 4ull * pass.tokens));
}

// Records the pass from the ids to the logits of the last.
void GpuForward::record_logits(ForwardPass& pass) {
    const Activations x = activations(scratch_.logits);
    layers(pass, net_, x);
    pass.begin_head(true);
    head(pass, net_, x);
}

// Builds the kernels of all passes at once, before the first is recorded.
void GpuForward::prepare() {
    Recorder::prepare(device_, [&](Recorder& recorder) {
        Taps none;
        for (const uint32_t tokens : {1u, options_.batch_size}) {
            ForwardPass pass = new_pass(recorder, none, tokens);
            record_logits(pass);
            for (const bool few : {true, false})
                if (max_sampled() > 0) run_ahead_.sample_next(pass, few);
        }
    });
}

GpuForward::Recording GpuForward::record(uint32_t tokens, bool with_layers, bool with_head) {
    Taps taps(device_, options_.tap);
    Recorder recorder(device_);
    const uint32_t most = std::min(cache_.capacity(), options_.context_size);
    step_ = {most - std::min(tokens, most), tokens};
    ForwardPass pass = new_pass(recorder, taps, tokens);
    const Activations x = activations(scratch_.logits);
    if (with_layers) {
        begin_step(pass);
        layers(pass, net_, x);
        pass.end_layers();
    }
    if (with_head) {
        pass.begin_head(true);
        head(pass, net_, x);
        recorder.copy(logits_readback_, scratch_.logits);
    }
    return {std::move(taps), recorder.finish()};
}

void GpuForward::record_run_ahead(bool few_candidates) {
    Taps none;
    step_ = {std::min(cache_.capacity(), options_.context_size) - 1, 1};
    run_ahead_.record([&](Recorder& recorder) { return new_pass(recorder, none, 1); },
                      [&](ForwardPass& pass) { begin_step(pass); }, [&](ForwardPass& pass) { record_logits(pass); },
                      few_candidates);
}

void GpuForward::record_layers() {
    if (!token_) token_.emplace(record(1, true, true));
    if (!block_) block_.emplace(record(options_.batch_size, true, false));
    if (max_sampled() > 0) record_run_ahead(true);
}

// Returns the recording for a block of `tokens` tokens. Short ones have their own: of a few tokens (a draft), whose products are
// those of matvec, for 2, 4 and 8; and of more (a chat's next turn), whose attention is split, too.
GpuForward::Recording& GpuForward::recorded_block(uint32_t tokens) {
    if (tokens > tuning_.short_block || options_.batch_size <= tuning_.short_block) return *block_;
    const uint32_t few = std::bit_ceil(tokens), recorded = few <= max_columns(tuning_) ? few : tuning_.short_block;
    const auto found = short_blocks_.find(recorded);
    return found != short_blocks_.end() ? found->second
                                        : short_blocks_.emplace(recorded, record(recorded, true, false)).first->second;
}

// Grows the cache, if necessary, for `tokens` tokens at position_; to no more than that where memory is short. After any
// exception, the cache keeps its content, and the passes are recorded again when they are next needed.
void GpuForward::make_room(uint32_t tokens) {
    const uint32_t needed = position_ + tokens;
    if (needed > cache_.capacity()) {
        const uint64_t left = device_.available_bytes();
        uint32_t next = options_.next_capacity(cache_.capacity(), needed);
        if (cache_.growth_bytes(next) > left) next = options_.next_capacity(0, needed);
        const GrowthFailure failure{position_, tokens, cache_.growth_bytes(next), left};
        if (failure.bytes > left) fail_growth(failure, device_.capabilities().name);
        forget_recordings(); // they use the buffers that are freed
        try {
            cache_.grow(device_, position_, next);
        } catch (const OutOfMemory&) { // less was left than the driver reported
            fail_growth({position_, tokens, cache_.growth_bytes(next), device_.available_bytes()}, device_.capabilities().name);
        }
    }
    record_layers();
}

void GpuForward::write_step(std::span<const uint32_t> ids) {
    step_ = {position_, uint32_t(ids.size())};
    const uint32_t header[4] = {step_.position, step_.tokens, 0, window_.begin};
    std::memcpy(step_upload_.host().data(), header, sizeof header);
    std::memcpy(ids_upload_.host().data(), ids.data(), ids.size_bytes());
}

// Runs a recording on the next tokens, and returns whether it ran to its end.
bool GpuForward::run_block(Commands& commands, std::span<const uint32_t> ids, const std::function<bool()>& keep_going) {
    const auto tokens = uint32_t(ids.size());
    write_step(ids);
    const auto start = std::chrono::steady_clock::now();
    if (!commands.run(keep_going)) {
        go_back(position_ + tokens, position_);
        return false;
    }
    if (tokens > 1) pace_.ran(position_, tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    position_ += tokens;
    return true;
}

std::span<const float> GpuForward::run(std::span<const uint32_t> ids, const Progress& progress) {
    ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
    const uint32_t start = position_, total = uint32_t(ids.size());
    make_room(total);
    uint32_t done = 0;
    const auto keep_going = [&] { return !progress || progress(done, total); };
    bool have_logits = false;
    while (done < total) {
        // The kernels are those of the whole block, however it is divided, so that results do not depend on the speed of
        // earlier blocks, except for the rounding of a short block, whose attention is split.
        const uint32_t whole = std::min(options_.batch_size, total - done), end = done + whole;
        have_logits = whole == 1;
        Recording& pass = have_logits ? *token_ : recorded_block(whole);
        while (done < end) {
            const uint32_t count = have_logits ? 1 : pace_.next(position_, end - done);
            if (!run_block(pass.commands, ids.subspan(done, count), keep_going)) return {};
            pass.taps.deliver(count);
            done += count;
            if (!keep_going()) return {};
        }
    }
    if (!have_logits) {
        head_->commands.run();
        head_->taps.deliver(1);
    }

    const std::span logits(reinterpret_cast<const float*>(logits_readback_.host().data()), config_.vocab_size);
    if (!std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
    return logits;
}

void GpuForward::record_all() {
    if (!all_) {
        const uint32_t tokens = std::min(options_.batch_size, max_rows_of_logits / tuning_.matmul_tokens * tuning_.matmul_tokens);
        const uint64_t bytes = 4ull * tokens * config_.vocab_size;
        all_.emplace(AllLogits{tokens, device_.allocate("logits of all", bytes),
                               device_.allocate("logits of all, read back", bytes, Memory::readback), std::nullopt});
    }
    if (all_->commands) return;
    Taps none;
    Recorder recorder(device_);
    const uint32_t most = std::min(cache_.capacity(), options_.context_size);
    step_ = {most - std::min(all_->tokens, most), all_->tokens};
    ForwardPass pass = new_pass(recorder, none, all_->tokens);
    const Activations x = activations(all_->logits);
    begin_step(pass);
    layers(pass, net_, x);
    pass.begin_head(false);
    head(pass, net_, x);
    recorder.copy(all_->readback, all_->logits);
    all_->commands.emplace(recorder.finish());
}

bool GpuForward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
    const uint32_t start = position_, total = uint32_t(ids.size());
    make_room(total);
    record_all();
    const std::span all(reinterpret_cast<const float*>(all_->readback.host().data()), all_->readback.bytes() / 4);
    const auto keep_going = [&](uint32_t done) { return !progress || progress(done, total); };
    for (uint32_t done = 0; done < total;) {
        const uint32_t count = pace_.next(position_, std::min(all_->tokens, total - done));
        if (!run_block(*all_->commands, ids.subspan(done, count), [&] { return keep_going(done); })) return false;
        const std::span rows = all.first(size_t(count) * config_.vocab_size);
        if (!std::ranges::all_of(rows, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
        for (uint32_t i = 0; i < count; i++) each(done + i, rows.subspan(size_t(i) * config_.vocab_size, config_.vocab_size));
        done += count;
        if (!keep_going(done)) return false;
    }
    return true;
}

std::vector<uint32_t> GpuForward::run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) {
    ENSURE(n > 0 && n <= SAMPLING_STEPS && n <= options_.context_size - position_, "{} tokens at {}", n, position_);
    ENSURE(config_.vocab_size <= max_sampling_logits, "{} logits", config_.vocab_size);
    const uint32_t start = position_;
    make_room(n);
    record_run_ahead(has_few_candidates(sampling.settings));
    write_step({&id, 1});
    std::vector<uint32_t> ids = run_ahead_.run(n, sampling, step_);
    go_back(start + n, start + std::max(uint32_t(ids.size()), 1u));
    if (ids.empty()) report_nonfinite(start);
    return ids;
}

void GpuForward::report_nonfinite(uint32_t start) {
    const uint32_t end = position_;
    go_back(end, start);
    std::optional<std::string> where;
    try {
        where = cache_.find_nonfinite(device_, end);
    } catch (const OutOfMemory&) { // finding the vector needs memory; report the error without it
    }
    fail_nonfinite(where);
}

} // namespace

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load) {
    const Tuning tuning = tuning_for(device.capabilities());
    const ForwardOptions full = with_batch_size(options, tuning);
    require_bindable(device.capabilities(), config, full.kv, full.last_capacity());
    MemoryPlan plan = plan_memory(device, config, weights, full);
    plan.kv_cache = cache_bytes(config, full.kv, full.first_capacity()) + window_bytes(config, full.kv, full.batch_size);
    if (!plan.fits())
        fail("{}: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", device.capabilities().name,
             describe(plan), describe(options.kv));
    return std::make_unique<GpuForward>(device, config, load(device, tuning, weights, full.threads, on_load), full, tuning,
                                        std::nullopt);
}

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                          const ForwardOptions& options, const Tuning& tuning,
                                          std::optional<double> layer_seconds) {
    const ForwardOptions full = with_batch_size(options, tuning);
    require_bindable(device.capabilities(), config, full.kv, full.last_capacity());
    return std::make_unique<GpuForward>(device, config, std::move(weights), full, tuning, layer_seconds);
}

} // namespace tq
