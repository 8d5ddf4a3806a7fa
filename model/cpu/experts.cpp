// Products with experts: the tokens of each are gathered, so that its weights are read once for all of them.
#include "base/ensure.h"
#include "base/mapped_file.h"
#include "base/per_thread.h"
#include "model/cpu/matmul.h"
#include <algorithm>

namespace tq::cpu {
namespace {

using Group = host::ExpertGroups::Group;

// The kernels of products with a stack.
enum class Kernels { fixed_point, rows, panels };

// Matrices that multiply the same inputs (gate and up) get one kernel, so that inputs are prepared once for them.
Kernels kernels_of(std::initializer_list<const Tensor*> stacks, bool separate) {
    const bool fixed = std::ranges::all_of(stacks, [](const Tensor* t) { return has_fixed_point(t->type, t->cols); });
    return fixed ? Kernels::fixed_point : separate ? Kernels::rows : Kernels::panels;
}

// The inputs of one expert, in parts of as many tokens as its kernel takes.
struct Part {
    Group pairs;
    size_t at; // offset of its inputs, in floats
    Inputs inputs;
};

// The inputs of all experts.
// An expert's part is all tokens that chose it. Inputs are gathered and converted once for each part, before any product, into
// one storage whose places cut() has computed; so the threads write without locks. With one row of x (a single token) all experts
// have the same input, which is prepared once.
class ExpertInputs {
  public:
    // Row pair / pairs_per_row of x belongs to a pair; with one row, all experts have the same inputs.
    ExpertInputs(ThreadPool& pool, const host::ExpertGroups& groups, std::initializer_list<const Tensor*> stacks,
                 std::span<const float> x, uint32_t pairs_per_row, bool separate)
        : groups_(groups), x_(x), cols_((*stacks.begin())->cols), pairs_per_row_(pairs_per_row),
          kernels_(kernels_of(stacks, separate)) {
        cut();
        auto& kept = per_thread<AlignedFloats, struct AllInputs>(); // kept, since fresh memory costs page faults
        const std::span storage = kept.first(floats_);
        const uint32_t distinct = x.size() == cols_ ? 1 : uint32_t(parts_.size());
        pool.each(distinct, 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; i++) prepare(parts_[i], storage);
        });
        for (size_t i = distinct; i < parts_.size(); i++) parts_[i].inputs = parts_[0].inputs;
    }

    // Returns the parts of a group's expert.
    std::span<const Part> parts(uint32_t group) const {
        return std::span(parts_).subspan(first_part_[group], first_part_[group + 1] - first_part_[group]);
    }

  private:
    void cut() {
        const uint32_t max = kernels_ == Kernels::fixed_point ? uint32_t(max_fixed_point_tokens) : UINT32_MAX;
        for (const Group& g : groups_.groups) {
            first_part_.push_back(parts_.size());
            for (uint32_t first = g.first, count; first < g.end; first += count) {
                count = std::min(max, g.end - first);
                parts_.push_back({{g.expert, first, first + count}, floats_, {}});
                floats_ += floats_of(count);
            }
        }
        first_part_.push_back(parts_.size());
    }

    // Returns the size of the inputs of a part with `count` tokens.
    size_t floats_of(size_t count) const {
        if (kernels_ == Kernels::fixed_point) return fixed_point_floats(count, cols_);
        const size_t tile = kernels_ == Kernels::panels ? token_tile() : 1;
        return (count + tile - 1) / tile * tile * cols_;
    }

    void prepare(Part& part, std::span<float> storage) const {
        const size_t count = part.pairs.end - part.pairs.first;
        const std::span to = storage.subspan(part.at);
        auto& kept = per_thread<AlignedFloats, struct InputRows>();
        const std::span rows = (kernels_ == Kernels::rows ? to : kept.first(count * cols_)).first(count * cols_);
        for (size_t i = 0; i < count; i++)
            std::copy_n(&x_[groups_.pairs[part.pairs.first + i] / pairs_per_row_ * cols_], cols_, &rows[i * cols_]);
        part.inputs = {kernels_ != Kernels::panels, kernels_ == Kernels::rows ? rows : to, count, {}};
        if (kernels_ == Kernels::fixed_point) part.inputs.fixed = to_fixed_point(nullptr, to, rows, cols_);
        if (kernels_ == Kernels::panels) pack_tokens(to, rows, cols_, 0, uint32_t((count + token_tile() - 1) / token_tile()));
    }

    const host::ExpertGroups& groups_;
    const std::span<const float> x_;
    const size_t cols_;
    const uint32_t pairs_per_row_;
    const Kernels kernels_;
    size_t floats_ = 0;
    std::vector<Part> parts_;
    std::vector<size_t> first_part_; // of each group, and their number
};

// The matrices of the experts of groups.
std::vector<Tensor> slices(const Tensor& stack, const host::ExpertGroups& groups, uint32_t rows) {
    std::vector<Tensor> out;
    for (const Group& g : groups.groups) out.push_back(stack.slice(g.expert * rows, rows));
    return out;
}

