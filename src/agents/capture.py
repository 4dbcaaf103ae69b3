"""Policy and environment as one CUDA graph: a step is one launch from the host.

What is recorded are operations on memory, not Python: a replay reads the observation and the
environment's state where the recording found them, and leaves the next ones there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents import randomness
from agents.rollout import DeviceCollector
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.capture")
WARM_UPS = 2
"""Runs before a recording, in which libraries allocate what they keep."""
CHECKED = 3
"""Steps that a recording must play as the environment and the policy do."""

Work = Callable[[], TensorDictBase]
Record = Callable[[Work], tuple[Callable[[], None], TensorDictBase]]


class CaptureError(RuntimeError):
    """A recording does not play what was recorded."""


def cuda_graph(work: Work) -> tuple[Callable[[], None], TensorDictBase]:
    """Record ``work``, which has run before; what replays it, and where its result will be."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph.replay, made


class CapturedCollector(DeviceCollector):
    """As :class:`agents.rollout.DeviceCollector`, with policy and step as one CUDA graph.

    The graph is recorded at the first step, again after :meth:`load_state_dict` and where a policy
    enters another ``stage``. Each time its first steps are held against those of the environment
    and the policy, bit for bit, random draws included. The environment's state and what the policy
    sees stay where they are from then on. What else changes between steps, such as a rate, must be
    a tensor that changes in place, as those of the policies here do.

    Args:
        env: The environment, on a CUDA device.
        policy: Writes ``action``; it explores (``ExplorationType.RANDOM``).
        record: Records a step; tests give another.

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
        super().__init__(env, policy)
        self._record = record
        self._replay: Callable[[], None] | None = None
        self._made: TensorDictBase | None = None
        self._stage: object = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """One decision of every row: root and ``next`` entries, ``[*batch_size]``."""
        stage = getattr(self.policy, "stage", None)
        if self._replay is None or stage != self._stage:
            self._stage = stage
            self._capture()
        assert self._replay is not None
        assert self._made is not None
        self._replay()
        return self._made.clone()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state_dict``."""
        super().load_state_dict(state)
        self._replay = self._made = None

    def _capture(self) -> None:
        """Record a step, and see that it plays the same; both leave no trace."""
        if self._root is None:
            self._root = self.env.reset()
        start = _Start(self.env, self._root)
        expected = [super(CapturedCollector, self).step().clone() for _ in range(CHECKED)]
        self._root = start.again()
        state = self.env.state
        assert state is not None
        memory = dict(state.items())
        self._on_side_stream(lambda: self._in_place(memory))
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
        self._replay, self._made = replay, made
        _LOGGER.info("policy and step are one CUDA graph; its first %d steps agree", CHECKED)

    def _in_place(self, memory: Mapping[str, Tensor]) -> TensorDictBase:
        """A step that begins and ends in the same memory."""
        seen = self._root
        assert seen is not None
        self._root = seen.clone()
        transition = super().step()
        following, state = self._root, self.env.state
        assert state is not None
        self._root = _written(seen, following)
        for key, value in memory.items():
            value.copy_(state[key])
            state.set(key, value)
        return transition

    def _on_side_stream(self, work: Work) -> None:
        """Warm up where torch asks for it."""
        if self.env.device.type != "cuda":
            work()
            return
        side = torch.cuda.Stream(self.env.device)
        side.wait_stream(torch.cuda.current_stream(self.env.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream(self.env.device).wait_stream(side)


class _Start:
    """Where a collector stands, random generators included, to go back to."""

    def __init__(self, env: PackingEnv, root: TensorDictBase) -> None:
        self._env = env
        self._root, self._state = root.clone(), env.get_state()
        self._random = randomness.state_dict()

    def again(self) -> TensorDictBase:
        """Go back; what the policy sees."""
        self._env.reset(self._state, set_state=True)
        randomness.load_state_dict(self._random)
        return self._root.clone()

    def write(self, root: TensorDictBase, memory: Mapping[str, Tensor]) -> None:
        """Go back in the memory that a recording reads."""
        _written(root, self._root)
        for key, value in memory.items():
            value.copy_(self._state[key].view(value.shape))
        randomness.load_state_dict(self._random)


def _written(place: TensorDictBase, values: TensorDictBase) -> TensorDictBase:
    """``place`` with these values in its memory."""
    for key in place.keys(True, True):
        place.get(key).copy_(values.get(key))
    return place


def differing(one: TensorDictBase, other: TensorDictBase) -> list[str]:
    """The entries that are not the same bits (any NaN equals any other), or not in both."""
    keys, others = set(one.keys(True, True)), set(other.keys(True, True))
    unequal = keys ^ others
    for key in keys & others:
        a, b = one.get(key), other.get(key)
        if not bool(((a == b) | ((a != a) & (b != b))).all()):
            unequal.add(key)
    return sorted(".".join(key) if isinstance(key, tuple) else key for key in unequal)
