"""One container and a list of cuboids, put down by hand, in either geometry."""

from collections.abc import Sequence
from typing import Any

import torch
from tests.small_tasks import small_env
from tests.tiny import maps_of, state_of

from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.types import Instances, State

Sides = tuple[float, float, float]
GEOMETRIES = ("maps", "boxes")


def env_of(
    sides: Sequence[Sequence[float]],
    container: Sides,
    cell: float = 1.0,
    *,
    geometry: str = "maps",
    orientations: str = "yaw",
    **params: Any,
) -> PackingEnv:
    """Return an environment of one container and these cuboids in order; any support is legal."""
    maps = geometry == "maps"
    items = Catalogue.from_cuboids(
        torch.tensor(sides, dtype=torch.float64),
        cell=cell,
        container=container,
        orientations=orientations,
        maps=maps,
    )
    task: dict[str, Any] = {"num_items": len(sides), "stability": "none", "contact_tol": 0.0}
    if not maps:
        task |= {"candidate_generator": "all_placements", "num_candidates": 400}
    instances = Instances(torch.arange(len(sides))[None], torch.tensor([len(sides)]))
    env = small_env(items, 1, instances=instances, **task | params)
    env.reset()
    return env


def place_of(env: PackingEnv, orientation: int, x: int, y: int) -> int:
    """The index of a placement of the first visible item."""
    xs, ys = env.params.lattice
    return (orientation * xs + x) * ys + y


def may_put(env: PackingEnv, orientation: int, x: int, y: int) -> bool:
    """Return True if the mask, or the list of all placements, allows a placement."""
    index = place_of(env, orientation, x, y)
    if env.mode.lists:
        return index in env.state["candidate"][0].tolist()
    return bool(maps_of(env).legal.flatten()[index])


def put(env: PackingEnv, orientation: int, x: int, y: int) -> State:
    """Play a placement, legal or not, and return the state after it."""
    action = place_of(env, orientation, x, y)
    if env.mode.lists:
        listed = env.state["candidate"][0].tolist()
        action = listed.index(action) if action in listed else env.mode.num_actions
    env.step(env.rand_action().set("action", torch.tensor([action])))
    return state_of(env)
