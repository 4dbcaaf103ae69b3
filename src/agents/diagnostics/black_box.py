"""What went on when training broke: the environment's last states, and the update's batch.

Kept at almost no cost while all is well. The environment is deterministic, so a copy of its state
every few decisions and the decisions since then are all its states; a copy of each would be as many
times the work and the memory. An agent's state is copied before each update, one operation per type
of number; a batch is only held until its update is known to be sound, or copied, once, where the
next decisions overwrite it (on-policy: the memory of a rollout). That is known from a flag which
each update sends to the host without being waited for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import Agent, Collector
from agents.training import checkpoint
from agents.training.checkpoint import CheckpointError
from agents.training.states import named_tensors, same_objects, tensors, with_tensors

FOLDER = "black_box"
"""Where in a run's folder it is written."""
KIND = "packing black box"
"""What the manifest of that folder calls it."""
_SOUND, _UNKNOWN = 0, 2
"""Flags on the host, besides 1 for a broken update; the second until the device has written."""
_NO_LOSS = torch.zeros(())
"""Of an agent that reports none."""
_AHEAD = 8
"""Updates that may wait for their flags. A host that runs further ahead leaves some out."""


class BlackBox:
    """Keeps what shows why updates were no numbers; changes nothing and waits for nothing.

    The first broken update of a row is held until a sound one follows, or for good once the row is
    so long that training will end.

    Args:
        agent: What learns.
        collector: What steps the environment.
        states: How many of the environment's last states are kept at least.
        strikes: Broken updates in a row that end training, of an agent that leaves them out.
        copies: Whether batches lie in memory that the next decisions overwrite.
    """

    def __init__(
        self,
        agent: Agent,
        collector: Collector,
        *,
        states: int,
        strikes: int,
        copies: bool,
    ) -> None:
        if isinstance(states, bool) or not isinstance(states, int) or states < 1:
            raise ValueError(f"trainer.black_box={states!r} must be a number of states, or 0")
        self.agent, self.strikes, self.copies = agent, strikes, copies
        self.device = collector.env.device
        self._tape = _Tape(collector, states)
        flags = torch.full((_AHEAD,), _UNKNOWN, dtype=torch.uint8)
        self._flags = flags.pin_memory() if self.device.type == "cuda" else flags
        self._seen = self._flags.numpy()  # the same memory: looking at it is no operation
        self._places = self._flags.unbind()
        self._free = [_Update(slot) for slot in range(1 if copies else _AHEAD)]
        self._open: deque[_Update] = deque()
        self._latest: _Update | None = None
        self._caught: dict[str, Any] = {}
        self._streak, self._sealed = 0, False

    def see(self, transition: TensorDictBase) -> None:
        """After a step of the environment."""
        if not self._caught:
            self._tape.see(transition)
        self._judge()

    def before(self, batch: TensorDictBase, number: int, frames: int) -> None:
        """Before the update with this number, with schedules at ``frames``."""
        self._judge()
        if self.copies and self._latest is not None:  # there is memory for one copy of a batch
            self._free, self._latest = [self._latest], None
        if self._sealed or not self._free:
            return
        update = self._free.pop()
        update.batch = {}  # its memory is free for the next
        update.number, update.frames = number, frames
        update.batch = dict(named_tensors(batch.clone() if self.copies else batch))
        update.batch_size = list(batch.batch_size)
        update.agent.take(self.agent.state_dict())
        update.random = _random(self.device)
        self._seen[update.slot], update.sent = _UNKNOWN, False
        self._open.append(update)

    def after(self, found: Mapping[str, Tensor]) -> None:
        """After that update; ``found`` is what it returned."""
        if not self._open or self._open[-1].sent:
            return
        update = self._open[-1]
        gated = "skipped" in found
        loss = found.get("loss", _NO_LOSS)
        broken = found["skipped"] if gated else ~loss.isfinite().all()
        self._places[update.slot].copy_(broken, non_blocking=True)
        update.sent, update.limit = True, self.strikes if gated else 1
        self._judge()

    def clear(self) -> None:
        """Forget everything: training goes on from elsewhere."""
        self._tape.clear()
        self._free += [update for update in (*self._open, self._latest) if update is not None]
        self._open.clear()
        self._latest, self._caught = None, {}
        self._streak, self._sealed = 0, False

    def contents(self) -> dict[str, Any]:
        """Tensors and numbers: the states, and the broken update, or the last one if none was."""
        if self._caught:
            return self._caught
        waiting = self._open[-1] if self._open else self._latest
        return self._evidence(waiting)

    def _evidence(self, update: _Update | None) -> dict[str, Any]:
        found = {"environment": self._tape.contents()}
        return found | ({"update": update.contents()} if update is not None else {})

    def _judge(self) -> None:
        """Look at the flags that have come, in the order of their updates."""
        while self._open and self._open[0].sent:
            flag = int(self._seen[self._open[0].slot])
            if flag == _UNKNOWN:
                return
            self._conclude(self._open.popleft(), sound=flag == _SOUND)

    def _conclude(self, update: _Update, *, sound: bool) -> None:
        if not sound:
            self._streak += 1
            self._caught = self._caught or self._evidence(update)
            self._sealed = self._sealed or self._streak >= update.limit
        elif self._caught and not self._sealed:
            self._streak, self._caught = 0, {}
            self._tape.clear()  # it stood still
        released, self._latest = self._latest, update
        if released is not None:
            released.batch = {}
            self._free.append(released)


