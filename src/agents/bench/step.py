"""Decisions per second of the environment, over rows, presets, kernels and action modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from agents import build
from agents.bench.base import Job, LeftOut, Row, Session, runnable_kernels, using
from agents.bench.counting import dispatches
from agents.bench.timing import TooLongError
from agents.config_checks import ConfigError
from agents.replay.device_replay import free_memory
from packing_env import PackingEnv, PackingVectorEnv
from packing_env.core.orientation import decode_placement

Choose = Callable[[TensorDictBase], TensorDictBase]
ACTIONS = ("first_legal", "random_legal")
THROUGH = ("env", "vector_env")
_COPIES = 8
"""A step needs at most about so many times the memory of what it returns."""


class Step:
    """A decision in every row: choose, step, start finished rows anew; exact masks included.

    Rows go up until a measurement would take too long (``longest``) or too much memory; what is
    left out is listed. Every combination has an environment and a loop of its own.

    Args:
        presets: Options of the group ``env``. A preset chosen by ``env=NAME`` is the only one.
        modes: Action modes; ``None``: the preset's own.
        kernels: Backends of the hot operations; ``None``: all that run on the device.
        actions: ``first_legal``, ``random_legal`` (each legal action as likely).
        through: ``env`` (``PackingEnv.step_and_maybe_reset``), ``vector_env`` (Gymnasium's, NumPy
            in and out).
        rows: Batch sizes, ascending. At 1 there are percentiles of single steps, too.
    """

    measures = True
    columns: ClassVar[Mapping[str, str]] = {
        "wall_ms": "ms/step",
        "thread_cpu_ms": "CPU ms/step",
        "decisions_per_second": "decisions/s",
        "decisions_per_cpu_second": "per CPU s",
        "dispatches": "operations",
        "p99_ms": "p99 ms",
    }

    def __init__(
        self,
        *,
        presets: Sequence[str],
        modes: Sequence[str] | None,
        kernels: Sequence[str] | None,
        actions: Sequence[str],
        through: Sequence[str],
        rows: Sequence[int],
    ) -> None:
        _check("bench.actions", actions, ACTIONS)
        _check("bench.through", through, THROUGH)
        if not rows or any(not isinstance(count, int) or count < 1 for count in rows):
            raise ValueError(f"bench.rows={list(rows)} must be positive whole numbers")
        self.presets, self.modes, self.kernels = presets, modes, kernels
        self.actions, self.through, self.rows = actions, through, sorted(rows)

    def jobs(self, session: Session) -> list[Job]:
        """A sweep over the rows each."""
        presets = [None] if session.chosen("env") else list(self.presets)
        device = torch.device(session.config.device).type
        made = []
        for preset in presets:
            for mode in self.modes or [None]:
                for kernel in self.kernels or runnable_kernels(device):
                    for action in self.actions:
                        case = {"preset": preset or session.config.env.task, "mode": mode}
                        case |= {"kernel": kernel, "actions": action}
                        work = partial(self._sweep, session, preset, case)
                        made.append(Job(" ".join(str(v) for v in case.values() if v), case, work))
        return made

    def _sweep(
        self, session: Session, preset: str | None, case: dict[str, Any]
    ) -> Iterator[Row | LeftOut]:
        config = session.variant(env=preset, env__action_mode=case["mode"])
        with using(case["kernel"]):
            torch.manual_seed(int(config.seed))
            like = build.build_env(config, num_envs=1)
            case = case | {"mode": like.params.action_mode}
            for through in self.through:
                yield from self._rows(session, like, case | {"through": through})

    def _rows(
        self, session: Session, like: PackingEnv, case: dict[str, Any]
    ) -> Iterator[Row | LeftOut]:
        """Ascending batch sizes, until one is too large."""
        last: tuple[int, float, int] | None = None  # rows, seconds and bytes of a step
        for rows in self.rows:
            here = case | {"rows": rows}
            if last is not None:
                growth = rows / last[0]
                free = free_memory(session.clock.device)
                if free is not None and last[2] * growth * _COPIES > free:
                    yield LeftOut(here, f"a step returns {last[2] * growth / 1e9:.2g} GB")
                    return
            try:
                if last is not None:
                    session.clock.check(last[1] * growth)
                row, size = measure(session, like, here)
            except TooLongError as error:
                yield LeftOut(here, str(error))
                return
            last = (rows, row.values["wall_ms"] / 1e3, size)
            yield row


def measure(session: Session, like: PackingEnv, case: dict[str, Any]) -> tuple[Row, int]:
    """One batch size; also the bytes that a step returns."""
    rows = case["rows"]
    env = PackingEnv(
        like.params,
        like.catalogue,
        like.instances,
        num_envs=rows,
        device=like.device,
        seed=int(session.config.seed),
        autoreset=session.config.env.autoreset,
    )
    play = (Loop if case["through"] == "env" else VectorLoop)(env, case["actions"])
    timing = session.clock.measure(play.step)
    values = timing.values()
    values["decisions_per_second"] = 1e3 * rows / values["wall_ms"]
    values["decisions_per_cpu_second"] = 1e3 * rows / values["thread_cpu_ms"]
    values["dispatches"] = dispatches(play.step, times=1)
    values["num_actions"] = int(env.mode.num_actions)
    if rows == 1:
        values |= session.clock.latencies(play.step)
    return Row(case, values), play.num_bytes


class Loop:
    """Steps an environment over and over.

    Raises:
        ConfigError: The action mode has no first legal action.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        self.env = env
        self._choose = chooser(env, actions)
        self._root = env.reset()
        self.num_bytes = int(self._root.bytes())

    @torch.no_grad()
    def step(self) -> None:
        """One decision in every row."""
        _, self._root = self.env.step_and_maybe_reset(self._choose(self._root))


