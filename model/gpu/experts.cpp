// Products of a mixture of experts. The router's logits give each token its experts and their weights (route). A pair is a token
// and one of its experts. With few pairs per expert, each pair is a matrix-vector product of its own (are_alone): matvec takes
// the expert's number from the routes. Otherwise group_routes sorts the pairs by expert and cuts those of an expert into tiles. A
// workgroup then multiplies one tile by the expert's matrix, so weights are read once per tile. The host does not know how many
// tiles there will be, so a dispatch has workgroups for the maximum (max_tiles), and superfluous ones end at once. At last
// add_experts sums a token's results by rank, so the order of additions does not depend on the grouping. The matrices of all
// experts of a layer are one stack; expert e begins at row e * rows.
#include "model/gpu/experts.h"
#include "base/ensure.h"
#include "model/gpu/elementwise.h"
#include "model/gpu/products.h"

namespace tq::gpu {
namespace {

// Whether products of blocks have kernels with tiles in shared memory.
bool has_tiles(const Tuning& t) { return t.matmul_tiled || t.matmul_dot || t.matmul_coopmat; }

// Whether an expert has, on average, at most `pairs` pairs.
bool has_few(uint32_t pairs, const Experts& e, uint32_t tokens) { return uint64_t(tokens) * e.used <= uint64_t(pairs) * e.count; }

// Whether pairs are multiplied one by one. On processors a tile takes as long as its pairs one after the other, so tiles that are
// not full only cost time. An H200 takes as long for three pairs of Qwen3-30B-A3B's experts as for a tile of cooperative
// matrices.
bool are_alone(const Tuning& t, const Experts& e, uint32_t tokens) {
    return has_few(t.matvec_lanes == 1 ? t.matmul_tokens : 2, e, tokens);
}

// Each expert that has any pairs may have one tile that is not full.
uint32_t max_tiles(uint32_t pairs, uint32_t experts, uint32_t tile) { return pairs / tile + std::min(experts, pairs); }

// Offsets of the parts of the routes of a pass of `tokens` tokens, in words.
struct RoutesLayout {
    uint32_t pairs, weights, ordered, tiles;

