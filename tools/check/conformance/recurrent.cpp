// Rows of the kernels of recurrent layers, and of the hidden states that a head for multi-token prediction goes on from. States
// are not zeros at first, and several passes follow each other, so that what a pass leaves is what the next reads. The promises
// beyond accuracy:
// - 260 rows give equal bits in one pass, in parts, and as separate rows (divisions);
// - rows that are pending and taken back, as rejected drafts are, leave the states that plain decoding leaves (taken_back);
// - NaN in a query, key or value of one head stays in that head.
#include "model/gpu/recurrent.h"
#include "base/ensure.h"
#include "model/gpu/elementwise.h"
#include "model/reference/recurrent.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tq::conformance {
namespace {

constexpr uint32_t dim = 128;
constexpr float recurrent_eps = 0.01f; // a model's would be lost in the limits
constexpr double row_limit = 1e-5;     // as of swiglu, for the same reason
constexpr double rule_limit = 2e-6;    // sums of 128 products, over some hundred rows that follow from each other

// Like compare(), but NaN must be where `want` has NaN, and nowhere else.
Outcome compare_with_nans(std::span<const uint32_t> words, std::span<const float> want, double limit) {
    std::vector<float> got(want.size()), finite(want.begin(), want.end());
    std::memcpy(got.data(), words.data(), got.size() * 4);
    for (size_t i = 0; i < got.size(); i++) {
        if (std::isnan(want[i]) != std::isnan(got[i]) || words[i] == poison)
            return {false, 1, 0, fmt::format("element {} is {} and should be {}", i, got[i], want[i])};
        if (std::isnan(want[i])) got[i] = finite[i] = 0;
    }
    return compare(got, finite, limit);
}

// Rows of a slot in a pass.
struct Run {
    uint32_t slot, count;
};
struct RunPass {
    std::vector<Run> runs;
    bool separate = false;
    uint32_t count() const {
        uint32_t sum = 0;
        for (const Run& run : runs) sum += run.count;
        return sum;
    }
};

// The passes of a row, one after the other, on states that are not zeros at first.
struct Passes {
    std::string name;
    std::vector<RunPass> all;
    uint32_t slots = 1;
    bool full_only = false;

    uint32_t max() const {
        uint32_t max = 0;
        for (const RunPass& pass : all) max = std::max(max, pass.count());
        return max;
    }
};

gpu::PassRows rows_of(const RunPass& pass) {
    gpu::PassRows rows;
    uint32_t position = 3; // no kernel here reads positions
    for (const Run& run : pass.runs) rows.add(run.slot, position++, std::vector<uint32_t>(run.count), 0, pass.separate);
    return rows;
}

std::vector<host::Row> host_rows(const RunPass& pass) {
    std::vector<host::Row> rows;
    for (const Run& run : pass.runs)
        for (uint32_t i = 0; i < run.count; i++) rows.push_back({run.slot, i});
    return rows;
}

std::string text(const Recurrent& r) {
    return fmt::format("{} key heads, {} value heads{}", r.key_heads, r.value_heads,
                       r.value_heads == r.key_heads ? ""
                       : r.tiled_heads              ? " tiled"
                                                    : " grouped");
}

// A layer on the device and in plain loops: its states, and the buffer of its rows.
class Layer {
  public:
    Layer(Rig& rig, const Recurrent& shape, uint32_t slots, uint32_t tokens, uint32_t pending = 0)
        : states(shape, slots), rig_(rig), shape_(shape), at_(shape, tokens), pending_(pending), device_states_(fill(rig)) {}

    host::LayerStates states; // of the reference

