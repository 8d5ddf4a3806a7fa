#include "model/gpu/forward.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/gpu/kernels.h"
#include "model/gpu/taps.h"
#include "model/rope.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

using namespace gpu;

constexpr uint64_t context_header_bytes = 16; // position, tokens, two unused words: shaders/context.glsl

// The activations of a block of `tokens` tokens, fp32.
struct Scratch {
    Buffer h, a, q, k, v, attn, partials, gate, up, logits;
};

struct ScratchBytes {
    uint64_t hidden, attn, q, kv, partials, ffn, logits;

    ScratchBytes(const Config& c, const Tuning& tuning, uint32_t batch, bool projected)
        : hidden(4ull * batch * c.hidden_size), attn(4ull * batch * c.num_attention_heads * c.head_dim),
          q(4 * q_floats(batch, c.num_attention_heads, c.head_dim, projected)),
          kv(4ull * batch * c.num_key_value_heads * c.head_dim),
          partials(partials_bytes(tuning, batch, c.num_attention_heads, c.head_dim, projected)),
          ffn(4ull * batch * c.intermediate_size), logits(4ull * c.vocab_size) {}
    uint64_t total() const { return 2 * hidden + attn + q + 2 * kv + partials + 2 * ffn + logits; }
};

ScratchBytes scratch_bytes(const Config& config, const Tuning& tuning, const ForwardOptions& options) {
    return {config, tuning, options.batch_size, options.kv.uses_qjl(config.num_hidden_layers)};
}

Scratch make_scratch(Device& device, const ScratchBytes& bytes) {
    return {device.allocate("h", bytes.hidden),
            device.allocate("a", bytes.hidden),
            device.allocate("q", bytes.q),
            device.allocate("k", bytes.kv),
            device.allocate("v", bytes.kv),
            device.allocate("attention", bytes.attn),
            device.allocate("partials", bytes.partials),
            device.allocate("gate", bytes.ffn),
            device.allocate("up", bytes.ffn),
            device.allocate("logits", bytes.logits)};
}

uint64_t context_bytes(const Config& config, uint32_t positions) {
    return context_header_bytes + uint64_t(positions) * config.head_dim * 4;
}

// The context buffer with its rotary table; position and tokens are written by every step.
Buffer make_context(Device& device, const Config& config, uint32_t positions) {
    const uint64_t bytes = context_bytes(config, positions);
    if (bytes > device.capabilities().storage_range_bytes)
        fail("a context of {} tokens is more than {} can address: choose at most {} with -c", positions,
             device.capabilities().name,
             (device.capabilities().storage_range_bytes - context_header_bytes) / (config.head_dim * 4));
    std::vector<std::byte> content(bytes);
    const std::vector<float> table = rope_table(config, positions);
    std::memcpy(content.data() + context_header_bytes, table.data(), table.size() * 4);

    Buffer context = device.allocate("context", bytes);
    Uploader uploader(device);
    for (uint64_t at = 0; at < bytes; at += Uploader::max_piece_bytes()) {
        const uint64_t piece = std::min<uint64_t>(Uploader::max_piece_bytes(), bytes - at);
        std::memcpy(uploader.begin(View(context, at, piece)).data(), content.data() + at, piece);
        uploader.end();
    }
    uploader.finish();
    return context;
}

class GpuForward final : public Forward {
  public:
    GpuForward(Device& device, const Config& config, const Weights& weights, const ForwardOptions& options, const Tuning& tuning,
               const LoadProgress& on_load)
        : device_(device), config_(config), options_(options), tuning_(tuning),
          weights_(upload_weights(device, weights, on_load)), cache_(device, config, options.kv, options.context_size),
          context_(make_context(device, config, options.context_size)),
          scratch_(make_scratch(device, scratch_bytes(config, tuning, options))),
          ids_(device.allocate("ids", 4ull * options.batch_size)),
          step_upload_(device.allocate("step", context_header_bytes, Memory::upload)),
          ids_upload_(device.allocate("step ids", 4ull * options.batch_size, Memory::upload)),
          logits_readback_(device.allocate("logits read back", 4ull * config.vocab_size, Memory::readback)),
          token_taps_(device, options_.tap), block_taps_(device, options_.tap), head_taps_(device, options_.tap),
          token_(record(1, true, true, token_taps_)), block_(record(options.batch_size, true, false, block_taps_)),
          head_(record(options.batch_size, false, true, head_taps_)) {}

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override;

