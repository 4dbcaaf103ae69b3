"""Policy and environment, or an update, as one CUDA graph; losses compiled by torch.

A recording holds operations on memory, not Python: a replay reads the addresses that the recording
read, and writes its results where the recording wrote them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.algorithms.states import tensors
from agents.process_group import processes
from agents.training import process
from agents.training.rollout import DeviceCollector
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.capture")
WARM_UPS = 2
"""Runs before a recording, in which libraries allocate their workspaces."""
CHECKED = 3
"""Steps of a recording that are compared with those of the environment and the policy."""

Record = Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]


class CaptureError(RuntimeError):
    """A recording differs from what was recorded, or cannot be made."""


def cuda_graph(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Record ``work``, which has run before; return its replay, and where the result will be."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph.replay, made


class CapturedCollector(DeviceCollector):
    """A :class:`~agents.training.rollout.DeviceCollector` with policy and step as one CUDA graph.

    The graph is recorded at the first step, and again when the environment's state is not the one
    it left (a reset, :meth:`load_state_dict`) or the policy enters another ``stage``. Each time its
    first steps are compared with those of the environment and the policy, bit for bit, random draws
    included. The environment's state and the policy's observations keep their addresses from then
    on. Anything else that changes between steps, such as a rate, must be a tensor that changes in
    place, as those of the policies here do.

    Args:
        env: The environment, on a CUDA device.
        policy: Writes ``action``; it explores (``ExplorationType.RANDOM``).
        record: Records a step; replaced in tests.

    Raises:
        ParameterError: The environment is not on a CUDA device.
    """

    def __init__(
        self, env: PackingEnv, policy: TensorDictModuleBase, *, record: Record = cuda_graph
    ) -> None:
        if record is cuda_graph and env.device.type != "cuda":
            raise ParameterError(
                f"collector.capture=true records a CUDA graph, but the environment is on "
                f"{env.device}; use device=cuda, or collector.capture=false"
            )
        if env.autoreset == "masked":
            raise ParameterError(
                "collector.capture=true records one step with its resets, which autoreset='masked' "
                "takes apart; use env.autoreset=native, or collector.capture=false"
            )
        super().__init__(env, policy)
        self._record = record
        self._recording: tuple[Callable[[], None], TensorDictBase] | None = None
        self._stage: object = None
        self._state: object = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``.

        Raises:
            CaptureError: A step cannot be recorded; everything is as it was before the call.
        """
        stage = getattr(self.policy, "stage", None)
        if self._recording is None or stage != self._stage or self.env.state is not self._state:
            self._stage = stage
            self._recording = self._capture()
        replay, made = self._recording
        replay()
        return made.clone()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; the next step records again."""
        super().load_state_dict(state)
        self._recording = None

    def _capture(self) -> tuple[Callable[[], None], TensorDictBase]:
        """Record a step and compare it, as :meth:`_recorded`; the state, draws included, stays."""
        if self._root is None:
            self._root = self.env.reset()
        start = _Start(self.env, self.policy, self._root)
        try:
            recording = self._recorded(start)
        except RuntimeError as error:
            self._root = start.again()
            if isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"policy and step cannot be captured ({error}); use collector.capture=false"
            ) from error
        self._state = self.env.state
        _LOGGER.info("policy and step are one CUDA graph; its first %d steps agree", CHECKED)
        return recording

    def _recorded(self, start: _Start) -> tuple[Callable[[], None], TensorDictBase]:
        """Record a step and compare it; return its replay, and where the result will be.

        Raises:
            CaptureError: The steps differ.
        """
        expected = [super(CapturedCollector, self).step().clone() for _ in range(CHECKED)]
        self._root = start.again()
        state = self.env.state
        assert state is not None
        memory = dict(state.items())
        with on_side_stream(self.env.device):
            for _ in range(WARM_UPS):
                self._in_place(memory)
        start.write(self._root, memory)
        replay, made = self._record(lambda: self._in_place(memory))
        start.write(self._root, memory)
        for step, wanted in enumerate(expected):
            replay()
            wrong = differing(wanted, made)
            if wrong:
                raise CaptureError(
                    f"step {step + 1} of the recorded graph differs from the environment's in "
                    f"{wrong}; use collector.capture=false"
                )
        start.write(self._root, memory)
        return replay, made

    def _in_place(self, memory: Mapping[str, Tensor]) -> TensorDictBase:
        """Take a step that begins and ends in the same memory."""
        root = self._root
        assert root is not None
        self._root = root.clone()
        transition = super().step()
        following, state = self._root, self.env.state
        assert state is not None
        self._root = _written(root, following)
        for key, value in memory.items():
            value.copy_(state[key])
            state.set(key, value)
        return transition


class CapturedUpdate:
    """``agent.update`` as one CUDA graph, from its third call on.

    The first two calls are ordinary updates, in which the optimizers allocate their moments. The
    third is recorded, and must change weights, moments and all other state exactly as an ordinary
    update does. Learning rates become tensors. Every batch has the same entries and shapes.

    Args:
        agent: The learner; its updates must not branch in Python on values that change.
        record: Records an update; replaced in tests.

    Raises:
        ParameterError: The agent is not on a CUDA device, or its updates are not all alike.
    """

    def __init__(self, agent: Agent, *, record: Record = cuda_graph) -> None:
        device = next(agent.policy.parameters()).device
        if record is cuda_graph and device.type != "cuda":
            raise ParameterError(
                f"trainer.capture=true records a CUDA graph, but the agent is on {device}; use "
                f"device=cuda, or trainer.capture=false"
            )
        if not getattr(agent, "updates_alike", True):
            raise ParameterError(
                f"trainer.capture=true needs updates that are all alike, which those of "
                f"{type(agent).__name__} are not; use trainer.capture=false"
            )
        if processes() > 1:
            raise ParameterError(
                "trainer.capture=true does not average gradients of several processes; use one "
                "process, or trainer.capture=false"
            )
        self.agent, self.device, self._record = agent, device, record
        self.forget()

    def forget(self) -> None:
        """Restart with ordinary updates, after the agent's memory moved (``load_state_dict``)."""
        self._calls = 0
        self._batch: TensorDictBase | None = None
        self._found: dict[str, Tensor] = {}
        self._replay: Callable[[], None] | None = None
        for value in vars(self.agent).values():
            if isinstance(value, GatedAdam):
                value.keep_lr_in_memory()

    def __call__(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Run ``agent.update``, which may add entries to the batch."""
        self._calls += 1
        if self._calls <= WARM_UPS:
            with on_side_stream(self.device):
                return self.agent.update(batch)
        if self._replay is None:
            self._capture(batch)
        else:
            assert self._batch is not None
            self._batch.update_(batch)
            self._replay()
        assert self._batch is not None
        for key in set(self._batch.keys()) - set(batch.keys()):
            batch.set(key, self._batch.get(key).clone())
        return {name: value.clone() for name, value in self._found.items()}

    def _capture(self, batch: TensorDictBase) -> None:
        """Record an update, run it, and compare the result with an ordinary update."""
        memory = tensors(self.agent.state_dict())
        before, drawn = [value.clone() for value in memory], process.random_state()
        wanted = self.agent.update(batch.clone())
        after = [value.clone() for value in memory]
        _restore(memory, before, drawn)
        self._batch = held = batch.clone()
        self._replay, found = self._record(lambda: self.agent.update(held))
        self._found = dict(found)
        _restore(memory, before, drawn)
        self._replay()
        wrong = [name for name in wanted if not _same(wanted[name], self._found[name])]
        moved = sum(not _same(*pair) for pair in zip(memory, after, strict=True))
        if wrong or moved:
            raise CaptureError(
                f"the recorded update differs from the agent's in {wrong} and {moved} of "
                f"{len(memory)} tensors of its state; use trainer.capture=false"
            )
        _LOGGER.info("updates are one CUDA graph; its first agrees")


def compile_losses(agent: Agent) -> None:
    """Let ``torch.compile`` compile an agent's losses, and their gradients, when they first run.

    Sums are fused and rounded in another order. The optimizers' steps, which are fused kernels, and
    what changes from update to update in Python stay as they are.

    Raises:
        ParameterError: The agent names no losses; or it is on a CPU, for which torch compiles C++,
            and there is no C++ compiler.
    """
    device = next(agent.policy.parameters()).device
    compiler = os.environ.get("CXX", "c++")
    if device.type == "cpu" and shutil.which(compiler) is None:
        raise ParameterError(
            f"trainer.compile=true needs a C++ compiler on a CPU, and there is no {compiler!r}; "
            f"install one (on Debian and Ubuntu: apt install g++), or use trainer.compile=false"
        )
    losses: tuple[str, ...] = getattr(agent, "losses", ())
    if not losses:
        raise ParameterError(
            f"trainer.compile=true compiles the losses of an agent, and {type(agent).__name__} "
            f"names none; list them in its attribute losses, or use trainer.compile=false"
        )
    for name in losses:
        *path, last = name.split(".")
        owner: Any = reduce(getattr, path, agent)
        part = getattr(owner, last)
        if isinstance(part, torch.nn.Module):
            part.compile(dynamic=False)
        else:
            setattr(owner, last, torch.compile(part, dynamic=False))
    _LOGGER.info("torch.compile compiles %s when they first run", ", ".join(losses))


def _restore(memory: list[Tensor], values: list[Tensor], drawn: Mapping[str, Any]) -> None:
    """Write values back in place, and restore the random generators."""
    with torch.no_grad():
        for place, value in zip(memory, values, strict=True):
            place.copy_(value)
    process.load_random_state(drawn)


@contextlib.contextmanager
def on_side_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a side stream, as torch requires of warm-ups; on a CPU do nothing."""
    if device.type != "cuda":
        yield
        return
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream(device).wait_stream(side)


class _Start:
    """Snapshot of a collector, to return to: environment, policy buffers, random generators."""

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase, root: TensorDictBase) -> None:
        self._env = env
        self._root, self._state = root.clone(), env.get_state()
        self._buffers = list(policy.buffers()) if isinstance(policy, torch.nn.Module) else []
        self._saved = [buffer.clone() for buffer in self._buffers]
        self._random = process.random_state()

    def again(self) -> TensorDictBase:
        """Restore the snapshot; return the observations."""
        self._env.reset(self._state, set_state=True)
        _restore(self._buffers, self._saved, self._random)
        return self._root.clone()

    def write(self, root: TensorDictBase, memory: Mapping[str, Tensor]) -> None:
        """Restore the snapshot in the memory that a recording reads."""
        _written(root, self._root)
        for key, value in memory.items():
            value.copy_(self._state[key].view(value.shape))
        _restore(self._buffers, self._saved, self._random)


def _written(place: TensorDictBase, values: TensorDictBase) -> TensorDictBase:
    """Copy values into the memory of ``place``, and return it."""
    for key in place.keys(True, True):
        place.get(key).copy_(values.get(key))
    return place


def differing(one: TensorDictBase, other: TensorDictBase) -> list[str]:
    """Return the names of entries that are unequal (NaN equals NaN), or not in both."""
    keys, others = set(one.keys(True, True)), set(other.keys(True, True))
    unequal = {key for key in keys & others if not _equal(one.get(key), other.get(key))}
    unequal |= keys ^ others
    return sorted(".".join(key) if isinstance(key, tuple) else key for key in unequal)


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether shape, type and values are equal (NaN equals NaN); reads from the device."""
    return one.shape == other.shape and one.dtype == other.dtype and _equal(one, other)


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())
