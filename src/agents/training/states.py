"""What ``state_dict`` returns, mappings and lists of tensors and numbers, and walks through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


class _Known:
    """The state of a module, and what must be as it was for that to hold."""

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self.plain = all(map(_plain, modules))
        self.state: dict[str, Any] = dict(module.state_dict()) if self.plain else {}
        self.tables = [table for inner in modules for table in _tables(inner)]
        self.lengths = [*map(len, self.tables)]
        self.filled = [table for table in self.tables if table]
        self.names = [*map(tuple, self.filled)]
        self.held = self.now() if self.plain else []
        self.memory = [value for value in self.held if isinstance(value, Tensor)]
        self.places = self.lie()

    def now(self) -> list[Any]:
        """Every parameter, buffer, inner module and hook."""
        return [value for table in self.filled for value in table.values()]

    def lie(self) -> list[tuple[int, torch.Size]]:
        """Where the tensors are in memory, and their shapes."""
        return [(value.data_ptr(), value.shape) for value in self.memory]

    def holds(self) -> bool:
        """Whether the module has the same tensors and inner modules, in the same memory."""
        if [*map(len, self.tables)] != self.lengths or [*map(tuple, self.filled)] != self.names:
            return False
        return same_objects(self.now(), self.held) and self.lie() == self.places


_KNOWN: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def module_state(module: nn.Module) -> dict[str, Any]:
    """What ``module.state_dict()`` holds; from the second call on in a fraction of its time.

    The tensors are the same objects each time, as long as those of the module are.
    """
    known = _KNOWN.get(module)
    if known is None or (known.plain and not known.holds()):
        known = _KNOWN[module] = _Known(module)
    return dict(known.state if known.plain else module.state_dict())


def _tables(module: nn.Module) -> tuple[Mapping[Any, Any], ...]:
    """What a state is made of."""
    hooks = (module._state_dict_hooks, module._state_dict_pre_hooks)
    return module._parameters, module._buffers, module._modules, *hooks


def _plain(module: nn.Module) -> bool:
    """Whether its state is its parameters and buffers, as of most modules, and nothing else."""
    kind = type(module)
    own = (kind.state_dict, kind._save_to_state_dict, kind.get_extra_state)
    usual = (nn.Module.state_dict, nn.Module._save_to_state_dict, nn.Module.get_extra_state)
    return own == usual and not (module._state_dict_hooks or module._state_dict_pre_hooks)


def same_objects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether both hold the very same things."""
    return len(one) == len(other) and all(map(is_, one, other))


def tensors(state: Any) -> list[Tensor]:
    """Every tensor in a state, in a fixed order."""
    found: list[Tensor] = []
    waiting = [state]
    while waiting:  # last in, first out: what is inside goes on top, its first uppermost
        value = waiting.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif value is None or isinstance(value, (int, float, str)):  # most of what else there is
            continue
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, (list, tuple)):
            waiting += reversed(value)
        elif isinstance(value, Mapping):
            waiting += reversed(list(value.values()))
    return found


def named_tensors(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The same with their places, as ``policy/weight``."""
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
    """The same state with other tensors, in the order of :func:`tensors`."""
    if isinstance(state, Tensor):
        return next(given)
    if isinstance(state, Mapping):
        return {key: with_tensors(value, given) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [with_tensors(value, given) for value in state]
    return state
