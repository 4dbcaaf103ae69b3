"""Counter-based random numbers: a draw depends only on its key and counter.

Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, on int64
tensors that hold 32-bit words. So a draw is the same on every device, for every batch size, and
inside a captured graph.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env.kernels import choose_uniform

__all__ = ["below", "choose_uniform", "philox"]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def _mul_hi_lo(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and low words of ``a * b``; the product may wrap around in int64."""
    product = b * a
    return (product >> 32) & _WORD, product & _WORD


def philox(
    seed: Int[Tensor, "*batch"], *counter: Int[Tensor, "*batch"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw four uniform 32-bit words per element, as int64 in ``[0, 2**32)``.

    Args:
        seed: Key; its low 64 bits are used.
        counter: Up to four non-negative counters, each below 2**32, broadcast against ``seed``.
    """
    # The counter has four words, the key two; missing counters are 0.
    zero = torch.zeros_like(seed)
    c0, c1, c2, c3 = (*(c + zero for c in counter), *(zero,) * (4 - len(counter)))
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(_ROUNDS):
        # A round multiplies twice and mixes the products with the key. Then the key increases by
        # the Weyl constants.
        hi0, lo0 = _mul_hi_lo(_MULTIPLIERS[0], c0)
        hi1, lo1 = _mul_hi_lo(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def below(word: Int[Tensor, "*batch"], bound: int | Tensor) -> Int[Tensor, "*batch"]:
    """Map 32-bit words to ``0 .. bound - 1`` by multiplication (bias below ``bound / 2**32``)."""
    return (word * bound) >> 32
