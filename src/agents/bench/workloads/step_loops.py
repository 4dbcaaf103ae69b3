"""Loops over steps: the core, the environment, Gymnasium's vector interface, a CUDA graph.

They run under ``torch.no_grad``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from agents.config.folders import ConfigError
from agents.training.capture import CapturedCollector
from packing_env import PackingEnv, PackingVectorEnv, kernels
from packing_env.core.orientation import decode_placement
from packing_env.engine import Task, make_engine
from packing_env.types import ParameterError

Choose = Callable[[TensorDictBase], TensorDictBase]


class Loop:
    """Loop over steps of a ``PackingEnv``.

    Raises:
        ConfigError: The action mode has no first legal action.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        self.env = env
        self._choose = chooser(env, actions)
        self._root = env.reset()
        self.num_bytes = int(self._root.bytes())

    def choose(self) -> None:
        """Choose the next actions."""
        self._root = self._choose(self._root)

    def act(self) -> None:
        """Take the step."""
        _, self._root = self.env.step_and_maybe_reset(self._root)

    def step(self) -> None:
        """Take one decision in every row."""
        self.choose()
        self.act()


class VectorLoop:
    """Loop over steps of Gymnasium's vector interface, NumPy in and out.

    Raises:
        ConfigError: The action mode has no mask over all its actions.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        _check_mask(env, "bench.through=[vector_env]")
        self.env = PackingVectorEnv(env, num_envs=env.batch_size.numel())
        self._choose = chooser(env, actions)
        observation, info = self.env.reset()
        self._mask = info["action_mask"]
        self.num_bytes = sum(entry.nbytes for entry in observation.values())

    def step(self) -> None:
        """Take one decision in every row."""
        mask = torch.from_numpy(self._mask).view(torch.bool)
        action = self._choose(TensorDict({"action_mask": mask}, mask.shape[:1])).get("action")
        self._mask = self.env.step(action.numpy())[-1]["action_mask"]


class CoreLoop:
    """Loop over the compiled engine without an environment: state, rewards, metrics and masks.

    The masks are the only observation; finished rows start their next episode.

    Raises:
        ConfigError: The compiled engine cannot carry out the task.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        _check_mask(env, "bench.through=[core]")
        task = Task(env.params.evolve(observation=()), env.catalogue.tensors(), env.instances)
        try:
            self._engine = make_engine(task, "compiled")
        except ParameterError as error:
            raise ConfigError(f"bench.through=[core] needs the compiled engine: {error}") from error
        self._mask = env.reset()["action_mask"]
        self._state = dict(env.get_state().items())
        self._uniform = torch.zeros if actions == "first_legal" else torch.rand
        self.num_bytes = sum(value.nbytes for value in self._state.values())

    def step(self) -> None:
        """Take one decision in every row."""
        action = kernels.choose_uniform(self._mask, self._uniform(self._mask.shape[0]))
        step = self._engine.advance(self._state, {"action": action}, reset=True)
        assert step.start is not None
        self._state, self._mask = step.state, step.start.masks["action_mask"]


class CapturedLoop(Loop):
    """Loop over a CUDA graph of the choice of actions and the step.

    Raises:
        ConfigError: There is no CUDA device to record the graph on.
    """

    def __init__(self, env: PackingEnv, actions: str) -> None:
        if env.device.type != "cuda":
            raise ConfigError(
                f"bench.through=[captured] records a CUDA graph, but this runs on {env.device}; "
                f"use device=cuda"
            )
        super().__init__(env, actions)
        policy: Any = self._choose
        self._collector = CapturedCollector(env, policy)

    def step(self) -> None:
        """Take one decision in every row."""
        self._collector.step()


LOOPS: dict[str, Callable[[PackingEnv, str], Any]] = {
    "core": CoreLoop,
    "env": Loop,
    "captured": CapturedLoop,
    "vector_env": VectorLoop,
}


def chooser(env: PackingEnv, actions: str) -> Choose:
    """Return a function that writes the actions of one kind: first or random legal ones."""
    if actions == "random_legal":
        return env.rand_action
    _check_mask(env, "bench.actions=[first_legal]")

    def choose(root: TensorDictBase) -> TensorDictBase:
        mask = root.get("action_mask")
        index = kernels.choose_uniform(mask, torch.zeros(mask.shape[:-1], device=mask.device))
        if env.takes["action"][1] == env.batch_size:
            return root.set("action", index)
        orientations = env.catalogue.tensors()["peak"].shape[1]
        placement = decode_placement(index, orientations, env.params)
        return root.update(env.mode.encode(placement))

    return choose


def _check_mask(env: PackingEnv, setting: str) -> None:
    if env.mode.mask_keys != ("action_mask",):
        raise ConfigError(
            f"{setting} needs one mask over all actions, which env.action_mode="
            f"{env.params.action_mode} does not have"
        )
