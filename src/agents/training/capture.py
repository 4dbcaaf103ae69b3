"""CUDA graphs, and policy and environment as one.

A recording holds operations on memory, not Python: a replay reads the addresses that the recording
read, and writes its results where the recording wrote them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

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


def captures(option: bool | str, name: str, *obstacles: str) -> bool:
    """Return whether to capture: ``auto`` does where there is no obstacle, and logs what it chose.

    Args:
        option: True, False or ``"auto"``.
        name: Of the option.
        obstacles: Reasons against it; empty where there is none.

    Raises:
        ParameterError: The option is something else.
    """
    if isinstance(option, bool):
        return option
    if option != "auto":
        raise ParameterError(f"{name}={option!r} is unknown; choose auto, true or false")
    reason = next(filter(None, obstacles), "")
    _LOGGER.info("%s=auto: %s", name, f"off, {reason}" if reason else "on")
    return not reason


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
        required: False: continue without a graph, with a warning, where none can be recorded.

    Raises:
        ParameterError: The environment is not on a CUDA device.
    """

    def __init__(
        self,
        env: PackingEnv,
        policy: TensorDictModuleBase,
        *,
        record: Record = cuda_graph,
        required: bool = True,
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
        self._record, self._required, self._gave_up = record, required, False
        self._recording: tuple[Callable[[], None], TensorDictBase] | None = None
        self._stage: object = None
        self._state: object = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``.

        Raises:
            CaptureError: A step cannot be recorded; everything is as it was before the call.
        """
        if self._gave_up:
            return super().step()
        stage = getattr(self.policy, "stage", None)
        if self._recording is None or stage != self._stage or self.env.state is not self._state:
            self._stage = stage
            try:
                self._recording = self._capture()
            except CaptureError as error:
                if self._required:
                    raise
                _LOGGER.warning("collector.capture=auto: off, %s", error)
                self._gave_up = True
                return super().step()
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
        except Exception as error:  # Triton's errors are no RuntimeError
            self._root = start.again()
            if isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"policy and step cannot be captured ({type(error).__name__}: {error}); use "
                "collector.capture=false"
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


def restore(memory: list[Tensor], values: list[Tensor], drawn: Mapping[str, Any]) -> None:
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
        restore(self._buffers, self._saved, self._random)
        return self._root.clone()

    def write(self, root: TensorDictBase, memory: Mapping[str, Tensor]) -> None:
        """Restore the snapshot in the memory that a recording reads."""
        _written(root, self._root)
        for key, value in memory.items():
            value.copy_(self._state[key].view(value.shape))
        restore(self._buffers, self._saved, self._random)


def _written(place: TensorDictBase, values: TensorDictBase) -> TensorDictBase:
    """Copy values into the memory of ``place``, and return it."""
    for key in place.keys(True, True):
        place.get(key).copy_(values.get(key))
    return place


def differing(one: TensorDictBase, other: TensorDictBase) -> list[str]:
    """Return the names of entries that are unequal (NaN equals NaN), or not in both."""
    keys, others = set(one.keys(True, True)), set(other.keys(True, True))
    unequal = {key for key in keys & others if not equal(one.get(key), other.get(key))}
    unequal |= keys ^ others
    return sorted(".".join(key) if isinstance(key, tuple) else key for key in unequal)


def equal(one: Tensor, other: Tensor) -> bool:
    """Return whether values are equal (NaN equals NaN); reads from the device."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