    void truncate(uint32_t n) override {
        ENSURE(n <= position_, "{} of {}", n, position_);
        position_ = n;
    }

    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return options_.context_size; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }

  private:
    Commands record(uint32_t tokens, bool with_layers, bool with_head, Taps& taps);
    void begin_step(Pass& pass);
    void layers(Pass& pass, Taps& taps);
    void head(Pass& pass, Taps& taps);
    void write_step(std::span<const uint32_t> ids);
    [[noreturn]] void report_nonfinite(uint32_t start);

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    DeviceWeights weights_;
    KvCache cache_;
    Buffer context_;
    Scratch scratch_;
    Buffer ids_, step_upload_, ids_upload_, logits_readback_;
    Step step_{};
    Taps token_taps_, block_taps_, head_taps_;
    Commands token_, block_, head_;
    uint32_t position_ = 0;
};

// What a run takes from the host: position and number of tokens, and their ids.
void GpuForward::begin_step(Pass& pass) {
    pass.recorder.copy(View(context_, 0, context_header_bytes), step_upload_);
    pass.recorder.copy(View(ids_, 0, 4ull * pass.tokens), View(ids_upload_, 0, 4ull * pass.tokens));
}

// The same steps in the same order as model/cpu/forward.cpp.
void GpuForward::layers(Pass& pass, Taps& taps) {
    const Config& c = config_;
    const Scratch& s = scratch_;
    const uint32_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads;
    const auto tap = [&](uint32_t layer, const char* name, const Buffer& x, uint32_t cols) {
        taps.add(pass, fmt::format("layer {} {}", layer, name), x, cols);
    };

    embed(pass, s.h, weights_.token_embd, ids_);
    taps.add(pass, "embed", s.h, c.hidden_size);
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
        const LayerMatrices& w = weights_.layers[i];
        pass.recorder.begin_label(fmt::format("layer {}", i));

        // attention
        rms_norm(pass, s.a, s.h, w.attn_norm, c.hidden_size, c.rms_norm_eps);
        tap(i, "attn_norm", s.a, c.hidden_size);
        matmul(pass, s.q, w.attn_q, s.a);
        matmul(pass, s.k, w.attn_k, s.a);
        matmul(pass, s.v, w.attn_v, s.a);
        tap(i, "k", s.k, kv_heads * c.head_dim);
        tap(i, "v", s.v, kv_heads * c.head_dim);
        q_norm_rope(pass, s.q, w.attn_q_norm, heads, c.rms_norm_eps, cache_.layers[i].k);
        tap(i, "q", s.q, heads * c.head_dim);
        k_append(pass, cache_, i, s.k, w.attn_k_norm, kv_heads, c.rms_norm_eps);
        v_append(pass, cache_, i, s.v, kv_heads);
        attention(pass, s.attn, s.partials, s.q, cache_, i, heads, kv_heads);
        tap(i, "attention", s.attn, heads * c.head_dim);
        matmul(pass, s.h, w.attn_output, s.attn, true);
        tap(i, "attn_output", s.h, c.hidden_size);

        // feed-forward
        rms_norm(pass, s.a, s.h, w.ffn_norm, c.hidden_size, c.rms_norm_eps);
        tap(i, "ffn_norm", s.a, c.hidden_size);
        matmul(pass, s.gate, w.ffn_gate, s.a);
        matmul(pass, s.up, w.ffn_up, s.a);
        swiglu(pass, s.gate, s.up, c.intermediate_size);
        tap(i, "swiglu", s.gate, c.intermediate_size);
        matmul(pass, s.h, w.ffn_down, s.gate, true);
        tap(i, "h", s.h, c.hidden_size);
        pass.recorder.end_label();
    }
}

