"""Tables by which compiled code receives many arrays as one address.

numba passes an array by value, as seven numbers or more. So a function with a state of twenty
arrays has two hundred parameters, and compiling the function and each of its calls takes long. A
table holds the addresses and shapes of all arrays of a named tuple of
:mod:`packing_env.kernels.step.entries`. Compiled code passes the table's address, and reads an
array's entry where it uses the array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model
from numba.np.numpy_support import from_dtype
from torch import Tensor

from packing_env.kernels.step.entries import shape_of

_WORD = ir.IntType(64)
intrinsic: Any = extending.intrinsic  # numba adds the first argument, the context

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64)
}


# ---------------------------------------------------------------------- tables, made in Python


class Template:
    """A table without its addresses, for tensors whose shapes stay the same from step to step.

    Args:
        layout: The declared entries, all of them tensors.
        sizes: The length of each axis of the layout.
    """

    def __init__(self, layout: Any, sizes: Mapping[str, int]) -> None:
        words: list[int] = []
        places = []
        for _, axes in layout.kinds:
            places.append(len(words))
            words += (0, *shape_of(axes, sizes))
        self._words, self._places = np.array(words, np.int64), np.array(places)

    def table(self, tensors: Sequence[Tensor]) -> np.ndarray:
        """Return the table of contiguous tensors; an empty tensor gets a first axis of length 0."""
        # Copy, because tables of several steps may be in use at once.
        words, places = self._words.copy(), self._places
        words[places] = addresses = np.array([tensor.data_ptr() for tensor in tensors], np.int64)
        # A first axis of length 0 tells kernels that an entry was not requested.
        words[places + 1] *= addresses != 0
        return words


def table(layout: Any, entries: Sequence[Tensor | float]) -> np.ndarray:
    """Return the table of contiguous tensors and of numbers.

    Raises:
        TypeError: The dtype or the axes of a tensor differ from the layout.
        ValueError: A tensor is not contiguous.
    """
    words: list[int] = []
    for entry, name, (dtype, axes) in zip(entries, layout._fields, layout.kinds, strict=True):
        # A number is stored in one word; a float64 by its bits.
        if not isinstance(entry, Tensor):
            words.append(int(np.array(entry, dtype).view(np.int64)))
            continue
        if entry.dim() != len(axes) or (dtype in _DTYPES and entry.dtype != _DTYPES[dtype]):
            raise TypeError(f"{name} should be {dtype} with {len(axes)} axes, not {entry.dtype}")
        if not entry.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
        words += (entry.data_ptr(), *entry.shape)
    return np.array(words, np.int64)


def zeros(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return memory for a kernel, filled with zeros."""
    memory = torch.empty(shape, dtype=dtype, device="cpu")
    memory.numpy().fill(0)  # torch would fill it in threads, which do not survive a fork
    return memory


def allocate(
    layout: Any, sizes: Mapping[str, int], dtypes: Mapping[str, torch.dtype] | None = None
) -> Any:
    """Return the entries of a layout, filled with zeros.

    Args:
        layout: The declared entries.
        sizes: The length of each axis, and the value of each number.
        dtypes: The dtypes that the layout leaves open.
    """
    known = _DTYPES | dict(dtypes or {})
    return layout(
        *(
            zeros(*shape_of(axes, sizes), dtype=known[dtype]) if axes else sizes[name]
            for name, (dtype, axes) in zip(layout._fields, layout.kinds, strict=True)
        )
    )


# ---------------------------------------------------------------------- tables in compiled code


class Table(types.Type):
    """The type of a table in compiled code: the address of its words."""

    def __init__(self, layout: Any, chosen: Sequence[Any]) -> None:
        super().__init__(name=f"{layout.__name__}{[str(dtype) for dtype in chosen] or ''}")
        self.places: dict[str, tuple[int, Any, int]] = {}
        # The first word and the type of each entry, in the order of `table`.
        word, dtypes = 0, {name: from_dtype(np.dtype(name)) for name in _DTYPES}
        dtypes |= zip(unknown_dtypes(layout), chosen, strict=True)
        for name, (dtype, axes) in zip(layout._fields, layout.kinds, strict=True):
            self.places[name] = (word, dtypes[dtype], len(axes))
            word += 1 + len(axes)

    def entry(self, name: str) -> Any:
        """Return the type of an entry."""
        _, kind, axes = self.places[name]
        return types.Array(kind, axes, "C") if axes else kind


@register_model(Table)
class _TableModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


@infer_getattr
class _Entries(AttributeTemplate):
    key = Table

    def generic_resolve(self, value: Any, attr: Any) -> Any:  # type: ignore[override]
        return value.entry(attr) if attr in value.places else None


