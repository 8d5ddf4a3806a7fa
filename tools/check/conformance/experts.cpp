// Rows of the kernels of experts: route, group_routes, add_experts, and the products with stacks of experts' matrices. Routing is
// compared exactly, ids and order, also of equal logits, where the lower id comes first; weights have a limit. Logits are made so
// that one expert has all tokens, one has none, and tiles of pairs are not full.
// Products are run twice, with all tokens and with the first alone: its results must have the same bits, because no sum may
// depend on other tokens of the pass. x is followed by NaN, and y must be untouched past the last pair, since the number of pairs
// is known to the device only.
#include "model/gpu/experts.h"
#include "model/host/routes.h"
#include "model/reference/kernels.h"
#include "tools/check/conformance/products.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq::conformance {
namespace {

constexpr double weight_limit = 1e-5; // as of swiglu, for the same reason

// The logits of a router. some: expert 0 is every token's first, the last one nobody's, others are random; tied: whole numbers,
// the largest being zeros of both signs.
enum class Logits { some, tied, equal, nonfinite };

struct ExpertsShape {
    gpu::Experts experts;
    uint32_t rows, cols; // of one expert
    uint32_t tokens;
    uint32_t recorded = 0; // tokens that the pass is recorded for; 0: no more
    bool separate = false;
    uint32_t max_rows = 0; // per slice

    uint32_t max() const { return std::max(tokens, recorded); }
    uint32_t pairs() const { return tokens * experts.used; }
    std::string text() const {
        return fmt::format("{} of {} experts, {} x {}, {} {}token{}{}{}", experts.used, experts.count, rows, cols, tokens,
                           separate ? "separate " : "", tokens == 1 ? "" : "s",
                           recorded == 0 ? "" : fmt::format(" of {}", recorded),
                           max_rows == 0 ? "" : fmt::format(", slices of {} rows", max_rows));
    }
};

std::vector<float> logits_of(Random& random, Logits kind, const gpu::Experts& e, uint32_t tokens) {
    std::vector<float> out = random.normals(size_t(tokens) * e.count); // at most 5
    for (size_t i = 0; i < out.size(); i++) {
        const size_t expert = i % e.count;
        if (kind == Logits::some && expert == 0) out[i] = 6;
        if (kind == Logits::some && expert + 1 == e.count && e.used < e.count) out[i] = -6;
        if (kind == Logits::tied)
            out[i] = std::copysign(std::round(out[i]), i % 2 == 0 && std::fabs(out[i]) < 0.5f ? 1.0f : -1.0f);
        if (kind == Logits::equal) out[i] = 0.25f;
    }
    return out;
}

// The experts and weights of each token, by the reference.
host::Routes routes_of(std::span<const float> logits, const gpu::Experts& e) {
    host::Routes routes;
    host::route(routes, logits, e.count, e.used, e.normalise);
    return routes;
}

// The words of shaders/routes.h that ordering by expert should give; the pairs begin at word `first`.
struct TwinGroups {
    std::vector<uint32_t> ordered, tiles;