    // Puts rows into a buffer of poison; step() then refers to it.
    void put(const std::vector<std::pair<uint64_t, std::span<const float>>>& parts) {
        content_.assign(at_.floats, std::bit_cast<float>(poison));
        for (const auto& [at, values] : parts) std::ranges::copy(values, content_.begin() + std::ptrdiff_t(at));
        rows_.emplace(rig_.output(content_));
    }
    gpu::RecurrentStep step() const { return {shape_, *rows_, at_, device_states_, pending_}; }
    const gpu::RecurrentRows& at() const { return at_; }
    // Compares these parts of the rows, and every other word with what was put there. These parts are then taken out of what was
    // read: what is expected must not have in it what the device computed.
    Outcome check_rows(const std::vector<std::pair<uint64_t, std::span<const float>>>& parts) {
        std::vector<uint32_t> words = rig_.read(*rows_), untouched(content_.size());
        std::memcpy(untouched.data(), content_.data(), content_.size() * 4);
        Outcome out = rig_.check(*rows_, {}, 0);
        for (const auto& [at, want] : parts) {
            out = worse(out, compare_with_nans(std::span(words).subspan(at, want.size()), want, row_limit));
            std::copy_n(untouched.begin() + std::ptrdiff_t(at), want.size(), words.begin() + std::ptrdiff_t(at));
        }
        return worse(out, compare_words(words, untouched));
    }
    Outcome check_states(double limit = 0) {
        return worse(compare_with_nans(rig_.read(device_states_), states.values, limit), rig_.check(device_states_, {}, 0));
    }
    const Buffer& device_states() const { return device_states_; }

  private:
    Buffer fill(Rig& rig) {
        states.values = rig.random.normals(states.values.size());
        if (pending_ == 0) return rig.output(states.values);
        ENSURE(states.slots == 1, "{} slots", states.slots);
        std::vector<float> with_pending(gpu::RecurrentSlot(shape_, pending_).floats, std::bit_cast<float>(poison));
        std::ranges::copy(states.values, with_pending.begin());
        return rig.output(with_pending);
    }

