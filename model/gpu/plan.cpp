// The device memory that a model takes, before anything is allocated, and the sizes of all scratch buffers. The numbers must be
// the ones that are allocated later: ScratchBytes is used by both the plan and make_scratch(). Buffers are sized for the largest
// pass, a block of batch_size rows. Rounded inputs belong to one product at a time, so all products share one buffer, as large as
// the largest of them. Limits of bindings are checked too (require_batch(), require_bindable()), since a device may bind far less
// at once than its memory has.
#include "model/gpu/plan.h"
#include "base/error.h"
#include "model/gpu/experts.h"
#include "model/gpu/kernels.h"
#include "model/gpu/states.h"
#include "model/gpu/tuning_file.h"
#include "model/gpu/weight_stream.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <bit>

namespace tq::gpu {

uint64_t head_norm_bytes(const Config& c, const KvOptions& kv) {
    const uint64_t conditions = kv.conditioning.kind == KeyConditioning::Kind::measured ? 2 * c.num_key_value_heads : 0;
    uint64_t vectors = 2 * uint64_t(c.cache_layers()) * (1 + conditions);
    for (uint32_t i = 0; i < c.cache_layers(); i++)
        if (kv.scales_values(i, c.num_hidden_layers)) {
            const bool dense = kv.rotation == RotationKind::haar && is_turboquant(kv.at(i, c.num_hidden_layers).v);
            vectors += c.num_key_value_heads + (dense ? c.head_dim : 0);
        }
    return vectors * c.head_dim * 4;
}

uint32_t max_separate_rows(const ForwardOptions& options) { return std::bit_floor(std::min(options.batch_size, max_columns)); }

uint32_t max_block_spans(const ForwardOptions& options) { return std::min(options.slots, 8u); }

ContextLayout context_layout(const Config& config, const ForwardOptions& options) {
    return {.max_rows = options.batch_size,
            .max_spans = max_block_spans(options),
            .slots = options.slots,
            .table_pages = pages_of(options.context_size),
            .positions = options.context_size,
            .head_dim = config.rotary()};
}

ScratchBytes::ScratchBytes(const Config& c, const Tuning& tuning, const ForwardOptions& options) {
    const uint64_t batch = options.batch_size, q_cols = uint64_t(c.num_attention_heads) * c.head_dim;
    const bool window = options.kv.layers_with_window(c.num_hidden_layers);
    hidden = (4 * batch * c.hidden_size + 255) / 256 * 256;
    normed = tuning.fold_norms ? 4 * normed_floats(c.hidden_size) : 0;
    attn = 4 * batch * q_cols;
    const bool conditioned =
        options.kv.any_coded(c.num_hidden_layers) && options.kv.conditioning.kind != KeyConditioning::Kind::none;
    pages = conditioned ? pages_of(options.context_size) : 0;
    page_scores = 4 * page_score_floats(options.batch_size, c.num_attention_heads, pages);
    q = 4 * batch * q_cols + page_scores;
    kv = 4 * batch * c.num_key_value_heads * c.head_dim;
    partials = partials_bytes(tuning, options.batch_size, max_separate_rows(options), c.num_attention_heads, c.head_dim, window,
                              options.kv.any_coded(c.num_hidden_layers));
    ffn = 4 * batch * c.intermediate_size;
    rounded = rounded_bytes(tuning, options.batch_size, std::max({c.hidden_size, c.intermediate_size, uint32_t(q_cols)}));
    if (c.num_experts != 0) {
        const ExpertBytes experts(tuning, {c.num_experts, c.num_experts_per_tok}, options.batch_size, c.hidden_size,
                                  c.moe_intermediate_size);
        router = experts.logits;
        routes = experts.routes;
        down = experts.down;
        rounded = std::max({experts.rounded, rounded_bytes(tuning, options.batch_size, uint32_t(q_cols))});
    }
    if (c.gated_attention) gate = attn;
    if (c.shared_expert_intermediate_size != 0) {
        shared = 4 * batch * c.shared_expert_intermediate_size;
        rounded = std::max(rounded, rounded_bytes(tuning, options.batch_size, c.shared_expert_intermediate_size));
    }
    if (c.recurrent) {
        rows_at = RecurrentRows(*c.recurrent, options.batch_size);
        recurrent_rows = 4 * rows_at->floats;
        delta = 4 * batch * c.recurrent->value_size();
        rounded = std::max(rounded, rounded_bytes(tuning, options.batch_size, c.recurrent->value_size()));
    }
    if (c.mtp) {
        mtp = 4 * batch * c.hidden_size;
        rounded = std::max(rounded, rounded_bytes(tuning, options.batch_size, 2 * c.hidden_size));
    }
    logits = 4ull * c.vocab_size;
    candidates = candidates_bytes(c.vocab_size);
    sampling = sampling_bytes(c.vocab_size);
}

uint64_t ScratchBytes::largest() const {
    return std::max(
        {hidden + normed, attn, q, kv, partials, gate_up(), rounded, router, routes, down, 2 * gate, recurrent_rows, 2 * mtp});
}

void require_batch(const Capabilities& caps, const Config& config, const Tuning& tuning, const ForwardOptions& options) {
    const uint64_t bytes = ScratchBytes(config, tuning, options).largest(), limit = caps.storage_range_bytes;
    const uint64_t rows = uint64_t(options.batch_size) * std::max(config.num_experts_per_tok, 1u),
                   max = std::min(caps.max_workgroup_count[0], caps.max_workgroup_count[1]);
    if (bytes <= limit && rows <= max) return;
    fail("{}: a block of {} tokens takes {} rows and {} bytes in one buffer, and the device allows {} and {}: choose a smaller "
         "--batch-size, or leave it out",
         caps.name, options.batch_size, rows, bytes, max, limit);
}

ForwardOptions with_batch_size(ForwardOptions options, const Tuning& tuning) {
    if (options.batch_size == 0) options.batch_size = std::min(tuning.batch_size, options.context_size);
    options.batch_size =
        (std::max(options.batch_size, 2u) + tuning.matmul_tokens - 1) / tuning.matmul_tokens * tuning.matmul_tokens;
    return options;
}

MemoryPlan plan_memory(const Device& device, const Config& config, const Weights& weights, const ForwardOptions& options) {
    MemoryPlan plan = plan_memory(device.capabilities(), config, weights, options);
    plan.available = device.available_bytes();
    return plan;
}

MemoryPlan plan_memory(const Capabilities& caps, const Config& config, const Weights& weights, const ForwardOptions& given) {
    const Tuning tuning = tuning_for(caps);
    const ForwardOptions options = with_batch_size(given, tuning);
    const uint64_t context = context_layout(config, options).bytes();
    MemoryPlan plan;
    plan.weights = device_bytes(held_weights(weights, options.held), tuning.weight_interleave);
    plan.kv_cache = cache_bytes(config, options.kv, options.pages(), options.held);
    const uint64_t window = window_bytes(config, options);
    plan.scratch = ScratchBytes(config, tuning, options).total() + context + head_norm_bytes(config, options.kv);
    if (options.speculative) plan.scratch += 2 * 2 * max_separate_rows(options) * 4ull * config.vocab_size; // logits of rows
    if (!options.held.all() && caps.unified_memory) plan.scratch += 2 * 4ull * options.batch_size * config.hidden_size; // h
    plan.scratch += WeightStream::device_bytes(weights, options.streamed, tuning.weight_interleave);
    if (!caps.unified_memory) plan.scratch += (options.streamed.empty() ? 2 : 4) * Uploader::max_piece_bytes(); // staging
    plan.kv_cache += window + states_bytes(config, options.slots, config.has_states() ? options.pending : 0, options.held);
    plan.scratch += Device::slack_bytes(plan.total());
    plan.available = caps.memory_bytes;
    plan.largest_part = context; // everything else that is too long for a binding is in slices
    plan.allocation_limit = caps.storage_range_bytes;
    return plan;
}

} // namespace tq::gpu
