#!/usr/bin/env python3
"""Writes tests/data/qwen3-low-bits.gguf and .json: random blocks of formats of few bits, with the shape and the vocabulary of qwen3-mixed.gguf,
and answers in float64. ggml's own Python code decodes the blocks (PyPI's gguf 0.19: the packages gguf, numpy, Jinja2 and regex are needed).
Prints what tests/model/files/formats/blocks_test.cpp compares: a hash of 200 decoded blocks of each format.

    tests/support/golden/make_low_bits.py
"""
import hashlib
import pathlib
import sys

import numpy as np

HERE = sys.path.pop(0)
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants  # noqa: E402  the package, not the file beside this one

for name in [name for name in sys.modules if name.split(".")[0] == "gguf"]:
    del sys.modules[name]
sys.path.insert(0, HERE)
import gguf  # noqa: E402
import make_golden  # noqa: E402
import qwen3  # noqa: E402

# The highest bytes of a block's fp16 numbers (of an MXFP4 block, of its exponent), if they are not at byte 1.
HIGHEST = {"IQ1_M": [55], "Q2_K": [81, 83], "Q3_K": [109], "Q4_K": [1, 3], "Q5_K": [1, 3], "Q6_K": [209], "TQ1_0": [53], "TQ2_0": [65],
           "Q4_1": [1, 3], "Q5_1": [1, 3], "MXFP4": [0]}
HASHED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
          "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]

MATRICES = {"token_embd": "IQ3_S", "output": "IQ3_XXS", "blk.0.attn_q": "IQ2_XXS", "blk.0.attn_k": "IQ2_XS", "blk.0.attn_v": "IQ2_S",
            "blk.0.attn_output": "IQ3_XXS", "blk.0.ffn_gate": "IQ1_S", "blk.0.ffn_up": "IQ1_M", "blk.0.ffn_down": "TQ2_0",
            "blk.1.attn_q": "TQ1_0", "blk.1.attn_k": "IQ1_M", "blk.1.attn_v": "IQ3_S", "blk.1.attn_output": "NVFP4",
            "blk.1.ffn_gate": "NVFP4", "blk.1.ffn_up": "NVFP4", "blk.1.ffn_down": "IQ1_S"}


def put_scale(kind, block, value):
    bits = np.array(value, np.float16).view(np.uint16)
    if kind == "IQ1_M":
        for i in range(4):
            block[49 + 2 * i] = block[49 + 2 * i] & 15 | int(bits >> 4 * i & 15) << 4
    else:
        at = HIGHEST.get(kind, [1])[0]
        block[at - 1], block[at] = bits & 255, bits >> 8


def random_blocks(kind, count, random):
    block = random.integers(0, 256, (count, GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]), dtype=np.uint8)
    if kind == "TQ1_0":  # bytes that a writer makes
        trits = random.integers(0, 243, (count, 52))
        block[:, :52] = (trits * 256 + 242) // 243
    if kind == "TQ2_0":  # a level of 2 is not used
        block[:, :64] &= ~((block[:, :64] & 0x55) << 1) | 0x55
    return block


def random_nvfp4(rows, cols, random):
    """Random levels and scales, and the number that all are multiplied by."""
    number = GGMLQuantizationType["NVFP4"]
    data = random_blocks("NVFP4", rows * cols // 64, random)
    data[:, :4] = random.integers(0x30, 0x48, (len(data), 4))
    values = quants.dequantize(data, number).astype(np.float64)
    factor = np.float32(1 / values.std() / np.sqrt(cols))
    return gguf.Tensor(int(number), rows, cols, data.tobytes()), float(factor) * values.reshape(rows, cols), factor


def random_matrix(kind, rows, cols, random):
    """Random levels, scaled to a standard deviation of about 1 / sqrt(cols)."""
    number = GGMLQuantizationType[kind]
    data = random_blocks(kind, rows * cols // 256, random)
    for block in data:
        put_scale(kind, block, 1)
    deviation = quants.dequantize(data, number).std()
    for block in data:
        put_scale(kind, block, random.uniform(0.7, 1.4) * random.choice([-1, 1]) / deviation / np.sqrt(cols))
    tensor = gguf.Tensor(int(number), rows, cols, data.tobytes())
    return tensor, quants.dequantize(data, number).astype(np.float64).reshape(rows, cols)


def make_model():
    metadata, tensors = gguf.read(make_golden.DATA / "qwen3-mixed.gguf")
    metadata["general.name"] = gguf.TEXT, gguf.text("formats of few bits")
    random, values = np.random.default_rng(2), {}
    for name, t in list(tensors.items()):
        kind = MATRICES.get(name.removesuffix(".weight"))
        if kind == "NVFP4":
            tensors[name], values[name], factor = random_nvfp4(t.rows, t.cols, random)
            tensors[name.replace("weight", "scale")] = gguf.Tensor(0, 1, 1, factor.tobytes(), True)
        elif kind:
            tensors[name], values[name] = random_matrix(kind, t.rows, t.cols, random)
        else:
            values[name] = t.values()[0]
    gguf.write(make_golden.DATA / "qwen3-low-bits.gguf", metadata, tensors)
    shape = qwen3.Shape(4, 2, 128, gguf.number(metadata["qwen3.rope.freq_base"]),
                        gguf.number(metadata["qwen3.attention.layer_norm_rms_epsilon"]))
    (make_golden.DATA / "qwen3-low-bits.json").write_text(make_golden.expected(shape, values))


def generated(count):
    """The highest bytes of the numbers of a linear congruential generator."""
    x, out = 1, bytearray()
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(x >> 24)
    return np.frombuffer(out, np.uint8).copy()


def print_hashes():
    for kind in HASHED:
        number = GGMLQuantizationType[kind]
        data = generated(200 * GGML_QUANT_SIZES[number][1]).reshape(200, -1)
        if kind != "NVFP4":  # whose scales are all finite
            data[:, HIGHEST.get(kind, [1])] &= 0x7F if kind == "MXFP4" else 0xBF
        values = quants.dequantize(data, number).astype(np.float32)
        print(f'{{GgmlType::{kind}, "{hashlib.blake2s(values.tobytes(), digest_size=8).hexdigest()}"}},')


if __name__ == "__main__":
    make_model()
    print_hashes()