    Rig& rig_;
    const Recurrent shape_;
    const gpu::RecurrentRows at_;
    const uint32_t pending_;
    const Buffer device_states_;
    std::vector<float> content_;
    std::optional<Buffer> rows_;
};

Buffer context_of(Rig& rig, const RunPass& pass, uint32_t slots) {
    return rig.context(rows_of(pass), std::vector<std::vector<uint32_t>>(slots, {0}));
}

// Runs the passes one after the other, and compares each one's channels, gates and states with the reference's. nonfinite: NaN in
// a query and a value, and a key whose squares exceed fp32.
Outcome delta_inputs(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, const Passes& passes, bool nonfinite = false) {
    const size_t channels = r.channels(), heads = r.value_heads;
    const auto taps = rig.random.normals(4 * channels), dt = rig.random.normals(heads, 3);
    std::vector<float> a = rig.random.normals(heads, 4);
    for (float& v : a) v = -std::fabs(v);
    const Buffer weights = rig.upload(gpu::delta_input_floats(taps, a, dt));
    Layer layer(rig, r, passes.slots, passes.max() + 2);
    Outcome out;
    for (const RunPass& pass : passes.all) {
        const uint32_t rows = pass.count();
        auto x = rig.random.normals(rows * channels), betas = rig.random.normals(rows * heads, 30),
             alphas = rig.random.normals(rows * heads, 15);
        if (nonfinite) {
            x[r.key_size() - 1] = x[channels - 7] = std::numeric_limits<float>::quiet_NaN(); // of the first query and value
            const uint32_t key = 2 * r.key_size() - dim;
            for (uint32_t i = key; i < key + dim; i++) // the squares of the last row's key exceed fp32
                x[(rows - 1) * channels + i] = std::copysign(3e19f, taps[4 * i + 3]);
        }
        layer.put({{layer.at().inputs, x}, {layer.at().betas, betas}, {layer.at().alphas, alphas}});
        rig.run(
            tuning, context_of(rig, pass, passes.slots), rows + 2, dim,
            [&](gpu::Pass& p) { gpu::delta_inputs(p, layer.step(), weights, recurrent_eps); }, uint32_t(pass.runs.size()) + 1,
            pass.separate);
        ref::conv_silu(rig.pool, x, taps, layer.states, host_rows(pass));
        ref::l2_norm(rig.pool, x, r, recurrent_eps);
        ref::state_gates(rig.pool, betas, alphas, a, dt);
        std::vector<float> gates;
        for (size_t i = 0; i < betas.size(); i++) gates.insert(gates.end(), {betas[i], alphas[i]});
        out = worse(out, layer.check_rows({{layer.at().outputs, x}, {layer.at().gates, gates}}));
        out = worse(out, layer.check_states());
        if (!out.passed) break;
    }
    return out;
}

// usual: the state is written and forgotten as models do it; extreme: all or nothing of either; nonfinite: a query, a key and a
// value are NaN.
enum class Gates { usual, extreme, nonfinite };

std::vector<float> gates_of(Random& random, Gates kind, size_t count) {
    std::vector<float> out = random.normals(2 * count);
    for (size_t i = 0; i < out.size(); i++)
        out[i] = kind == Gates::extreme ? (out[i] > 0 ? 1.0f : 0.0f) : (i % 2 == 0 ? 1 : 0.9f) / (1 + std::exp(-2 * out[i]));
    return out;
}

// Queries, keys and values as delta_inputs leaves them.
std::vector<float> channels_of(Random& random, const Recurrent& r, uint32_t rows) {
    std::vector<float> out = random.normals(size_t(rows) * r.channels());
    for (uint32_t t = 0; t < rows; t++)
        for (uint32_t head = 0; head < 2 * r.key_heads; head++) {
            const std::span x = std::span(out).subspan(size_t(t) * r.channels() + head * dim, dim);
            float squares = 0;
            for (const float v : x) squares += v * v;
            for (float& v : x) v /= std::sqrt(squares) * (head < r.key_heads ? std::sqrt(float(dim)) : 1);
        }
    return out;
}

// Compares the results [rows][value_size] of each pass, and the states after the last one.
Outcome delta_rule(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, const Passes& passes, Gates kind) {
    Layer layer(rig, r, passes.slots, passes.max() + 2);
    Outcome out;
    for (const RunPass& pass : passes.all) {
        const uint32_t rows = pass.count();
        std::vector<float> x = channels_of(rig.random, r, rows);
        if (kind == Gates::nonfinite) {
            const float nan = std::numeric_limits<float>::quiet_NaN();
            x[dim - 1] = nan;                                                      // of the first row's query 0
            x[size_t(rows - 1) * r.channels() + 2 * r.key_size() + dim + 7] = nan; // of the last one's value 1
        }
        const std::vector<float> gates = gates_of(rig.random, kind, size_t(rows) * r.value_heads);
        layer.put({{layer.at().outputs, x}, {layer.at().gates, gates}});
        std::vector<float> want(size_t(rows) * r.value_size()), betas, alphas;
        for (size_t i = 0; i < gates.size(); i += 2) {
            betas.push_back(gates[i]);
            alphas.push_back(gates[i + 1]);
        }
        ref::delta_rule(rig.pool, want, x, betas, alphas, layer.states, host_rows(pass));
        const Buffer y = rig.output(want.size());
        rig.run(
            tuning, context_of(rig, pass, passes.slots), rows + 2, dim,
            [&](gpu::Pass& p) { gpu::delta_rule(p, y, layer.step()); }, uint32_t(pass.runs.size()) + 1, pass.separate);
        out = worse(out, worse(compare_with_nans(rig.read(y), want, rule_limit), rig.check(y, {}, 0)));
        out = worse(out, layer.check_rows({}));
        if (!out.passed) break;
    }
    return worse(out, layer.check_states(rule_limit));
}

// Both kernels on rows of one slot, in passes of `step`: results and states.
struct Divided {
    std::vector<uint32_t> y, states;
};
Divided divided(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, uint32_t rows, uint32_t step, bool separate,
                std::span<const float> inputs) {
    const size_t heads = r.value_heads;
    rig.random = Random(5);
    const Buffer weights = rig.upload(
        gpu::delta_input_floats(rig.random.normals(4ull * r.channels()), std::vector(heads, -0.5f), std::vector(heads, -1.0f)));
    Layer layer(rig, r, 1, step);
    Divided out;
    for (uint32_t first = 0, count; first < rows; first += count) {
        count = std::min(step, rows - first);
        const auto part = [&](size_t cols, size_t before) { return inputs.subspan(before * rows + first * cols, count * cols); };
        layer.put({{layer.at().inputs, part(r.channels(), 0)},
                   {layer.at().betas, part(heads, r.channels())},
                   {layer.at().alphas, part(heads, r.channels() + heads)}});
        const RunPass pass{{{0, count}}, separate};
        const Buffer y = rig.output(size_t(count) * r.value_size());
        rig.run(
            tuning, context_of(rig, pass, 1), step, dim,
            [&](gpu::Pass& p) {
                gpu::delta_inputs(p, layer.step(), weights, recurrent_eps);
                gpu::delta_rule(p, y, layer.step());
            },
            1, separate);
        const std::vector<uint32_t> words = rig.read(y);
        out.y.insert(out.y.end(), words.begin(), words.begin() + std::ptrdiff_t(count * r.value_size()));
    }
    out.states = rig.read(layer.device_states());
    return out;
}

// Bits are compared, and not errors: a prompt that is cut in another way, or found in part in a prefix cache, must leave the
// state that it leaves when it is run as one.
Outcome divisions(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, uint32_t rows) {
    const std::vector<float> inputs = rig.random.normals(size_t(rows) * (r.channels() + 2 * r.value_heads));
    const Divided whole = divided(rig, tuning, r, rows, rows, false, inputs);
    Outcome out;
    for (const auto& [step, separate] : {std::pair{255u, false}, {7u, false}, {8u, true}, {1u, true}}) {
        const Divided other = divided(rig, tuning, r, rows, step, separate, inputs);
        out = worse(out, worse(compare_words(other.y, whole.y), compare_words(other.states, whole.states)));
    }
    return out;
}

// A pass with drafts: how many rows are certain, how many drafts follow, and how many of these are right.
struct Drafts {
    uint32_t certain, drafts, right;
};

// Runs both kernels on the same rows as divided(), in passes that leave rows pending. Wrong rows are taken back. At the end the
// pending rows are applied by a pass without rows.
Divided drafted(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, uint32_t rows, std::span<const float> inputs) {
    constexpr uint32_t pending = 4, max = 6, begin = 3;
    constexpr Drafts kinds[] = {{1, 3, 3}, {1, 4, 0}, {0, 3, 3}, {1, 4, 4}, {0, 3, 1}, {1, 0, 0}, {1, 2, 1}};
    const size_t heads = r.value_heads;
    rig.random = Random(5);
    const Buffer weights = rig.upload(
        gpu::delta_input_floats(rig.random.normals(4ull * r.channels()), std::vector(heads, -0.5f), std::vector(heads, -1.0f)));
    Layer layer(rig, r, 1, max, pending);
    Divided out;
    uint32_t at = 0, settled = 0;
    Buffer y = rig.output(max * size_t(r.value_size()));
    for (uint32_t pass = 0; at < rows; pass++) {
        const Drafts kind = kinds[pass % std::size(kinds)];
        const uint32_t count = 1 + kind.drafts, right = std::min(kind.right, rows - at - 1);
        const auto part = [&](size_t cols, size_t before) {
            std::vector<float> all = rig.random.normals(count * cols);
            std::ranges::copy(inputs.subspan(before * rows + at * cols, (1 + right) * cols), all.begin());
            return all;
        };
        const auto x = part(r.channels(), 0), betas = part(heads, r.channels()), alphas = part(heads, r.channels() + heads);
        layer.put({{layer.at().inputs, x}, {layer.at().betas, betas}, {layer.at().alphas, alphas}});
        gpu::PassRows pass_rows;
        pass_rows.add(0, begin + at, std::vector<uint32_t>(count), 0, true, {begin + settled, begin + at + kind.certain});
        y = rig.output(max * size_t(r.value_size()));
        rig.run(
            tuning, rig.context(pass_rows, std::vector<std::vector<uint32_t>>(1, {0})), max, dim,
            [&](gpu::Pass& p) {
                gpu::delta_inputs(p, layer.step(), weights, recurrent_eps);
                gpu::delta_rule(p, y, layer.step());
            },
            1, true);
        const std::vector<uint32_t> words = rig.read(y);
        out.y.insert(out.y.end(), words.begin(), words.begin() + std::ptrdiff_t((1 + right) * r.value_size()));
        settled = at + kind.certain;
        at += 1 + right;
    }
    gpu::PassRows none;
    none.add(0, begin + at, std::vector<uint32_t>(1), 0, true, {begin + settled, begin + at});
    rig.run(
        tuning, rig.context(none, std::vector<std::vector<uint32_t>>(1, {0})), 1, dim,
        [&](gpu::Pass& p) { gpu::settle(p, y, layer.step(), weights); }, 1, true);
    out.states = rig.read(layer.device_states());
    out.states.resize(layer.states.values.size());
    return out;
}

Outcome taken_back(Rig& rig, const gpu::Tuning& tuning, const Recurrent& r, uint32_t rows) {
    const std::vector<float> inputs = rig.random.normals(size_t(rows) * (r.channels() + 2 * r.value_heads));
    Divided whole = divided(rig, tuning, r, rows, rows, false, inputs);
    const Divided other = drafted(rig, tuning, r, rows, inputs);
    whole.states.resize(other.states.size()); // without what lies behind them
    return worse(compare_words(other.y, whole.y), compare_words(other.states, whole.states));
}

// The states before the rows of a pass, and those that are kept of them.
Outcome hidden_states(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t ring, const gpu::PassRows& rows,
                      uint32_t slots) {
    host::LastStates kept(slots, ring, cols);
    kept.values = rig.random.normals(kept.values.size());
    const std::vector<host::Row> of = host::rows_of(rows);
    const auto x = rig.random.normals(of.size() * cols);
    std::vector<float> before(x.size());
    host::states_before(before, x, kept, of);
    const Buffer y = rig.output(before.size()), states = rig.output(kept.values), x_buffer = rig.upload(x),
                 context = rig.context(rows, std::vector<std::vector<uint32_t>>(slots, {0}));
    rig.run(
        tuning, context, rows.count() + 2, dim,
        [&](gpu::Pass& pass) {
            gpu::states_before(pass, y, x_buffer, states, cols, ring);
            gpu::keep_states(pass, states, x_buffer, cols, ring);
        },
        std::max(uint32_t(rows.spans.size()), 1u), rows.spans.empty());
    host::keep_states(kept, x, of);
    return worse(rig.check(y, before, 0), rig.check(states, kept.values, 0));
}

// Rows at the beginning of a sequence and within one, fewer and more than are kept.
std::vector<std::pair<std::string, gpu::PassRows>> hidden_passes() {
    gpu::PassRows separate, block;
    for (const auto& [slot, position, count] : {std::tuple{2u, 0u, 1u}, {0u, 5u, 3u}, {1u, 40u, 2u}})
        separate.add(slot, position, std::vector<uint32_t>(count), 0, true);
    for (const auto& [slot, position, count] : {std::tuple{1u, 0u, 3u}, {0u, 7u, 9u}})
        block.add(slot, position, std::vector<uint32_t>(count), 0, false);
    return {{"separate rows of slots", separate}, {"blocks of slots", block}};
}

} // namespace

