"""Walks through states: mappings and lists of tensors and numbers, as ``state_dict`` returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def tensors(state: Any) -> list[Tensor]:
    """Return every tensor in a state, in a fixed order."""
    found: list[Tensor] = []
    waiting = [state]
    while waiting:  # a stack rather than recursion: this runs before every update
        value = waiting.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, Mapping):
            waiting += reversed(list(value.values()))
        elif isinstance(value, (list, tuple)):
            waiting += reversed(value)
    return found


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


def with_tensors(state: Any, given: Iterator[Tensor]) -> Any:
    """Return the same state with other tensors, given in the order of :func:`tensors`."""
    if isinstance(state, Tensor):
        return next(given)
    if isinstance(state, Mapping):
        return {key: with_tensors(value, given) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [with_tensors(value, given) for value in state]
    return state
