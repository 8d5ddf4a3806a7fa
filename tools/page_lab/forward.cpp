#include "tools/page_lab/forward.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/cpu/steps.h"
#include "model/reference/kernels.h"
#include "tools/page_lab/attention.h"
#include "tools/page_lab/linear.h"
#include <algorithm>
#include <charconv>

namespace tq::page_lab {

uint32_t Window::exact_tokens() const { return tokens == 0 ? 0 : tokens + 16 + (pages ? page : 0); }

double Window::bytes(double code_bytes, double exact_bytes, uint32_t context) const {
    const double exact = std::min(exact_tokens(), context), coded = pages ? context - std::min(context, tokens) : context;
    return coded * code_bytes + exact * exact_bytes;
}

Scheme parse_scheme(const std::string& text) {
    Scheme scheme{text, {}, {}, {}};
    const auto end = std::min(text.find(','), text.size());
    const std::string types = text.substr(0, end);
    const auto slash = std::min(types.find('/'), types.size());
    const std::string k = types.substr(0, slash), v = slash == types.size() ? k : types.substr(slash + 1);
    if (k != "exact") scheme.k = parse_tile_codec(k);
    if (v != "exact") scheme.v = parse_tile_codec(v);
    for (size_t at = end; at < text.size();) {
        const auto next = std::min(text.find(',', at + 1), text.size());
        const std::string word = text.substr(at + 1, next - at - 1);
        const auto equal = std::min(word.find('='), word.size());
        const std::string name = word.substr(0, equal), digits = word.substr(std::min(equal + 1, word.size()));
        uint32_t number = 0;
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error != std::errc() || stop != digits.data() + digits.size() || number > 4096)
            fail("{} is not window=N, pages=N or page=N with N up to 4096", word);
        if (name == "page" && number > 0)
            scheme.window.page = number;
        else if (name == "window" || name == "pages")
            scheme.window.tokens = number, scheme.window.pages = name == "pages";
        else
            fail("{} is not window=N, pages=N or page=N", word);
        at = next;
    }
    return scheme;
}

struct Lab::State {
    ForwardOptions options;
    ThreadPool pool{1};
    host::KvCache cache;
    host::Network net;
    std::vector<Statistics> statistics; // [layers][kv heads][sides]

    State(const Model& model, const ForwardOptions& options)
        : options(options), cache(host::make_cache(model.config, options, 1)),
          net(model.config, std::make_shared<LoadedWeights>(load_weights(pool, model.weights)), options.kv, cache.vectors(),
              options.context_size) {}
};

namespace {

ForwardOptions lab_options(bool norms, uint32_t context) {
    ForwardOptions options{.kv = KvOptions{KvType::f32, KvType::f32}, .context_size = context};
    options.kv.conditioning.kind = norms ? KeyConditioning::Kind::norms : KeyConditioning::Kind::none;
    options.cache_tokens = 1; // no step stores anything in it
    return options;
}

// The vectors of one side of a layer as queries see them.
struct Side {
    std::vector<float> exact, coded; // [tokens][kv heads][dim]
};

// x[tokens][dim] = those of one head of all[tokens][heads][dim].
void gather(std::span<float> x, std::span<const float> all, size_t head, size_t heads, size_t dim) {
    for (size_t t = 0; t * dim < x.size(); t++) std::copy_n(&all[(t * heads + head) * dim], dim, &x[t * dim]);
}

// What codecs of a layer need to know.
struct LayerTiles {
    const Config& config;
    uint32_t layer, page, rotations;
    std::span<const Statistics> statistics;
};

// Codes all whole and begun pages of a side. Returns the bits.
double code_side(Side& side, const TileCodec& codec, const LayerTiles& l, KvSide which, std::span<const float> q) {
    const Config& c = l.config;
    const size_t heads = c.num_key_value_heads, dim = c.head_dim, group = c.num_attention_heads / heads;
    const size_t tokens = side.exact.size() / heads / dim;
    double bits = 0;
    side.coded.resize(side.exact.size());
    for (size_t begin = 0; begin < tokens; begin += l.page)
        for (size_t head = 0; head < heads; head++) {
            const size_t n = std::min<size_t>(l.page, tokens - begin);
            std::vector<float> x(n * dim), y(n * dim), queries;
            gather(x, std::span(side.exact).subspan(begin * heads * dim), head, heads, dim);
            for (size_t t = begin; which == KvSide::key && t < begin + n; t++) {
                const auto rows = q.subspan((t * heads + head) * group * dim, group * dim);
                queries.insert(queries.end(), rows.begin(), rows.end());
            }
            const Statistics* known =
                l.statistics.empty() ? nullptr : &l.statistics[(l.layer * heads + head) * 2 + size_t(which)];
            const uint32_t layers = c.num_hidden_layers, rotation = l.rotations * layers + l.layer;
            bits += codec.code(y, {rotation, rotation + 1, uint32_t(head), which, n, dim, x, queries, known});
            for (size_t t = 0; t < n; t++) std::copy_n(&y[t * dim], dim, &side.coded[((begin + t) * heads + head) * dim]);
        }
    return bits;
}

// The weights of the output projection that take a kv head's values: the sum of Wo^T Wo over its query heads.
Matrix value_metric(const Tensor& output, const Config& c, size_t head) {
    const size_t dim = c.head_dim, group = c.num_attention_heads / c.num_key_value_heads;
    std::vector<float> row(output.cols), parts;
    for (uint32_t r = 0; r < output.rows; r++) {
        decode_row(output.type, row, output.row(r));
        for (size_t g = 0; g < group; g++) {
            const auto part = std::span(row).subspan((head * group + g) * dim, dim);
            parts.insert(parts.end(), part.begin(), part.end());
        }
    }
    return second_moment(parts, dim);
}

Matrix covariance(std::vector<float> x, size_t dim) {
    std::vector<double> mean(dim, 0.0);
    for (size_t i = 0; i < x.size(); i++) mean[i % dim] += x[i] / (double(x.size()) / double(dim));
    for (size_t i = 0; i < x.size(); i++) x[i] -= float(mean[i % dim]);
    return second_moment(x, dim);
}

} // namespace