    TwinGroups(std::span<const uint32_t> ids, const gpu::Experts& e, uint32_t tile, uint32_t first) {
        const host::ExpertGroups groups = host::group_by_expert(ids, e.count);
        ordered = groups.pairs;
        for (const auto& group : groups.groups)
            for (uint32_t at = group.first; at < group.end; at += tile)
                tiles.insert(tiles.end(), {group.expert, first + at, first + std::min(at + tile, group.end)});
    }
};

std::vector<float> to_floats(std::span<const uint32_t> words) {
    std::vector<float> out(words.size());
    std::ranges::transform(words, out.begin(), [](uint32_t bits) { return std::bit_cast<float>(bits); });
    return out;
}

Outcome words_left_alone(std::span<const uint32_t> words, const char* what) {
    const bool left = std::ranges::all_of(words, [](uint32_t word) { return word == poison; });
    return {left, 0, 0, left ? "" : fmt::format("{} was written", what)};
}

Buffer routes_buffer(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s) {
    return rig.output(gpu::routes_bytes(tuning, s.experts, s.max()) / 4);
}

// Only products of blocks read pairs in the order of experts. If a vector's kernel takes them, there are no tiles, and the
// count of tiles is 0.
bool ordered(const gpu::Tuning& tuning, const ExpertsShape& s) {
    const bool separate = s.separate || s.max() == 1;
    return gpu::experts_kernel(tuning, GgmlType::F32, s.experts, s.max(), separate) != gpu::MatmulKernel::matvec;
}

Outcome route(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s, Logits kind) {
    const gpu::Experts& e = s.experts;
    const std::vector<float> logits = logits_of(rig.random, kind, e, s.tokens);
    const host::Routes twin = routes_of(logits, e);
    const Buffer routes = routes_buffer(rig, tuning, s), logits_buffer = rig.upload(logits), context = rig.context(0, s.tokens);
    rig.run(
        tuning, context, s.max(), 128,
        [&](gpu::Pass& pass) {
            gpu::route(pass, {routes, e}, logits_buffer);
        },
        1, s.separate);
    const std::vector<uint32_t> all = rig.read(routes);
    const uint32_t max = s.max() * e.used;
    const auto part = [&](uint32_t number, size_t count) { return std::span(all).subspan(4 + size_t(number) * max, count); };
    Outcome out = worse(compare_words(part(0, s.pairs()), twin.ids), rig.check(routes, {}, 0));
    out = worse(out, compare(to_floats(part(1, s.pairs())), twin.weights, weight_limit));
    out = worse(out, words_left_alone(part(0, max).subspan(s.pairs()), "the expert of a token that there is not"));
    std::vector<uint32_t> header{0, s.pairs()};
    if (ordered(tuning, s)) {
        const TwinGroups groups(twin.ids, e, gpu::expert_tile_pairs(tuning, e, s.max()), 4 + 2 * max);
        header[0] = uint32_t(groups.tiles.size() / 3);
        out = worse(out, compare_words(part(2, s.pairs()), groups.ordered));
        out = worse(out, compare_words(part(3, groups.tiles.size()), groups.tiles));
    }
    return worse(out, compare_words(std::span(all).first(2), header));
}

// The second token has a NaN, the third an infinity: they have some experts, each once, and no weights; their neighbours are
// unchanged.
Outcome route_nonfinite(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s, Logits) {
    const gpu::Experts& e = s.experts;
    std::vector<float> logits = logits_of(rig.random, Logits::some, e, s.tokens);
    const host::Routes twin = routes_of(logits, e);
    logits[2 * e.count - 1] = std::bit_cast<float>(0xffc00000u); // whatever its sign
    logits[2 * e.count + 1] = INFINITY;
    const Buffer routes = routes_buffer(rig, tuning, s), logits_buffer = rig.upload(logits), context = rig.context(0, s.tokens);
    rig.run(tuning, context, s.max(), 128, [&](gpu::Pass& pass) { gpu::route(pass, {routes, e}, logits_buffer); });
    const std::vector<uint32_t> all = rig.read(routes);
    for (uint32_t t = 0; t < s.tokens; t++) {
        const size_t first = size_t(t) * e.used;
        const std::vector<uint32_t> ids(all.begin() + ptrdiff_t(4 + first), all.begin() + ptrdiff_t(4 + first + e.used));
        const auto weights = to_floats(std::span(all).subspan(4 + size_t(s.max()) * e.used + first, e.used));
        const bool finite = t != 1 && t != 2;
        if (finite && !std::ranges::equal(ids, std::span(twin.ids).subspan(first, e.used)))
            return {false, 1, 0, fmt::format("token {} has other experts", t)};
        for (size_t i = 0; i < ids.size(); i++)
            if (ids[i] >= e.count || std::ranges::count(ids, ids[i]) != 1 || std::isnan(weights[i]) == finite)
                return {false, 1, 0, fmt::format("rank {} of token {}: expert {}, weight {}", i, t, ids[i], weights[i])};
    }
    return rig.check(routes, {}, 0);
}

// y has NaN for the tokens that the pass is recorded for and that are not there: a sum that reads one of them shows it.
Outcome add_up(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s, Logits) {
    const uint32_t used = s.experts.used, max = s.max() * used;
    const std::vector<float> h = rig.random.normals(size_t(s.tokens) * s.cols), weights = rig.random.normals(s.pairs());
    std::vector<float> y = rig.random.normals(size_t(s.pairs()) * s.cols), want = h;
    for (size_t pair = 0; pair < s.pairs(); pair++)
        for (size_t i = 0; i < s.cols; i++) want[pair / used * s.cols + i] += weights[pair] * y[pair * s.cols + i];
    y.resize(size_t(max) * s.cols, NAN);
    std::vector<uint32_t> words(4 + 2 * max, poison);
    words[1] = s.pairs();
    for (size_t i = 0; i < weights.size(); i++) words[4 + max + i] = std::bit_cast<uint32_t>(weights[i]);
    const Buffer h_buffer = rig.output(h), y_buffer = rig.upload(y), routes = rig.upload(std::as_bytes(std::span(words))),
                 context = rig.context(0, s.tokens);
    rig.run(tuning, context, s.max(), 128, [&](gpu::Pass& pass) {
        gpu::add_experts(pass, h_buffer, y_buffer, {routes, s.experts}, s.cols);
    });
    return rig.check(h_buffer, want, 1e-6);
}

// A stack of matrices, on the host and the device.
struct Stack {
    RandomTensor tensor;
    gpu::Matrix matrix;

