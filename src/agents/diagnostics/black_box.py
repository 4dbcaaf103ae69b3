"""Record the update of a run that produced NaN or Inf, and repeat it later.

Recording is cheap: it keeps references to the last batches, the states of the random generators,
and flags that stay on the device. Weights are not copied, so an update is repeated with the weights
at the end of the run. These equal the weights before the update if every later step was skipped
(:class:`agents.algorithms.optimization.GatedAdam`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from agents.algorithms.base import Agent
from agents.algorithms.states import named_tensors, tensors

FOLDER = "black_box"
"""Name of the record's folder inside the run's folder."""
KIND = "packing black box"
"""Kind of the record in the manifest of its folder."""
_UPDATES = 8
"""Number of updates that are kept."""
_FRAMEWORKS = ("torch", "torchrl", "tensordict")


@dataclass
class _Update:
    inputs: dict[str, Any]
    broken: Tensor | None = None


class BlackBox:
    """Recorder of the last updates; it changes nothing and reads nothing from the device.

    Args:
        agent: The learner.
        device: The device on which it learns.
        overwritten: Whether the next decisions overwrite the memory of a batch, as in rollouts. If
            so, only the last batch is kept, as a copy.
    """

    def __init__(self, agent: Agent, device: torch.device, *, overwritten: bool) -> None:
        self.agent, self.device, self.overwritten = agent, device, overwritten
        self._updates: deque[_Update] = deque(maxlen=1 if overwritten else _UPDATES)

    def before(self, batch: TensorDictBase, number: int, frames: int) -> None:
        """Record the inputs of update ``number``; ``frames`` is the position in the schedules."""
        # 1. Random generators and schedules, from which the update draws.
        if self.overwritten:
            self._updates.clear()  # release its memory before the next copy
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        parts = {name: getattr(self.agent, name) for name in getattr(self.agent, "parts", ())}
        # 2. The batch, by reference if its memory stays.
        inputs = {
            "number": number,
            "frames": frames,
            "batch": dict(named_tensors(batch.clone() if self.overwritten else batch)),
            "batch_size": list(batch.batch_size),
            "numbers": {key: part for key, part in parts.items() if isinstance(part, (int, float))},
            "random": random,
        }
        self._updates.append(_Update(inputs))

    def after(self, metrics: Mapping[str, Tensor]) -> None:
        """Record whether that update was broken, according to its metrics."""
        loss = metrics.get("loss", torch.zeros(()))
        broken = metrics["skipped"] if "skipped" in metrics else ~loss.isfinite().all()
        self._updates[-1].broken = broken

    def clear(self) -> None:
        """Forget everything, because training continues from another state."""
        self._updates.clear()

    def contents(self) -> dict[str, Any]:
        """Return the first broken update among the recorded ones, or else the last update.

        Reads from the device. ``agent`` is the present state of the agent.
        """
        if not self._updates:
            return {}
        broken = (u for u in self._updates if u.broken is not None and bool(u.broken.any()))
        update = next(broken, self._updates[-1])
        return {"update": {**update.inputs, "agent": self.agent.state_dict()}}


# ---------------------------------------------------------------------- repeating


@dataclass(frozen=True)
class NonFinite:
    """A tensor with NaN or infinite values.

    Attributes:
        stage: ``batch``, ``parameters`` or ``loss``, in the order of an update.
        name: Name of the tensor.
        nan: Number of NaN values.
        infinite: Number of infinite values.
        size: Number of values.
        first: Index of the first such value.
    """

    stage: str
    name: str
    nan: int
    infinite: int
    size: int
    first: tuple[int, ...]


def repeat(agent: Agent, update: Mapping[str, Any]) -> tuple[list[NonFinite], str | None]:
    """Repeat a recorded update with its random draws.

    Args:
        agent: An agent built like that of the run; it receives the recorded state.
        update: The update, recorded by :class:`BlackBox`.

    Returns:
        The non-finite tensors, in the order of the update; and the first operation that made NaN
        from finite values, with the line that called it.
    """
    # 1. Restore the agent and the random generators to the start of the update.
    agent.load_state_dict(update["agent"] | update.get("numbers", {}))
    agent.set_frames(update["frames"])
    device = next(agent.policy.parameters()).device
    batch = TensorDict(dict(update["batch"]), update["batch_size"], device=device)
    torch.set_rng_state(update["random"]["cpu"].cpu())
    if device.type == "cuda" and "cuda" in update["random"]:
        torch.cuda.set_rng_state(update["random"]["cuda"].cpu(), device)
    # 2. Check the inputs before the update changes them, then the outputs.
    broken = _non_finite("batch", update["batch"])
    broken += _non_finite("parameters", update["agent"])
    with _FirstNaN() as operations:
        metrics = agent.update(batch.unflatten_keys("/"))
    return broken + _non_finite("loss", metrics), operations.first


def _non_finite(stage: str, state: Any) -> list[NonFinite]:
    broken = []
    for name, value in named_tensors(state):
        finite = value.isfinite()
        if not bool(finite.all()):
            nan, count = int(value.isnan().sum()), int((~finite).sum())
            first = tuple((~finite).nonzero()[0].tolist())
            broken.append(NonFinite(stage, name, nan, count - nan, value.numel(), first))
    return broken


class _FirstNaN(TorchDispatchMode):
    """Watcher for the first operation that makes NaN from inputs without NaN."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.first: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watched = self.first is None and "empty" not in func.__name__
        # Uninitialized memory may hold NaN, so ``empty`` is not watched.
        sound = watched and not _has_nan((args, kwargs))
        returned = func(*args, **(kwargs or {}))
        if sound and _has_nan(returned):
            self.first = f"{func} at {_calling_line()}"
        return returned


def _calling_line() -> str:
    """Return the innermost line outside the frameworks: ``module:line function``."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.partition(".")[0] not in _FRAMEWORKS:
            return f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "an unknown line"


def _has_nan(values: Any) -> bool:
    """Return True if a tensor among arguments or results, lists included, contains NaN."""
    return any(t.is_floating_point() and bool(t.isnan().any()) for t in tensors(values))
