"""CUDA graphs of an agent's updates."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.nested import named_tensors
from agents.process_group import processes
from agents.training.capture import Captured, attempted, captures, on_side_stream

_LOGGER = logging.getLogger("agents.training.capture")
WARM_UPS = 2
"""Number of ordinary updates before a recording; during these the optimizers allocate their
moments.
"""


@dataclass
class _Recording:
    calls: int = 0
    batch: TensorDictBase | None = None
    captured: Captured | None = None


class CapturedUpdate:
    """``agent.update`` as one CUDA graph, from its third call on.

    The first two calls are ordinary updates. The third call is recorded. The recording must change
    weights, moments and other state in the same way as an ordinary update (:class:`Captured`).
    Learning rates become tensors. Every batch must have the same entries and shapes.

    An agent with several kinds of updates names the next kind in ``update_kind``; each kind has its
    own graph. After each replay, the agent's ``count_update`` is called to increment the counters
    that Python increments in an ordinary update.

    Args:
        agent: The learner, on a CUDA device; its updates must not branch in Python on values that
            change.
        required: If False, a failed recording gives a warning, and work continues without a graph.
    """

    def __init__(self, agent: Agent, *, required: bool = True) -> None:
        self.agent, self.device = agent, _device_of(agent)
        self._required, self._gave_up = required, False
        self.forget()

    def forget(self) -> None:
        """Start again with ordinary updates, since ``load_state_dict`` moves the agent's memory."""
        self._recordings: dict[object, _Recording] = {}
        for optimizer in optimizers(self.agent):
            optimizer.keep_lr_in_memory()

    def __call__(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Run ``agent.update``, which may add entries to the batch.

        Raises a CaptureError if a required graph cannot be recorded; in this case the agent is
        unchanged.
        """
        # 1. Each kind of update has its own recording, which begins with ordinary updates.
        kind = getattr(self.agent, "update_kind", None)
        recording = self._recordings.setdefault(kind, _Recording())
        recording.calls += 1
        # Without a graph every update is an ordinary one.
        if self._gave_up:
            return self.agent.update(batch)
        if recording.calls <= WARM_UPS:
            with on_side_stream(self.device):
                return self.agent.update(batch)
        # 2. Record the third update.
        if recording.captured is None:
            recording.batch = batch.clone()
            record = partial(self._capture, recording.batch)
            recording.captured = attempted(record, "trainer.capture", self._required)
            self._gave_up = recording.captured is None
        held, captured = recording.batch, recording.captured
        if held is None or captured is None:
            return self.agent.update(batch)
        # 3. Copy the batch to the memory that the graph reads, and replay.
        held.update_(batch)
        metrics = {name: value.clone() for name, value in captured().items()}
        # 4. Do what Python does in an ordinary update: versions of the weights, counts, new
        # entries.
        for optimizer in optimizers(self.agent):
            torch.autograd.graph.increment_version(optimizer.parameters)
        getattr(self.agent, "count_update", lambda: None)()
        for key in set(held.keys()) - set(batch.keys()):
            batch.set(key, held.get(key).clone())
        return metrics

    def _capture(self, held: TensorDictBase) -> Captured:
        # The comparison repeats the update; Python's counters must not include the repeats.
        counts = {name: n for name, n in vars(self.agent).items() if type(n) is int}

        def counted(batch: TensorDictBase) -> Mapping[str, Tensor]:
            vars(self.agent).update(counts)
            return self.agent.update(batch)

        try:
            captured = Captured(
                lambda: counted(held),
                lambda: named_tensors(self.agent.state_dict()),
                ordinary=lambda: counted(held.clone()),
                exact=False,
            )
        finally:
            vars(self.agent).update(counts)
        _LOGGER.info("updates are one CUDA graph; its first update agrees")
        return captured


def captured_update(agent: Agent, option: bool | str) -> CapturedUpdate | None:
    """Return the agent's update as a CUDA graph, or None if it is not to be captured."""
    # Recorded updates send no messages, so several processes must update without a graph.
    obstacles = {}
    if (device := _device_of(agent)).type != "cuda":
        obstacles[f"the agent is on {device}"] = "use device=cuda"
    if processes() > 1:
        obstacles["several processes learn together"] = "use one process"
    if not captures(option, "trainer.capture", obstacles):
        return None
    return CapturedUpdate(agent, required=option is True)


def _device_of(agent: Agent) -> torch.device:
    """Return the device of an agent's first tensor; the CPU if it has none."""
    policy = agent.policy
    every = (*policy.parameters(), *policy.buffers(), *named_tensors(agent.state_dict()).values())
    return every[0].device if every else torch.device("cpu")


def optimizers(agent: Agent) -> Iterator[GatedAdam]:
    """Yield the optimizers of an agent."""
    for value in vars(agent).values():
        parts = value.values() if isinstance(value, Mapping) else (value,)
        yield from (part for part in parts if isinstance(part, GatedAdam))
