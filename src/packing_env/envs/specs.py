"""Specs of :class:`PackingEnv`, and checks of what comes in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Composite, TensorSpec, Unbounded

from packing_env import memory
from packing_env.core import metrics, observation, rewards, stability
from packing_env.types import AUTORESETS, Catalogue, PackingParams, ParameterError, State

if TYPE_CHECKING:
    from packing_env.envs.torchrl_env import PackingEnv

_SLACK = 1e-4
"""Metrics are never clipped: rounding may carry a ratio this far past 1 (or the lid, 1e-6 m)."""


def check_arguments(
    params: PackingParams,
    batch_size: torch.Size,
    device: torch.device | str,
    autoreset: str,
    draw: str,
) -> None:
    """Refuse impossible arguments, naming each and what would be right."""
    if not batch_size or batch_size.numel() < 1:
        raise ParameterError(f"num_envs={tuple(batch_size)} must be positive: B, or (E, A)")
    if autoreset not in AUTORESETS:
        raise ParameterError(f"autoreset={autoreset!r} is unknown; choose one of {AUTORESETS}")
    if draw not in ("random", "sequential"):
        raise ParameterError(f"draw={draw!r} is unknown; choose 'random' or 'sequential'")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(f"device={device} but no CUDA GPU is available; use device=cpu")
    rewards.check_weights(params.reward)
    stability.check_rule(params.stability, params)
    stability.check_rule(params.stability_metric, params)


def check_items(params: PackingParams, items: Catalogue) -> None:
    """Refuse a catalogue that the task cannot use."""
    if params.keeps_boxes and items["cuboid"].shape[-1] == 0:
        raise ParameterError(
            "geometry='boxes', num_spaces and the observation 'boxes' need items that are cuboids "
            "of whole cells (of whole units); this catalogue holds others. Use items.source=cuboids"
        )
    if params.geometry == "maps" and items["top"].shape[-1] == 0:
        raise ParameterError("this catalogue has no height maps; build it with maps=True")


def check_memory(env: PackingEnv, state: State, seen: Mapping[Any, Tensor], num_rows: int) -> None:
    """Refuse more rows than fit; of one row, its state and all that it shows are given.

    An estimate, which may be wrong by a factor of two: a compiled step shows a decision and what
    follows it beside what was shown before; the rules make a new state and maps of all placements
    as they go.
    """
    of_state, of_view = memory.num_bytes(state.values()), memory.num_bytes(seen.values())
    placements = env.params.num_visible * env.catalogue.num_orientations
    placements *= math.prod(env.params.lattice) if env.params.geometry == "maps" else 0
    states, maps = (1, 4) if env.steps_at_once else (4, 10)
    each = states * of_state + 4 * of_view + 4 * maps * placements
    memory.check_memory(
        f"num_envs={num_rows}",
        num_rows * each,
        env.device,
        lambda room: f"use {room // each} rows or fewer, or a coarser grid_step or cell",
    )


def read_actions(tensordict: TensorDictBase, env: PackingEnv) -> dict[NestedKey, Tensor]:
    """What the agent wrote; refuses the wrong kind, before anything has changed."""
    found = {}
    for key, (dtype, shape) in env.takes.items():
        action = tensordict.get(key, None)
        wanted = f"action_mode={env.params.action_mode!r} takes {dtype} {tuple(shape)}"
        if action is None:
            raise KeyError(f"the TensorDict has no {key!r} entry; {wanted}")
        if action.dtype != dtype:
            raise TypeError(f"{key!r} is {action.dtype}; {wanted}")
        if action.shape != shape:
            raise ValueError(f"{key!r} has shape {tuple(action.shape)}; {wanted}")
        if action.device != env.device:
            raise ValueError(f"{key!r} is on {action.device}, the environment on {env.device}")
        found[key] = action
    return found


def fingerprint(params: PackingParams, items: Catalogue) -> int:
    """A number that tasks share only if they pack the same items into the same container."""
    world = (params.container, params.cell, params.pitch, params.num_items, sorted(params.reward))
    digest = hashlib.sha256(repr(world).encode())
    real = items["orientation_mask"]
    peak = torch.where(real, items["peak"], 0.0)  # what padding holds is nobody's business
    for value in (items["volume"], items["extent"], real, peak):
        digest.update(value.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(digest.digest()[:7], "big")


def check_state(given: TensorDictBase | None, env: PackingEnv, like: State) -> dict[str, Tensor]:
    """The state's entries; refuses one that is incomplete or of another environment."""
    if given is None:
        raise ValueError("reset(set_state=True) needs the TensorDict that get_state() returned")
    missing = sorted(set(like) - set(given.keys()))
    if len(missing) == len(like):
        raise ValueError(
            "the TensorDict holds no state of this environment; pass what get_state() returned, to "
            "the environment itself (a TransformedEnv drops it: use env.base_env.reset)"
        )
    if missing:
        raise ValueError(f"the state lacks {missing}; pass what get_state() returned, whole")
    state = {key: given.get(key) for key in like}
    for key, value in like.items():
        shape = (*env.batch_size, *value.shape[1:])
        if state[key].shape != shape or state[key].dtype != value.dtype:
            raise ValueError(
                f"state[{key!r}] is {state[key].dtype} {tuple(state[key].shape)}, this environment "
                f"has {value.dtype} {tuple(shape)}: it comes from another task or batch size"
            )
    _check_values(state, env, like)
    return state


