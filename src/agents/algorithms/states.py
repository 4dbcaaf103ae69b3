"""Functions that iterate over states: nested mappings and lists of tensors and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def tensors(state: Any) -> list[Tensor]:
    """Return every tensor in a state, in a fixed order."""
    return [tensor for _, tensor in named_tensors(state)]


def named_tensors(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in a state with its path, such as ``policy/weight``."""
    if isinstance(state, Tensor):
        yield name, state
        return
    inner: Any = ()
    if isinstance(state, Mapping):
        inner = state.items()
    elif isinstance(state, (list, tuple)):
        inner = enumerate(state)
    for key, value in inner:
        yield from named_tensors(value, f"{name}/{key}" if name else str(key))
