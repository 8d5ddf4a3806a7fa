// Plain block quantisers for the cache, the counterpart of model/kv/blocks_codec.cpp; model/kv/turboquant.md defines them. The
// includer declares `shared float channel[]` and `shared uint codes[]` and includes half.glsl and exact.glsl before this. One
// invocation encodes one block of 32, channel[first .. first + 31]: every element is 0 or 2^-62 <= |y| < 2^11, and y * 2^e
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

// ggml's q8_0 with a scale of at most 65504. Codes are bytes in two's complement.
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

// ggml's q4_0 with a scale of a magnitude of at most 65504. Codes are 0 .. 15; the scale has a sign.
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

// Returns the true value of a code, rounded once.
float decode_q8_0(uint code, float scale) {
    precise float value = float(int(code << 24) >> 24) * scale;
    return value;
}

float decode_q4_0(uint code, float scale) {
    precise float value = float(int(code) - 8) * scale;
    return value;
}

