"""Policy and environment, or an update, as one CUDA graph: one launch from the host.

What is recorded are operations on memory, not Python: a replay reads what the recording read, where
that was, and leaves its results where the recording left them.
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

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.training import randomness
from agents.training.distributed import processes
from agents.training.rollout import DeviceCollector
from agents.training.states import tensors
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.capture")
WARM_UPS = 2
"""Runs before a recording, in which libraries allocate what they keep."""
CHECKED = 3
"""Steps that a recording must play as the environment and the policy do."""

Record = Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]


class CaptureError(RuntimeError):
    """A recording does not play what was recorded."""


def cuda_graph(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Record ``work``, which has run before; what replays it, and where its result will be."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph.replay, made


class CapturedCollector(DeviceCollector):
    """As :class:`agents.training.rollout.DeviceCollector`, with policy and step as one CUDA graph.

    The graph is recorded at the first step, again where the environment has another state than it
    left (a reset, :meth:`load_state_dict`) and where a policy enters another ``stage``. Each time
    its first steps are held against those of the environment and the policy, bit for bit, random
    draws included. The environment's state and what the policy sees stay where they are from then
    on. What else changes between steps, such as a rate, must be a tensor that changes in place, as
    those of the policies here do.

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
        self._state: object = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """One decision of every row: root and ``next`` entries, ``[*batch_size]``.

        Raises:
            CaptureError: A step cannot be recorded; everything is as it was before the call.
        """
        stage = getattr(self.policy, "stage", None)
        if self._replay is None or stage != self._stage or self.env.state is not self._state:
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
        start = _Start(self.env, self.policy, self._root)
        try:
            self._replay, self._made = self._recorded(start)
        except CaptureError:
            self._root = start.again()
            raise
        except RuntimeError as error:
            self._root = start.again()
            raise CaptureError(
                f"policy and step cannot be captured ({error}); use collector.capture=false"
            ) from error
        self._state = self.env.state
        _LOGGER.info("policy and step are one CUDA graph; its first %d steps agree", CHECKED)

    def _recorded(self, start: _Start) -> tuple[Callable[[], None], TensorDictBase]:
        """What replays a step, seen to do so, and where its result will be."""
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


class CapturedUpdate:
    """``agent.update`` as one CUDA graph, from its third call on.

    The first calls are ordinary updates, in which the optimizers make their moments. The third is
    recorded, and must change weights, moments and everything else as an ordinary one does, bit for
    bit. Learning rates become tensors. Batches have the same entries and shapes every time.

    Args:
        agent: Learns; it decides nothing in Python between one update and the next.
        record: Records an update; tests give another.

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
        """Begin anew, after the agent's memory has moved (``load_state_dict``)."""
        self._calls = 0
        self._batch: TensorDictBase | None = None
        self._found: dict[str, Tensor] = {}
        self._replay: Callable[[], None] | None = None
        for value in vars(self.agent).values():
            if isinstance(value, GatedAdam):
                value.keep_lr_in_memory()

    def __call__(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """As ``agent.update``; what it writes into the batch is written there, too."""
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
        """Record an update, and carry it out."""
        memory = tensors(self.agent.state_dict())
        before, drawn = [value.clone() for value in memory], randomness.state_dict()
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


def _restore(memory: list[Tensor], values: list[Tensor], drawn: Mapping[str, Any]) -> None:
    """Put values back in place, and the random generators."""
    with torch.no_grad():
        for place, value in zip(memory, values, strict=True):
            place.copy_(value)
    randomness.load_state_dict(drawn)


@contextlib.contextmanager
def on_side_stream(device: torch.device) -> Iterator[None]:
    """Where torch asks for warm-ups of what is recorded; on a CPU, nothing."""
    if device.type != "cuda":
        yield
        return
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream(device).wait_stream(side)


class _Start:
    """Where a collector stands, the policy's buffers and random generators included.

    To go back there.
    """

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase, root: TensorDictBase) -> None:
        self._env = env
        self._root, self._state = root.clone(), env.get_state()
        self._buffers = list(policy.buffers()) if isinstance(policy, torch.nn.Module) else []
        self._held = [buffer.clone() for buffer in self._buffers]
        self._random = randomness.state_dict()

    def again(self) -> TensorDictBase:
        """Go back; what the policy sees."""
        self._env.reset(self._state, set_state=True)
        _restore(self._buffers, self._held, self._random)
        return self._root.clone()

    def write(self, root: TensorDictBase, memory: Mapping[str, Tensor]) -> None:
        """Go back in the memory that a recording reads."""
        _written(root, self._root)
        for key, value in memory.items():
            value.copy_(self._state[key].view(value.shape))
        _restore(self._buffers, self._held, self._random)


def _written(place: TensorDictBase, values: TensorDictBase) -> TensorDictBase:
    """``place`` with these values in its memory."""
    for key in place.keys(True, True):
        place.get(key).copy_(values.get(key))
    return place


def differing(one: TensorDictBase, other: TensorDictBase) -> list[str]:
    """The entries that are not equal (NaN is equal to NaN), or not in both."""
    keys, others = set(one.keys(True, True)), set(other.keys(True, True))
    unequal = keys ^ others
    for key in keys & others:
        a, b = one.get(key), other.get(key)
        if not bool(((a == b) | ((a != a) & (b != b))).all()):
            unequal.add(key)
    return sorted(".".join(key) if isinstance(key, tuple) else key for key in unequal)


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether shape, type and all numbers are equal, NaN being equal to NaN; reads the device."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
