#!/usr/bin/python3
"""Byte-level BPE with Qwen2's splitting rules: training, encoding, decoding. Run it to train the tokenizer on the corpus.

The 256 byte tokens come first (in GPT-2's order), then one token per merge, then the specials."""
import argparse
import collections
import json
import random
import re

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
_LETTER, _OTHER = r"[^\W\d_]", r"(?:[^\s\w]|_)"
_SPLIT = re.compile(rf"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|(?:[^\r\n\w]|_)?{_LETTER}+|\d| ?{_OTHER}+[\r\n]*"
                    r"|\s*[\r\n]+|\s+(?!\S)|\s+")
_SPECIAL_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


def _byte_to_char():
    """GPT-2's printable stand-in for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


BYTE_TO_CHAR = _byte_to_char()
CHAR_TO_BYTE = {c: b for b, c in BYTE_TO_CHAR.items()}


def _symbols(word):
    return [BYTE_TO_CHAR[b] for b in word.encode()]


def _merge(symbols, left, right):
    merged, i = [], 0
    while i < len(symbols):
        if symbols[i] == left and symbols[i + 1:i + 2] == [right]:
            merged.append(left + right)
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def train_merges(texts, vocab_size):
    """The merges, in order, that bring the vocabulary (bytes, merges, specials) to `vocab_size`."""
    counts = collections.Counter()
    for text in texts:
        for part in _SPECIAL_SPLIT.split(text):
            if part not in SPECIALS:
                counts.update(_SPLIT.findall(part))
    split = [(_symbols(word), count) for word, count in counts.items()]
    known, merges = set(BYTE_TO_CHAR.values()), []
    while 256 + len(merges) + len(SPECIALS) < vocab_size:
        pairs = collections.Counter()
        for symbols, count in split:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        candidates = ((count, pair) for pair, count in pairs.items() if pair[0] + pair[1] not in known)
        best = max(candidates, default=None)
        if best is None:
            raise SystemExit(f"the corpus yields only {len(merges)} merges, too few for a vocabulary of {vocab_size}")
        left, right = best[1]
        merges.append((left, right))
        known.add(left + right)
        split = [(_merge(s, left, right) if left in s else s, c) for s, c in split]
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = sorted(BYTE_TO_CHAR.values()) + [a + b for a, b in self.merges] + SPECIALS
        self.id = {token: i for i, token in enumerate(self.tokens)}
        self._rank = {m: i for i, m in enumerate(self.merges)}
        self._cache = {}
        self.endoftext, self.im_start, self.im_end = (self.id[s] for s in SPECIALS[:3])

    def __len__(self):
        return len(self.tokens)

    def encode(self, text):
        ids = []
        for part in _SPECIAL_SPLIT.split(text):
            if part in SPECIALS:
                ids.append(self.id[part])
            else:
                for word in _SPLIT.findall(part):
                    ids += self._encode_word(word)
        return ids

    def decode(self, ids):
        out = b""
        for token in (self.tokens[i] for i in ids):
            out += token.encode() if token in SPECIALS else bytes(CHAR_TO_BYTE[c] for c in token)
        return out.decode("utf-8", "replace")

    def _encode_word(self, word):
        ids = self._cache.get(word)
        if ids is None:
            symbols = _symbols(word)
            while True:
                ranked = [(self._rank[p], p) for p in zip(symbols, symbols[1:]) if p in self._rank]
                if not ranked:
                    break
                symbols = _merge(symbols, *min(ranked)[1])
            ids = self._cache[word] = [self.id[s] for s in symbols]
        return ids

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"merges": self.merges}, file, ensure_ascii=False)

    @staticmethod
    def load(path):
        with open(path, encoding="utf-8") as file:
            return Tokenizer(json.load(file)["merges"])


def train_on_corpus(vocab_size, conversations, seed):
    """-> (tokenizer, characters per token on the conversations it was trained on)."""
    import corpus
    rng = random.Random(seed)
    texts = [corpus.conversation(rng, 1200, memory_share=0.5) for _ in range(conversations)]
    tokenizer = Tokenizer(train_merges(texts, vocab_size))
    return tokenizer, sum(map(len, texts)) / sum(len(tokenizer.encode(t)) for t in texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="where to write the tokenizer (JSON)")
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--conversations", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    tokenizer, ratio = train_on_corpus(args.vocab, args.conversations, args.seed)
    tokenizer.save(args.out)
    print(f"{args.out}: {len(tokenizer)} tokens, {len(tokenizer.merges)} merges, {ratio:.2f} characters per token")


if __name__ == "__main__":
    main()
