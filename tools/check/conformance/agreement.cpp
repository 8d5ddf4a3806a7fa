// Compares a model on a device with the same model on the CPU. Both may be right and still differ: a code whose component is next
// to a threshold falls to either side by rounding, and everything after it changes. So limits are measured: a third model, the
// reference with norms whose weights have random relative noise of the size of rounding (with_noise), runs beside the two.
// Rounding explains noise_factor times its difference from the reference. `floors` are differences that are always allowed, since
// a code that flips is rare and the noise may have caused none.
// All three get the same ids: a prompt in blocks of 64, then the tokens that the reference finds most probable. Compared are the
// stored codes and scales of each layer and side, the residual stream after each layer (all tokens, and the median token), and
// the logits. One thing must be equal whatever rounding does: the values that the device stored must have the codes that the
// CPU's codec gives for the same vectors, which a tap of the device supplies (encode_values).
// judge() names the first layer that is off. In the prompt layers come in order, since an early fault spoils all later ones
// (note_first).
#include "tools/check/conformance/agreement.h"
#include "base/ensure.h"
#include "base/statistics.h"
#include "tools/check/conformance/logits.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>

namespace tq::conformance {
namespace {

constexpr uint32_t block_tokens = 64; // tokens of the prompt that are run and compared at a time
constexpr double noise_factor = 4;

// The smallest limits: one code next to a threshold that falls on the other side is rare, and the noise may not cause one. On
// the demo model `error` and the codes of a correct device are within them; for logits and typical tokens see logits.cpp.
struct Floors {
    double error, typical, logits, first_codes, codes; // first_codes: of layer 0, before any cache is read
};

// Three classes: f32 caches, where only sums differ; caches of plain but shorter numbers, in which a rounding may go the other
// way; codes, where a step is large.
Floors floors(const KvOptions& kv, uint32_t layers, bool fp16_products) {
    bool coded = false, rounded = false;
    for (uint32_t i = 0; i < layers; i++)
        for (const KvType type : {kv.at(i, layers).k, kv.at(i, layers).v}) {
            coded = coded || is_coded(type);
            rounded = rounded || type != KvType::f32;
        }
    const double exact = fp16_products ? 3e-3 : 2e-5, first_codes = fp16_products ? 0.05 : 0.005,
                 codes = fp16_products ? 0.2 : 0.1;
    if (!rounded) return {exact, exact, exact_bounds(fp16_products).limit, first_codes, codes};
    if (!coded) return {std::max(exact, 5e-3), std::max(exact, 1e-3), std::max(exact, 5e-3), first_codes, codes};
    return {fp16_products ? 0.2 : 0.1, fp16_products ? 2e-2 : 1e-3, fp16_products ? 0.1 : 0.05, first_codes, codes};
}

// Keeps the last values of a tap of each layer.
class LayerTap {
  public:
    LayerTap(std::string_view what, uint32_t layers) {
        for (uint32_t i = 0; i < layers; i++) numbers_.emplace(fmt::format("layer {} {}", i, what), i);
        values_.resize(layers);
    }
    void keep(std::string_view name, std::span<const float> values) {
        const auto found = numbers_.find(name);
        if (found == numbers_.end()) return;
        std::vector<float>& all = values_[found->second]; // a block may be run in several pieces
        all.insert(all.end(), values.begin(), values.end());
    }
    void clear() {
        for (auto& values : values_) values.clear();
    }
    std::span<const float> operator[](uint32_t layer) const { return values_[layer]; }

  private:
    std::map<std::string, uint32_t, std::less<>> numbers_;
    std::vector<std::vector<float>> values_;
};

double cosine(std::span<const float> a, std::span<const float> b) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); i++) {
        ab += double(a[i]) * b[i];
        aa += double(a[i]) * a[i];
        bb += double(b[i]) * b[i];
    }
    return aa == 0 || bb == 0 ? (aa == bb ? 1 : 0) : ab / std::sqrt(aa * bb);
}

