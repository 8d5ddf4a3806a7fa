#!/bin/sh
# Makes the demo model from nothing: trains it (or resumes), exports it, writes the reference logits, evaluates it.
# Needs Python 3 with PyTorch and numpy, and a C compiler when there is no GPU. PYTHON and OUT may be set.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/../../build/demo-model}
python=${PYTHON:-python3}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
"$python" "$here/train.py" --out "$out" "$@"
"$python" "$here/export.py" "$out/checkpoint.pt" "$here/demo-q8_0.gguf" --reference "$here/reference.json"
"$python" "$here/evaluate.py" "$out/checkpoint.pt" | tee "$out/evaluation.md"
