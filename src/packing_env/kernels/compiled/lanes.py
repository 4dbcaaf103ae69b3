"""The inner loop of all drop heights, in vector registers.

If LLVM vectorised this loop over arrays, each run would first check that nine pieces of memory do
not overlap. This would cost more than the few placements that a run computes. So the loop is
written as LLVM instructions on vectors of sixteen numbers; LLVM splits them where registers are
shorter.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from packing_env.kernels.compiled.jit import jit

LANES = 16
"""Number of placements along y in a vector."""

_FLOAT, _LONG = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _load(builder: Any, address: Any, kind: Any, place: Any = None) -> Any:
    """Load the value at an address or ``place`` values on; vectors are aligned like elements."""
    pointer = builder.inttoptr(address, kind.as_pointer())
    if place is not None:
        pointer = builder.gep(pointer, [place])
    return builder.load(pointer, align=8 if kind is _LONG else 4)


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _LONG(0))
    where = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), where)


def _lowest(builder: Any, vectors: list[Any]) -> Any:
    """Return the smallest element of all vectors, by repeated halving."""

    def lower(one: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", one, other), one, other)

    # 1. Combine the vectors in pairs.
    while len(vectors) > 1:
        vectors = [lower(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    # 2. Combine the upper half of the last vector with its lower half.
    left, size = vectors[0], LANES
    while size > 1:
        size //= 2
        upper = ir.Constant(
            ir.VectorType(ir.IntType(32), LANES), [size + k % size for k in range(LANES)]
        )
        left = lower(left, builder.shuffle_vector(left, ir.Constant(_VECTOR, ir.Undefined), upper))
    return builder.extract_element(left, _LONG(0))


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    best, heights, starts, offset, level, count = arguments
    # 1. For each vector: the address of its ground, and the rest heights so far.
    ground = [
        builder.add(heights, builder.shl(start, _LONG(2)))
        for start in cgutils.unpack_tuple(builder, starts)
    ]
    places = [builder.add(best, _LONG(4 * LANES * k)) for k in range(len(ground))]
    begun = [_load(builder, place, _VECTOR) for place in places]
    # 2. A loop over the taps, which keeps the vectors in registers.
    before = builder.block
    head, body, end = (builder.append_basic_block(f"taps.{part}") for part in ("head", "do", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    tap = builder.phi(_LONG)
    held = [builder.phi(_VECTOR) for _ in ground]
    tap.add_incoming(_LONG(0), before)
    for phi, value in zip(held, begun, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", tap, count), body, end)
    builder.position_at_end(body)
    # 3. One tap: its offset, its level, and the gap at each place.
    shift = builder.shl(_load(builder, offset, _LONG, tap), _LONG(2))
    low = _splat(builder, _load(builder, level, _FLOAT, tap))
    for phi, address in zip(held, ground, strict=True):
        gap = builder.fsub(_load(builder, builder.add(address, shift), _VECTOR), low)
        higher = builder.select(builder.fcmp_ordered(">", gap, phi), gap, phi)
        phi.add_incoming(higher, body)
    tap.add_incoming(builder.add(tap, _LONG(1)), body)
    builder.branch(head)
    builder.position_at_end(end)
    # 4. Write the vectors.
    for place, phi in zip(places, held, strict=True):
        builder.store(phi, builder.inttoptr(place, _VECTOR.as_pointer()), align=4)
    return _lowest(builder, held)


@intrinsic
def _raise(context, best, heights, starts, offset, level, count):
    """Generate the loop; all arguments except ``starts`` and ``count`` are addresses."""
    return types.float32(*[types.int64] * 2, starts, *[types.int64] * 3), _generate


@jit
def raise_lanes(best, heights, starts, taps, first, count):
    """Raise best [N * LANES] to the largest gap (ground - level) of N * LANES placements.

    Args:
        best: float32; its k-th group of LANES belongs to placements whose windows begin at
            ``heights[starts[k]]`` and at the entries after it.
        heights: float32, flat; up to LANES entries after a tap's last entry are read.
        starts: N indices, as a tuple; N is 2 or 4.
        taps: offsets int64 and levels float32: each placement is raised to at least
            ``heights[its index + offset] - level``.
        first: index of the first tap.
        count: number of taps.

    Returns:
        The smallest entry of best.
    """
    offset, level = taps
    return _raise(  # type: ignore[call-arg]
        best.ctypes.data,
        heights.ctypes.data,
        starts,
        offset.ctypes.data + 8 * first,
        level.ctypes.data + 4 * first,
        count,
    )