struct Runner {
    LayerTap h, v;
    std::unique_ptr<Forward> forward;
    std::vector<float> logits;

    Runner(const MakeForward& make, uint32_t layers)
        : h("h", layers), v("v", layers), forward(make([this](std::string_view name, std::span<const float> values) {
              h.keep(name, values);
              v.keep(name, values);
          })) {}
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    void run(std::span<const uint32_t> ids) {
        h.clear();
        v.clear();
        const auto result = forward->run(ids);
        logits.assign(result.begin(), result.end());
    }
};

// A stored vector.
struct Vector {
    const KvCodec& codec;
    std::span<const uint32_t> codes;
    std::span<const uint16_t> scales;

    // Returns code i, or the bits of value i if the type has no codes.
    uint32_t operator[](size_t i) const {
        if (is_coded(codec.type)) return unpack_code(codes, code_bits(codec.type), codec.head_dim(), i);
        return codes.size() == codec.head_dim() ? codes[i] : codes[i / 2] >> (16 * (i % 2)) & 0xffff;
    }
};

Vector vector(StoredSide& side, uint32_t head, uint32_t position) {
    return {side.codec, side.codes_of(head, position), side.scales_of(head, position)};
}

// Counts equal codes and scales; the two types may differ. True if all codes are equal.
bool count(Equal& codes, Equal& scales, const Vector& a, const Vector& b) {
    const bool same_type = a.codec.type == b.codec.type;
    const size_t d = b.codec.head_dim();
    size_t equal = same_type && std::ranges::equal(a.codes, b.codes) ? d : 0;
    if (equal == 0 && same_type)
        for (size_t i = 0; i < d; i++) equal += a[i] == b[i];
    codes.of += d;
    codes.equal += equal;
    scales.of += b.scales.size();
    for (size_t i = 0; i < b.scales.size() && same_type; i++) scales.equal += a.scales[i] == b.scales[i];
    return equal == d;
}

double unbounded(double error) { return std::isnan(error) ? INFINITY : error; } // makes NaN sortable

class Comparison {
  public:
    Comparison(const Config& config, const MakeForward& measured, const MakeForward& reference, const MakeForward& noisy,
               const AgreementOptions& options)
        : config_(config), options_(options), layers_(config.num_hidden_layers), measured_(measured, layers_),
          reference_(reference, layers_), noisy_(noisy, layers_) {
        for (uint32_t i = 0; i < layers_; i++)
            encoders_.push_back(measured_.forward->kv().codec(i, layers_, KvSide::value, config.head_dim));
        encoded_.resize(layers_);
        for (auto* phases : {&out_.prompt, &out_.decoded, &noise_.prompt, &noise_.decoded}) phases->resize(layers_);
        for (auto* errors : {&errors_[0], &errors_[1], &noise_errors_[0], &noise_errors_[1]}) errors->resize(layers_);
    }

    std::optional<Agreement> run(std::span<const uint32_t> ids);

  private:
    // The codes and scales of a value vector as the CPU stores them: [tokens][kv heads] in encoded_.
    struct Encoded {
        std::vector<uint32_t> codes;
        std::vector<uint16_t> scales;
    };
    void run_block(std::span<const uint32_t> ids, bool prompt);
    void encode_values(uint32_t layer);
    void compare_logits();
    void follow(uint32_t token);
    void compare_side(uint32_t layer, KvSide side);
    void note_first(uint32_t layer, KvSide side, uint32_t head, uint32_t position);
    void set_limits();
    void judge();

    const Config& config_;
    const AgreementOptions& options_;
    const uint32_t layers_;
    Runner measured_, reference_, noisy_;
    std::vector<KvCodec> encoders_;
    std::vector<Encoded> encoded_; // [layers]
    Agreement out_, noise_;        // noise_: the noisy model against the reference
    // Errors of the residual stream by token, [0] of the prompt, [1] after it: [layers][tokens] each; the measured model's, the
    // noisy model's.
    std::vector<std::vector<double>> errors_[2], noise_errors_[2];
};

