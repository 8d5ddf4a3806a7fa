// Makes a model that is all on the CPU, with as much cache as the memory has room for.
#include "base/error.h"
#include "base/system_memory.h"
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/host/cache.h"
#include "model/stages/staged_forward.h"
#include <algorithm>

namespace tq {
namespace {

ForwardOptions with_batch_size(ForwardOptions options) {
    if (options.batch_size == 0) options.batch_size = cpu_batch_size;
    return options;
}

// Returns the size in bytes of a page in the layers whose attention is held.
uint64_t held_page_bytes(const Config& c, const ForwardOptions& options) {
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < c.cache_layers(); layer++) {
        const KvTypes types = options.kv.at(layer, c.num_hidden_layers);
        if (options.held.attention(layer) && !c.is_recurrent(layer))
            bytes += c.num_key_value_heads *
                     (page_tokens * (kv_vector_bytes(types.k, c.head_dim) + kv_vector_bytes(types.v, c.head_dim)) +
                      2 * 4 * FIRST_TOKENS * sink_words(types, c.head_dim));
    }
    return bytes;
}

// Returns the size in bytes of all slots' windows, each with room for the tokens of one more pass, and states; of all layers, at
// most.
uint64_t slots_bytes(const Config& c, const ForwardOptions& options) {
    KvOptions kv = options.kv;
    if (kv.window != 0) kv.window = host::ring_tokens(kv.window, with_batch_size(options).batch_size) - kept_window_tokens(0);
    return options.slots * (kv_window_bytes(c, kv) + c.state_bytes() + c.pending_bytes(options.pending));
}

constexpr uint32_t min_pages = 4; // with fewer, unless they are all, nothing is begun

// Returns the options with as many pages as the memory of their plan has room for beside the weights. Throws Error if that is too
// few. If the weights leave no room, the pages are counted as if there were none.
ForwardOptions with_pages(const Config& config, MemoryPlan plan, ForwardOptions options) {
    const uint32_t requested = options.pages(), min = std::min(requested, min_pages);
    if (plan.runs()) return options;
    const uint64_t page_bytes = held_page_bytes(config, options);
    plan.kv_cache -= (requested - min) * page_bytes;
    if (!plan.runs())
        fail("this machine: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", describe(plan),
             describe(options.kv));
    const uint64_t left = plan.available - (plan.fits() ? plan.total() : plan.needed());
    options.cache_tokens = uint32_t(min + left / page_bytes) * page_tokens;
    return options;
}

// Takes fewer pages if this process may have less memory than the machine has.
std::unique_ptr<Forward> make_with_pages(const Config& config, const std::shared_ptr<const LoadedWeights>& weights,
                                         ForwardOptions options) {
    const auto make = [&](const Cache& cache, const ForwardOptions& whole) {
        return make_cpu_stage(config, weights, cache, whole);
    };
    for (;;) try {
            return make_staged_forward(config, with_batch_size(options), make);
        } catch (const std::bad_alloc&) {
            if (options.pages() <= min_pages) throw;
            options.cache_tokens = options.pages() / 2 * page_tokens;
        }
}

} // namespace

std::unique_ptr<Forward> make_cpu_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                          const LoadProgress& on_load) {
    const ForwardOptions fitting = with_pages(config, plan_cpu_memory(config, weights, options), options);
    const auto mapped = plan_cpu_memory(config, weights, fitting).fits() ? MappedMatrices::check : MappedMatrices::leave;
    ThreadPool pool(options.threads);
    return make_with_pages(config, std::make_shared<const LoadedWeights>(load_weights(pool, weights, on_load, mapped)), fitting);
}

std::unique_ptr<Forward> make_cpu_forward(const Config& config, std::shared_ptr<const LoadedWeights> weights,
                                          const ForwardOptions& options) {
    MemoryPlan plan = plan_cpu_memory(config, weights->weights, options);
    plan.mapped -= weights->made_bytes;
    return make_with_pages(config, weights, with_pages(config, plan, options));
}

MemoryPlan plan_cpu_memory(const Config& c, const Weights& weights, const ForwardOptions& options) {
    const uint64_t batch = with_batch_size(options).batch_size;
    const uint64_t q_cols = uint64_t(c.num_attention_heads) * c.head_dim, kv_cols = uint64_t(c.num_key_value_heads) * c.head_dim;
    // Floats of gated attention, recurrent layers, and the expert that all tokens have.
    const uint64_t of_hybrids = (c.gated_attention ? 3 * q_cols : 0) + 2ull * c.shared_expert_intermediate_size +
                                (c.recurrent ? c.recurrent->channels() + 2ull * c.recurrent->value_size() : 0);
    // Floats of experts: gate, up and the results of a token's pairs by expert, and their inputs.
    const uint64_t of_experts =
        c.num_experts == 0 ? 0 : 3ull * c.intermediate_size + 2ull * c.num_experts_per_tok * c.hidden_size + c.num_experts;
    MemoryPlan plan;
    plan.weights = weights.bytes();
    plan.mapped = weights.mapped_bytes();
    plan.kv_cache = held_page_bytes(c, options) * options.pages() + slots_bytes(c, options);
    plan.scratch =
        4 * (batch * (2 * c.hidden_size + 2 * q_cols + 2 * kv_cols + 2 * c.intermediate_size + of_experts + of_hybrids) +
             uint64_t(options.slots) * c.vocab_size +
             uint64_t(options.context_size) * c.head_dim); // activations, logits, rotary table
    if (c.mtp) plan.scratch += 4 * batch * 3 * c.hidden_size;
    plan.available = std::min(physical_memory_bytes(), options.memory_bytes);
    return plan;
}

} // namespace tq