@lower_getattr_generic(Table)
def _read_entry(context: Any, builder: Any, kind: Any, words: Any, name: str) -> Any:
    """Load a number, or make an array from its address and its shape."""
    first, dtype, axes = kind.places[name]

    def load(word: int) -> Any:
        value = builder.load(builder.gep(words, [_WORD(word)]))
        # No kernel writes to a table, so LLVM need not read it again after each write.
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    # 1. A number.
    if not axes:
        number = load(first)
        return builder.bitcast(number, ir.DoubleType()) if dtype == types.float64 else number
    # 2. The shape, the strides of contiguous memory, and the number of entries.
    shape = [load(first + 1 + axis) for axis in range(axes)]
    size = context.get_abi_sizeof(context.get_data_type(dtype))
    strides, count = [_WORD(size)], shape[-1]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length, flags=["nsw"]))
    for length in shape[:-1]:
        count = builder.mul(count, length, flags=["nsw"])
    # 3. The fields of numba's arrays.
    model = context.data_model_manager[kind.entry(name)]
    data = builder.inttoptr(load(first), context.get_value_type(model.get_type("data")))
    fields = {"nitems": count, "itemsize": _WORD(size), "data": data}
    return _array(context, builder, model, shape, strides, **fields)


def _array(
    context: Any, builder: Any, model: Any, shape: list[Any], strides: list[Any], **fields: Any
) -> Any:
    """Return an array of these fields, without an owner."""
    # The owner is null, so references to this memory are not counted.
    value = ir.Constant(model.get_value_type(), None)
    for name, field in fields.items():
        value = builder.insert_value(value, field, [model.get_field_position(name)])
    for name, numbers in (("shape", shape), ("strides", strides)):
        for axis, number in enumerate(numbers):
            value = builder.insert_value(value, number, [model.get_field_position(name), axis])
    return value


def unknown_dtypes(layout: Any) -> list[str]:
    """Return the names of dtypes that are not torch dtypes; each kernel chooses these dtypes."""
    return list(dict.fromkeys(dtype for dtype, _ in layout.kinds if dtype not in _DTYPES))


def reader(layout: Any) -> Callable[..., Any]:
    """Return a function ``f(words)`` for kernels: it makes a table from an array of words.

    If the layout leaves dtypes open, the function is ``f(words, like)``; the arrays ``like`` have
    these dtypes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    def of_known(context, words):
        return Table(layout, ())(words), generate

    def of_open(context, words, like):
        return Table(layout, [array.dtype for array in like])(words, like), generate

    return intrinsic(of_open if unknown_dtypes(layout) else of_known)


class _Parts:
    """The fields of a contiguous array in compiled code."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.model = context.data_model_manager[kind]
        names = ("nitems", "itemsize", "data", "shape", "strides")
        places = {name: self.model.get_field_position(name) for name in names}
        self.count, self.size, self.data, shape, strides = (
            builder.extract_value(value, place) for place in places.values()
        )
        self.shape, self.strides = (
            [builder.extract_value(field, axis) for axis in range(kind.ndim)]
            for field in (shape, strides)
        )


def _contiguous(*kinds: Any) -> bool:
    return all(kind.layout == "C" for kind in kinds)


@intrinsic
def clear(context, array):
    """Fill a contiguous array with zeros."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = _Parts(context, builder, array, arguments[0])
        cgutils.memset(builder, target.data, builder.mul(target.count, target.size), 0)
        return context.get_dummy_value()

    return (types.void(array), generate) if _contiguous(array) else None


@intrinsic
def copy(context, source, target):
    """Fill ``target``, a contiguous array, with the first entries of another one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        origin, copied = (
            _Parts(context, builder, kind, value)
            for kind, value in zip((source, target), arguments, strict=True)
        )
        size = builder.mul(copied.count, copied.size)
        cgutils.raw_memcpy(builder, copied.data, origin.data, size, 1)
        return context.get_dummy_value()

    alike = source.dtype == target.dtype and _contiguous(source, target)
    return (types.void(source, target), generate) if alike else None


@intrinsic
def flat(context, array):
    """Return a contiguous array, flattened to one axis."""
    line = types.Array(array.dtype, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of = _Parts(context, builder, array, arguments[0])
        fields = {"nitems": of.count, "itemsize": of.size, "data": of.data}
        model = context.data_model_manager[line]
        return _array(context, builder, model, [of.count], [of.size], **fields)

    return (line(array), generate) if _contiguous(array) else None


@intrinsic
def rows(context, array, first, count):
    """Return ``array[first : first + count]`` of a contiguous array, without checks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, start, number = arguments
        of = _Parts(context, builder, array, value)
        items = number
        for length in of.shape[1:]:
            items = builder.mul(items, length, flags=["nsw"])
        # The same strides from another address; the first axis has length ``count``.
        offset = builder.mul(start, of.strides[0], flags=["nsw"])
        data = cgutils.pointer_add(builder, of.data, offset)
        fields = {"nitems": items, "itemsize": of.size, "data": data}
        shape = [number, *of.shape[1:]]
        return _array(context, builder, of.model, shape, of.strides, **fields)

    return (array(array, types.int64, types.int64), generate) if _contiguous(array) else None
