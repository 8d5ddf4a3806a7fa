// The sum of the products of four int8 numbers in a word with four others: OpSDot itself (GL_EXT_spirv_intrinsics), because the
// oldest compiler that builds this has no word for it. Capabilities DotProduct and DotProductInput4x8BitPacked; the last operand
// is PackedVectorFormat4x8Bit.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_4x8(int a, int b, spirv_literal int format);

// Returns sum + the product of 16 int8 numbers with 16 others.
int dot16(uvec4 a, uvec4 b, int sum) {
    [[unroll]] for (uint i = 0; i < 4; i++) sum += dot_4x8(int(a[i]), int(b[i]), 0);
    return sum;
}
