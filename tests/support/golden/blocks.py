"""The numbers in GGUF's blocks, in float64 and exactly, after ggml's description of its formats."""
import numpy as np

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 0, 1, 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4 = 10, 11, 12, 13, 14, 20, 23, 30, 39

# The numbers and bytes of a block.
SIZES = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q8_0: (32, 34), Q4_0: (32, 18), Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24),
         Q2_K: (256, 84), Q3_K: (256, 110), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210), IQ4_NL: (32, 18),
         IQ4_XS: (256, 136), MXFP4: (32, 17)}

IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
E2M1_LEVELS = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def bytes_of(kind, count):
    numbers, size = SIZES[kind]
    assert count % numbers == 0
    return count // numbers * size


def half(b, at):
    """The fp16 at byte `at` of each block, as a column."""
    return np.ascontiguousarray(b[:, at:at + 2]).view(np.float16).astype(np.float64)


def nibbles(bytes_):
    """Returns first all low nibbles, then all high ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=-1)


def fifth_bits(b, at):
    return np.unpackbits(b[:, at:at + 4], axis=1, bitorder="little") << 4


def two_bits(bytes_):
    """[..., 64] bytes to [..., 256] numbers of 2 bits: 32 bytes are 4 runs of 32 numbers."""
    halves = bytes_.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return (halves & 3).reshape(-1, 256)


def scales_and_mins(b):
    """The eight 6-bit scales and minima of Q4_K and Q5_K, from 12 bytes."""
    s = b[:, 4:16].astype(np.int64)
    scales = np.concatenate([s[:, :4] & 63, (s[:, 8:] & 15) | s[:, :4] >> 6 << 4], axis=1)
    mins = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], axis=1)
    return scales, mins


def spread(per_group, size):
    return np.repeat(per_group.astype(np.float64), size, axis=1)


def four_or_five_bits_k(b, codes):
    scales, mins = scales_and_mins(b)
    return half(b, 0) * spread(scales, 32) * codes - half(b, 2) * spread(mins, 32)


def q2_k(b):
    scales = b[:, :16]
    return half(b, 80) * spread(scales & 15, 16) * two_bits(b[:, 16:80]) - half(b, 82) * spread(scales >> 4, 16)


def q3_k(b):
    high = np.stack([b[:, :32] >> i & 1 for i in range(8)], axis=1).reshape(-1, 256)
    s = b[:, 96:108].astype(np.int64)
    low = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], axis=1)
    scales = low + np.concatenate([(s[:, 8:] >> 2 * i & 3) << 4 for i in range(4)], axis=1) - 32
    return half(b, 108) * spread(scales, 16) * (two_bits(b[:, 32:96]) + 4.0 * high - 4)


def q6_k(b):
    low, high = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 1, 32)
    low = nibbles(low).reshape(-1, 256)
    high = (high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3).reshape(-1, 256)
    return half(b, 208) * spread(np.ascontiguousarray(b[:, 192:208]).view(np.int8), 16) * (low + 16.0 * high - 32)


def iq4_xs(b):
    high = b[:, 2].astype(np.int64) + b[:, 3].astype(np.int64) * 256
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = np.stack([low[:, i] + ((high >> 2 * i & 3) << 4) for i in range(8)], axis=1) - 32
    return half(b, 0) * spread(scales, 32) * IQ4_LEVELS[nibbles(b[:, 8:].reshape(-1, 8, 16)).reshape(-1, 256)]


DECODERS = {
    Q8_0: lambda b: half(b, 0) * np.ascontiguousarray(b[:, 2:]).view(np.int8),
    Q4_0: lambda b: half(b, 0) * (nibbles(b[:, 2:]) - 8.0),
    Q4_1: lambda b: half(b, 0) * nibbles(b[:, 4:]) + half(b, 2),
    Q5_0: lambda b: half(b, 0) * ((nibbles(b[:, 6:]) | fifth_bits(b, 2)) - 16.0),
    Q5_1: lambda b: half(b, 0) * (nibbles(b[:, 8:]) | fifth_bits(b, 4)) + half(b, 2),
    Q2_K: q2_k,
    Q3_K: q3_k,
    Q4_K: lambda b: four_or_five_bits_k(b, nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256)),
    Q5_K: lambda b: four_or_five_bits_k(b, nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 256)
                                        + 16.0 * np.stack([b[:, 16:48] >> i & 1 for i in range(8)], axis=1).reshape(-1, 256)),
    Q6_K: q6_k,
    IQ4_NL: lambda b: half(b, 0) * IQ4_LEVELS[nibbles(b[:, 2:])],
    IQ4_XS: iq4_xs,
    MXFP4: lambda b: np.exp2(b[:, :1].astype(np.float64) - 127) * E2M1_LEVELS[nibbles(b[:, 1:])],
}


def decode(kind, data):
    """All numbers of `data`, in order."""
    if kind == F32:
        return np.frombuffer(data, np.float32).astype(np.float64)
    if kind == F16:
        return np.frombuffer(data, np.float16).astype(np.float64)
    if kind == BF16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return DECODERS[kind](np.frombuffer(data, np.uint8).reshape(-1, SIZES[kind][1])).reshape(-1)


def to_bf16(values):
    """Rounds to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


def quantise(kind, values):
    """Quantises rows of 32 by ggml's rule for Q8_0 and Q4_0, in fp32 as ggml does."""
    x = values.astype(np.float32).reshape(-1, 32)
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], 1)
    d = np.abs(largest) / np.float32(127) if kind == Q8_0 else largest / np.float32(-8)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    if kind == Q8_0:
        scaled = x * inverse
        codes = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(.5))).astype(np.int8).view(np.uint8)
    else:
        codes = np.minimum(15, (x * inverse + np.float32(8.5)).astype(np.int8)).astype(np.uint8)
        codes = codes[:, :16] | codes[:, 16:] << 4
    return np.concatenate([d.astype(np.float16).view(np.uint8), codes], axis=1).tobytes()
