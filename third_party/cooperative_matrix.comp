#version 460
// What a compiler must accept for the kernels that need cooperative matrices (glslang.cmake).
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(local_size_x_id = 0) in;
shared f16vec4 tile[64];
shared float sums[256];
void main() {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
    coopMatLoad(a, tile, 0, 4, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, tile, 0, 4, gl_CooperativeMatrixLayoutColumnMajor);
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c =
        coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
    coopMatStore(coopMatMulAdd(a, b, c), sums, 0, 16, gl_CooperativeMatrixLayoutColumnMajor);
}
