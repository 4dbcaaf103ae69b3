"""Small tasks for tests: random catalogues, and play that leaves torch's RNG alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from packing_env.core.random import choose_uniform
from packing_env.core.transition import Outlook
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.testing import Referee, random_catalogue, random_cuboids, small_env
from packing_env.types import State


@lru_cache(maxsize=64)
def catalogue(
    seed: int = 0,
    grid: tuple[int, int] = (8, 7),
    height: float = 0.1,
    num_items: int = 6,
    num_orientations: int = 3,
    window: int = 4,
) -> Catalogue:
    """A random catalogue for a container of ``grid`` cells of 1 cm."""
    return random_catalogue(
        seed,
        num_items=num_items,
        num_orientations=num_orientations,
        window=window,
        container=(grid[0] * 0.01, grid[1] * 0.01, height),
    )


@lru_cache(maxsize=64)
def cuboids(
    seed: int = 0,
    grid: tuple[int, int] = (7, 6),
    height: int = 8,
    num_items: int = 6,
    sides: tuple[int, int] = (1, 4),
    orientations: str = "yaw",
    pitch: float = 1.0,
    maps: bool = True,
) -> Catalogue:
    """Random cuboids for a container of ``grid`` and ``height`` pitches; lengths in pitches."""
    return random_cuboids(
        seed,
        num_items=num_items,
        low=sides[0],
        high=sides[1],
        cell=pitch,
        container=(grid[0] * pitch, grid[1] * pitch, height * pitch),
        orientations=orientations,
        maps=maps,
    )


def tiny_env(
    num_envs: int | tuple[int, ...] = 4,
    *,
    seed: int = 0,
    shell: dict[str, Any] | None = None,
    items: dict[str, Any] | None = None,
    **params: Any,
) -> PackingEnv:
    """A small environment; ``items`` are arguments of :func:`catalogue`."""
    options = {"seed": seed, **(shell or {})}
    return small_env(catalogue(**(items or {})), num_envs, shell=options, **params)


def cuboid_env(
    num_envs: int | tuple[int, ...] = 4,
    *,
    seed: int = 0,
    shell: dict[str, Any] | None = None,
    items: dict[str, Any] | None = None,
    **params: Any,
) -> PackingEnv:
    """The like of cuboids; ``items`` are arguments of :func:`cuboids`. Contact is exact."""
    options = {"seed": seed, **(shell or {})}
    task = {"contact_tol": 0.0, **params}
    return small_env(cuboids(**(items or {})), num_envs, shell=options, **task)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def legal_action(mask: Tensor, generator: torch.Generator) -> Tensor:
    """A uniformly random legal action per row."""
    uniform = torch.rand(mask.shape[:-1], generator=generator, dtype=torch.float64)
    return choose_uniform(mask, uniform)


def play(
    env: PackingEnv,
    num_steps: int,
    generator: torch.Generator | None = None,
    actions: Tensor | None = None,
    root: TensorDictBase | None = None,
) -> TensorDict:
    """``[T, *batch]`` steps with automatic resets: random legal ones, or given ``actions``."""
    root = env.reset() if root is None else root
    generator = stream() if generator is None else generator
    steps = []
    for index in range(num_steps):
        chosen = legal_action(root["action_mask"], generator) if actions is None else actions[index]
        step, root = env.step_and_maybe_reset(root.set("action", chosen))
        steps.append(step.clone())
    return torch.stack(steps).contiguous()


def play_once(env: PackingEnv, num_steps: int, generator: torch.Generator) -> list[TensorDictBase]:
    """Steps without resets: finished rows stay finished. The ``next`` entries."""
    root, seen = env.reset(), []
    for _ in range(num_steps):
        step = env.step(root.set("action", legal_action(root["action_mask"], generator)))
        seen.append(step["next"].clone())
        root = env.step_mdp(step)
    return seen


def play_beside_reference(
    env: PackingEnv,
    num_steps: int,
    mask_bits: int | None = 32,
    seed: int = 0,
    illegal_share: float = 0.0,
) -> int:
    """Play with resets beside the reference program; returns the number of finished episodes.

    A share of the actions is drawn from the whole range, out of range included.
    """
    generator = stream(seed)
    root = env.reset()
    referee = Referee(env, mask_bits=mask_bits, seed=seed)
    referee.begin(torch.ones_like(root["done"]), root)
    finished = 0
    for _ in range(num_steps):
        action = legal_action(root["action_mask"], generator)
        if illegal_share:
            wild = torch.randint(-3, env.mode.num_actions + 3, action.shape, generator=generator)
            astray = torch.rand(action.shape, generator=generator) < illegal_share
            action = torch.where(astray, wild, action)
        decisions = referee.decide(action)
        following = env.step(root.set("action", action))["next"]
        referee.step(decisions, following)
        finished += int(following["done"].sum())
        root = env.maybe_reset(env.step_mdp(root))
        referee.begin(following["done"], root)
    return finished


def state_of(env: PackingEnv) -> State:
    """A copy of the environment's state as the core takes it."""
    return {key: value.clone() for key, value in env.state.items()}


def look_of(env: PackingEnv) -> Callable[[State], Outlook]:
    """How the environment finds out what can be done in a state."""
    return lambda state: env.mode.look(state, env._maps(state))


def differing(one: Any, other: Any, skip: tuple[str, ...] = ()) -> list[Any]:
    """Keys whose tensors are not bit-identical; both must have the same keys."""
    flat = [
        dict(t.items(True, True)) if isinstance(t, TensorDictBase) else dict(t)
        for t in (one, other)
    ]
    left, right = flat
    if set(left) != set(right):
        return sorted(map(str, set(left) ^ set(right)))
    return [key for key in left if key not in skip and not torch.equal(left[key], right[key])]
