#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#include "params.h"

// y[invocation] = the exclusive or of twelve chains a = a + dot(bytes of a, bytes of factors) that begin at 0 to 11, times
// 2654435761, plus invocation % 4. For devices with Capabilities::int8_dot_product, by OpSDot itself: the oldest
// compiler that builds this has no word for it.
// params: limits_dot_params
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_dot_params p; };
layout(binding = 0) writeonly buffer Y { int y[]; };

// DotProduct, DotProductInput4x8BitPacked; the last operand is PackedVectorFormat4x8Bit.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_4x8(int a, int b, spirv_literal int format);

#define STEP(a) a += dot_4x8(a, p.factors, 0)

void main() {
    const int first = int(gl_GlobalInvocationID.x % 4);
    int a[12];
    for (int i = 0; i < 12; i++) a[i] = int(uint(i) * 2654435761u) + first;
    for (uint n = 0; n < p.iterations; n++) {
        STEP(a[0]); STEP(a[1]); STEP(a[2]); STEP(a[3]); STEP(a[4]); STEP(a[5]);
        STEP(a[6]); STEP(a[7]); STEP(a[8]); STEP(a[9]); STEP(a[10]); STEP(a[11]);
    }
    int sum = 0;
    for (int i = 0; i < 12; i++) sum ^= a[i];
    y[gl_GlobalInvocationID.x] = sum;
}