void add_recurrent(Rows& rows, const Capabilities& device) {
    const std::vector<Passes> passes = {
        {"1, then 1, then 1 and 1", {{{{0, 1}}, true}, {{{0, 1}}, true}, {{{0, 1}}, true}, {{{0, 1}}, true}}},
        {"2, then 1, then 3", {{{{0, 2}}}, {{{0, 1}}, true}, {{{0, 3}}}}},
        {"8 separate rows of a slot", {{{{0, 8}}, true}, {{{0, 3}}, true}}},
        {"separate rows of slots 6, 1 and 4, each with some",
         {{{{6, 1}, {1, 3}, {4, 2}}, true}, {{{4, 1}, {6, 4}}, true}, {{{1, 1}, {4, 1}, {6, 1}}, true}},
         7},
        {"blocks of slots 5, 0 and 3", {{{{5, 7}, {0, 1}, {3, 2}}}, {{{3, 4}, {5, 1}}}}, 6},
        {"257, then 255", {{{{0, 257}}}, {{{0, 255}}}}},
        {"256, then 1 of slot 2, beside 4 of slot 1", {{{{2, 256}}}, {{{1, 4}, {2, 1}}}}, 3},
    };
    const Recurrent shapes[] = {{1, 1, dim, 4, true},   {1, 3, dim, 4, false},  {2, 4, dim, 4, true},   {2, 6, dim, 4, false},
                                {2, 16, dim, 4, true},  {16, 16, dim, 4, true}, {16, 32, dim, 4, true}, {16, 32, dim, 4, false},
                                {16, 48, dim, 4, true}, {16, 64, dim, 4, true}, {16, 128, dim, 4, true}};
    for (const NamedTuning& variant : variants(device)) {
        const gpu::Tuning tuning = variant.tuning;
        for (const Recurrent& shape : shapes)
            for (const Passes& each : passes) {
                const bool large = shape.key_heads == 16, is_long = each.max() > 16;
                if (large && is_long) continue;
                const std::string what = fmt::format("{}, {}", text(shape), each.name);
                const bool full_only = large && &each != &passes[3];
                rows.push_back({.kernel = "delta_inputs",
                                .variant = variant.name,
                                .shape = what,
                                .run = [=](Rig& rig) { return delta_inputs(rig, tuning, shape, each); },
                                .full_only = full_only});
                rows.push_back({.kernel = "delta_rule",
                                .variant = variant.name,
                                .shape = what,
                                .run = [=](Rig& rig) { return delta_rule(rig, tuning, shape, each, Gates::usual); },
                                .full_only = full_only});
                if (large || is_long || shape.value_heads < 2) continue;
                rows.push_back({"delta_inputs", variant.name, what + ", with NaNs and squares that overflow",
                                [=](Rig& rig) { return delta_inputs(rig, tuning, shape, each, true); }});
                rows.push_back({"delta_rule", variant.name, what + ", gates of 0 and 1",
                                [=](Rig& rig) { return delta_rule(rig, tuning, shape, each, Gates::extreme); }});
                rows.push_back({"delta_rule", variant.name, what + ", with NaNs",
                                [=](Rig& rig) { return delta_rule(rig, tuning, shape, each, Gates::nonfinite); }});
            }
        for (const Recurrent& shape : {Recurrent{1, 2, dim, 4, true}, {3, 6, dim, 4, false}})
            rows.push_back({"delta_rule", variant.name, fmt::format("{}, 260 rows in equal bits whole and in parts", text(shape)),
                            [=](Rig& rig) { return divisions(rig, tuning, shape, 260); }});
        for (const Recurrent& shape : {Recurrent{1, 1, dim, 4, true}, {2, 6, dim, 4, false}})
            rows.push_back({"delta_rule", variant.name,
                            fmt::format("{}, 40 rows in equal bits with drafts that are taken back", text(shape)),
                            [=](Rig& rig) { return taken_back(rig, tuning, shape, 40); }});
        for (const auto& [name, runs] : hidden_passes())
            for (const auto& [cols, ring] : {std::pair{32u, 2u}, {1024u, 4u}})
                for (const char* kernel : {"states_before", "keep_states"})
                    rows.push_back({kernel, variant.name, fmt::format("{} columns, {} kept, {}", cols, ring, name),
                                    [=, runs = runs, cols = cols, ring = ring](Rig& rig) {
                                        return hidden_states(rig, tuning, cols, ring, runs, 3);
                                    }});
    }
}

} // namespace tq::conformance
