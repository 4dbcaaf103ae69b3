"""Declaration of kernels as operators of torch.

An operator is one node of a compiled graph. For fake and meta tensors it calls its *fake*, which
makes outputs of the right shape. Its implementations are named by strings. They are imported by the
first call, together with numba or Triton.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

NAMESPACE = "packing_env"

Implementation = str | Callable[..., Any]
"""A function, or ``"module:function"`` for one that is imported when it is first called."""


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
            marks arguments that the operator writes into. Implementations and fake are called with
            the arguments in this order; torch leaves out trailing ones that equal their default.
        cpu: implementation for tensors of the CPU.
        cuda: implementation for tensors of CUDA devices.
        default: implementation for all other devices, in torch's own operations.
        fake: makes the outputs without computing them; None for an operator without outputs, which
            only writes into its arguments.
    """
    name = schema.partition("(")[0]
    full_name = f"{NAMESPACE}::{name}"
    torch.library.define(full_name, schema.removeprefix(name))
    implementations = {"cpu": cpu, "cuda": cuda, "CompositeExplicitAutograd": default}
    for key, implementation in implementations.items():
        if implementation is not None:
            torch.library.impl(full_name, key)(_callable(implementation))
    torch.library.register_fake(full_name, fake or _fill)
    return getattr(getattr(torch.ops, NAMESPACE), name)


def _fill(*arguments: Any) -> None:
    """Return nothing, like an operator that only writes into its arguments."""


def _callable(implementation: Implementation) -> Callable[..., Any]:
    """Return a function that imports the implementation when it is called."""
    if not isinstance(implementation, str):
        return implementation
    module, _, function = implementation.partition(":")

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*arguments, **options)

    return call
