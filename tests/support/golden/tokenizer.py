"""Qwen's tokenizer in plain Python: NFC, the regular expression, merges by rank; and parts of a vocabulary for some texts."""
import json
import unicodedata

import regex

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
NORMAL, CONTROL, ADDED = 1, 3, 4


def byte_letters():
    """GPT-2's character for each byte."""
    printing = [b for b in range(256) if 32 < b < 127 or 160 < b != 173]
    others = [b for b in range(256) if b not in printing]
    return {**{b: chr(b) for b in printing}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = byte_letters()


def letters(text):
    return "".join(LETTERS[b] for b in text.encode())


class Tokenizer:
    def __init__(self, tokens, types, merges):
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.ranks = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
        self.added = [t for t, kind in zip(tokens, types) if kind in (CONTROL, ADDED)]

    def merged(self, parts):
        while True:
            pairs = [(self.ranks.get(pair, len(self.ranks)), i) for i, pair in enumerate(zip(parts, parts[1:]))]
            rank, i = min(pairs, default=(len(self.ranks), 0))
            if rank == len(self.ranks):
                return parts
            parts = parts[:i] + [parts[i] + parts[i + 1]] + parts[i + 2:]

    def encode(self, text):
        ids = []
        for piece in regex.split("(" + "|".join(map(regex.escape, self.added)) + ")", text):
            if piece in self.added:
                ids.append(self.ids[piece])
                continue
            for word in regex.findall(SPLIT, unicodedata.normalize("NFC", piece)):
                ids += [self.ids[part] for part in self.merged(list(letters(word)))]
        return ids


def needed_merges(merges, texts):
    """The merges that could apply somewhere in `texts`, composed or not; without the others every text keeps its tokens."""
    seen = "\n".join(letters(unicodedata.normalize(form, t)) for t in texts for form in ("NFC", "NFD"))
    return [m for m in merges if m.replace(" ", "") in seen]


def tokenizer_json(tokens, types, merges):
    """Returns a tokenizer.json with the tokens of the single bytes, the results of `merges` and the added ones, by their own ids."""
    kept = set(LETTERS.values()) | {m.replace(" ", "") for m in merges}
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": types[i] == CONTROL} for i, t in enumerate(tokens) if types[i] in (CONTROL, ADDED)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens) if t in kept and types[i] == NORMAL}, "merges": merges}
    }, ensure_ascii=False) + "\n"