double max_difference(std::span<const float> a, std::span<const float> b) {
    double max = 0;
    for (size_t i = 0; i < a.size(); i++) max = worse(max, std::fabs(double(a[i]) - b[i]));
    return max;
}

// After the prompt all three follow the reference's tokens. If each followed its own, the first difference would make all later
// tokens incomparable.
std::optional<Agreement> Comparison::run(std::span<const uint32_t> ids) {
    const auto prompt = uint32_t(ids.size()), total = prompt + options_.decode;
    const auto keep_going = [&](uint32_t done) { return !options_.keep_going || options_.keep_going(done, total); };
    out_.prompt_tokens = prompt;
    for (uint32_t done = 0; done < prompt;) {
        const std::span block = ids.subspan(done, std::min(block_tokens, prompt - done));
        run_block(block, true);
        done += uint32_t(block.size());
        if (!keep_going(done)) return std::nullopt;
    }
    compare_logits();
    for (uint32_t i = 0; i < options_.decode; i++) {
        const uint32_t id = argmax(reference_.logits);
        follow(id);
        run_block({&id, 1}, false);
        compare_logits();
        if (!keep_going(prompt + i + 1)) return std::nullopt;
    }
    for (uint32_t layer = 0; layer < layers_; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) compare_side(layer, side);
    set_limits();
    judge();
    return out_;
}

void Comparison::run_block(std::span<const uint32_t> ids, bool prompt) {
    for (Runner* runner : {&reference_, &noisy_, &measured_}) runner->run(ids);
    for (uint32_t layer = 0; layer < layers_; layer++) {
        const std::span want = reference_.h[layer], got = measured_.h[layer];
        LayerAgreement &out = (prompt ? out_.prompt : out_.decoded)[layer],
                       &noise = (prompt ? noise_.prompt : noise_.decoded)[layer];
        out.error = worse(out.error, relative_error(got, want));
        noise.error = worse(noise.error, relative_error(noisy_.h[layer], want));
        for (size_t at = 0; at < want.size(); at += config_.hidden_size) {
            const auto token = [&](std::span<const float> all) { return all.subspan(at, config_.hidden_size); };
            out.cosine = -worse(-out.cosine, -cosine(token(got), token(want)));
            errors_[!prompt][layer].push_back(unbounded(relative_error(token(got), token(want))));
            noise_errors_[!prompt][layer].push_back(unbounded(relative_error(token(noisy_.h[layer]), token(want))));
        }
        encode_values(layer);
    }
}

// Encodes with the CPU's codec the values that the measured model gave to its own.
void Comparison::encode_values(uint32_t layer) {
    std::vector<float> v(measured_.v[layer].begin(), measured_.v[layer].end());
    if (!options_.value_scales.empty())
        if (const std::vector<float>& by = options_.value_scales[layer]; !by.empty())
            for (size_t i = 0; i < v.size(); i++) v[i] /= by[i % by.size()];
    const KvCodec& codec = encoders_[layer];
    Encoded& to = encoded_[layer];
    std::vector<uint32_t> codes(codec.words());
    std::vector<uint16_t> scales(codec.scales());
    for (size_t at = 0; at < v.size(); at += codec.head_dim()) {
        encode(codec, codes, scales, std::span(v).subspan(at, codec.head_dim()));
        to.codes.insert(to.codes.end(), codes.begin(), codes.end());
        to.scales.insert(to.scales.end(), scales.begin(), scales.end());
    }
}

void Comparison::compare_logits() {
    out_.logit_error = worse(out_.logit_error, relative_error(measured_.logits, reference_.logits));
    out_.logit_difference = worse(out_.logit_difference, max_difference(measured_.logits, reference_.logits));
    noise_.logit_error = worse(noise_.logit_error, relative_error(noisy_.logits, reference_.logits));
    noise_.logit_difference = worse(noise_.logit_difference, max_difference(noisy_.logits, reference_.logits));
}

