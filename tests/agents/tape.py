"""What a CUDA graph does, on any device: operations recorded once and played again in place."""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "_unique2")
"""Operations that a graph cannot hold: they wait for the device, or their size depends on data."""


class Tape(TorchDispatchMode):
    """Records every operation and the memory it used; :meth:`replay` runs them on that memory."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in READS:
            raise RuntimeError(f"{name} cannot be captured")
        made = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, tree_leaves(made)))
        return made

    @torch.no_grad()
    def replay(self) -> None:
        """Run the recorded operations on their memory, without the Python code that asked."""
        for func, args, kwargs, places in self._calls:
            for place, again in zip(places, tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(place, torch.Tensor) and place.data_ptr() != again.data_ptr():
                    place.copy_(again)


def record(work: Callable[[], TensorDictBase]) -> tuple[Callable[[], None], TensorDictBase]:
    """Record a call; a stand-in for `agents.training.capture.cuda_graph`."""
    tape = Tape()
    with tape:
        made = work()
    return tape.replay, made
