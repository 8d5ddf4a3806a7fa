// Returns 1 / rms of values whose mean square (with eps) is given. If the squares overflowed, it is a NaN, which reaches the
// logits and is reported; 1 / infinity would make silent zeros. Tested by bits: drivers may assume finite floats.
float inverse_rms_of(float mean_square) {
    return floatBitsToUint(mean_square) <= floatBitsToUint(3.4e38) ? inversesqrt(mean_square) : uintBitsToFloat(0x7fc00000u);
}
