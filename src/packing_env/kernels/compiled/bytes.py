"""Vectors of 64 bytes, for compiled code.

LLVM also vectorises loops over arrays. But its code first checks that the arrays do not overlap,
and processes the end of a line byte by byte. The lines of a small container are so short that this
would take most of the time. A vector is one register on processors with registers of 64 bytes, and
two or four registers on others. Addresses need no alignment. Numbers that are compared with bytes
or stored in them should be 0 to 255; otherwise only their lowest eight bits count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

WIDTH = 64
"""Bytes of a vector."""

_LONG = ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), WIDTH)
_DONE = ir.Constant(ir.IntType(1), 1)


class Vector(types.Type):
    """The type of a vector of ``lanes`` integers of ``bits`` bits in compiled code."""

    def __init__(self, bits: int, lanes: int) -> None:
        super().__init__(name=f"Vector({bits}, {lanes})")
        self.code = ir.VectorType(ir.IntType(bits), lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.code)


BYTES = Vector(8, WIDTH)


def operation(emit: Callable[..., Any], result: Any, *kinds: Any) -> Any:
    """Return a function for compiled code; ``emit(builder, ...)`` generates its instructions.

    Args:
        emit: Generates instructions.
        result: Type of the result.
        kinds: Types of the arguments: one, two or four.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit(builder, *arguments)

    # numba reads the number of arguments from the signature.
    def of_one(context, one):
        return result(*kinds), generate

    def of_two(context, one, other):
        return result(*kinds), generate

    def of_four(context, one, other, third, fourth):
        return result(*kinds), generate

    return intrinsic({1: of_one, 2: of_two, 4: of_four}[len(kinds)])


def _declared(builder: Any, signature: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(builder.module, signature, name)


def repeat(builder: Any, number: Any, vector: Any) -> Any:
    """Generate a vector that holds the number in every place."""
    # Insert it at one position; a shuffle repeats it.
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, builder.trunc(number, vector.element), _LONG(0))
    places = ir.VectorType(ir.IntType(32), vector.count)
    return builder.shuffle_vector(one, nothing, ir.Constant(places, [0] * vector.count))


def basics(kind: Vector) -> tuple[Any, ...]:
    """Return the functions ``load``, ``store``, ``splat`` and ``add`` of a type of vectors."""
    vector = kind.code
    pointer, align = vector.as_pointer(), vector.element.width // 8

    def read(builder: Any, address: Any) -> Any:
        return builder.load(builder.inttoptr(address, pointer), align=align)

    def write(builder: Any, address: Any, value: Any) -> Any:
        builder.store(value, builder.inttoptr(address, pointer), align=align)
        return _DONE

    return (
        operation(read, kind, types.int64),
        operation(write, types.boolean, types.int64, kind),
        operation(lambda builder, number: repeat(builder, number, vector), kind, types.int64),
        operation(lambda builder, one, other: builder.add(one, other), kind, kind, kind),
    )


def _splat(builder: Any, byte: Any) -> Any:
    return repeat(builder, byte, _BYTES)


def _higher(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_unsigned(">", one, other), one, other)


def _keep_up_to(builder: Any, vector: Any, limit: Any) -> Any:
    within = builder.icmp_unsigned("<=", vector, _splat(builder, limit))
    return builder.select(within, vector, ir.Constant(_BYTES, [0] * WIDTH))


def _keep_first(builder: Any, vector: Any, count: Any) -> Any:
    place = ir.Constant(_BYTES, list(range(WIDTH)))
    among = builder.icmp_unsigned("<", place, _splat(builder, count))
    return builder.select(among, vector, ir.Constant(_BYTES, [0] * WIDTH))


def _flags(builder: Any, vector: Any) -> Any:
    nothing = ir.Constant(_BYTES, [0] * WIDTH)
    return builder.zext(builder.icmp_unsigned("!=", vector, nothing), _BYTES)


def _any(builder: Any, vector: Any) -> Any:
    whole = builder.bitcast(vector, ir.IntType(8 * WIDTH))
    return builder.icmp_unsigned("!=", whole, whole.type(0))


def _fetch(builder: Any, address: Any) -> Any:
    # The arguments of LLVM's intrinsic: write access, high locality, data cache.
    place, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [place, number, number, number])
    prefetch = _declared(builder, signature, "llvm.prefetch.p0")
    to_write, keep, data = number(1), number(3), number(1)
    builder.call(prefetch, [builder.inttoptr(address, place), to_write, keep, data])
    return _DONE


def _above(builder: Any, vector: Any, number: Any) -> Any:
    above = builder.icmp_unsigned(">", vector, _splat(builder, number))
    return builder.sext(above, _BYTES)


load, store, splat, add = basics(BYTES)
"""load(address): the 64 bytes that begin at an address. store(address, vector): write 64 bytes.
splat(byte): the byte in every place. add(one, other): sums modulo 256."""
both = operation(lambda builder, one, other: builder.and_(one, other), BYTES, BYTES, BYTES)
"""both(one, other): bitwise and."""
either = operation(lambda builder, one, other: builder.or_(one, other), BYTES, BYTES, BYTES)
"""either(one, other): bitwise or."""
higher = operation(_higher, BYTES, BYTES, BYTES)
"""higher(one, other): maxima."""
keep_up_to = operation(_keep_up_to, BYTES, BYTES, types.int64)
"""keep_up_to(vector, limit): bytes above the limit become 0."""
keep_first = operation(_keep_first, BYTES, BYTES, types.int64)
"""keep_first(vector, count): bytes after the first ``count`` become 0; ``count`` is at most 255."""
flags = operation(_flags, BYTES, BYTES)
"""flags(vector): 1 for every byte that is not 0."""
any_of = operation(_any, types.boolean, BYTES)
"""any_of(vector): True if a byte is not 0."""
above = operation(_above, BYTES, BYTES, types.int64)
"""above(vector, number): 255 where a byte is greater, else 0."""
fetch = operation(_fetch, types.boolean, types.int64)
"""fetch(address): prefetch a cache line that will soon be written."""
