#!/usr/bin/env python3
"""Writes tests/support/haar_vectors.h: what torch makes of the seeds that haar_test compares with. Needs torch (Debian: python3-torch).

    tests/support/make_haar_vectors.py > tests/support/haar_vectors.h
"""
import torch

SEEDS = 42, 542, 1042, 28042, 35542
PLACES = 24


def haar(a):
    q, r = torch.linalg.qr(a)
    return q * torch.sign(torch.diagonal(r))


def row(values):
    return "{" + ", ".join(f"{float(v):.9g}f" for v in values) + "}"


print(f"""\
// Written by make_haar_vectors.py with torch {torch.__version__}: excerpts of the Haar matrices of torch.randn's A, factorised in
// fp64 and in fp32. Entry i is at row 37 i % d, column 53 i % d.
#pragma once
#include <array>
#include <cstdint>

namespace tq::test {{

struct HaarVector {{
    uint32_t head_dim;
    uint64_t seed;
    std::array<float, {PLACES}> fp64, fp32;
}};

// clang-format off
constexpr HaarVector haar_vectors[] = {{""")
for d in 64, 128, 256:
    for seed in SEEDS:
        a = torch.randn(d, d, generator=torch.Generator().manual_seed(seed))
        places = [(37 * i % d, 53 * i % d) for i in range(PLACES)]
        exact, rounded = haar(a.double()).float(), haar(a)
        print(f"    {{{d}, {seed}, {row(exact[p] for p in places)},\n     {row(rounded[p] for p in places)}}},")
print("};\n// clang-format on\n\n} // namespace tq::test")
