// The model of a GPU. A token is products of matrices, attention, and waits, one after the other. A product takes as long as
// the slower of two: its bytes by the memory's bandwidth, or its instructions by the rate at which cores issue them. By
// Little's law a small matrix does not have enough loads on their way to fill the memory's latency, so its bandwidth is less.
// A wait is the time from the end of a kernel to the beginning of one that needs its result; a layer has as many as its
// recordings show.
// Instructions per weight and per key were counted in the code that RADV compiles, and stand for all makers. A mixture reads,
// for several rows, the experts that these choose at random. What a driver does between submissions is left out, so the result
// is an upper bound; measured[] has what one GPU reached.
#include "model/gpu/predict.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/forward.h"
#include "model/gpu/matmul.h"
#include "shaders/kv_types.h"
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tq::gpu {
namespace {

constexpr KnownGpu gpus[] = {
    {"RTX 3090", 936, 82, 128, 1.70, 2.5, 32},    {"RTX 4060", 272, 24, 128, 2.46, 2.5, 32},
    {"RTX 4090", 1008, 128, 128, 2.52, 2.5, 32},  {"RTX 5090", 1792, 170, 128, 2.41, 2.5, 32},
    {"H100 SXM", 3350, 132, 128, 1.755, 2.5, 32}, {"H200", 4800, 132, 128, 1.755, 2.5, 32},
    {"RX 6800 XT", 512, 72, 64, 2.25, 3, 32},     {"RX 7900 XTX", 960, 96, 64, 2.5, 3, 32},
    {"RX 9070 XT", 640, 64, 64, 2.97, 3, 32},     {"Radeon 8060S", 256, 40, 64, 2.9, 3, 32},
    {"Arc A770", 560, 32, 128, 2.1, 3, 8},        {"Arc B580", 456, 20, 128, 2.67, 3, 16},
};

// Vector instructions of a lane per weight: the loop of matvec_*_subgroup with 4 rows, compiled by RADV (Mesa 25.0) for navi31.
double instructions_per_weight(GgmlType type) {
    switch (type) {
    case GgmlType::F32: return 1.10;
    case GgmlType::F16:
    case GgmlType::BF16: return 1.38;
    case GgmlType::Q4_0:
    case GgmlType::Q4_1: return 2.38;
    case GgmlType::Q4_K: return 2.64;
    case GgmlType::Q5_1: return 2.84;
    case GgmlType::Q2_K: return 2.93;
    case GgmlType::Q8_0: return 2.98;
    case GgmlType::Q5_0: return 3.04;
    case GgmlType::Q6_K: return 3.19;
    case GgmlType::Q5_K: return 3.17;
    case GgmlType::IQ4_NL: return 3.29;
    case GgmlType::MXFP4: return 3.45;
    case GgmlType::IQ4_XS: return 3.52;
    case GgmlType::Q3_K: return 3.73;
    // Counted with Mesa 26.2, and divided by what its Q4_K takes more.
    case GgmlType::TQ1_0:
    case GgmlType::TQ2_0:
    case GgmlType::Q1_0: // Q1_0, which becomes Q2_0, and Q2_0 were not counted: they differ from TQ2_0 in where scales lie
    case GgmlType::Q2_0: return 2.47;
    case GgmlType::NVFP4: return 3.45;
    case GgmlType::IQ1_S: return 4.13;
    case GgmlType::IQ2_XXS: return 4.38;
    case GgmlType::IQ1_M: return 4.56;
    case GgmlType::IQ2_XS: return 4.58;
    case GgmlType::IQ3_XXS: return 4.65;
    case GgmlType::IQ3_S: return 4.82;
    case GgmlType::IQ2_S: return 5.41;
    }
    return 4;
}

// Vector instructions of 32 lanes per key and value of 128 channels, for `heads` query heads, in attention_decode, counted in the
// same way. Types that were not counted have the number of the costliest one that was.
double instructions_per_key(KvTypes types, double heads, bool decodes) {
    if (!decodes) return 57 / 4.0 * heads; // attention_subgroup
    const auto of_two_heads = [](KvType type) {
        switch (type) {
        case KvType::f32: return 14.0;
        case KvType::f16:
        case KvType::bf16: return 20.1;
        case KvType::tq4: return 26.5;
        case KvType::tq2: return 28.2;
        case KvType::tq2t: return 30.5;
        case KvType::tq3: return 38.7;
        case KvType::q4_0: return 39.1;
        case KvType::q8_0: return 40.5;
        case KvType::tq3t: return 41.0;
        case KvType::tq5:
        case KvType::tq6: return 53.4;
        default: return 59.6;
        }
    };
    const auto per_head = [](KvType type) { return KV_HALF_LEVELS(uint32_t(type)) != 0 ? 4.7 : 7.7; };
    return (of_two_heads(types.k) + of_two_heads(types.v) + (per_head(types.k) + per_head(types.v)) * (heads - 2)) / 2;
}

Capabilities capabilities_of(const KnownGpu& gpu) {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 49152};
    device.subgroup_size = device.kernel_subgroup_size = gpu.subgroup;
    device.subgroup_arithmetic = device.subgroup_shuffle = device.float16 = true;
    device.shader_cores = gpu.cores;
    return device;
}

double issue_rate(const KnownGpu& gpu) { return issue_share * gpu.cores * gpu.lanes * gpu.ghz * 1e9; }

// Vector instructions per weight of each further row: the loops of matvec_dot with 2, 4 and 8 columns, compiled by RADV
// (Mesa 26.2) for navi31, take 1.2 (Q8_0) to 1.35 (Q4_K).
constexpr double instructions_per_further_row = 1.3;

// Seconds of the product of a share of the matrix's rows with `vectors` vectors. A matrix of few rows has too few loads in flight
// to keep the memory busy (Little's law).
double matvec_seconds(const KnownGpu& gpu, const Tuning& tuning, const Tensor& w, uint32_t vectors, double share = 1) {
    const MatvecTile tile = matvec_tile(tuning, w.type, w.rows, w.cols, MATVEC_STORE, vectors);
    const double weights = share * w.rows * w.cols, bytes = share * double(w.bytes()), bytes_of_32 = bytes / weights * 32,
                 on_their_way = share * w.rows * tile.lanes * bytes_of_32,
                 bandwidth = std::min(bandwidth_share * gpu.gb_per_s * 1e9, on_their_way / (latency_us * 1e-6));
    const double instructions = instructions_per_weight(w.type) + instructions_per_further_row * (vectors - 1);
    return std::max(bytes / bandwidth, weights * instructions / issue_rate(gpu));
}

// The matrices of a layer that a token is multiplied by, but for a router's.
std::vector<const Tensor*> matrices_of(const LayerWeights& w) {
    std::vector<const Tensor*> out{&w.ffn_gate, &w.ffn_up, &w.ffn_down};
    if (const auto& r = w.recurrent)
        out.insert(out.end(), {&r->attn_qkv, &r->attn_gate, &r->ssm_beta, &r->ssm_alpha, &r->ssm_out});
    else
        out.insert(out.end(), {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output});
    if (const auto& s = w.shared_expert) out.insert(out.end(), {&s->gate, &s->up, &s->down});
    return out;
}

// All matrices are in Q4_K, which takes somewhat fewer bytes than q4_k_m.
constexpr MeasuredSpeed measured[] = {{"H200", "qwen3-8b:q4_k_m", KvType::tq4, 0, 245.1}};

// Seen in recordings. A mixture: the router, its choice, the sum, and a norm that no product has folded.
double waits_of_layer(const Config& config) { return config.num_experts != 0 ? 11 : 7; }

// Factor by which `rows` rows have more experts than one row, if each chooses at random.
double different_experts(const Config& config, uint32_t rows) {
    const double share = double(config.num_experts_per_tok) / config.num_experts;
    return (1 - std::pow(1 - share, rows)) / share;
}

// Seconds of reading a layer's keys and values, for one row.
double attention_seconds(const PredictedCase& c, const Tuning& tuning, uint32_t layer) {
    const Config& config = c.config;
    const double group = double(config.num_attention_heads) / config.num_key_value_heads,
                 keys = double(c.depth) * config.num_key_value_heads;
    const KvTypes types = c.kv.at(layer, config.num_hidden_layers);
    const double bytes = double(kv_vector_bytes(types.k, config.head_dim) + kv_vector_bytes(types.v, config.head_dim)),
                 instructions = 32 * instructions_per_key(types, group, tuning.decode_subgroups != 0) * config.head_dim / 128;
    return keys * std::max(bytes / (bandwidth_share * c.gpu.gb_per_s * 1e9), instructions / issue_rate(c.gpu));
}

// A state is read and written.
double state_seconds(const PredictedCase& c) {
    return 2 * double(c.config.recurrent->state_bytes()) / (bandwidth_share * c.gpu.gb_per_s * 1e9);
}

} // namespace

