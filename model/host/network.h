// The state of a forward pass on the host: a model's weights in memory and the cache of one conversation.
#pragma once
#include "base/thread_pool.h"
#include "model/host/cache.h"
#include "model/kv/options.h"
#include "model/load.h"
#include <functional>
#include <string_view>

namespace tq::host {

struct Rope {
    std::span<const float> table; // model/rope.h
    uint32_t position;            // the first token's
};

// `result`: the name of the output of a matrix or norm for taps; empty where it has none.
struct Linear {
    const Tensor& tensor;
    std::string_view result = {};
};
struct GatedLinear {
    Linear gate, up;
};
struct Norm {
    std::vector<float> weights;
    std::string_view result;
};

struct Layer {
    uint32_t number;
    Norm attn_norm;
    Linear attn_q, attn_k, attn_v, attn_output;
    HeadNorms head_norms; // of queries and keys
    LayerCache& cache;
    const Rotation* q_rotation; // that of the stored keys; null where they have none
    float q_scale;              // 1 / sqrt(head_dim), over the rotation's gain
    Norm ffn_norm;
    GatedLinear ffn_gate_up;
    Linear ffn_down;
};

struct Network {
    const Config config;
    std::shared_ptr<const LoadedWeights> weights;
    std::vector<float> rope_table; // model/rope.h
    std::vector<LayerCache> cache;
    std::vector<Layer> layers;
    Linear token_embd, output;
    Norm output_norm;

    // Makes a rotary table for `context_size` tokens, a cache with room for `capacity` of them, and windows, where `kv` has
    // some, for passes of at most `block_tokens`. Throws std::bad_alloc.
    Network(const Config& config, std::shared_ptr<const LoadedWeights> weights, const KvOptions& kv, uint32_t context_size,
            uint32_t capacity, uint32_t block_tokens);
    Network(const Network&) = delete;
};

// The intermediate results of a block, fp32 [tokens][cols].
struct Activations {
    std::span<const uint32_t> ids;
    std::vector<float> h, a, q, k, v, attn, ffn, logits;

    void resize(const Config& config, size_t tokens); // all but ids and logits
};

class Pass;

// Called with each result [tokens][cols] and its name. Tests modify some; when keys and values have been stored, it is called
// with "kv_append" and no values.
using OnResult = std::function<void(const Pass&, std::string_view name, std::span<float> values)>;

// The common state of the steps of a pass over one block.
class Pass {
  public:
    // All arguments must outlive it.
    Pass(ThreadPool& pool, const Network& net, uint32_t position, uint32_t tokens, const OnResult& on_result)
        : pool(pool), config(net.config), rope{net.rope_table, position}, rows(tokens), on_result_(on_result) {}

    Pass(ThreadPool&, const Network&, uint32_t, uint32_t, OnResult&&) = delete;

    ThreadPool& pool;
    const Config& config;
    const Rope rope; // its position is the first token's
    // The rows of h that the steps read: within layers all tokens of the block, in the head only those whose logits are needed.
    // A step writes its output from row 0 on.
    uint32_t first_row = 0, rows;

    void begin(const Layer& layer) { layer_ = &layer; }
    void begin_head(uint32_t first, uint32_t count) { layer_ = nullptr, first_row = first, rows = count; }

    // Returns the rows of a result that the steps use.
    std::span<float> first_rows(std::vector<float>& x, size_t cols) const { return std::span(x).first(rows * cols); }
    std::span<const float> first_rows(const std::vector<float>& x, size_t cols) const { return std::span(x).first(rows * cols); }

    const Layer* layer() const { return layer_; } // null outside of layers
    void result(std::string_view name, std::span<float> values) const {
        if (on_result_ && !name.empty()) on_result_(*this, name, values);
    }

  private:
    const OnResult& on_result_;
    const Layer* layer_ = nullptr;
};

} // namespace tq::host
