// The state of a forward pass on the host: a model's weights in memory, the cache, and the rows of a pass.
#pragma once
#include "base/thread_pool.h"
#include "model/forward.h"
#include "model/host/cache.h"
#include "model/host/routes.h"
#include "model/kv/options.h"
#include "model/load.h"
#include <functional>
#include <optional>
#include <string_view>

namespace tq::host {

struct Rope {
    std::span<const float> table; // model/rope.h
    std::span<const Row> rows;    // of the pass; their positions choose the rows of the table
    uint32_t dim = 0;             // Config::rotary_dim; 0: all channels of a head

    // The channels of a head that turn: two numbers of the table each pair.
    size_t width(size_t head_dim) const { return dim == 0 ? head_dim : dim; }
    // Returns cosine and sine of each pair of a head at a row's position, and at the first of its page.
    std::span<const float> turns(Row row, size_t head_dim) const {
        return table.subspan(row.position * width(head_dim), width(head_dim));
    }
    std::span<const float> page_turns(Row row, size_t head_dim) const {
        return turns({row.slot, row.position / page_tokens * page_tokens}, head_dim);
    }
};

// `result`: the name of the output of a matrix or norm for taps; empty if it has none.
struct Linear {
    const Tensor& tensor;
    std::string_view result = {};
    std::vector<float> bias = {}; // [rows]; empty if there is none
};
struct GatedLinear {
    Linear gate, up;
};
struct Norm {
    std::vector<float> weights;
    std::string_view result;
};

// The attention of a recurrent layer, matrices as in RecurrentWeights.
struct Recurrence {
    Linear attn_qkv, attn_gate, ssm_beta, ssm_alpha;
    std::vector<float> conv, a, dt, norm;
    Linear ssm_out;
};
// The expert of a mixture that all tokens have.
struct SharedExpert {
    std::vector<float> gate; // whose product with a token the expert's share is made of
    GatedLinear gate_up;
    Linear down;
};

struct Layer {
    uint32_t number;
    Norm attn_norm;
    Linear attn_q, attn_k, attn_v, attn_output; // without rows in a recurrent layer
    HeadNorms head_norms;                       // of queries and keys
    std::vector<float> value_scales;            // [kv_heads][head_dim]; empty if values are stored as they are
    const LayerCache& cache;                    // or its states
    const Rotation* q_rotation;                 // rotation of the stored keys; null if they have none
    float q_scale;                              // 1 / sqrt(head_dim), over the rotation's gain
    Norm ffn_norm;
    std::optional<Linear> router; // of a mixture of experts: the matrices that follow are stacks of theirs
    GatedLinear ffn_gate_up;
    Linear ffn_down;
    std::optional<Recurrence> recurrence; // of a recurrent layer
    std::optional<SharedExpert> shared;   // of a mixture that has an expert for all tokens
};

// The head for multi-token prediction, as MtpWeights.
struct Mtp {
    Linear token_embd, output, eh_proj;
    Norm enorm, hnorm, norm;
    Layer layer;
    LastStates& states;
};

struct Network {
    const Config config;
    std::shared_ptr<const LoadedWeights> weights;
    std::vector<float> rope_table; // model/rope.h
    std::vector<Layer> layers;
    Linear token_embd, output;
    Norm output_norm;
    std::optional<Mtp> mtp;

    // Makes a rotary table for the context of `vectors`, which make_cache() made for `kv` and must outlive it.
    Network(const Config& config, std::shared_ptr<const LoadedWeights> weights, const KvOptions& kv, const HostVectors& vectors,
            uint32_t context_size);
    Network(const Network&) = delete;
};

// The codecs of all layers.
std::vector<LayerCodecs> layer_codecs(const Config& config, const KvOptions& kv);
// Makes the cache of a model that is all on the host, for passes of at most `pass_tokens` tokens of a slot. Throws
// std::bad_alloc.
HostCache make_cache(const Config& config, const ForwardOptions& options, uint32_t pass_tokens, SettleStates settle = nullptr);

// Terms that are added to a query's scores of the keys of a page, because these lack a mean (model/kv/conditioning.h):
// [rows][heads][pages]; pages: those of the longest sequence of the pass. Empty if keys lack none.
struct PageScores {
    std::vector<float> values;
    uint32_t pages = 0;

    // Makes room for the queries of these rows, if there are `any` means; else it is empty.
    void resize(std::span<const Row> rows, uint32_t heads, bool any);
    // Returns those of query row * heads + head.
    std::span<const float> of(size_t query) const { return std::span(values).subspan(query * pages, pages); }
    std::span<float> of(size_t query) { return std::span(values).subspan(query * pages, pages); }
    bool empty() const { return pages == 0; }
};

// The intermediate results of a pass, fp32 [rows][cols].
struct Activations {
    std::span<const uint32_t> ids;
    std::vector<float> h, a, q, k, v, attn, ffn, logits;
    std::vector<float> q_gate, gate;               // of gated attention: what attn_q gives, and its gates
    std::vector<float> qkv, z, beta, alpha, delta; // of recurrent layers; z: the gates of delta, which is their output
    std::vector<float> shared;                     // the ffn of an expert that all tokens have
    std::vector<float> e, eh; // of the head for multi-token prediction: embeddings, and with states beside them
    PageScores page_scores;   // of q
    Routes routes;            // of a mixture of experts, whose ffn is [rows][num_experts_per_tok][moe_intermediate_size]

    void resize(const Config& config, size_t rows);      // those of layers
    void resize_head(const Config& config, size_t rows); // those of the head: h, a and logits
};

class Pass;

// Called with each result [rows][cols] and its name. Tests modify some; when keys and values have been stored, it is called
// with "kv_append" and no values.
using OnResult = std::function<void(const Pass&, std::string_view name, std::span<float> values)>;

// Adapts a tap, which gets results by name alone.
OnResult named(Tap tap);

// The common state of the steps of a pass: layers, over some rows, or the head, over those whose logits are wanted.
class Pass {
  public:
    // All arguments must outlive it.
    Pass(ThreadPool& pool, const Network& net, std::span<const Row> rows, const OnResult& on_result, bool separate = true)
        : pool(pool), config(net.config), rope{net.rope_table, rows, net.config.rotary_dim}, separate(separate),
          from_file(net.weights->mapped == MappedMatrices::leave), on_result_(on_result) {}

    Pass(ThreadPool&, const Network&, std::span<const Row>, OnResult&&, bool = true) = delete;

    ThreadPool& pool;
    const Config& config;
    const Rope rope;
    const bool separate;    // each row gets the bits that it would get alone: always in the reference
    bool in_blocks = false; // rows are a block, whose attention has these bits, too
    const bool from_file;   // matrices are read from their file when they are needed

    std::span<const Row> rows() const { return rope.rows; }

    std::function<void()> on_layer = {}; // called at the beginning of each; may throw
    // A matrix whose first rows are all that products have; the results are then that much shorter.
    struct Shortened {
        const Tensor* matrix = nullptr;
        uint32_t rows = 0;
    } shortened = {};

    void begin(const Layer& layer) {
        layer_ = &layer;
        if (on_layer) on_layer();
    }
    const Layer* layer() const { return layer_; } // null before the first and in the head
    void result(std::string_view name, std::span<float> values) const {
        if (on_result_ && !name.empty()) on_result_(*this, name, values);
    }

  private:
    const OnResult& on_result_;
    const Layer* layer_ = nullptr;
};

} // namespace tq::host
