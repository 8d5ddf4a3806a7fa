#!/usr/bin/env python3
"""Writes the models and answers of tests/data anew; tests/data/README.md says what each is. The texts and conversations stay, only
their answers are made. Needs the larger set of test data, numpy, Jinja2 and regex (Debian: python3-numpy python3-jinja2 python3-regex).

    tests/support/golden/make_golden.py ../shared/data
"""
import json
import pathlib
import struct
import sys

import blocks
import gguf
import jinja2
import numpy as np
import qwen3
import tokenizer

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
PROMPT = [468, 310, 339, 445, 286, 384, 413, 111, 27, 148, 141, 433, 452, 2, 247, 407, 65, 395, 59, 232, 404, 150, 169, 138]
GREEDY_PROMPT, GREEDY, VOCABULARY = 8, 16, 505  # the rest of the 512 tokens is padding

# Each matrix has a format of its own; the value is the file of the larger set that has the matrix in that format.
MIXED = {"token_embd": "q4_k_m", "output": "q6_k", "blk.0.attn_q": "q2_k", "blk.0.attn_k": "f16", "blk.0.attn_v": "bf16",
         "blk.0.attn_output": "q3_k_m", "blk.0.ffn_gate": "q5_0", "blk.0.ffn_up": "q5_1", "blk.0.ffn_down": "q5_k_m",
         "blk.1.attn_q": "iq4_nl", "blk.1.attn_k": "q4_1", "blk.1.attn_v": "q8_0", "blk.1.attn_output": "iq4_xs",
         "blk.1.ffn_gate": "mxfp4_moe", "blk.1.ffn_up": "f32", "blk.1.ffn_down": "q4_0"}

# Hugging Face's names.
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def expected(shape, weights):
    """Returns the JSON that tests/support/golden.h reads."""
    ids = PROMPT[:GREEDY_PROMPT]
    for _ in range(GREEDY):
        ranked = np.sort(scores := qwen3.logits(shape, weights, ids)[:VOCABULARY])
        assert ranked[-1] - ranked[-2] > 0.01, "too close to call: take another seed"
        ids = ids + [int(scores.argmax())]
    answer = {"prompt_ids": PROMPT, "logits_last": [float(f"{x:.7g}") for x in qwen3.logits(shape, weights, PROMPT)],
              "greedy_prompt_ids": PROMPT[:GREEDY_PROMPT], "greedy_ids": ids[GREEDY_PROMPT:]}
    return json.dumps(answer) + "\n"


def values_of(tensors):
    return {name: t.values()[0] if t.is_vector else t.values() for name, t in tensors.items()}


def make_mixed(models):
    metadata, tensors = gguf.read(models / "tiny-f32.gguf")
    for name, kind in MIXED.items():
        tensors[name + ".weight"] = gguf.read(models / f"tiny-{kind}.gguf")[1][name + ".weight"]
    assert len({t.kind for t in tensors.values()}) == len(blocks.SIZES)
    metadata["general.name"] = gguf.TEXT, gguf.text("every format")
    del metadata["general.file_type"]
    gguf.write(DATA / "qwen3-mixed.gguf", metadata, tensors)
    shape = qwen3.Shape(4, 2, 128, gguf.number(metadata["qwen3.rope.freq_base"]),
                        gguf.number(metadata["qwen3.attention.layer_norm_rms_epsilon"]))
    (DATA / "qwen3-mixed.json").write_text(expected(shape, values_of(tensors)))


def make_quantised_rows(models):
    """Writes the first rows of a matrix, and ggml's quantisation of them."""
    rows = {}
    for kind in ("f32", "q8_0", "q4_0"):
        t = gguf.read(models / f"tiny-{kind}.gguf")[1]["blk.0.attn_k.weight"]
        rows[kind] = gguf.Tensor(t.kind, 16, t.cols, t.data[:blocks.bytes_of(t.kind, 16 * t.cols)])
    gguf.write(DATA / "quantised_rows.gguf", {}, rows)