def save(run: str | Path, contents: Mapping[str, Any], meta: Mapping[str, Any]) -> Path:
    """Write it into the run's folder, as safe to read as a checkpoint.

    Raises:
        CheckpointError: It cannot be written.
    """
    place = Path(run) / FOLDER
    checkpoint.write(place, contents, meta, kind=KIND)
    return place


def load(path: str | Path, device: torch.device | str = "cpu") -> checkpoint.Checkpoint:
    """What :func:`save` wrote, by its folder or that of the run.

    Raises:
        CheckpointError: There is none, or it is more than tensors and plain values.
    """
    path = Path(path)
    place = path / FOLDER if (path / FOLDER).is_dir() else path
    if not (place / checkpoint.MANIFEST).is_file():
        raise CheckpointError(
            f"{path}: no black box there; training writes one to RUN/{FOLDER} when its updates are "
            f"no numbers any more (trainer.black_box)"
        )
    return checkpoint.load(place, device, kind=KIND)


# ---------------------------------------------------------------------- the environment


@dataclass
class _Segment:
    """A state of the environment, and the decisions from there."""

    state: dict[str, Any]
    steps: list[tuple[dict[str, Tensor], Tensor]] = field(default_factory=list)


class _Tape:
    """Two segments: the present one, and that before it, which is whole."""

    def __init__(self, collector: Collector, states: int) -> None:
        self.collector, self.states = collector, states
        keys = collector.env.action_keys
        self.keys = {key if isinstance(key, str) else "/".join(key): key for key in keys}
        self.clear()

    def clear(self) -> None:
        self._segments: deque[_Segment] = deque(maxlen=2)

    def see(self, transition: TensorDictBase) -> None:
        """What was decided and what it was worth; every so often, where that led to."""
        if self._segments:
            decision = {name: transition.get(key) for name, key in self.keys.items()}
            reward = transition.get("next").get("reward")
            self._segments[-1].steps.append((decision, reward))
        if not self._segments or len(self._segments[-1].steps) == self.states:
            self._segments.append(_Segment(self.collector.state_dict()))

    def contents(self) -> dict[str, Any]:
        """The oldest state, and all decisions from there; nothing before the first decision."""
        if not self._segments:
            return {}
        steps = [step for segment in self._segments for step in segment.steps]
        return {
            "state": self._segments[0].state,
            "decisions": [decision for decision, _ in steps],
            "rewards": [reward for _, reward in steps],
        }


# ---------------------------------------------------------------------- an update


class _Copy:
    """A copy of an agent's state, in memory that the next copy takes again."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}
        self._live: list[Tensor] = []
        self._places: list[tuple[int, torch.Size]] = []
        self._layout: list[tuple[Any, ...]] = []
        self._copies: list[Tensor] = []
        self._joined: list[tuple[list[Tensor], Tensor]] = []
        self._apart: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def take(self, state: dict[str, Any]) -> None:
        """Copy the tensors; numbers are kept with the state itself."""
        live = tensors(state)
        places = [(tensor.data_ptr(), tensor.shape) for tensor in live]
        if places != self._places or not same_objects(live, self._live):
            self._prepare(live)
            self._places = places
        for sources, memory in self._joined:
            torch.cat(sources, out=memory)
        for source, copy in self._apart:
            copy.copy_(source)
        self._state = state

    def _prepare(self, live: list[Tensor]) -> None:
        """Memory for copies, a piece for all tensors of a type; nothing if all are where they were.

        Tensors with gaps in their memory have pieces of their own.
        """
        layout = [(t.data_ptr(), t.shape, t.stride(), t.dtype, t.device) for t in live]
        if layout == self._layout:
            return
        self._live, self._layout = live, layout
        self._copies, self._joined, self._apart = [torch.empty_like(t) for t in live], [], []
        alike: dict[Any, list[int]] = defaultdict(list)
        for place, (tensor, copy) in enumerate(zip(live, self._copies, strict=True)):
            if copy.stride() == tensor.stride():
                alike[tensor.dtype, tensor.device].append(place)
            else:
                self._apart.append((tensor, copy))
        for (dtype, device), places in alike.items():
            sources = [live[i].as_strided((live[i].numel(),), (1,)) for i in places]
            memory = torch.empty(sum(map(len, sources)), dtype=dtype, device=device)
            for i, piece in zip(places, memory.split([*map(len, sources)]), strict=True):
                self._copies[i] = piece.as_strided(live[i].shape, live[i].stride())
            self._joined.append((sources, memory))

    def contents(self) -> dict[str, Any]:
        """The state as it was, in memory of its own."""
        return with_tensors(self._state, (tensor.clone() for tensor in self._copies))


@dataclass
class _Update:
    """An update as it began."""

    slot: int
    number: int = 0
    frames: int = 0
    batch: dict[str, Tensor] = field(default_factory=dict)
    batch_size: list[int] = field(default_factory=list)
    agent: _Copy = field(default_factory=_Copy)
    random: dict[str, Any] = field(default_factory=dict)
    sent: bool = False
    limit: int = 1

    def contents(self) -> dict[str, Any]:
        """Everything it can be made again from."""
        return {
            "number": self.number,
            "frames": self.frames,
            "batch": {name: value.clone() for name, value in self.batch.items()},
            "batch_size": self.batch_size,
            "agent": self.agent.contents(),
            "random": self.random,
        }


def _random(device: torch.device) -> dict[str, Tensor]:
    """The generators that an update draws from; on every device they live in the host's memory."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found
