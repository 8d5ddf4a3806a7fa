// Inputs of cooperative matrices are rounded to fp16: they are first multiplied by a power of two that brings the largest into
// range and keeps all bits of inputs up to 2^28 times smaller; the results are divided by it.

// Returns an exponent such that 2^(exponent - 127) times the magnitude is in [2^14, 2^15), as far as that power and its inverse
// are fp32 numbers.
uint scale_exponent(uint magnitude_bits) { return min(268 - (magnitude_bits >> 23), 253); }
float to_fp16_range(uint magnitude_bits) { return uintBitsToFloat(scale_exponent(magnitude_bits) << 23); }
// Returns the inverse factor; NaN if the largest magnitude is infinite or NaN.
float from_fp16_range(uint magnitude_bits) {
    return uintBitsToFloat(magnitude_bits >= 0x7f800000u ? 0x7fc00000u : (254 - scale_exponent(magnitude_bits)) << 23);
}