    Stack(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const ExpertsShape& s)
        : tensor(rig.random, type, s.experts.count * s.rows, s.cols) {
        if (block_format(type)->has_factor) // each expert's own
            tensor.tensor.factors = rig.random.normals(s.experts.count);
        matrix = rig.matrix(tensor.tensor, s.max_rows, tuning.weight_interleave);
    }

    // Returns [pairs][rows]: the product of each pair's expert and row of x; `per_x` consecutive pairs share a row.
    std::vector<float> times(Rig& rig, std::span<const uint32_t> ids, std::span<const float> x, uint32_t per_x,
                             const gpu::Experts& e) const {
        const Tensor& all = tensor.tensor;
        const uint32_t rows = all.rows / e.count;
        std::vector<float> out(ids.size() * rows);
        for (size_t pair = 0; pair < ids.size(); pair++) {
            ref::matmul(rig.pool, std::span(out).subspan(pair * rows, rows), all.slice(ids[pair] * rows, rows),
                        x.subspan(pair / per_x * all.cols, all.cols));
        }
        return out;
    }
};

// The inputs of products of experts: x is followed by NaNs, and what is written past the last pair is found.
struct Inputs {
    std::vector<float> logits, x;
    host::Routes twin;
    Buffer logits_buffer, x_buffer, rounded;

    Inputs(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s, uint32_t rows_per_token)
        : logits(logits_of(rig.random, Logits::some, s.experts, s.tokens)),
          x(rig.random.normals(size_t(s.tokens) * rows_per_token * s.cols)), twin(routes_of(logits, s.experts)),
          logits_buffer(rig.upload(logits)), x_buffer(rig.upload(padded(size_t(s.max()) * rows_per_token * s.cols))),
          rounded(rig.output(gpu::rounded_bytes(tuning, s.max() * rows_per_token, s.cols) / 4)) {}

