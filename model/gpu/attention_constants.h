// The specialisation constants of attention's kernels. Each kernel's list is whole, although the lists have a beginning in
// common: a list that is filled in two steps would compile with a constant that is forgotten.
#pragma once
#include "model/gpu/attention.h"
#include "shaders.gen.h"
#include <algorithm>

namespace tq::gpu {

// The keys that a dispatch of attention reads, and their form: one of WINDOW_*.
struct AttendedKeys {
    KvTypes types;
    uint32_t heads, group, window;
};

inline uint32_t lanes_of(const Tuning& t, uint32_t head_dim) { return std::min(t.workgroup, head_dim); }

#if TQ_COOPERATIVE_MATRIX
inline shader::attention_coopmat_constants attention_coopmat_constants(const Tuning& t, uint32_t head_dim,
                                                                       const AttentionPlan& plan, const AttendedKeys& what) {
    return {.workgroup = plan.subgroups * t.matrix_subgroup,
            .head_dim = head_dim,
            .k_type = uint32_t(what.types.k),
            .v_type = uint32_t(what.types.v),
            .group = what.group,
            .heads = plan.heads,
            .tile = plan.tokens,
            .window = what.window,
            .m = t.matrix.m,
            .n = t.matrix.n,
            .k = t.matrix.k,
            .batch = plan.split_step};
}
#endif

inline shader::attention_decode_constants attention_decode_constants(const Tuning& t, uint32_t head_dim,
                                                                     const AttentionPlan& plan, const AttendedKeys& what) {
    return {.workgroup = t.decode_subgroups * t.subgroup,
            .head_dim = head_dim,
            .k_type = uint32_t(what.types.k),
            .v_type = uint32_t(what.types.v),
            .group = what.group,
            .heads = plan.heads,
            .tile = plan.tokens,
            .window = what.window,
            .subgroup = t.subgroup,
            .copies = plan.copies};
}

inline shader::attention_per_lane_constants attention_per_lane_constants(const Tuning& t, uint32_t head_dim,
                                                                         const AttentionPlan& plan, const AttendedKeys& what) {
    return {.workgroup = lanes_of(t, head_dim),
            .head_dim = head_dim,
            .k_type = uint32_t(what.types.k),
            .v_type = uint32_t(what.types.v),
            .group = what.group,
            .heads = plan.heads,
            .tile = plan.tokens,
            .window = what.window};
}

inline shader::attention_constants attention_constants(const Tuning& t, uint32_t head_dim, const AttentionPlan& plan,
                                                       const AttendedKeys& what) {
    return {.workgroup = lanes_of(t, head_dim),
            .head_dim = head_dim,
            .k_type = uint32_t(what.types.k),
            .v_type = uint32_t(what.types.v),
            .group = what.group,
            .heads = plan.heads,
            .tile = plan.tokens,
            .window = what.window,
            .keys = t.attention_keys,
            .subgroup = t.subgroup};
}

} // namespace tq::gpu
