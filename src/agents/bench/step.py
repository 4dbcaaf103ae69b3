"""Decisions per second of the environment, by number of rows, preset and kernel backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDictBase
from torch.utils._python_dispatch import TorchDispatchMode

from agents.bench.measure import Clock
from agents.bench.session import Session
from agents.config import build
from agents.config.folders import ConfigError
from agents.training.capture import CapturedCollector
from packing_env import PackingEnv
from packing_env.core.orientation import decode_placement
from packing_env.kernels import available_backends, choose_uniform, set_backend
from packing_env.values import Option

Rows = Annotated[tuple[int, ...], Option(at_least=1, filled=True)]
ACTIONS = ("first_legal", "random_legal")
Actions = Annotated[tuple[str, ...], Option(choices=ACTIONS)]
Ways = Annotated[tuple[str, ...], Option(choices=("env", "captured"))]
COLUMNS = {
    "wall_ms": "ms/step",
    "thread_cpu_ms": "CPU ms/step",
    "decisions_per_second": "decisions/s",
    "decisions_per_cpu_second": "per CPU s",
    "dispatches": "operations",
    "p99_ms": "p99 ms",
    "step_p50_ms": "step p50 ms",
}


def step(
    session: Session,
    presets: Sequence[str] | None,
    kernels: Sequence[str] | None,
    actions: Actions,
    through: Ways,
    rows: Rows,
) -> None:
    """Measure a decision in every row: choose, step, reset finished rows, with exact masks.

    Args:
        session: The run.
        presets: Options of the group ``env``; ``None`` means the configured one.
        kernels: Backends of the hot operations; ``None`` means all that run on the device.
        actions: ``first_legal``, or ``random_legal`` (uniform over the legal actions).
        through: ``env`` (``PackingEnv.step_and_maybe_reset``), or ``captured`` (step and choice of
            actions as one CUDA graph).
        rows: Batch sizes. With one row, the benchmark also reports percentiles of the time of a
            decision, and of ``step_and_maybe_reset`` without the choice of an action
            (``step_p50_ms``).
    """
    session.columns = COLUMNS
    backends = kernels or available_backends(session.clock.device.type)
    for preset, backend, action, way in product(presets or (None,), backends, actions, through):
        config = session.variant(env=preset)
        case = {"preset": config.env.task, "kernel": backend, "actions": action, "through": way}
        set_backend(backend)
        try:
            _ascend(session, config, case, sorted(rows))
        finally:
            set_backend(None)


@torch.no_grad()
def _ascend(
    session: Session, config: DictConfig, case: Mapping[str, Any], rows: Sequence[int]
) -> None:
    """Measure batch sizes in ascending order until one takes too much time or memory."""
    last, seconds = 0, 0.0  # rows of the previous batch, and seconds of its step
    for count in rows:
        with session.case(**case, rows=count) as measured:
            session.clock.check(seconds * count / max(1, last))
            torch.manual_seed(int(config.seed))
            env = build.build_env(config, num_envs=count)
            measured["mode"] = env.params.action_mode
            loop = Loop(env, case["actions"], capture=case["through"] == "captured")
            values = measure_loop(session.clock, loop)
            session.add(measured, values)
            last, seconds = count, values["wall_ms"] / 1e3
        if last != count:  # larger batches would be skipped as well
            return


class Loop:
    """Loop over steps of a ``PackingEnv``, with actions of :data:`ACTIONS`.

    Raises a ConfigError if the action mode has no first legal action, or if ``capture`` (choice and
    step as one CUDA graph) is set without a CUDA device.
    """

    def __init__(self, env: PackingEnv, actions: str, *, capture: bool = False) -> None:
        if capture and env.device.type != "cuda":
            raise ConfigError(
                f"bench.through=[captured] records a CUDA graph, but this runs on {env.device}; "
                f"use device=cuda"
            )
        self.env, self.capture = env, capture
        self._choose: Any = chooser(env, actions)
        self._root = env.reset()
        self._captured = CapturedCollector(env, self._choose) if capture else None

    def choose(self) -> None:
        """Choose the next actions."""
        self._root = self._choose(self._root)

    def act(self) -> None:
        """Take the step."""
        _, self._root = self.env.step_and_maybe_reset(self._root)

    def step(self) -> None:
        """Take one decision in every row."""
        if self._captured is not None:
            self._captured.step()
        else:
            self.choose()
            self.act()


def chooser(env: PackingEnv, actions: str) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a function that writes actions of :data:`ACTIONS`."""
    if actions == "random_legal":
        return env.rand_action
    if env.mode.mask_keys != ("action_mask",):
        raise ConfigError(
            f"the first legal action needs one mask over all actions, which env.action_mode="
            f"{env.params.action_mode} does not have; use bench.actions=[random_legal]"
        )

    def choose(root: TensorDictBase) -> TensorDictBase:
        mask = root.get("action_mask")
        # A uniform draw of 0 selects the first legal action.
        index = choose_uniform(mask, torch.zeros(mask.shape[:-1], device=mask.device))
        if env.takes["action"][1] == env.batch_size:
            return root.set("action", index)
        orientations = env.catalogue.tensors()["peak"].shape[1]
        placement = decode_placement(index, orientations, env.params)
        return root.update(env.mode.encode(placement))

    return choose


def measure_loop(clock: Clock, loop: Loop) -> dict[str, Any]:
    """Return times, rates and the number of torch operations of a decision in every row."""
    rows = loop.env.batch_size.numel()
    values = clock.measure(loop.step)
    values["decisions_per_second"] = 1e3 * rows / values["wall_ms"]
    values["decisions_per_cpu_second"] = 1e3 * rows / values["thread_cpu_ms"]
    operations = _Operations()
    with operations:
        loop.step()
    values["dispatches"] = operations.count
    if rows == 1:
        values |= clock.latencies(loop.step)
        if not loop.capture:
            alone = clock.latencies(loop.act, between=loop.choose)
            values |= {f"step_{name}": value for name, value in alone.items()}
    return values


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))