def _check_values(state: State, env: PackingEnv, like: State) -> None:
    """Refuse values that no episode of this task can have. Reads the device."""
    if not bool((state["task"].flatten() == like["task"]).all()):
        raise ValueError(
            "the state comes from another task: its container, items or reward terms differ"
        )
    capacity = env.params.num_items
    num_items = state["num_items"]
    limits = {
        "item_id": (0, env.catalogue.tensors()["peak"].shape[0] - 1),
        "num_items": (1, capacity),
        "queue": (0, capacity - 1),
        "items_packed": (0, capacity),
        "overflow": (0, 2**62),
        "row": (0, 2**32 - 1),
    }
    for key, (low, high) in limits.items():
        if bool(((state[key] < low) | (state[key] > high)).any()):
            raise ValueError(f"state[{key!r}] has values outside {low}..{high}")
    if bool((state["items_packed"] > num_items).any()):
        raise ValueError("state['items_packed'] exceeds state['num_items']")
    for key in ("heightmap", "volume", "support_sum"):
        if not bool((torch.isfinite(state[key]) & (state[key] >= 0)).all()):
            raise ValueError(f"state[{key!r}] has values that are negative or not finite")
    sides = (*(n * env.params.units_per_cell for n in env.params.grid), env.params.height_units)
    for key in ("boxes", "spaces"):
        lower, upper = state[key][..., :3], state[key][..., 3:]
        end = upper.new_tensor(sides)
        if bool(((lower < 0) | (upper < lower) | (upper > end)).any()):
            raise ValueError(f"state[{key!r}] has corners outside the container, or out of order")
    _check_records(state)


def _check_records(state: State) -> None:
    """Refuse records of items that are not packed."""
    packed = state["items_packed"][..., None]
    for key in ("boxes", "placement", "placement_z", "placement_support"):
        records = state[key]
        later = torch.arange(records.shape[packed.dim() - 1], device=records.device) >= packed
        later = later.view(*later.shape, *(1,) * (records.dim() - later.dim()))
        if bool((records * later).any()):
            raise ValueError(f"state[{key!r}] lists more items than state['items_packed'] says")


def action_spec(env: PackingEnv, found: Mapping[NestedKey, TensorSpec]) -> TensorSpec:
    """Spec of what the agent writes: a leaf for ``action`` alone, else a composite."""
    if set(found) == {"action"}:
        return found["action"]
    composite = Composite(shape=env.batch_size, device=env.device)
    for key, spec in found.items():
        composite[key] = spec
    return composite


def _unit(env: PackingEnv, *shape: int, high: float = 1.0) -> TensorSpec:
    """float32 in [0, high]."""
    return Bounded(
        0.0, high, shape=(*env.batch_size, *shape), dtype=torch.float32, device=env.device
    )


def observation_spec(env: PackingEnv) -> Composite:
    """``observation``, ``metrics``, the masks, and what the mode reports of the last decision."""
    params, batch = env.params, env.batch_size
    capacity, num_orientations, u, v = env.catalogue.tensors()["top"].shape
    slots = params.num_slots
    item_maps = (slots, num_orientations, u, v)
    unit_shapes = {
        "heightmap": params.grid,
        "item_features": (slots, len(observation.ITEM_FEATURES)),
        "orientation_features": (slots, num_orientations, len(observation.ORIENTATION_FEATURES)),
        "drop_height": (params.num_visible, num_orientations, *params.lattice),
        "boxes": (params.num_items, 6),
    }
    shown: dict[str, TensorSpec] = {  # a spec holds its bounds in full: only of what is shown
        name: _unit(env, *shape)
        for name, shape in unit_shapes.items()
        if name in params.observation
    }
    if "item_id" in params.observation:
        shown["item_id"] = Bounded(
            -1, capacity - 1, shape=(*batch, slots), dtype=torch.int64, device=env.device
        )
    if "item_maps" in params.observation:
        shown |= {"top": _unit(env, *item_maps), "bottom": _unit(env, *item_maps)}
    seen = Composite(shown, shape=batch, device=env.device)
    seen.update(env.mode.observation_spec(batch, env.device))
    entries = {"observation": seen, "metrics": metrics_spec(env)}
    found = Composite(entries, shape=batch, device=env.device)
    of_mode = (env.mode.mask_specs(batch, env.device), env.mode.report_specs(batch, env.device))
    for key, spec in (*of_mode[0].items(), *of_mode[1].items()):
        found[key] = spec
    return found


def metrics_spec(env: PackingEnv) -> Composite:
    """Running metrics, and the episode's sum of each weighted reward term."""
    limits = {
        "items_packed": env.params.num_items,
        "illegal_actions": env.params.step_limit,
        "overflow": 1e9,
    }
    entries = {name: _unit(env, 1, high=limits.get(name, 1 + _SLACK)) for name in metrics.NAMES}
    shape = (*env.batch_size, 1)
    for term in env.params.reward:
        entries[f"reward/{term}"] = Bounded(
            -1e6, 1e6, shape=shape, dtype=torch.float32, device=env.device
        )
    return Composite(entries, shape=env.batch_size, device=env.device)


def reward_spec(env: PackingEnv) -> TensorSpec:
    """One float32 per row."""
    return Unbounded(shape=(*env.batch_size, 1), dtype=torch.float32, device=env.device)


def done_spec(env: PackingEnv) -> Composite:
    """``done``, ``terminated`` and ``truncated``."""
    flags = {
        name: Binary(1, shape=(*env.batch_size, 1), dtype=torch.bool, device=env.device)
        for name in ("done", "terminated", "truncated")
    }
    return Composite(flags, shape=env.batch_size, device=env.device)