    std::vector<float> padded(size_t length) const {
        std::vector<float> out = x;
        out.resize(length, NAN);
        return out;
    }
};

// Runs `record` on the routes of a pass with the first `tokens` tokens; y: as often as it is long.
std::vector<uint32_t> run_pass(Rig& rig, const gpu::Tuning& tuning, const ExpertsShape& s, const Inputs& in, uint32_t tokens,
                               uint32_t recorded, const Buffer& y, uint32_t rows_per_token,
                               const std::function<void(gpu::Pass&, gpu::Inputs&, const gpu::Routes&)>& record) {
    // An earlier pass may have left the routes of more tokens; this pass is the first, so all are zero.
    const std::vector<std::byte> before(gpu::routes_bytes(tuning, s.experts, s.max()));
    const Buffer routes = rig.upload(before), context = rig.context(0, tokens);
    rig.run(
        tuning, context, recorded, 128,
        [&](gpu::Pass& pass) {
            gpu::Inputs inputs{in.x_buffer, in.rounded, false, rows_per_token};
            gpu::route(pass, {routes, s.experts}, in.logits_buffer);
            record(pass, inputs, {routes, s.experts});
        },
        1, s.separate);
    return rig.read(y);
}

gpu::MatmulKernel kernel_for(const gpu::Tuning& tuning, GgmlType type, const ExpertsShape& s) {
    return gpu::experts_kernel(tuning, type, s.experts, s.max(), s.separate || s.max() == 1);
}

// Products of a token's row and of a pair's; each then has the same bits without the other tokens.
Outcome products(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const ExpertsShape& s) {
    const Stack stack(rig, tuning, type, s);
    const double limit = limit_of(tuning, type, kernel_for(tuning, type, s), s.cols);
    Outcome out;
    for (const uint32_t rows_per_token : {1u, s.experts.used}) {
        const Inputs in(rig, tuning, s, rows_per_token);
        const std::vector<float> want = stack.times(rig, in.twin.ids, in.x, s.experts.used / rows_per_token, s.experts);
        const size_t length = size_t(s.max()) * s.experts.used * s.rows;
        const Buffer y = rig.output(length), alone = rig.output(length);
        const auto record = [&](const Buffer& to) {
            return [&](gpu::Pass& pass, gpu::Inputs& inputs, const gpu::Routes& routes) {
                gpu::matmul_experts(pass, to, stack.matrix, inputs, routes);
            };
        };
        const auto got = run_pass(rig, tuning, s, in, s.tokens, s.max(), y, rows_per_token, record(y));
        const auto first = run_pass(rig, tuning, s, in, 1, s.separate ? 1 : s.max(), alone, rows_per_token, record(alone));
        const size_t of_one = size_t(s.experts.used) * s.rows;
        out = worse(out, rig.check(y, want, limit));
        out = worse(out, words_left_alone(std::span(got).subspan(want.size(), length - want.size()), "a pair past the last"));
        out = worse(out, compare_words(std::span(got).first(of_one), std::span(first).first(of_one)));
    }
    return out;
}

// Splits the rows of products of pairs of rows, and returns silu(gate) * up.
std::vector<float> gated_pairs(Rig& rig, std::span<const float> product) {
    std::vector<float> gate, up;
    for (size_t i = 0; i < product.size(); i++) (i % 2 == 0 ? gate : up).push_back(product[i]);
    ref::swiglu(rig.pool, gate, up);
    return gate;
}

// silu(gate x) * (up x), of one stack of pairs of rows, and of two.
Outcome gated(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const ExpertsShape& s) {
    const Inputs in(rig, tuning, s, 1);
    const uint32_t used = s.experts.used;
    const size_t all = size_t(s.max()) * used * s.rows;
    const double limit = std::max(gated_limit, 4 * limit_of(tuning, type, kernel_for(tuning, type, s), s.cols));
    Stack one(rig, tuning, type, s), other(rig, tuning, type, s);
    std::vector<float> gate = one.times(rig, in.twin.ids, in.x, used, s.experts), want = gated_pairs(rig, gate);
    ref::swiglu(rig.pool, gate, other.times(rig, in.twin.ids, in.x, used, s.experts));
    std::vector<gpu::Matrix> stacks;
    const auto run = [&](std::span<const float> expected, size_t length) {
        const Buffer y = rig.output(length), both = rig.output(round_up(2 * length, 128));
        run_pass(rig, tuning, s, in, s.tokens, s.max(), y, 1,
                 [&](gpu::Pass& pass, gpu::Inputs& inputs, const gpu::Routes& routes) {
                     gpu::gated_experts(pass, y, both, stacks, inputs, routes);
                 });
        return rig.check(y, expected, limit);
    };
    stacks.push_back(std::move(one.matrix));
    const Outcome pairs = run(want, all / 2);
    stacks.push_back(std::move(other.matrix));
    return worse(pairs, run(gate, all));
}

// The same of a row whose norm was folded into the product before it.
Outcome gated_normed(Rig& rig, const gpu::Tuning& tuning, GgmlType type, const ExpertsShape& s) {
    constexpr float eps = 1e-6f;
    const Stack stack(rig, tuning, type, s);
    const RandomTensor w(rig.random, type, s.cols, 256);
    const gpu::Matrix matrix = rig.matrix(w.tensor, 0, tuning.weight_interleave);
    const std::vector<float> x = rig.random.normals(256), h = rig.random.normals(s.cols), norm = rig.random.normals(s.cols);
    std::vector<float> want_h(s.cols), normed(s.cols);
    ref::matmul(rig.pool, want_h, w.tensor, x);
    for (size_t i = 0; i < h.size(); i++) want_h[i] += h[i];
    ref::rms_norm(rig.pool, normed, want_h, norm, eps);
    const Inputs in(rig, tuning, s, 1);
    const auto want = gated_pairs(rig, stack.times(rig, in.twin.ids, normed, s.experts.used, s.experts));
    const uint32_t h_floats = (s.cols + 63) / 64 * 64;
    std::vector<float> h_before = h;
    h_before.resize(h_floats + gpu::normed_floats(s.cols), NAN);
    const Buffer h_buffer = rig.upload(h_before), x_buffer = rig.upload(x), norm_buffer = rig.upload(norm),
                 y = rig.output(want.size());
    std::vector<gpu::Matrix> stacks;
    stacks.push_back(rig.matrix(stack.tensor.tensor, s.max_rows, tuning.weight_interleave));
    run_pass(rig, tuning, s, in, 1, 1, y, 1, [&](gpu::Pass& pass, gpu::Inputs& inputs, const gpu::Routes& routes) {
        const gpu::Normed folded = gpu::matvec_residual(pass, h_buffer, h_floats, matrix, x_buffer, norm_buffer);
        gpu::gated_experts(pass, y, y, stacks, inputs, routes, gpu::FoldedNorm{folded, eps});
    });
    const double limit = limit_of(tuning, type, gpu::MatmulKernel::matvec, s.cols);
    return rig.check(y, want, std::max(2 * gated_limit, 4 * limit));
}

void add_routes(Rows& rows, const NamedTuning& variant) {
    using RouteBody = Outcome (*)(Rig&, const gpu::Tuning&, const ExpertsShape&, Logits);
    const auto row = [&](const char* kernel, RouteBody body, const ExpertsShape& s, Logits kind, const char* what) {
        rows.push_back({kernel, variant.name,
                        fmt::format("{}{} of {} experts, {} of {} tokens{}", what, s.experts.used, s.experts.count, s.tokens,
                                    s.max(), s.separate ? ", separate" : ""),
                        [=, tuning = variant.tuning](Rig& rig) { return body(rig, tuning, s, kind); }});
    };
    for (const ExpertsShape& s : {ExpertsShape{{8, 2}, 0, 0, 1},
                                  ExpertsShape{{128, 8}, 0, 0, 3, 4, true},
                                  {{128, 8}, 0, 0, 33, 41},
                                  {{5, 5}, 0, 0, 17},
                                  {{16, 1}, 0, 0, 21, 64},
                                  {{512, 16}, 0, 0, 66, 70}})
        row("route", route, s, Logits::some, "");
    for (const ExpertsShape& s : {ExpertsShape{{60, 4}, 0, 0, 19, 24}, ExpertsShape{{128, 8}, 0, 0, 5, 8, true}})
        row("route", route, s, Logits::tied, "ties, ");
    row("route", route, {{40, 3}, 0, 0, 100, 103}, Logits::equal, "equal logits, ");
    for (const uint32_t tokens : {1u, 9u})
        row("route", route, {{128, 8, false}, 0, 0, tokens}, Logits::some, "of softmax over all experts, ");
    row("route", route_nonfinite, {{40, 3}, 0, 0, 4, 6}, Logits::nonfinite, "infinities and NaNs, ");
    for (const ExpertsShape& s : {ExpertsShape{{8, 2}, 0, 64, 1}, {{128, 8}, 0, 1056, 3, 5}, {{16, 1}, 0, 96, 9, 12}})
        row("add_experts", add_up, s, Logits::some, fmt::format("{} columns, ", s.cols).c_str());
}

using ExpertsBody = Outcome (*)(Rig&, const gpu::Tuning&, GgmlType, const ExpertsShape&);

void add_experts(Rows& rows, const char* what, ExpertsBody body, const NamedTuning& variant, GgmlType type, const ExpertsShape& s,
                 bool full = false) {
    const char* kernel = "matmul";
    switch (kernel_for(variant.tuning, type, s)) {
    case gpu::MatmulKernel::tiled: kernel = "matmul_tiled"; break;
    case gpu::MatmulKernel::dot: kernel = "matmul_dot"; break;
    case gpu::MatmulKernel::coopmat: kernel = "matmul_coopmat"; break;
    case gpu::MatmulKernel::matvec: kernel = gpu::multiplies_digits(variant.tuning, type) ? "matvec_dot" : "matvec"; break;
    default: break;
    }
    const uint64_t bytes = 2 * gpu::device_row_bytes(type, s.cols) * s.rows * s.experts.count;
    rows.push_back({.kernel = fmt::format("{}, {}", kernel, what),
                    .variant = fmt::format("{}, {}", type_name(type), variant.name),
                    .shape = s.text(),
                    .run = [=, tuning = variant.tuning](Rig& rig) { return body(rig, tuning, type, s); },
                    .device_bytes = bytes,
                    .full_only = full});
}

constexpr GgmlType types[] = {GgmlType::F32, GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K};

// Separate rows, and blocks by matmul. Slices begin within an expert, and some experts have no rows in a slice.
void add_expert_products(Rows& rows, const NamedTuning& variant, GgmlType type) {
    for (const ExpertsShape& s : {ExpertsShape{{5, 2}, 67, 512, 1, 0, false, 50},
                                  {{8, 3}, 67, 256, 3, 4, true},
                                  {{5, 2}, 34, 512, 8, 0, true, 100},
                                  {{24, 2}, 67, 256, 9, 12, false, 150},
                                  {{5, 2}, 67, 256, 12, 15, false, 150},
                                  {{24, 2}, 34, 512, 33, 45},
                                  {{4, 4}, 35, 256, 12, 16}})
        add_experts(rows, "experts", products, variant, type, s);
    for (const ExpertsShape& s : {ExpertsShape{{5, 2}, 72, 256, 1, 0, false, 50},
                                  {{5, 2}, 72, 256, 3, 4, true},
                                  {{24, 2}, 40, 256, 9, 12},
                                  {{5, 2}, 40, 256, 12, 15}})
        add_experts(rows, "gated experts", gated, variant, type, s);
    if (variant.tuning.fold_norms)
        add_experts(rows, "gated experts, normed", gated_normed, variant, type, {{5, 2}, 72, 256, 1, 0, false, 50});
}

// Tiles of one expert's pairs, for an expert that all tokens have and for experts that few have. The last tile is not full.
void add_expert_tiles(Rows& rows, const NamedTuning& variant, GgmlType type) {
    const bool some = type == GgmlType::Q8_0 || type == GgmlType::Q4_K || !variant.tuning.matmul_coopmat;
    if (!some || (variant.tuning.matmul_coopmat && type == GgmlType::F32)) return;
    for (const ExpertsShape& s : {ExpertsShape{{5, 2}, 67, 512, 33, 40, false, 150}, {{4, 3}, 130, 256, 66, 68}})
        add_experts(rows, "experts", products, variant, type, s);
    add_experts(rows, "gated experts", gated, variant, type, {{5, 2}, 72, 256, 33, 40});
}

bool is_other(GgmlType type) { return std::ranges::find(types, type) == std::end(types); }

// The other formats, which have the same code but for that of a block: of one row and of a short block, and with the smallest
// tile of each kernel.
void add_products_of_other(Rows& rows, const NamedTuning& variant, GgmlType type) {
    if (!is_other(type) || variant.name == "small tiles") return;
    if (variant.name == vectors_in_digits && !gpu::multiplies_digits(variant.tuning, type)) return;
    for (const ExpertsShape& s : {ExpertsShape{{5, 2}, 67, 256, 1, 0, false, 50}, {{5, 2}, 67, 256, 12, 15, false, 150}})
        add_experts(rows, "experts", products, variant, type, s);
}

void add_tiles_of_other(Rows& rows, const NamedTuning& variant, GgmlType type) {
    const ExpertsShape s{{5, 2}, 67, 512, 33, 40, false, 150};
    if (!is_other(type) || variant.tuning.shared_bytes > 16384 || variant.tuning.matmul_blocks > 1) return;
    if (variant.tuning.matmul_dot && kernel_for(variant.tuning, type, s) != gpu::MatmulKernel::dot) return;
    add_experts(rows, "experts", products, variant, type, s);
}

} // namespace

void add_experts(Rows& rows, const Capabilities& device) {
    const std::vector<NamedTuning> all = variants(device);
    for (const NamedTuning& variant : all) add_routes(rows, variant);
    for (const NamedTuning& variant : all) {
        for (const GgmlType type : types) add_expert_products(rows, variant, type);
        for (const GgmlType type : weight_formats) add_products_of_other(rows, variant, type);
    }
    for (const NamedTuning& variant : tile_variants(device)) {
        for (const GgmlType type : types) add_expert_tiles(rows, with_table(variant, type), type);
        for (const GgmlType type : weight_formats) add_tiles_of_other(rows, with_table(variant, type), type);
    }
    const gpu::Experts of_a_model{16, 8}; // of the 128 of Qwen3-30B-A3B: its gate and up, and down
    for (const uint32_t tokens : {1u, 64u}) {
        add_experts(rows, "gated experts", gated, all[0], GgmlType::Q4_K, {of_a_model, 1536, 2048, tokens}, tokens > 1);
        add_experts(rows, "experts", products, all[0], GgmlType::Q6_K, {of_a_model, 2048, 768, tokens}, tokens > 1);
    }
}

} // namespace tq::conformance
