"""Updates as CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.algorithms.states import named_tensors, tensors
from agents.process_group import processes
from agents.training import process
from agents.training.capture import (
    WARM_UPS,
    CaptureError,
    Record,
    captures,
    cuda_graph,
    equal,
    on_side_stream,
    restore,
)
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.capture")


@dataclass
class _Recording:
    """An update of one kind: its calls so far, and from the third on how to replay it."""

    calls: int = 0
    batch: TensorDictBase | None = None
    replay: Callable[[], None] | None = None
    found: dict[str, Tensor] = field(default_factory=dict)


class CapturedUpdate:
    """``agent.update`` as one CUDA graph, from its third call on.

    The first two calls are ordinary updates, in which the optimizers allocate their moments. The
    third is recorded, and must change weights, moments and all other state as an ordinary update
    does: exactly, but for what differs between two ordinary updates from the same state (kernels
    that sum in no fixed order), which may differ ten times as much. Learning rates become tensors.
    Every batch has the same entries and shapes.

    An agent whose updates are of several kinds names that of the next in ``update_kind``; each kind
    has a graph of its own. What an update counts in Python it counts in ``count_update``, which is
    called after each replay.

    Args:
        agent: The learner; its updates must not branch in Python on values that change.
        record: Records an update; replaced in tests.
        required: False: continue without a graph, with a warning, where none can be recorded.

    Raises:
        ParameterError: The agent is not on a CUDA device, or several processes learn together.
    """

    def __init__(self, agent: Agent, *, record: Record = cuda_graph, required: bool = True) -> None:
        device = device_of(agent)
        if record is cuda_graph and device.type != "cuda":
            raise ParameterError(
                f"trainer.capture=true records a CUDA graph, but the agent is on {device}; use "
                f"device=cuda, or trainer.capture=false"
            )
        if processes() > 1:
            raise ParameterError(
                "trainer.capture=true does not average gradients of several processes; use one "
                "process, or trainer.capture=false"
            )
        self.agent, self.device = agent, device
        self._record, self._required, self._gave_up = record, required, False
        self.forget()

    def forget(self) -> None:
        """Restart with ordinary updates, after the agent's memory moved (``load_state_dict``)."""
        self._recordings: dict[object, _Recording] = {}
        for optimizer in optimizers(self.agent):
            optimizer.keep_lr_in_memory()

    def __call__(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Run ``agent.update``, which may add entries to the batch.

        Raises:
            CaptureError: The update cannot be recorded; the agent is as it was before the call.
        """
        if self._gave_up:
            return self.agent.update(batch)
        kind = getattr(self.agent, "update_kind", None)
        recording = self._recordings.setdefault(kind, _Recording())
        recording.calls += 1
        if recording.calls <= WARM_UPS:
            with on_side_stream(self.device):
                return self.agent.update(batch)
        if recording.replay is None:
            try:
                self._capture(recording, batch)
            except CaptureError as error:
                if self._required:
                    raise
                _LOGGER.warning("trainer.capture=auto: off, %s", error)
                self._gave_up = True
                return self.agent.update(batch)
        held, replay = recording.batch, recording.replay
        assert held is not None
        assert replay is not None
        held.update_(batch)
        replay()
        for optimizer in optimizers(self.agent):  # as each of its steps in Python does
            torch.autograd.graph.increment_version(optimizer.parameters)
        getattr(self.agent, "count_update", lambda: None)()
        for key in set(held.keys()) - set(batch.keys()):
            batch.set(key, held.get(key).clone())
        return {name: value.clone() for name, value in recording.found.items()}

    def _capture(self, recording: _Recording, batch: TensorDictBase) -> None:
        """Record an update, and compare it with ordinary ones; the agent stays as it is."""
        start = _Before(self.agent)
        try:
            ordinary = [self._after(start, lambda: self.agent.update(batch.clone()), batch)]
            ordinary.append(self._after(start, lambda: self.agent.update(batch.clone()), batch))
            start.restore()
            held = batch.clone()
            replay, found = self._record(lambda: self.agent.update(held))
            recorded = self._after(start, lambda: (replay(), found)[1], batch)
        except Exception as error:  # Triton's errors are no RuntimeError
            raise CaptureError(
                f"updates cannot be captured ({type(error).__name__}: {error}); use "
                "trainer.capture=false"
            ) from error
        finally:
            start.restore()
        wrong = [
            name
            for name, value in recorded.items()
            if not _as_close(value, *(each[name] for each in ordinary))
        ]
        if wrong:
            raise CaptureError(
                f"the recorded update differs from the agent's in {', '.join(wrong)}; use "
                f"trainer.capture=false"
            )
        recording.batch, recording.replay, recording.found = held, replay, dict(found)
        _LOGGER.info("updates are one CUDA graph; its first agrees")

    def _after(
        self, start: _Before, update: Callable[[], Mapping[str, Tensor]], batch: TensorDictBase
    ) -> dict[str, Tensor]:
        """Return what an update reports, and the agent's state after it."""
        start.restore()
        found = {name: value.clone() for name, value in update().items()}
        state = dict(named_tensors(self.agent.state_dict()))
        return found | {f"state {name}": value.clone() for name, value in state.items()}


class _Before:
    """Snapshot of an agent and of the random generators, to return to."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._memory = tensors(agent.state_dict())
        self._values = [value.clone() for value in self._memory]
        self._counts = {name: n for name, n in vars(agent).items() if type(n) is int}
        self._random = process.random_state()

    def restore(self) -> None:
        """Restore the snapshot in the same memory."""
        restore(self._memory, self._values, self._random)
        vars(self._agent).update(self._counts)


def captured_update(agent: Agent, option: bool | str) -> CapturedUpdate | None:
    """Return an agent's update as one CUDA graph, by the option ``trainer.capture``; None: not so.

    Raises:
        ParameterError: It is required, and cannot be.
    """
    device = device_of(agent)
    off_gpu = "" if device.type == "cuda" else f"the agent is on {device}"
    several = "several processes learn together" if processes() > 1 else ""
    if not captures(option, "trainer.capture", off_gpu, several):
        return None
    return CapturedUpdate(agent, required=option is True)


def device_of(agent: Agent) -> torch.device:
    """Return the device of an agent's first tensor; without one, the CPU."""
    policy = agent.policy
    held = (*policy.parameters(), *policy.buffers(), *tensors(agent.state_dict()))
    return held[0].device if held else torch.device("cpu")


def optimizers(agent: Agent) -> Iterator[GatedAdam]:
    """Yield the optimizers of an agent."""
    for value in vars(agent).values():
        parts = value.values() if isinstance(value, Mapping) else (value,)
        yield from (part for part in parts if isinstance(part, GatedAdam))


def _as_close(found: Tensor, one: Tensor, other: Tensor) -> bool:
    """Return whether a value is one of two, or near them where they differ; reads from the device.

    Near is ten times as far as they are from each other at most.
    """
    if found.shape != one.shape or found.dtype != one.dtype:
        return False
    if equal(found, one) or equal(found, other):
        return True
    if not found.is_floating_point():
        return False
    apart, away = ((x - one).abs().amax() for x in (other, found))
    return bool(away <= 10 * apart)
