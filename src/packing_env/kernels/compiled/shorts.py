"""Vectors of 32 signed 16-bit integers, for compiled code.

They serve the same purpose as :mod:`packing_env.kernels.compiled.bytes`. Addresses need no
alignment; results are modulo 2^16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model

from packing_env.kernels.compiled.bytes import operation

LANES = 32
"""Integers of a vector."""

SIZE = 2 * LANES
"""Bytes of a vector."""

FRACTION = 15
"""Number of fractional bits in the factor of `scaled`."""

_SHORT, _INT, _LONG = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_VECTOR, _WIDE = ir.VectorType(_SHORT, LANES), ir.VectorType(_INT, LANES)
_DONE = ir.Constant(ir.IntType(1), 1)


class Shorts(types.Type):
    """The type of a vector in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="Shorts")


@register_model(Shorts)
class _ShortsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


SHORTS = Shorts()


def _repeat(builder: Any, number: Any, kind: Any) -> Any:
    # Insert the number at one position; a shuffle repeats it.
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, builder.trunc(number, kind.element), _LONG(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(_WIDE, [0] * LANES))


def _splat(builder: Any, number: Any) -> Any:
    return _repeat(builder, number, _VECTOR)


def _pick(relation: str) -> Callable[..., Any]:
    def emit(builder: Any, one: Any, other: Any) -> Any:
        return builder.select(builder.icmp_signed(relation, one, other), one, other)

    return emit


def _where(builder: Any, one: Any, limit: Any, within: Any, beyond: Any) -> Any:
    return builder.select(builder.icmp_signed("<=", one, limit), within, beyond)


def _shift_right(builder: Any, vector: Any, count: Any) -> Any:
    return builder.lshr(vector, _splat(builder, count))


def _scaled(builder: Any, vector: Any, factor: Any) -> Any:
    # Products need 32 bits.
    wide = builder.mul(builder.zext(vector, _WIDE), _repeat(builder, factor, _WIDE))
    return builder.trunc(builder.lshr(wide, ir.Constant(_WIDE, [FRACTION] * LANES)), _VECTOR)


def _load(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=2)


def _store(builder: Any, address: Any, vector: Any) -> Any:
    builder.store(vector, builder.inttoptr(address, _VECTOR.as_pointer()), align=2)
    return _DONE


load = operation(_load, SHORTS, types.int64)
"""load(address): the 32 integers that begin at an address."""
store = operation(_store, types.boolean, types.int64, SHORTS)
"""store(address, vector): write 32 integers."""
splat = operation(_splat, SHORTS, types.int64)
"""splat(number): the number in every place."""
add = operation(lambda builder, one, other: builder.add(one, other), SHORTS, SHORTS, SHORTS)
"""add(one, other): sums."""
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
