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


def tied_model(hidden=64, ffn=160, heads=3, head_dim=64, layers=2, seed=1):
    """Returns the shape and the tensors of a random model in bf16, embedding and head the same matrix, all query heads on one key/value head."""
    random = np.random.default_rng(seed)
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


def llama3_vocabulary():
    """All bytes, some words and numbers, whose merges are in the order of the words, Llama 3's special tokens, and padding."""
    tokens, merges = list(tokenizer.LETTERS.values()), []
    for word in "the and you ing er what weather in answer name 12 123 20 202 2024".split() + [" the", " and", " name"]:
        parts = list(tokenizer.letters(word))
        while len(parts) > 1:
            merge = parts[0] + " " + parts[1]
            parts[:2] = [parts[0] + parts[1]]
            if merge not in merges:
                merges.append(merge)
                tokens.append(parts[0])
    types = [1] * len(tokens)
    special = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id",
               "reserved_special_token_2", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    for name in special:
        tokens.append(f"<|{name}|>")
        types.append(3)
    while len(tokens) < 512:
        tokens.append(f"<|reserved_special_token_{len(tokens)}|>")
        types.append(3 if len(tokens) <= VOCABULARY else 5)
    return tokens, types, merges


def in_neighbours(values, head_dim):
    """Rows of q or k in the order of Llama's GGUF files."""
    heads = values.reshape(-1, 2, head_dim // 2, values.shape[-1])
    return heads.swapaxes(1, 2).reshape(values.shape)


def make_llama3():
    shape, tensors = tied_model(ffn=64, seed=3)
    tensors = {name: t for name, t in tensors.items() if "_norm" not in name or "attn_norm" in name or "attn_q" not in name
               and "attn_k" not in name}
    shape.rope_theta, shape.eps = 5e5, float(np.float32(1e-5))
    # An original context of 16, so that the scaling shows after a few tokens.
    factors = qwen3.llama3_factors(shape.rope_theta, shape.head_dim, 8, 1, 4, 16).astype(np.float32)
    shape.rope_factors = factors.astype(np.float64)
    (DATA / "llama3.json").write_text(expected(shape, values_of(tensors)))
    stored = {"rope_freqs.weight": gguf.Tensor(0, 1, len(factors), factors.tobytes(), True)}
    for name, t in tensors.items():
        if ".attn_q." in name or ".attn_k." in name:
            t = gguf.Tensor(t.kind, t.rows, t.cols, blocks.to_bf16(in_neighbours(t.values(), shape.head_dim)))
        stored[name] = gguf.Tensor(0, 1, t.cols, t.values().astype(np.float32).tobytes(), True) if t.is_vector else t
    tokens, types, merges = llama3_vocabulary()
    metadata = {"general.architecture": "llama", "general.name": "Llama 3 in small", "llama.block_count": 2,
                "llama.context_length": 128, "llama.embedding_length": 64, "llama.feed_forward_length": 64,
                "llama.attention.head_count": shape.heads, "llama.attention.head_count_kv": shape.kv_heads,
                "llama.attention.key_length": shape.head_dim, "llama.attention.value_length": shape.head_dim,
                "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": shape.rope_theta,
                "llama.rope.dimension_count": shape.head_dim, "llama.vocab_size": 512, "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
                "tokenizer.ggml.merges": merges, "tokenizer.ggml.bos_token_id": tokens.index("<|begin_of_text|>"),
                "tokenizer.ggml.eos_token_id": tokens.index("<|eot_id|>"),
                "tokenizer.chat_template": "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: ..."}
    gguf.write(DATA / "llama3.gguf", {key: gguf.value(content) for key, content in metadata.items()}, stored)


def make_llama3_chats(templates):
    """Each case has the name of its template beside its input; the templates, llama31.jinja and so on, are Meta's."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    path = DATA / "llama3_template_cases.json"
    chats = json.loads(path.read_text())
    for chat in chats:
        template = environment.from_string((templates / (chat["variant"] + ".jinja")).read_text())
        chat["rendered"] = template.render(bos_token="<|begin_of_text|>", **chat["input"])
    write_cases(path, chats)


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
    make_llama3()
    if (templates := larger_set / "llama3-templates").exists():  # Meta's, which the larger set does not have
        make_llama3_chats(templates)
