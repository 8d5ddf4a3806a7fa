// Returns the value of fp16 bits, the low 16 of a word, including denormals: unpackHalf2x16 may flush those.
float half_value(uint bits) {
    const uint magnitude = bits & 0x7fffu;
    precise float denormal = float(magnitude) * 5.9604644775390625e-8; // 2^-24
    const uint normal = (magnitude << 13) + (magnitude >= 0x7c00u ? 224u << 23 : 112u << 23);
    return uintBitsToFloat((magnitude < 0x400u ? floatBitsToUint(denormal) : normal) | (bits & 0x8000u) << 16);
}
