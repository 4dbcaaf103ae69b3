"""Compile every kernel with the installed Triton, without a GPU; print a JSON object per kernel.

    PYTHONPATH=FOLDER python benchmarks/triton_versions.py

FOLDER holds another version (``pip install --no-deps --target FOLDER triton==3.6.0``). A kernel
that cannot be compiled has the key ``error``. `tests/kernels/test_triton_versions.py` reads this.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import triton
import triton_heights
import triton_step
from triton_code import LATTICES, Variant, compiled, variants

ARCHITECTURE = 90


def row_of(variant: Variant) -> dict[str, Any]:
    """Compile a variant; return its registers, and the instructions that determine result bits."""
    row: dict[str, Any] = {"kernel": variant.kernel.__name__, "name": variant.name}
    try:
        code = compiled(variant, ARCHITECTURE, listing=False)
    except Exception as error:  # a compiler may raise any error
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return row | {"error": f"{type(error).__name__}: {cause}"}
    row |= {"registers": code.registers, "local_bytes": code.local_bytes}
    multiplies_and_adds = re.search(r"fma\.rn\.f(32|64)", code.ptx) is not None
    return row | {"multiplies_and_adds": multiplies_and_adds, "flushes": ".ftz" in code.ptx}


def first_and_last(listed: Iterable[Variant]) -> Iterator[Variant]:
    """Yield the first and the last variant of each kernel, which differ the most."""
    by_kernel: dict[str, list[Variant]] = {}
    for variant in listed:
        by_kernel.setdefault(variant.kernel.__name__, []).append(variant)
    for alike in by_kernel.values():
        yield alike[0]
        yield from alike[1:][-1:]


def main() -> None:
    """Compile every kernel of the environment."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    listed = (triton_step.variants(), triton_heights.variants())
    for variant in chain(variants(LATTICES[-1:]), *map(first_and_last, listed)):
        print(json.dumps(row_of(variant) | {"version": triton.__version__}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        main()