// Keeps the differing token with the greatest margin: it is the least like a tie, so rounding explains it worst.
void Comparison::follow(uint32_t token) {
    const uint32_t other = argmax(measured_.logits);
    const double margin = double(reference_.logits[token]) - reference_.logits[other];
    out_.same += other == token ? 1 : 0;
    if (other != token && (!out_.different || margin > out_.different->margin))
        out_.different = {uint32_t(out_.greedy.size()), other, token, margin,
                          max_difference(measured_.logits, reference_.logits)};
    out_.greedy.push_back(token);
}

void Comparison::compare_side(uint32_t layer, KvSide side) {
    StoredSide got = measured_.forward->stored(layer, side), want = reference_.forward->stored(layer, side),
               other = noisy_.forward->stored(layer, side);
    for (uint32_t position = 0; position < want.tokens; position++) {
        const bool prompt = position < out_.prompt_tokens;
        LayerAgreement &out = (prompt ? out_.prompt : out_.decoded)[layer],
                       &noise = (prompt ? noise_.prompt : noise_.decoded)[layer];
        for (uint32_t head = 0; head < want.heads; head++) {
            const Vector a = vector(got, head, position), b = vector(want, head, position), c = vector(other, head, position);
            if (!count(out.codes(side), out.scales(side), a, b)) note_first(layer, side, head, position);
            count(noise.codes(side), noise.scales(side), c, b);
            if (side == KvSide::key) continue;
            const size_t at = size_t(position) * want.heads + head, words = a.codes.size(), scales = a.scales.size();
            out.encoded.of++;
            out.encoded.equal += std::ranges::equal(a.codes, std::span(encoded_[layer].codes).subspan(at * words, words)) &&
                                 std::ranges::equal(a.scales, std::span(encoded_[layer].scales).subspan(at * scales, scales));
        }
    }
}

// In the prompt all positions of a layer are computed at once, so the order is that of layers. After it tokens come one by one,
// so the position counts first.
void Comparison::note_first(uint32_t layer, KvSide side, uint32_t head, uint32_t position) {
    const auto order = [&](const FirstDifference& d) {
        return std::tuple(d.position < out_.prompt_tokens ? 0 : d.position, d.layer, d.side == KvSide::value, d.position, d.head);
    };
    const FirstDifference here{layer, side, head, position};
    if (!out_.first || order(here) < order(*out_.first)) out_.first = here;
}

// A limit is noise_factor times what rounding alone does there, but at least the floor for this kind of cache.
void Comparison::set_limits() {
    const Floors floor = floors(reference_.forward->kv(), layers_, options_.fp16_products);
    for (const bool after : {false, true})
        for (uint32_t i = 0; i < layers_; i++) {
            LayerAgreement& out = (after ? out_.decoded : out_.prompt)[i];
            const LayerAgreement& n = (after ? noise_.decoded : noise_.prompt)[i];
            out.typical = median(errors_[after][i]);
            out.typical_limit = std::max(floor.typical, noise_factor * median(noise_errors_[after][i]));
            out.error_limit = std::max(floor.error, noise_factor * n.error);
            out.code_limit =
                std::max(i == 0 ? floor.first_codes : floor.codes,
                         noise_factor * std::max(n.codes(KvSide::key).different(), n.codes(KvSide::value).different()));
        }
    out_.logit_limit = std::max(floor.logits, noise_factor * noise_.logit_error);
    // Each of the two logits may be off as much as the worst one of a vector whose error is logit_limit.
    if (out_.different && noise_.logit_error > 0)
        out_.different->limit = 2 * out_.logit_limit * noise_.logit_difference / noise_.logit_error;
}

