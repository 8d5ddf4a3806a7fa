// Inputs of cooperative matrices are rounded to fp16: they are multiplied by a power of two first, so that the largest fits whatever
// it is and those 2^28 times smaller keep all their bits, and what is made of them is divided by it.

// Rounds the power of two 2^(exponent - 127) times the magnitude to [2^14, 2^15), as far as it and its inverse are fp32 numbers.
uint scale_exponent(uint magnitude_bits) { return min(268 - (magnitude_bits >> 23), 253); }
float to_fp16_range(uint magnitude_bits) { return uintBitsToFloat(scale_exponent(magnitude_bits) << 23); }
// NaN where the largest is infinite or NaN.
float from_fp16_range(uint magnitude_bits) {
    return uintBitsToFloat(magnitude_bits >= 0x7f800000u ? 0x7fc00000u : (254 - scale_exponent(magnitude_bits)) << 23);
}
