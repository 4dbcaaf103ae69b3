"""Small tasks for tests: random catalogues, and play that leaves torch's RNG alone."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tests.small_tasks import random_catalogue, small_env
from torch import Tensor

from packing_env import engine
from packing_env.core.feasibility import Maps, judge, maps_in
from packing_env.core.orientation import Placement, decode_placement
from packing_env.core.random import choose_uniform
from packing_env.core.transition import Outcome, decide, finish
from packing_env.engine.rules import RulesEngine
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.testing import Referee
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
    """Random cuboids for a container of ``grid`` and ``height`` pitches; lengths in pitches.

    The first one has only the shortest sides.
    """
    lengths = np.random.default_rng(seed).integers(sides[0], sides[1] + 1, (num_items, 3))
    lengths[0] = sides[0]
    return Catalogue.from_cuboids(
        torch.from_numpy(lengths * pitch),
        cell=pitch,
        container=(grid[0] * pitch, grid[1] * pitch, height * pitch),
        orientations=orientations,
        names=[f"cuboid_{seed}_{item}" for item in range(num_items)],
        maps=maps,
    )


def tiny_env(
    num_envs: int | tuple[int, ...] = 4,
    *,
    seed: int = 0,
    shell: dict[str, Any] | None = None,
    items: dict[str, Any] | None = None,
    make: Callable[..., Catalogue] = catalogue,
    **params: Any,
) -> PackingEnv:
    """A small environment; ``items`` are arguments of ``make``."""
    options = {"seed": seed, **(shell or {})}
    return small_env(make(**(items or {})), num_envs, shell=options, **params)


def cuboid_env(num_envs: int | tuple[int, ...] = 4, **options: Any) -> PackingEnv:
    """A small environment of :func:`cuboids`, with exact contact."""
    return tiny_env(num_envs, make=cuboids, **{"contact_tol": 0.0, **options})


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def play_by_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let environments that are built from now on call the rules, in which tests plant faults."""
    monkeypatch.setattr(engine, "ENGINES", {"rules": RulesEngine})


def legal_action(mask: Tensor, generator: torch.Generator) -> Tensor:
    """A uniformly random legal action per row."""
    uniform = torch.rand(mask.shape[:-1], generator=generator, dtype=torch.float64).to(mask.device)
    return choose_uniform(mask, uniform)


def legal_choice(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> Tensor:
    """A uniformly random legal placement per row, by its index on the lattice; or on the list.

    All modes without a list get the same placements from the same generator.
    """
    if env.mode.lists or env.mode.mask_is_joint:
        return legal_action(root["action_mask"], generator)
    mask = maps_of(env).legal.flatten(1) | env.state["terminated"][:, None]
    return legal_action(mask.unflatten(0, env.batch_size), generator)


def enact(env: PackingEnv, root: TensorDictBase, choice: Tensor) -> TensorDictBase:
    """``root`` with what the agent writes for a choice ``[*batch]`` (see :func:`legal_choice`)."""
    if env.mode.lists:
        return root.set("action", choice)
    placement = decode_placement(choice, env.mode.num_orientations, env.params)
    return root.update(env.mode.encode(placement))


def act(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> TensorDictBase:
    """``root`` with a uniformly random legal action per row, in every mode."""
    return enact(env, root, legal_choice(env, root, generator))


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
        if actions is None:
            root = act(env, root, generator)
        else:
            root.set("action", actions[index])
        step, root = env.step_and_maybe_reset(root)
        steps.append(step.clone())
    return torch.stack(steps).contiguous()


def play_once(env: PackingEnv, num_steps: int, generator: torch.Generator) -> list[TensorDictBase]:
    """Steps without resets: finished rows stay finished. The ``next`` entries."""
    root, seen = env.reset(), []
    for _ in range(num_steps):
        step = env.step(act(env, root, generator))
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

    A share of the actions is drawn from the whole range, out of range included; not in
    ``continuous`` mode, where what is in range is never illegal.
    """
    generator = stream(seed)
    root = env.reset()
    referee = Referee(env, mask_bits=mask_bits, seed=seed)
    referee.begin(torch.ones_like(root["done"]), root)
    finished = 0
    for _ in range(num_steps):
        choice = legal_choice(env, root, generator)
        if illegal_share:
            wild = torch.randint(-3, env.mode.num_actions + 3, choice.shape, generator=generator)
            astray = torch.rand(choice.shape, generator=generator) < illegal_share
            choice = torch.where(astray, wild, choice)
        decisions = referee.decide(choice)
        following = env.step(enact(env, root, choice))["next"]
        referee.step(decisions, following)
        finished += int(following["done"].sum())
        root = env.maybe_reset(env.step_mdp(root))
        referee.begin(following["done"], root)
    return finished


def state_of(env: PackingEnv) -> State:
    """A copy of the environment's state as the core takes it."""
    return {key: value.clone() for key, value in env.state.items()}


def maps_of(env: PackingEnv) -> Maps:
    """All placements of the environment's state."""
    maps = maps_in(state_of(env), env.catalogue.tensors(), env.params)
    assert maps is not None
    return maps


def advance(
    env: PackingEnv, state: State, placement: Placement
) -> tuple[State, Outcome, Maps | None]:
    """Return the next state, the results of the decision, and the maps of the next state."""
    items, params = env.catalogue.tensors(), env.params
    legal = judge(state, placement, items, params)
    after, outcome = decide(state, placement, legal, items, params)
    maps = maps_in(after, items, params)
    outlook = env.mode.outlook(after, maps)
    after |= outlook.entries
    return finish(state, after, legal, outlook.playable, params), outcome, maps


def differing(one: Any, other: Any, skip: tuple[str, ...] = ()) -> list[Any]:
    """Return the keys whose tensors are not bit-identical; both must have the same keys."""
    flat = [
        dict(t.items(True, True)) if isinstance(t, TensorDictBase) else dict(t)
        for t in (one, other)
    ]
    left, right = flat
    if set(left) != set(right):
        return sorted(map(str, set(left) ^ set(right)))
    return [key for key in left if key not in skip and not torch.equal(left[key], right[key])]