// The verdict names the first finding: of the prompt before the tokens after it, layer by layer, and in a layer the codes, the
// encoding of values, the residual stream; then the logits, and the token with the clearest difference. Each condition is a
// negated <=, so that NaN is a finding.
void Comparison::judge() {
    const auto blame = [&](std::string text) {
        if (out_.verdict.empty()) out_.verdict = std::move(text);
    };
    for (const auto* phase : {&out_.prompt, &out_.decoded}) {
        const char* where = phase == &out_.prompt ? "the prompt" : "the tokens after it";
        for (uint32_t i = 0; i < layers_; i++) {
            const LayerAgreement& l = (*phase)[i];
            const KvTypes types = reference_.forward->kv().at(i, layers_);
            for (const KvSide side : {KvSide::key, KvSide::value}) {
                const double different = l.codes(side).different();
                if (is_coded(side == KvSide::key ? types.k : types.v) && !(different <= l.code_limit))
                    blame(fmt::format("layer {}, {} of {}: {:.3g} % of the codes differ, and rounding explains {:.3g} %", i,
                                      side == KvSide::key ? "keys" : "values", where, different * 100, l.code_limit * 100));
            }
            if (l.encoded.equal != l.encoded.of)
                blame(fmt::format("layer {}, values of {}: {} of {} are not stored as the CPU stores the same vectors", i, where,
                                  l.encoded.of - l.encoded.equal, l.encoded.of));
            if (!(l.typical <= l.typical_limit))
                blame(fmt::format("layer {}, residual stream of {}: half of the tokens are off by {:.3g} or more, and rounding "
                                  "explains {:.3g}",
                                  i, where, l.typical, l.typical_limit));
            if (!(l.error <= l.error_limit))
                blame(fmt::format("layer {}, residual stream of {}: off by {:.3g}, and rounding explains {:.3g}", i, where,
                                  l.error, l.error_limit));
        }
    }
    if (!(out_.logit_error <= out_.logit_limit))
        blame(fmt::format("logits: off by {:.3g}, and rounding explains {:.3g}", out_.logit_error, out_.logit_limit));
    if (out_.different && !(out_.different->margin <= out_.different->limit))
        blame(fmt::format("token {} behind the prompt: another is chosen, although the reference prefers its own by {:.3g}, and "
                          "rounding explains {:.3g}",
                          out_.different->after + 1, out_.different->margin, out_.different->limit));
}

} // namespace

double worse(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

const LayerAgreement* Agreement::worst_layer() const {
    const LayerAgreement* worst = nullptr;
    for (const auto* layers : {&prompt, &decoded})
        for (const LayerAgreement& l : *layers)
            if (!worst || (!std::isnan(worst->error) && !(l.error <= worst->error))) worst = &l;
    return worst;
}

NoisyWeights with_noise(const Weights& weights, float relative, uint64_t seed) {
    NoisyWeights noisy{weights, {}};
    std::mt19937_64 random(seed);
    const auto change = [&](Tensor& tensor) {
        std::vector<float>& values = noisy.norms.emplace_back(to_floats(tensor));
        for (float& v : values) v *= random() % 2 == 0 ? 1 + relative : 1 - relative;
        tensor = {tensor.name, GgmlType::F32, tensor.rows, tensor.cols, std::as_bytes(std::span(values))};
    };
    noisy.norms.reserve(weights.layers.size() * 4 + 1);
    for (LayerWeights& layer : noisy.weights.layers) {
        change(layer.attn_norm);
        for (std::optional<Tensor>* norm : {&layer.attn_q_norm, &layer.attn_k_norm})
            if (*norm) change(**norm);
        change(layer.ffn_norm);
    }
    change(noisy.weights.output_norm);
    return noisy;
}

float noise_like_rounding(bool fp16_products) { return fp16_products ? 1e-3f : 1e-5f; }

std::optional<Agreement> compare(const Config& config, const MakeForward& measured, const MakeForward& reference,
                                 const MakeForward& noisy, std::span<const uint32_t> ids, const AgreementOptions& options) {
    ENSURE(!ids.empty(), "{} ids", ids.size());
    return Comparison(config, measured, reference, noisy, options).run(ids);
}

} // namespace tq::conformance
