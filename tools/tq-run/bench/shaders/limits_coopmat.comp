#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "params.h"

// Four chains of c = a b + c in matrices of m x k and k x n, a = `factor` and b = `term` everywhere: fp16 with sums in fp32. For
// devices with Capabilities::cooperative_matrix. One subgroup stores the sum of the chains.
// needs cooperative matrices
// params: limits_fma_params
layout(local_size_x_id = 0) in; // a subgroup
layout(constant_id = 1) const uint m = 16;
layout(constant_id = 2) const uint n = 16;
layout(constant_id = 3) const uint k = 16;
layout(push_constant) uniform Push { limits_fma_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };

#define SUMS coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator>
#define FACTOR coopmat<float16_t, gl_ScopeSubgroup, m, k, gl_MatrixUseA>
#define TERM coopmat<float16_t, gl_ScopeSubgroup, k, n, gl_MatrixUseB>

void main() {
    const FACTOR a = FACTOR(float16_t(p.factor));
    const TERM b = TERM(float16_t(p.term));
    SUMS c0 = SUMS(0.0), c1 = SUMS(1.0), c2 = SUMS(2.0), c3 = SUMS(3.0);
    for (uint i = 0; i < p.iterations; i++) {
        c0 = coopMatMulAdd(a, b, c0);
        c1 = coopMatMulAdd(a, b, c1);
        c2 = coopMatMulAdd(a, b, c2);
        c3 = coopMatMulAdd(a, b, c3);
    }
    coopMatStore(c0 + c1 + c2 + c3, y, gl_WorkGroupID.x * m * n, n, gl_CooperativeMatrixLayoutRowMajor);
}