Lab::Lab(const Model& model, bool norms, uint32_t context)
    : state_(std::make_unique<State>(model, lab_options(norms, context))) {}
Lab::~Lab() = default;

const Config& Lab::config() const { return state_->net.config; }

void Lab::calibrate(std::span<const uint32_t> ids) {
    const Config& c = config();
    const size_t heads = c.num_key_value_heads, dim = c.head_dim, group = c.num_attention_heads / heads;
    std::vector<Statistics> sums(size_t(c.num_hidden_layers) * heads * 2, {Matrix(dim * dim, 0.0), Matrix(dim * dim, 0.0)});
    const auto add = [](Matrix& to, const Matrix& m) { std::ranges::transform(to, m, to.begin(), std::plus()); };
    const auto of_layer = [&](uint32_t layer, std::span<const float> q, std::span<const float> k, std::span<const float> v) {
        const size_t tokens = k.size() / heads / dim;
        for (size_t head = 0; head < heads; head++) {
            Statistics* const out = &sums[(layer * heads + head) * 2];
            std::vector<float> x(tokens * dim), queries(tokens * group * dim);
            gather(queries, q, head, heads, group * dim);
            gather(x, k, head, heads, dim);
            add(out[0].covariance, covariance(x, dim));
            add(out[0].metric, second_moment(queries, dim));
            gather(x, v, head, heads, dim);
            add(out[1].covariance, covariance(x, dim));
            add(out[1].metric, value_metric(state_->net.layers[layer].attn_output.tensor, c, head));
        }
    };
    const size_t context = state_->options.context_size;
    for (size_t at = 0; at < ids.size(); at += context)
        run(ids.subspan(at, std::min(context, ids.size() - at)), parse_scheme("exact"), of_layer);
    state_->statistics = std::move(sums);
}

Result Lab::run(std::span<const uint32_t> ids, const Scheme& scheme, const OnVectors& on_vectors, uint32_t rotations) const {
    const host::Network& net = state_->net;
    const Config& c = net.config;
    ENSURE(ids.size() <= state_->options.context_size, "{} tokens", ids.size());
    ThreadPool pool(1);
    const std::vector<host::Row> rows = host::make_rows(0, 0, uint32_t(ids.size()));
    const host::OnResult nothing;
    host::Pass pass(pool, net, rows, nothing, false);
    host::Activations x;
    x.ids = ids;
    x.resize(c, rows.size());
    Result out;
    cpu::embed(pass, x.h, net.token_embd, ids);
    for (const host::Layer& l : net.layers) {
        pass.begin(l);
        cpu::rms_norm(pass, x.a, x.h, l.attn_norm);
        cpu::matmul(pass, {{x.q, l.attn_q}, {x.k, l.attn_k}, {x.v, l.attn_v}}, x.a);
        cpu::q_norm_rope(pass, l, x.q);
        ref::q_norm_rope(pool, x.k, l.head_norms.k, pass.rope, c.num_key_value_heads, c.head_norm_eps(), 1, nullptr,
                         l.head_norms.k_conditions);
        if (on_vectors) on_vectors(l.number, x.q, x.k, x.v);
        Side k{x.k, x.k}, v{x.v, x.v};
        const LayerTiles tiles{c, l.number, scheme.window.page, rotations, state_->statistics};
        if (scheme.k) out.k_bits += code_side(k, *scheme.k, tiles, KvSide::key, x.q);
        if (scheme.v) out.v_bits += code_side(v, *scheme.v, tiles, KvSide::value, {});
        for (Side* side : {&k, &v})
            if (scheme.k || scheme.v) // what is exact is kept in fp16
                std::ranges::transform(side->exact, side->exact.begin(), stored_half);
        attention(x.attn, x.q, {k.exact, k.coded, v.exact, v.coded}, c, scheme.window);
        cpu::matmul_add(pass, x.h, l.attn_output, x.attn);
        cpu::feed_forward_half(pass, l, x);
    }
    x.resize_head(c, rows.size());
    cpu::head(pass, net, x);
    for (size_t t = 0; t < rows.size(); t++) {
        const auto row = std::span(x.logits).subspan(t * c.vocab_size, c.vocab_size);
        out.logits.emplace_back(row.begin(), row.end());
    }
    const double vectors = double(rows.size()) * c.num_hidden_layers * c.num_key_value_heads;
    out.k_bits = scheme.k ? out.k_bits / vectors : 16.0 * c.head_dim;
    out.v_bits = scheme.v ? out.v_bits / vectors : 16.0 * c.head_dim;
    return out;
}

} // namespace tq::page_lab