// Logits of the block's last token.
void GpuForward::head(Pass& pass, Taps& taps) {
    rms_norm(pass, scratch_.a, scratch_.h, weights_.output_norm, config_.hidden_size, config_.rms_norm_eps, true);
    taps.add(pass, "output_norm", scratch_.a, config_.hidden_size, true);
    matvec(pass, scratch_.logits, weights_.output(), scratch_.a);
    taps.add(pass, "logits", scratch_.logits, config_.vocab_size, true);
    pass.recorder.copy(logits_readback_, scratch_.logits);
}

Commands GpuForward::record(uint32_t tokens, bool with_layers, bool with_head, Taps& taps) {
    Recorder recorder(device_);
    step_ = {options_.context_size - std::min(tokens, options_.context_size), tokens};
    Pass pass{recorder, tuning_, context_, tokens, config_.head_dim, step_};
    if (with_layers) {
        begin_step(pass);
        layers(pass, taps);
    }
    if (with_head) head(pass, taps);
    return recorder.finish();
}

void GpuForward::write_step(std::span<const uint32_t> ids) {
    step_ = {position_, uint32_t(ids.size())};
    const uint32_t header[4] = {step_.position, step_.tokens, 0, 0};
    std::memcpy(step_upload_.host().data(), header, sizeof header);
    std::memcpy(ids_upload_.host().data(), ids.data(), ids.size_bytes());
}

std::span<const float> GpuForward::run(std::span<const uint32_t> ids, const Progress& progress) {
    ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
    const uint32_t start = position_, total = uint32_t(ids.size());
    uint32_t done = 0;
    const auto keep_going = [&] { return !progress || progress(done, total); };
    bool have_logits = false;
    while (done < total) {
        const std::span block = ids.subspan(done, std::min(options_.batch_size, total - done));
        write_step(block);
        have_logits = block.size() == 1;
        if (!(have_logits ? token_ : block_).run(keep_going)) return {};
        (have_logits ? token_taps_ : block_taps_).deliver(uint32_t(block.size()));
        position_ += uint32_t(block.size());
        done += uint32_t(block.size());
        if (!keep_going()) return {};
    }
    if (!have_logits) {
        head_.run();
        head_taps_.deliver(1);
    }

    const std::span logits(reinterpret_cast<const float*>(logits_readback_.host().data()), config_.vocab_size);
    if (!std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
    return logits;
}

void GpuForward::report_nonfinite(uint32_t start) {
    const auto where = cache_.find_nonfinite(device_, position_);
    position_ = start;
    fail_nonfinite(where);
}

// Refuses what cannot fit, with the numbers, before anything is loaded.
void check_memory(const Device& device, const Config& config, const Weights& weights, const ForwardOptions& options,
                  const Tuning& tuning) {
    const double mib = 1 << 20;
    const uint64_t weight_bytes = device_bytes(weights), kv_bytes = cache_bytes(config, options.kv, options.context_size);
    const uint64_t activations = scratch_bytes(config, tuning, options).total() + context_bytes(config, options.context_size);
    const Capabilities& caps = device.capabilities();
    const uint64_t available = caps.memory_budget_bytes - std::min(caps.memory_used_bytes, caps.memory_budget_bytes);
    const uint64_t needed = weight_bytes + kv_bytes + activations;
    if (needed > available)
        fail("{} has {:.0f} MiB free, but this needs {:.0f} MiB: {:.0f} for the weights, {:.0f} for a KV cache of {} tokens in "
             "{}, {:.0f} "
             "for activations. Choose a smaller context with -c, smaller cache types with -ctk and -ctv, or a smaller model",
             caps.name, double(available) / mib, double(needed) / mib, double(weight_bytes) / mib, double(kv_bytes) / mib,
             options.context_size, describe(options.kv), double(activations) / mib);
}

} // namespace

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load) {
    const Tuning tuning = choose_tuning(device.capabilities());
    ForwardOptions full = options;
    if (full.batch_size == 0) full.batch_size = std::min(tuning.batch_size, options.context_size);
    full.batch_size = (std::max(full.batch_size, 2u) + tuning.matmul_tile - 1) / tuning.matmul_tile * tuning.matmul_tile;
    check_memory(device, config, weights, full, tuning);
    return std::make_unique<GpuForward>(device, config, weights, full, tuning, on_load);
}

} // namespace tq