const MeasuredSpeed& nearest_measured(const KnownGpu& gpu) {
    return *std::ranges::min_element(measured, {}, [&](const MeasuredSpeed& one) {
        return std::fabs(std::log(find_known_gpu(one.gpu).gb_per_s / gpu.gb_per_s));
    });
}

std::span<const KnownGpu> known_gpus() { return gpus; }

const KnownGpu& find_known_gpu(std::string_view text) {
    std::string names;
    const KnownGpu *found = nullptr, *exact = nullptr;
    size_t matches = 0;
    for (const KnownGpu& gpu : gpus) {
        names += (names.empty() ? "" : ", ") + std::string(gpu.name);
        if (lowercase(gpu.name) == lowercase(text)) exact = &gpu;
        if (lowercase(gpu.name).find(lowercase(text)) == std::string::npos) continue;
        found = &gpu;
        matches++;
    }
    if (exact != nullptr) return *exact;
    if (matches != 1 || text.empty()) fail("{} known GPUs are called \"{}\"; these are known: {}", matches, text, names);
    return *found;
}

TokenTime predict_pass(const PredictedCase& c, uint32_t rows) {
    ENSURE(rows > 0 && rows <= max_columns, "{} rows", rows);
    const Config& config = c.config;
    const Weights weights = read_by_token(c.weights, config);
    constexpr double other_waits = 4; // the head's product and sampling
    const Tuning tuning = choose_tuning(capabilities_of(c.gpu));
    TokenTime time{matvec_seconds(c.gpu, tuning, weights.output, rows), 0,
                   (waits_of_layer(config) * config.num_hidden_layers + other_waits) * c.gpu.wait_us * 1e-6};
    for (uint32_t i = 0; i < weights.layers.size(); i++) {
        const LayerWeights& layer = weights.layers[i];
        for (const Tensor* each : matrices_of(layer)) {
            const bool of_experts =
                config.num_experts != 0 && (each == &layer.ffn_gate || each == &layer.ffn_up || each == &layer.ffn_down);
            time.weights += of_experts ? different_experts(config, rows) * matvec_seconds(c.gpu, tuning, *each, 1)
                                       : matvec_seconds(c.gpu, tuning, *each, rows);
        }
        time.attention += config.is_recurrent(i) ? state_seconds(c) : rows * attention_seconds(c, tuning, i);
    }
    return time;
}