def tied_model(hidden=64, ffn=160, heads=3, head_dim=64, layers=2):
    """Returns the shape and the tensors of a random model in bf16, embedding and head the same matrix, all query heads on one key/value head."""
    random = np.random.default_rng(1)
    sizes = {"attn_q": (heads * head_dim, hidden), "attn_k": (head_dim, hidden), "attn_v": (head_dim, hidden),
             "attn_output": (hidden, heads * head_dim), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    tensors = {}

    def matrix(name, rows, cols):
        data = blocks.to_bf16(random.normal(0, 1.5 / np.sqrt(cols), (rows, cols)))
        tensors[name + ".weight"] = gguf.Tensor(blocks.BF16, rows, cols, data)

    def vector(name, cols):
        tensors[name + ".weight"] = gguf.Tensor(blocks.BF16, 1, cols, blocks.to_bf16(random.uniform(0.5, 2, cols)), True)

    matrix("token_embd", 512, hidden)
    for layer in range(layers):
        for name in LAYER:
            if name in sizes:
                matrix(f"blk.{layer}.{name}", *sizes[name])
            else:
                vector(f"blk.{layer}.{name}", head_dim if name in ("attn_q_norm", "attn_k_norm") else hidden)
    vector("output_norm", hidden)
    return qwen3.Shape(heads, 1, head_dim, 1e6, 1e-6), tensors


def hugging_face_name(name):
    name = name.removesuffix(".weight")
    if name in MODEL:
        return MODEL[name] + ".weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def safetensors(tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        header[hugging_face_name(name)] = {"dtype": "BF16", "shape": [t.cols] if t.is_vector else [t.rows, t.cols],
                                           "data_offsets": [len(data), len(data) + len(t.data)]}
        data += t.data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def make_tied(source):
    folder = DATA / "qwen3-tied-hf"
    shape, tensors = tied_model()
    names = list(tensors)
    weight_map = {}
    for number, part in (1, names[:len(names) // 2]), (2, names[len(names) // 2:]):  # the first layer is in both
        shard = f"model-{number:05}-of-00002.safetensors"
        (folder / shard).write_bytes(safetensors({name: tensors[name] for name in part}))
        weight_map.update({hugging_face_name(name): shard for name in part})
    index = {"metadata": {"total_size": sum(len(t.data) for t in tensors.values())}, "weight_map": weight_map}
    config = json.loads((source / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=160, num_attention_heads=3, num_key_value_heads=1, head_dim=64,
                  tie_word_embeddings=True)
    for name, document in ("model.safetensors.index.json", index), ("config.json", config):
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    for name in "generation_config.json", "tokenizer.json", "tokenizer_config.json":
        (folder / name).write_text(json.dumps(json.loads((source / name).read_text()), ensure_ascii=False) + "\n")
    (folder / "expected.json").write_text(expected(shape, values_of(tensors)))
    for name, kind in ("q8_0", blocks.Q8_0), ("q4_0", blocks.Q4_0):  # as --weights makes them
        quantised = {n: t if t.is_vector else gguf.Tensor(kind, t.rows, t.cols, blocks.quantise(kind, t.values()))
                     for n, t in tensors.items()}
        (folder / f"expected-{name}.json").write_text(expected(shape, values_of(quantised)))


def write_cases(path, cases):
    """One case a line."""
    path.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


def make_tokenizer(vocabulary):
    folder = DATA / "qwen3-tokenizer"
    metadata, _ = gguf.read(vocabulary)
    tokens, merges = (gguf.texts(metadata[f"tokenizer.ggml.{key}"]) for key in ("tokens", "merges"))
    types = struct.unpack_from(f"<{len(tokens)}i", metadata["tokenizer.ggml.token_type"][1], 12)
    whole = tokenizer.Tokenizer(tokens, types, merges)
    cases = [{"text": case["text"], "ids": whole.encode(case["text"])} for case in json.loads((folder / "cases.json").read_text())]
    write_cases(folder / "cases.json", cases)
    needed = tokenizer.needed_merges(merges, [case["text"] for case in cases])
    (folder / "tokenizer.json").write_text(tokenizer.tokenizer_json(tokens, types, needed))
    make_chats(folder / "chat_template_cases.json", gguf.Reader(metadata["tokenizer.chat_template"][1]).text())


def make_chats(path, template):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    chats = json.loads(path.read_text())
    for chat in chats:
        chat["rendered"] = environment.from_string(template).render(**chat["input"])
    write_cases(path, chats)


if __name__ == "__main__":
    larger_set = pathlib.Path(sys.argv[1])
    make_mixed(larger_set / "qwen3-tiny")
    make_quantised_rows(larger_set / "qwen3-tiny")
    make_tied(larger_set / "qwen3-tiny-hf")
    make_tokenizer(larger_set / "qwen-tokenizer" / "qwen3-vocab.gguf")