// Calls use(group, begin, end) for rows of the experts of all groups, a few at a time, which stay in the cache for all parts.
template <class Use> void each_expert(ThreadPool& pool, const host::ExpertGroups& groups, uint32_t rows, const Use& use) {
    constexpr uint32_t step = 32;
    pool.each(uint32_t(groups.groups.size()) * rows, 16, [&](uint32_t begin, uint32_t end) {
        for (uint32_t at = begin, next; at < end; at = next) {
            const uint32_t group = at / rows;
            next = std::min({end, (group + 1) * rows, at + step});
            use(group, at - group * rows, next - group * rows);
        }
    });
}

// y[pairs of the part][rows] of the outputs of all pairs.
std::span<float> outputs(std::span<float> y, const Part& part, uint32_t rows) {
    return y.subspan(size_t(part.pairs.first) * rows, size_t(part.pairs.end - part.pairs.first) * rows);
}

} // namespace

void gated_matmul(ThreadPool& pool, std::span<float> y, const Tensor& w_gate, const Tensor& w_up, std::span<const float> x,
                  const Experts& experts, bool separate) {
    const uint32_t rows = w_gate.rows / experts.count;
    const host::ExpertGroups groups = host::group_by_expert(experts.routes.ids, experts.count);
    ENSURE(y.size() == groups.pairs.size() * rows, "{}: {} outputs of {} pairs", w_gate.name, y.size(), groups.pairs.size());
    const ExpertInputs inputs(pool, groups, {&w_gate, &w_up}, x, experts.per_token, separate);
    const std::vector<Tensor> gates = slices(w_gate, groups, rows), ups = slices(w_up, groups, rows);
    auto& kept_gate = per_thread<std::vector<float>, struct ByExpertGate>(); // by expert, not by token
    auto& kept_up = per_thread<std::vector<float>, struct ByExpertUp>();
    kept_gate.resize(y.size());
    kept_up.resize(y.size());
    const std::span gate = kept_gate, up = kept_up;
    each_expert(pool, groups, rows, [&](uint32_t group, uint32_t begin, uint32_t end) {
        for (const Part& part : inputs.parts(group)) {
            multiply({outputs(gate, part, rows), gates[group]}, part.inputs, begin, end);
            multiply({outputs(up, part, rows), ups[group]}, part.inputs, begin, end);
            for (uint32_t i = part.pairs.first; i < part.pairs.end; i++) {
                const size_t at = size_t(i) * rows + begin;
                swiglu(&gate[at], &up[at], end - begin);
                std::copy_n(&gate[at], end - begin, &y[size_t(groups.pairs[i]) * rows + begin]);
            }
        }
    });
}

// The outputs of a token's experts are added in the order of its ranks, by one thread, so that a token's sum does not depend on
// who else is in the pass.
void matmul_add(ThreadPool& pool, std::span<float> h, const Tensor& w, std::span<const float> x, const Experts& experts,
                bool separate) {
    const uint32_t rows = w.rows / experts.count, per_token = experts.per_token;
    const host::ExpertGroups groups = host::group_by_expert(experts.routes.ids, experts.count);
    const ExpertInputs inputs(pool, groups, {&w}, x, 1, separate);
    const std::vector<Tensor> matrices = slices(w, groups, rows);
    auto& kept = per_thread<std::vector<float>, struct ByExpertDown>(); // by expert, not by token
    kept.resize(groups.pairs.size() * rows);
    const std::span y = kept;
    each_expert(pool, groups, rows, [&](uint32_t group, uint32_t begin, uint32_t end) {
        for (const Part& part : inputs.parts(group)) multiply({outputs(y, part, rows), matrices[group]}, part.inputs, begin, end);
    });
    std::vector<uint32_t> place(groups.pairs.size()); // of a pair in y
    for (uint32_t i = 0; i < place.size(); i++) place[groups.pairs[i]] = i;
    pool.each(uint32_t(h.size() / rows), 1, [&](uint32_t begin, uint32_t end) {
        for (size_t pair = size_t(begin) * per_token; pair < size_t(end) * per_token; pair++) {
            const float weight = experts.routes.weights[pair];
            const float* from = &y[size_t(place[pair]) * rows];
            float* to = &h[pair / per_token * rows];
            for (uint32_t r = 0; r < rows; r++) to[r] += weight * from[r];
        }
    });
}

void read_ahead(ThreadPool& pool, std::initializer_list<const Tensor*> stacks, const Experts& experts) {
    const host::ExpertGroups groups = host::group_by_expert(experts.routes.ids, experts.count);
    const auto count = uint32_t(groups.groups.size());
    for (const Tensor* stack : stacks)
        pool.each(count, 1, [&](uint32_t begin, uint32_t end) {
            const uint32_t rows = stack->rows / experts.count;
            for (uint32_t i = begin; i < end; i++) tq::read_ahead(stack->slice(groups.groups[i].expert * rows, rows).data);
        });
}

} // namespace tq::cpu
