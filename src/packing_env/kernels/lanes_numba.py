"""The inner loop of all drop heights, in vector registers.

What LLVM makes of the same loop over arrays checks, before each run of it, that none of nine pieces
of memory overlap: that costs more than the sixteen placements it is for. Here it is written down in
LLVM's own terms, in vectors of eight, which every target has or is given.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from packing_env.kernels.compiled_cpu import jit

LANES = 16
"""Placements along y at once, in two rows: four vectors of eight."""

_WIDTH = 8
_VECTORS = 2 * LANES // _WIDTH
_FLOAT, _LONG = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _WIDTH)


def _load(builder: Any, address: Any, kind: Any, place: Any = None) -> Any:
    """What lies there, or so many of its kind later; aligned to its elements."""
    pointer = builder.inttoptr(address, kind.as_pointer())
    if place is not None:
        pointer = builder.gep(pointer, [place])
    return builder.load(pointer, align=8 if kind is _LONG else 4)


def _splat(builder: Any, value: Any) -> Any:
    """A vector of it."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _LONG(0))
    where = ir.Constant(ir.VectorType(ir.IntType(32), _WIDTH), [0] * _WIDTH)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), where)


def _lowest(builder: Any, vectors: list[Any]) -> Any:
    """The lowest element of all vectors, halving what is left."""

    def lower(one: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", one, other), one, other)

    while len(vectors) > 1:
        vectors = [lower(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    left, size = vectors[0], _WIDTH
    while size > 1:
        size //= 2
        upper = ir.Constant(
            ir.VectorType(ir.IntType(32), _WIDTH), [size + k % size for k in range(_WIDTH)]
        )
        left = lower(left, builder.shuffle_vector(left, ir.Constant(_VECTOR, ir.Undefined), upper))
    return builder.extract_element(left, _LONG(0))


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    best, one, other, offset, level, count = arguments
    places = [builder.add(best, _LONG(4 * _WIDTH * k)) for k in range(_VECTORS)]
    rows = [one] * (_VECTORS // 2) + [other] * (_VECTORS // 2)
    ground = [
        builder.add(row, _LONG(4 * _WIDTH * (k % (_VECTORS // 2)))) for k, row in enumerate(rows)
    ]
    begun = [_load(builder, place, _VECTOR) for place in places]
    before = builder.block
    head, body, end = (builder.append_basic_block(f"taps.{part}") for part in ("head", "do", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    tap = builder.phi(_LONG)
    held = [builder.phi(_VECTOR) for _ in range(_VECTORS)]
    tap.add_incoming(_LONG(0), before)
    for phi, value in zip(held, begun, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", tap, count), body, end)
    builder.position_at_end(body)
    shift = builder.shl(_load(builder, offset, _LONG, tap), _LONG(2))
    low = _splat(builder, _load(builder, level, _FLOAT, tap))
    for phi, address in zip(held, ground, strict=True):
        gap = builder.fsub(_load(builder, builder.add(address, shift), _VECTOR), low)
        higher = builder.select(builder.fcmp_ordered(">", gap, phi), gap, phi)
        phi.add_incoming(higher, body)
    tap.add_incoming(builder.add(tap, _LONG(1)), body)
    builder.branch(head)
    builder.position_at_end(end)
    for place, phi in zip(places, held, strict=True):
        builder.store(phi, builder.inttoptr(place, _VECTOR.as_pointer()), align=4)
    return _lowest(builder, held)


@intrinsic
def _raise(context, best, one, other, offset, level, count):  # type: ignore[no-untyped-def]
    """The loop; all are addresses but for the last."""
    return types.float32(*[types.int64] * 6), _generate


@jit
def raise_lanes(best, heights, one, other, taps, first, count):  # type: ignore[no-untyped-def]
    """Raise best [2 * LANES] to the ground under two rows of placements, less its level.

    Args:
        best: float32; the first half for the row of placements whose window begins at
            ``heights[one]``, the other for ``heights[other]``.
        heights: float32, flat; it is read up to LANES behind the last place of a tap.
        one: See ``best``.
        other: Likewise.
        taps: offsets int64 and levels float32: each placement is raised to
            ``heights[its place + offset] - level``.
        first: The first of these that counts.
        count: How many do.

    Returns:
        The lowest of best.
    """
    offset, level = taps
    ground = heights.ctypes.data
    return _raise(  # type: ignore[call-arg]
        best.ctypes.data,
        ground + 4 * one,
        ground + 4 * other,
        offset.ctypes.data + 8 * first,
        level.ctypes.data + 4 * first,
        count,
    )
