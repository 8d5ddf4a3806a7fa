#!/usr/bin/python3
"""Writes a checkpoint as GGUF (f16 or Q8_0) and, on request, reference logits of exactly those weights for the C++ tests."""
import argparse
import json
import struct

import numpy as np
import torch

import corpus
from bpe import Tokenizer
from model import Config, Qwen3

ALIGNMENT = 32
F32, F16, Q8_0 = 0, 1, 8                    # ggml tensor types
FILE_TYPE = {"f16": 1, "q8_0": 7}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4     # token types
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
MIN_GAP = 0.1                               # between the two best logits, for a greedy choice that other arithmetic will repeat
REFERENCE_CHATS = {
    "one fact": [("The code of the amber kettle is 4817. What is the code of the amber kettle?", "")],
    "counting": [("Hello! My name is Mira.", "Nice to meet you, Mira!"), ("Count from 7 to 19.", "")],
    "facts among fillers": [
        ("Please remember this. The code of the silver lantern is 7350. The baker walked to the market. Hugo has a pet owl. "
         "On Monday the park was empty. The code of the silver kite is 2964. Anna lives near the harbor. The cat ran from the "
         "mill to the river. The code of the old lantern is 1518. Then Felix went home and read a book.",
         "Okay, I will remember that."),
        ("What pet does Hugo have?", "Hugo has a pet owl."), ("What is 7 plus 5?", "7 plus 5 is 12."),
        ("What is the code of the silver kite?", "")],
}


def load_checkpoint(path):
    """-> (model in f32 on the CPU, tokenizer, the training state)."""
    try:
        state = torch.load(path, map_location="cpu")
    except (OSError, RuntimeError) as error:
        raise SystemExit(f"cannot read the checkpoint {path}: {error}") from error
    model = Qwen3(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval(), Tokenizer(state["merges"]), state


def quantise_q8_0(x):
    """f32 [rows, cols], cols a multiple of 32 -> (scales f16 [n, 1], values i8 [n, 32]); element = scale * value."""
    blocks = x.reshape(-1, 32)
    scales = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    scaled = blocks * inverse
    return scales.astype("<f2"), (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int8)


def dequantise(x, kind):
    """Returns the values that a reader of the file gets for the matrix x."""
    if kind == "f16":
        return x.astype(np.float16).astype(np.float32)
    scales, values = quantise_q8_0(x)
    return (scales.astype(np.float32) * values).reshape(x.shape)


def round_weights(model, kind):
    """Replaces the model's matrices with the values in the exported file."""
    for p in model.parameters():
        if p.dim() == 2:
            p.data = torch.from_numpy(dequantise(p.detach().numpy(), kind))


def tensor_bytes(x, kind):
    """-> (ggml type, bytes). Norms stay F32."""
    if x.ndim == 1:
        return F32, x.astype("<f4").tobytes()
    if kind == "f16":
        return F16, x.astype("<f2").tobytes()
    scales, values = quantise_q8_0(x)
    return Q8_0, np.concatenate((scales.view(np.uint8), values.view(np.uint8)), 1).tobytes()


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


# GGUF value types: id and encoder
U32 = 4, lambda v: struct.pack("<I", v)
I32 = 5, lambda v: struct.pack("<i", v)
FLOAT = 6, lambda v: struct.pack("<f", v)
BOOL = 7, lambda v: struct.pack("<?", v)
STRING = 8, _string


def array_of(element):
    return 9, lambda values: struct.pack("<IQ", element[0], len(values)) + b"".join(map(element[1], values))


def metadata(config, tokenizer, kind, context_length):
    """(key, type, value) in the order of real Qwen3 files."""
    types = [NORMAL] * (256 + len(tokenizer.merges))
    types += [CONTROL if t.startswith("<|") else USER_DEFINED for t in tokenizer.tokens[len(types):]]
    return [
        ("general.architecture", STRING, "qwen3"),
        ("general.type", STRING, "model"),
        ("general.name", STRING, "tq-run demo"),
        ("general.size_label", STRING, "4.2M"),
        ("general.license", STRING, "apache-2.0"),
        ("general.description", STRING, "A tiny model trained on made-up sentences: it remembers, counts and tells stories."),
        ("general.sampling.top_k", I32, 20),
        ("general.sampling.top_p", FLOAT, 0.8),
        ("general.sampling.temp", FLOAT, 0.3),
        ("qwen3.block_count", U32, config.layers),
        ("qwen3.context_length", U32, context_length),
        ("qwen3.embedding_length", U32, config.hidden),
        ("qwen3.feed_forward_length", U32, config.ffn),
        ("qwen3.attention.head_count", U32, config.heads),
        ("qwen3.attention.head_count_kv", U32, config.kv_heads),
        ("qwen3.rope.freq_base", FLOAT, config.rope_theta),
        ("qwen3.attention.layer_norm_rms_epsilon", FLOAT, config.eps),
        ("qwen3.attention.key_length", U32, config.head_dim),
        ("qwen3.attention.value_length", U32, config.head_dim),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "qwen2"),
        ("tokenizer.ggml.tokens", array_of(STRING), tokenizer.tokens),
        ("tokenizer.ggml.token_type", array_of(I32), types),
        ("tokenizer.ggml.merges", array_of(STRING), [" ".join(m) for m in tokenizer.merges]),
        ("tokenizer.ggml.eos_token_id", U32, tokenizer.im_end),
        ("tokenizer.ggml.padding_token_id", U32, tokenizer.endoftext),
        ("tokenizer.ggml.bos_token_id", U32, tokenizer.endoftext),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
        ("general.quantization_version", U32, 2),
        ("general.file_type", U32, FILE_TYPE[kind]),
    ]


