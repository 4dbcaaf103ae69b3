"""The Triton kernels as operators of torch; Triton itself is imported by the first call.

They take tensors of CUDA devices, and of the CPU in Triton's interpreter.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

DEVICES = ("cuda", "cpu") if os.environ.get("TRITON_INTERPRET") == "1" else ("cuda",)
"""Device types whose tensors they take."""

torch.library.define(
    "packing_env::triton_drop_height", "(Tensor heightmap, Tensor bottom, int stride) -> Tensor"
)
torch.library.define(
    "packing_env::triton_com_hull",
    "(Tensor heightmap, Tensor bottom, Tensor z, Tensor com, float contact_tol, int stride,"
    " bool centres) -> Tensor",
)
torch.library.define(
    "packing_env::triton_support_count",
    "(Tensor heightmap, Tensor bottom, Tensor z, float contact_tol, int stride) -> Tensor",
)


@torch.library.impl("packing_env::triton_drop_height", DEVICES)
def _drop_height(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    from packing_env.kernels.drop import triton as drop_triton

    return drop_triton.drop_height(heightmap, bottom, stride)


@torch.library.impl("packing_env::triton_com_hull", DEVICES)
def _com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    from packing_env.kernels.support import hull_triton

    return hull_triton.com_hull(heightmap, bottom, z, com, contact_tol, stride, centres)


@torch.library.impl("packing_env::triton_support_count", DEVICES)
def _support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    from packing_env.kernels.support import triton as support_triton

    return support_triton.support_count(heightmap, bottom, z, contact_tol, stride)


NAMESPACE = "packing_env"

Implementation = str | Callable[..., Any]
"""A function, or ``"module:function"`` of one that is imported when it is first called."""


def declare(
    schema: str,
    *,
    cpu: Implementation | None = None,
    cuda: Implementation | None = None,
    default: Implementation | None = None,
    fake: Callable[..., Any] | None = None,
) -> Any:
    """Declare an operator and return it, ``torch.ops.packing_env.<name>``.

    Example:
        >>> square = declare(
        ...     "numba_square(Tensor x) -> Tensor",
        ...     cpu="packing_env.kernels.square.numba:square",
        ...     fake=torch.empty_like,
        ... )

    Args:
        schema: name, arguments and results in torch's notation; ``Tensor(a!)`` or ``Tensor(a!)[]``
            marks what the operator writes into. Implementations and fake are called with the
            arguments in this order; torch leaves out trailing ones that equal their default.
        cpu: implementation for tensors of the CPU.
        cuda: implementation for tensors of CUDA devices.
        default: implementation for all other devices, in torch's own operations.
        fake: makes the outputs without computing them; None for an operator that has none and only
            fills what it is given.
    """
    name = schema.partition("(")[0]
    full_name = f"{NAMESPACE}::{name}"
    torch.library.define(full_name, schema.removeprefix(name))
    chosen = {"cpu": cpu, "cuda": cuda, "CompositeExplicitAutograd": default}
    for key, implementation in chosen.items():
        if implementation is not None:
            torch.library.impl(full_name, key)(_callable(implementation))
    torch.library.register_fake(full_name, fake or _fill)
    return getattr(getattr(torch.ops, NAMESPACE), name)


def _fill(*arguments: Any) -> None:
    """Return nothing, as does an operator that only writes into its arguments."""


def _callable(implementation: Implementation) -> Callable[..., Any]:
    """Return a function that imports the implementation when it is called."""
    if not isinstance(implementation, str):
        return implementation
    module, _, function = implementation.partition(":")

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*arguments, **options)

    return call
