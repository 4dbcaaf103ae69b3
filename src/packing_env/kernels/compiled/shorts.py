"""Vectors of 32 signed 16-bit integers, for compiled code.

They serve the same purpose as :mod:`packing_env.kernels.compiled.bytes`. Addresses need no
alignment; results are modulo 2^16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from packing_env.kernels.compiled.bytes import Vector, basics, operation, repeat

LANES = 32
"""Integers of a vector."""

SIZE = 2 * LANES
"""Bytes of a vector."""

FRACTION = 15
"""Number of fractional bits in the factor of `scaled`."""

SHORTS = Vector(16, LANES)

_WIDE = ir.VectorType(ir.IntType(32), LANES)


def _pick(relation: str) -> Callable[..., Any]:
    def emit(builder: Any, one: Any, other: Any) -> Any:
        return builder.select(builder.icmp_signed(relation, one, other), one, other)

    return emit


def _where(builder: Any, one: Any, limit: Any, within: Any, beyond: Any) -> Any:
    return builder.select(builder.icmp_signed("<=", one, limit), within, beyond)


def _shift_right(builder: Any, vector: Any, count: Any) -> Any:
    return builder.lshr(vector, repeat(builder, count, SHORTS.code))


def _scaled(builder: Any, vector: Any, factor: Any) -> Any:
    # Products need 32 bits.
    wide = builder.mul(builder.zext(vector, _WIDE), repeat(builder, factor, _WIDE))
    return builder.trunc(builder.lshr(wide, ir.Constant(_WIDE, [FRACTION] * LANES)), SHORTS.code)


load, store, splat, add = basics(SHORTS)
"""load(address): the 32 integers that begin at an address. store(address, vector): write 32
integers. splat(number): the number in every place. add(one, other): sums."""
sub = operation(lambda builder, one, other: builder.sub(one, other), SHORTS, SHORTS, SHORTS)
"""sub(one, other): differences."""
mul = operation(lambda builder, one, other: builder.mul(one, other), SHORTS, SHORTS, SHORTS)
"""mul(one, other): products."""
shift_right = operation(_shift_right, SHORTS, SHORTS, types.int64)
"""shift_right(vector, count): nonnegative integers, divided by 2^count and rounded down."""
scaled = operation(_scaled, SHORTS, SHORTS, types.int64)
"""scaled(vector, factor): nonnegative integers times factor / 2^15, rounded down; factor < 2^17."""
higher = operation(_pick(">"), SHORTS, SHORTS, SHORTS)
"""higher(one, other): maxima."""
lower = operation(_pick("<"), SHORTS, SHORTS, SHORTS)
"""lower(one, other): minima."""
where = operation(_where, SHORTS, SHORTS, SHORTS, SHORTS, SHORTS)
"""where(one, limit, within, beyond): within where one <= limit, else beyond."""