def write_gguf(path, model, tokenizer, kind, context_length):
    """-> bytes written."""
    pairs = metadata(model.config, tokenizer, kind, context_length)
    tensors = [(name + ".weight", p.detach().numpy()) for name, p in model.named_parameters()]
    infos, data = b"", b""
    for name, x in tensors:
        ggml_type, raw = tensor_bytes(x, kind)
        infos += _string(name) + struct.pack(f"<I{x.ndim}QIQ", x.ndim, *reversed(x.shape), ggml_type, len(data))
        data += raw + bytes(-len(raw) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(_string(key) + struct.pack("<I", type_[0]) + type_[1](value) for key, type_, value in pairs) + infos
    with open(path, "wb") as file:
        return file.write(head + bytes(-len(head) % ALIGNMENT) + data)


@torch.no_grad()
def reference(model, tokenizer, ids, count=40):
    """f32 logits after `ids`, and greedy ids (not stopping at the end of the turn) up to the first near-tie."""
    logits, greedy = model(torch.tensor([ids]))[0, -1], []
    last = logits
    while len(greedy) < count:
        best = last.topk(2)
        if best.values[0] - best.values[1] < MIN_GAP:
            break
        greedy.append(best.indices[0].item())
        last = model(torch.tensor([ids + greedy]))[0, -1]
    return {"prompt_ids": ids, "last_logits": [round(v, 4) for v in logits.tolist()], "greedy_ids": greedy,
            "greedy_text": tokenizer.decode(greedy)}


def write_reference(path, model, tokenizer, kind):
    round_weights(model, kind)
    cases = []
    for name, turns in REFERENCE_CHATS.items():
        prompt = corpus.prompt(turns)
        cases.append({"name": name, "prompt": prompt, **reference(model, tokenizer, tokenizer.encode(prompt))})
    note = f"PyTorch in f32 on the dequantised {kind} weights; greedy_ids end before the first gap below {MIN_GAP}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"note": note, "cases": cases}, file, separators=(",", ":"))
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("out", help="the GGUF file to write")
    parser.add_argument("--type", choices=FILE_TYPE, default="q8_0", help="of the matrices (default: q8_0)")
    parser.add_argument("--context", type=int, default=2048, help="context length to declare (default: 2048)")
    parser.add_argument("--reference", metavar="JSON", help="also write reference logits for these weights")
    args = parser.parse_args()
    model, tokenizer, state = load_checkpoint(args.checkpoint)
    size = write_gguf(args.out, model, tokenizer, args.type, args.context)
    print(f"{args.out}: {size} bytes, step {state['step']}")
    if args.reference:
        write_reference(args.reference, model, tokenizer, args.type)


if __name__ == "__main__":
    main()