    RoutesLayout(uint32_t tokens, const Experts& e)
        : pairs(tokens * e.used), weights(ROUTES_HEADER_WORDS + pairs), ordered(weights + pairs), tiles(ordered + pairs) {}
};

Pairs pairs_of(const Pass& pass, const Routes& routes, uint32_t rows_per_token) {
    const Experts& e = routes.experts;
    ENSURE(rows_per_token == 1 || rows_per_token == e.used, "{} rows of {} experts", rows_per_token, e.used);
    const RoutesLayout at(pass.tokens, e);
    return {.routes = routes.buffer,
            .experts = e.count,
            .used = e.used,
            .per_x = e.used / rows_per_token,
            .tiles_at = at.tiles,
            .max_tiles = max_tiles(at.pairs, e.count, expert_tile_pairs(pass.tuning, e, pass.kernel_rows()))};
}

bool one_by_one(const Pass& pass, const Experts& e) {
    return experts_kernel(pass.tuning, GgmlType::F32, e, pass.kernel_rows(), pass.rows_are_separate()) == MatmulKernel::matvec;
}

// At least 32 invocations: llvmpipe leaves loops after 65535 iterations of all together, and with four invocations 512 experts
// take more to compare.
uint32_t route_workgroup(const Tuning& t) { return std::max(t.workgroup, 32u); }

// Orders the pairs by expert.
void group_routes(Pass& pass, const Routes& routes) {
    const Experts& e = routes.experts;
    const RoutesLayout at(pass.tokens, e);
    const Work work = per_step(pass.step, [e](const Step& s) {
        const uint64_t pairs = uint64_t(s.tokens) * e.used;
        return Work{pairs * 4 * (e.count + 1), pairs * e.count * 2};
    });
    pass.recorder.dispatch<shader::group_routes>(
        {e.count}, {route_workgroup(pass.tuning)},
        {e.count, expert_tile_pairs(pass.tuning, e, pass.kernel_rows()), at.ordered, at.tiles}, work, routes.buffer);
}

} // namespace

uint32_t expert_tile_pairs(const Tuning& t, const Experts& e, uint32_t tokens) {
    // A tile costs as much as if it were full, and larger ones would mostly be empty; that matters little if matrix units
    // multiply them. The plain kernel, too, reads each expert's weights once for few pairs.
    const bool few = !t.matmul_coopmat && has_few(t.matmul_tokens, e, tokens);
    return few || !has_tiles(t) ? t.matmul_tokens : expert_tokens;
}

uint64_t routes_bytes(const Tuning& t, const Experts& e, uint32_t tokens) {
    const RoutesLayout at(tokens, e);
    return 4 * (at.tiles + ROUTES_TILE_WORDS * uint64_t(max_tiles(at.pairs, e.count, std::min(t.matmul_tokens, expert_tokens))));
}

MatmulKernel experts_kernel(const Tuning& t, GgmlType type, const Experts& e, uint32_t tokens, bool separate) {
    // Up to a few rows read each pair's weights: few of these are of the same expert. From then on each expert's are read once.
    if (matmul_kernel(t, type, tokens, separate) == MatmulKernel::matvec) return MatmulKernel::matvec;
    if (are_alone(t, e, tokens)) return MatmulKernel::matvec;
    if (expert_tile_pairs(t, e, tokens) != expert_tokens) return MatmulKernel::plain;
    if (t.matmul_coopmat && type != GgmlType::F32) return MatmulKernel::coopmat;
    if (t.matmul_dot && shader::matmul_dot.members[family_member(type)] != nullptr) return MatmulKernel::dot;
    return has_tiles(t) ? MatmulKernel::tiled : MatmulKernel::plain;
}

void route(Pass& pass, const Routes& routes, const Buffer& logits) {
    const Experts& e = routes.experts;
    ENSURE(e.count <= MAX_EXPERTS && e.used <= MAX_EXPERTS_USED && 0 < e.used && e.used <= e.count, "{} of {} experts", e.used,
           e.count);
    const Work work = per_step(pass.step, [e](const Step& s) {
        return Work{uint64_t(s.tokens) * (e.count + 2 * e.used) * 4, uint64_t(s.tokens) * e.count * e.count};
    });
    pass.recorder.dispatch<shader::route>({pass.tokens}, {route_workgroup(pass.tuning)},
                                          {e.count, e.used, RoutesLayout(pass.tokens, e).weights, e.normalise}, work,
                                          routes.buffer, logits, pass.context);
    if (!one_by_one(pass, e)) group_routes(pass, routes);
}

void matmul_experts(Pass& pass, View y, const Matrix& w, Inputs& x, const Routes& routes) {
    ENSURE(w.rows % routes.experts.count == 0, "{} rows of {} experts", w.rows, routes.experts.count);
    const Pairs pairs = pairs_of(pass, routes, x.rows_per_token);
    const MatmulKernel kernel = experts_kernel(pass.tuning, w.type, routes.experts, pass.kernel_rows(), pass.rows_are_separate());
    if (kernel == MatmulKernel::matvec)
        record_matvec(pass, {.y = y, .x = x.x, .output = MATVEC_STORE, .pairs = &pairs}, w);
    else
        record_block(pass, {.kernel = kernel, .y = y, .w = w, .x = x, .accumulate = false, .pairs = &pairs});
}

namespace {

// A product of one row with its experts, as matvec_normed.
void matmul_normed(Pass& pass, View y, const Matrix& w, const FoldedNorm& norm, uint32_t output, const Routes& routes) {
    ENSURE(pass.tokens == 1, "{} rows of a folded norm", pass.tokens);
    const Pairs pairs = pairs_of(pass, routes, 1);
    record_matvec(pass,
                  {.y = y,
                   .x = norm.x.x,
                   .output = output,
                   .normed = true,
                   .squares = norm.x.squares,
                   .square_count = norm.x.square_count,
                   .eps = norm.eps,
                   .pairs = &pairs},
                  w);
}

} // namespace

void gated_experts(Pass& pass, const Buffer& y, const Buffer& both, const std::vector<Matrix>& gate_up, Inputs& x,
                   const Routes& routes, std::optional<FoldedNorm> normed) {
    const Experts& e = routes.experts;
    const Matrix& first = gate_up[0];
    const auto product = [&](View to, const Matrix& w) {
        if (normed)
            matmul_normed(pass, to, w, *normed, MATVEC_STORE, routes);
        else
            matmul_experts(pass, to, w, x, routes);
    };
    if (gate_up.size() == 2) {
        const uint64_t half = both.bytes() / 2;
        const View gate(both, 0, half), up(both, half, half);
        product(gate, first);
        product(up, gate_up[1]);
        swiglu(pass, y, gate, up, first.rows / e.count * e.used);
    } else if (normed) {
        matmul_normed(pass, y, first, *normed, MATVEC_GATED, routes);
    } else if (one_by_one(pass, e)) {
        const Pairs pairs = pairs_of(pass, routes, x.rows_per_token);
        record_matvec(pass, {.y = y, .x = x.x, .output = MATVEC_GATED, .pairs = &pairs}, first);
    } else {
        matmul_experts(pass, both, first, x, routes);
        swiglu_pairs(pass, y, both, first.rows / 2 / e.count * e.used);
    }
}

void add_experts(Pass& pass, const Buffer& h, const Buffer& y, const Routes& routes, uint32_t cols) {
    const Experts& e = routes.experts;
    const uint32_t used = e.used;
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t elements = uint64_t(s.tokens) * cols;
        return Work{elements * 4 * (used + 2), elements * (2 * used + 1)};
    });
    pass.recorder.dispatch<shader::add_experts>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, {pass.tuning.workgroup},
                                                {cols, used, RoutesLayout(pass.tokens, e).weights}, work, h, y, routes.buffer);
}

ExpertBytes::ExpertBytes(const Tuning& t, const Experts& e, uint32_t tokens, uint32_t hidden, uint32_t rows)
    : logits(uint64_t(tokens) * e.count * 4), routes(routes_bytes(t, e, tokens)), gate_up(uint64_t(tokens) * e.used * rows * 8),
      ffn(gate_up / 2), down(uint64_t(tokens) * e.used * hidden * 4),
      rounded(std::max(rounded_bytes(t, tokens, hidden), rounded_bytes(t, tokens * e.used, rows))) {}

} // namespace tq::gpu
