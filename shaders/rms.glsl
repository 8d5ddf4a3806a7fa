// 1 / rms of values whose mean square (with eps) is given. Where the squares overflowed a NaN, which reaches the logits and is
// reported; 1 / infinity would turn the values into silent zeros. By its bits: a driver may take every float to be finite.
float inverse_rms_of(float mean_square) {
    return floatBitsToUint(mean_square) <= floatBitsToUint(3.4e38) ? inversesqrt(mean_square) : uintBitsToFloat(0x7fc00000u);
}