class VectorLoop:
    """The same through Gymnasium's vector interface, NumPy in and out.

    Raises:
        ConfigError: The action mode has no mask over all its actions.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        _check_mask(env, "bench.through=[vector_env]")
        self.env = PackingVectorEnv(env, num_envs=env.batch_size.numel())
        self._choose = chooser(env, actions)
        seen, info = self.env.reset()
        self._mask = info["action_mask"]
        self.num_bytes = sum(entry.nbytes for entry in seen.values())

    @torch.no_grad()
    def step(self) -> None:
        """One decision in every row."""
        mask = torch.from_numpy(self._mask).view(torch.bool)
        action = self._choose(TensorDict({"action_mask": mask}, mask.shape[:1])).get("action")
        self._mask = self.env.step(action.numpy())[-1]["action_mask"]


def first_true(mask: Tensor) -> Tensor:
    """``[*batch]`` index of the first True along the last axis."""
    return mask.view(torch.uint8).argmax(-1)


def chooser(env: PackingEnv, actions: str) -> Choose:
    """Writes the actions of one kind."""
    if actions == "random_legal":
        return env.rand_action
    _check_mask(env, "bench.actions=[first_legal]")

    def choose(root: TensorDictBase) -> TensorDictBase:
        index = first_true(root.get("action_mask"))
        if env.takes["action"][1] == env.batch_size:
            return root.set("action", index)
        orientations = env.catalogue.tensors()["peak"].shape[1]
        placement = decode_placement(index, orientations, env.params)
        return root.update(env.mode.encode(placement))

    return choose


def _check_mask(env: PackingEnv, asked: str) -> None:
    if env.mode.mask_keys != ("action_mask",):
        raise ConfigError(
            f"{asked} needs one mask over all actions, which env.action_mode="
            f"{env.params.action_mode} does not have"
        )


def _check(key: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown or not given:
        raise ValueError(f"{key}={list(given)}: choose from {', '.join(known)}")
