"""Reads and writes GGUF files, version 3: metadata kept as raw bytes, tensors as rows of blocks."""
import math
import struct

import blocks

ALIGNMENT = 32
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by its type
TEXT, LIST = 8, 9


class Tensor:
    """`data`: the bytes of `rows` rows of `cols` numbers in blocks of `kind`; a vector has one row. `ne`: the dimensions, fastest first, if
    there are more than two: the rows of a stack of matrices are one below the other."""

    def __init__(self, kind, rows, cols, data, is_vector=False, ne=None):
        self.kind, self.rows, self.cols, self.data, self.is_vector = kind, rows, cols, data, is_vector
        self.ne = ne or ([cols] if is_vector else [cols, rows])

    def values(self):
        return blocks.decode(self.kind, self.data).reshape(self.rows, self.cols)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def text(self):
        return self.take(self.number("Q")).decode()

    def skip_value(self, kind):
        if kind == TEXT:
            self.take(self.number("Q"))
        elif kind == LIST:
            element, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip_value(element)
        else:
            self.take(FIXED[kind])


def read(path):
    """Metadata as {key: (type, bytes)}, and tensors by name in their order."""
    r = Reader(path.read_bytes())
    assert r.take(4) == b"GGUF" and r.number("I") == 3
    count, keys = r.number("Q"), r.number("Q")
    metadata, infos, tensors = {}, [], {}
    for _ in range(keys):
        key, kind = r.text(), r.number("I")
        begin = r.at
        r.skip_value(kind)
        metadata[key] = kind, r.data[begin:r.at]
    for _ in range(count):
        name, dims = r.text(), r.number("I")
        ne = [r.number("Q") for _ in range(dims)]
        infos.append((name, ne, r.number("I"), r.number("Q")))
    base = -(-r.at // ALIGNMENT) * ALIGNMENT
    for name, ne, kind, offset in infos:
        rows = math.prod(ne[1:])
        size = blocks.bytes_of(kind, rows * ne[0])
        tensors[name] = Tensor(kind, rows, ne[0], r.data[base + offset:base + offset + size], len(ne) == 1, ne)
    return metadata, tensors


def texts(value):
    """A list of texts in the metadata."""
    r = Reader(value[1])
    assert r.number("I") == TEXT
    return [r.text() for _ in range(r.number("Q"))]


def number(value):
    return struct.unpack("<" + {4: "I", 5: "i", 6: "f"}[value[0]], value[1])[0]


def text(line):
    return struct.pack("<Q", len(line.encode())) + line.encode()


def value(content):
    """A value of the metadata: a truth value, a whole number, a number, a text, or a list of them."""
    if isinstance(content, bool):
        return 7, struct.pack("<B", content)
    if isinstance(content, int):
        return 4, struct.pack("<I", content)
    if isinstance(content, float):
        return 6, struct.pack("<f", content)
    if isinstance(content, str):
        return TEXT, text(content)
    kind = 5 if isinstance(content[0], int) else value(content[0])[0]  # whole numbers of lists are signed, as types of tokens are
    return LIST, struct.pack("<IQ", kind, len(content)) + b"".join(value(one)[1] for one in content)


def write(path, metadata, tensors):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        out += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, t in tensors.items():
        out += text(name) + struct.pack(f"<I{len(t.ne)}QIQ", len(t.ne), *t.ne, t.kind, len(data))
        data += t.data + bytes(-len(t.data) % ALIGNMENT)
    path.write_bytes(out + bytes(-len(out) % ALIGNMENT) + data)