TokenTime predict_draft(const PredictedCase& c) {
    const Config& config = c.config;
    const Weights weights = read_by_token(c.weights, config);
    ENSURE(c.weights.mtp, "{} has no head", config.architecture->name);
    const MtpWeights& head = *c.weights.mtp;
    const Tuning tuning = choose_tuning(capabilities_of(c.gpu));
    const Tensor& output = head.output ? *head.output : weights.output;
    constexpr double other_waits = 6; // its norms and its first product, the last one, and reading the logits back
    TokenTime time{matvec_seconds(c.gpu, tuning, output, 1, std::min(1.0, double(likely_ids) / output.rows)) +
                       matvec_seconds(c.gpu, tuning, head.eh_proj, 1),
                   attention_seconds(c, tuning, config.num_hidden_layers),
                   (waits_of_layer(config) + other_waits) * c.gpu.wait_us * 1e-6};
    for (const Tensor* each : matrices_of(head.layer)) time.weights += matvec_seconds(c.gpu, tuning, *each, 1);
    return time;
}

DraftedSpeed predict_drafting(const PredictedCase& c, double acceptance, uint32_t max) {
    const double draft = predict_draft(c).total();
    DraftedSpeed best{0, 1 / predict_pass(c).total()};
    double tokens = 1, chance = 1; // of a pass; that all drafted tokens are right
    for (uint32_t length = 1; length <= std::min(max, max_columns - 1); length++) {
        tokens += chance *= acceptance;
        const double speed = tokens / (predict_pass(c, 1 + length).total() + length * draft);
        if (speed > best.tokens_per_second) best = {length, speed};
    }
    return best;
}

} // namespace tq::gpu
