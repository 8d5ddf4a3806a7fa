// Plain block quantisers for the cache, the counterpart of model/kv/blocks_codec.cpp; model/kv/turboquant.md defines them. The
// includer declares `shared float channel[]` and `shared uint codes[]` and includes half.glsl and exact.glsl before this. One
// invocation encodes one block, channel[first .. first + length - 1]: every element is 0 or 2^-62 <= |y| < 2^11, and y * 2^e
// are the true values. It writes codes[] of the same indices, one code per element, and returns fp16 bits. The includer places
// the barriers.

// Rounds x >= 0 below 2^24 to the nearest integer, halves up.
uint round_half_up(float x) {
    const uint whole = uint(x);
    precise float rest = x - float(whole);
    return whole + (rest >= 0.5 ? 1u : 0u);
}

// Returns the fp16 bits of x * 2^e.
uint scaled_half_bits(float x, int e) {
    return (x < 0.0 ? 0x8000u : 0u) | (x == 0.0 ? 0u : quotient_half_bits(abs(x), 1.0, e));
}

// ggml's q8_0 with a scale of at most 65504; length 32. Codes are bytes in two's complement.
uint encode_q8_0(uint first, int e) {
    float largest = 0.0;
    for (uint i = first; i < first + 32; i++)
        if (largest < abs(channel[i])) largest = abs(channel[i]);
    float scale = 0.0, inverse = 0.0;
    if (largest != 0.0) {
        scale = divide(largest, 127.0);
        inverse = divide(1.0, scale);
    }
    for (uint i = first; i < first + 32; i++) {
        precise float product = channel[i] * inverse;
        const uint magnitude = round_half_up(abs(product));
        codes[i] = (product < 0.0 ? 0u - magnitude : magnitude) & 255u;
    }
    return scaled_half_bits(scale, e);
}

// ggml's q4_0 with a scale of a magnitude of at most 65504; length 32. Codes are 0 .. 15; the scale has a sign.
uint encode_q4_0(uint first, int e) {
    float largest = 0.0;
    for (uint i = first; i < first + 32; i++)
        if (abs(largest) < abs(channel[i])) largest = channel[i];
    const float positive = largest == 0.0 ? 0.0 : divide(8.0, abs(largest)), inverse = largest < 0.0 ? positive : -positive;
    for (uint i = first; i < first + 32; i++) {
        precise float product = channel[i] * inverse;
        precise float shifted = product + 8.5;
        codes[i] = min(uint(shifted), 15u);
    }
    precise float scale = abs(largest) * 0.125;
    return (largest < 0.0 ? 0u : 0x8000u) | scaled_half_bits(scale, e); // ggml's -0 for a block of zeros included
}

// Codes 0 .. 2^bits - 1, bits in 2 .. 8, between the least and the greatest element. Returns scale | zero << 16.
uint encode_affine(uint first, uint length, uint bits, int e) {
    float least = channel[first], greatest = least;
    for (uint i = first; i < first + length; i++) {
        const float y = channel[i];
        if (y < least) least = y;
        if (greatest < y) greatest = y;
    }
    const uint last = (1u << bits) - 1;
    precise float range = greatest - least, limit = float(last) - 0.5;
    const uint zero_bits = scaled_half_bits(least, e), scale_bits = range == 0.0 ? 0u : quotient_half_bits(range, float(last), e);
    const float zero = scaled_half(zero_bits, e), inverse = scale_bits == 0u ? 0.0 : divide(1.0, scaled_half(scale_bits, e));
    for (uint i = first; i < first + length; i++) {
        precise float offset = channel[i] - zero;
        precise float code = offset * inverse;
        codes[i] = code < 0.5 ? 0u : code >= limit ? last : round_half_up(code);
    }
    return scale_bits | zero_bits << 16;
}

// Returns the true value of a code, rounded once; scale and zero as fp32.
float decode_q8_0(uint code, float scale) {
    precise float value = float(int(code << 24) >> 24) * scale;
    return value;
}

float decode_q4_0(uint code, float scale) {
    precise float value = float(int(code) - 8) * scale;
    return value;
}

float decode_affine(uint code, float scale, float zero) {
    precise float step_part = float(code) * scale; // exact: 8 bits and 11 bits
    precise float value = step_part + zero;
    return value;
}
