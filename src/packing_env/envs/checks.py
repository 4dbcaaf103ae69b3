"""Checks of the arguments of an environment together, and of the TensorDicts of its calls.

:func:`packing_env.values.check` checks single options.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from packing_env import memory
from packing_env.core import constraints, preference, proposals, rewards, stability
from packing_env.core.actions import ActionMode, Key, get_mode
from packing_env.core.candidates import get_generator
from packing_env.engine import Observations, RulesEngine
from packing_env.types import (
    AUTORESETS,
    MAX_SEED,
    Catalogue,
    PackingParams,
    ParameterError,
    State,
)
from packing_env.values import Count, Option, Seed, check, read

DEVICES = ("cpu", "cuda")
"""Types of the devices on which environments run."""
MOST = 2**62
"""Largest counter in a state."""
MAX_ROWS = 2**32
"""Largest number of rows with their own random streams."""
ITEM_BYTES = 128
"""Smallest number of bytes per item, candidate or space of one row."""

_LOGGER = logging.getLogger("packing_env.envs")


def _batch(num_envs: Any, name: str) -> tuple[int, ...]:
    axes = list(num_envs) if isinstance(num_envs, Sequence) else [num_envs]
    try:
        batch = tuple(read(name, axis, Count) for axis in axes)
    except ParameterError:
        batch = ()
    if not 1 <= math.prod(batch) <= MAX_ROWS or not batch:
        raise ParameterError(
            f"{name}={num_envs!r} must be a positive integer B, or a list (E, A) of such "
            f"numbers, for at most {MAX_ROWS} rows in all"
        )
    return batch


def known_device(device: Any, name: str = "device") -> torch.device:
    """Return a device; raise unless it is a CPU or a CUDA GPU, of this machine or of another."""
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        message = f"{name}={device!r} is not a device; use cpu, cuda or cuda:0"
        raise ParameterError(message) from error
    if place.type not in DEVICES:
        raise ParameterError(f"{name}={device} is not supported; use cpu, cuda or cuda:0")
    return place if place.type == "cuda" else torch.device("cpu")  # cpu:1 is the same device


def check_device(device: Any, name: str = "device") -> torch.device:
    """Return a device; raise unless this machine has it."""
    place = known_device(device, name)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(f"{name}={device} but no CUDA GPU is available; use device=cpu")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ParameterError(f"{name}={device} does not exist; the last GPU is cuda:{count - 1}")
    return place


@dataclass(frozen=True)
class Shell:
    """Options of an environment in addition to its task; see :class:`packing_env.PackingEnv`."""

    num_envs: Annotated[Any, Option(read=_batch)]
    device: Annotated[Any, Option(read=check_device)]
    seed: Seed
    row_offset: Annotated[int, Option(at_least=0, at_most=MAX_ROWS)] = 0
    autoreset: Annotated[str, Option(choices=AUTORESETS)] = "native"
    draw: Annotated[str, Option(choices=("random", "sequential"))] = "random"
    engine: str = "auto"

    def __post_init__(self) -> None:
        check(self)
        most = MAX_ROWS - math.prod(self.num_envs)
        read("row_offset", self.row_offset, Annotated[int, Option(at_most=most)])


def first_row(row_offset: int | None) -> int:
    """Return the index of an environment's first row; warn if several processes may share it."""
    if row_offset is not None:
        return row_offset
    if multiprocessing.parent_process() is not None:
        _LOGGER.warning(
            "an environment in a worker process has no row_offset. If each process makes such an "
            "environment, all play the same items. Give each its own row_offset, as in "
            "ParallelEnv(2, make, create_env_kwargs=[{'row_offset': 0}, {'row_offset': NUM_ENVS}])"
            ", or call set_seed"
        )
    return 0


def check_arguments(params: PackingParams, shell: Shell) -> None:
    """Raise ParameterError if a task is impossible; the message names the remedy."""
    check_sizes(params, math.prod(shell.num_envs), shell.device)
    get_mode(params.action_mode)
    get_generator(params.candidate_generator)
    proposals.check(params)
    rewards.check_weights(params.reward)
    stability.check_rule(params.stability, params)
    stability.check_rule(params.stability_metric, params, "stability_metric")
    preference.check(params)


def check_sizes(params: PackingParams, num_rows: int, device: torch.device) -> None:
    """Raise, before items are built, if the rows need too much memory for any choice of items."""
    memory.check_grid(params.container, params.cell)
    host = torch.device("cpu")
    for name in ("num_items", "num_candidates", "num_spaces"):
        count = getattr(params, name)
        size = ITEM_BYTES * count
        memory.check_memory(f"{name}={count}", size, host, lambda _: "use fewer", log=False)
    cells, placements = math.prod(params.grid), _placements(params)
    least = (20 if "heightmap" in params.observation else 4) * cells
    least += (20 if "drop_height" in params.observation else 4) * placements
    memory.check_memory(
        f"num_envs={num_rows} on {' x '.join(map(str, params.grid))} cells",
        num_rows * least,
        device,
        lambda free: f"use fewer than {free // least + 1} rows, or a coarser grid_step or cell",
        log=False,
    )


def _placements(params: PackingParams) -> int:
    """Return the number of placements of all visible items in one orientation; 0 without maps."""
    if params.geometry == "boxes":
        return 0
    return params.num_visible * math.prod(params.lattice) * params.layers


def supported_autoreset(autoreset: str) -> str:
    """Return ``"masked"``, with a warning, if this TorchRL has no hook for the native path."""
    if autoreset == "native" and "_step_and_maybe_reset" not in vars(EnvBase):
        _LOGGER.warning("this TorchRL has no hook for autoreset='native'; using 'masked'")
        return "masked"
    return autoreset


def check_items(params: PackingParams, items: Catalogue) -> None:
    """Raise ParameterError if the task cannot use a catalogue."""
    if params.keeps_boxes and items["cuboid"].shape[-1] == 0:
        raise ParameterError(
            "geometry='boxes', num_spaces, the stability rule 'equilibrium' and the observation "
            "'boxes' need cuboids whose sides are whole cells (whole units with geometry='boxes'); "
            "this catalogue holds other items. Use items.source=cuboids"
        )
    if params.geometry == "maps" and items["top"].shape[-1] == 0:
        raise ParameterError("this catalogue has no heightmaps; build it with maps=True")
    constraints.check_items(params, items)


def check_memory(
    engine: RulesEngine, state: State, observations: Observations, num_rows: int
) -> None:
    """Raise if ``num_rows`` rows like the given one would not fit into memory.

    The estimate may be wrong by a factor of two. It counts three sets of observations: after a
    decision, after resets, and from the call before. For an engine that does not work in place, it
    also counts a new state, temporary maps of all placements, and windows of the cells under one
    item.
    """
    params, items = engine.mode.params, engine.mode.catalogue
    of_state = memory.num_bytes(state.values())
    emitted = (*observations.entries.values(), *observations.masks.values())
    placements = _placements(params) * engine.mode.num_orientations
    states, maps, windows = (1, 4, 0) if engine.in_place else (4, 10, 10)
    under_one = 4 * windows * math.prod(items["bottom"].shape[2:])  # the cells under one item
    each = states * of_state + 4 * memory.num_bytes(emitted) + 4 * maps * placements + under_one
    memory.check_memory(
        f"num_envs={num_rows}",
        num_rows * each,
        items["volume"].device,
        lambda free: f"use {free // each} rows or fewer, or a coarser grid_step or cell",
    )


def read_actions(
    tensordict: TensorDictBase,
    entries: Mapping[Key, tuple[torch.dtype, torch.Size]],
    action_mode: str,
    device: torch.device,
) -> dict[Key, Tensor]:
    """Return the agent's entries by key; this is called before anything changes.

    Raises if an entry is missing, or does not have the dtype and shape in ``entries``.
    """
    actions = {}
    for key, (dtype, shape) in entries.items():
        action = tensordict.get(key, None)
        actions[key] = action
        if action is not None and action.dtype == dtype and action.shape == shape:
            if action.device == device:
                continue
            raise ValueError(f"{key!r} is on {action.device}, the environment on {device}")
        expected = f"action_mode={action_mode!r} takes {dtype} {tuple(shape)}"
        if action is None:
            raise KeyError(f"the TensorDict has no {key!r} entry; {expected}")
        if action.dtype != dtype:
            raise TypeError(f"{key!r} is {action.dtype}; {expected}")
        raise ValueError(f"{key!r} has shape {tuple(action.shape)}; {expected}")
    return actions


def check_state(
    saved: TensorDictBase | None, like: State, batch_size: torch.Size, mode: ActionMode
) -> State:
    """Return the entries of a saved state; raise if it is incomplete or from another environment.

    Reads from the device. ``like`` is a state of this environment, ``[B, ...]``; ``mode`` holds the
    task and the items.
    """
    # 1. Check that all entries exist, except legality, which is computed again.
    if saved is None:
        raise ValueError("reset(set_state=True) needs the TensorDict that get_state() returned")
    like = {key: value for key, value in like.items() if key != "legal"}
    missing = sorted(set(like) - set(saved.keys()))
    if len(missing) == len(like):
        raise ValueError(
            "the TensorDict holds no state of this environment; pass the result of get_state() to "
            "the environment itself (TransformedEnv.reset drops the state: use env.base_env.reset)"
        )
    if missing:
        raise ValueError(
            f"the state lacks {missing}; pass the whole TensorDict that get_state() returned"
        )
    # 2. Check that the entries belong to this task and batch.
    state = {key: saved.get(key) for key in like}
    for key, value in like.items():
        shape = (*batch_size, *value.shape[1:])
        if state[key].shape != shape or state[key].dtype != value.dtype:
            raise ValueError(
                f"state[{key!r}] is {state[key].dtype} {tuple(state[key].shape)}, this environment "
                f"has {value.dtype} {tuple(shape)}: the state comes from another task or batch size"
            )
    if not bool((state["task"].flatten() == like["task"]).all()):
        raise ValueError(
            "the state comes from another task: its container, items or reward terms differ"
        )
    # 3. Check the values.
    _check_values(state, mode.params, len(mode.catalogue["volume"]))
    _check_records(state)
    return state


def _check_values(state: State, params: PackingParams, num_items: int) -> None:
    capacity = params.num_items
    limits: dict[str, tuple[float, float]] = {
        "item_id": (0, num_items - 1),
        "num_items": (1, capacity),
        "queue": (0, capacity - 1),
        "items_packed": (0, capacity),
        "overflow": (0, MOST),
        "stable_items": (0, capacity),
        "illegal_actions": (0, MOST),
        "step": (0, MOST),
        "episode": (0, MOST),
        "seed": (0, MAX_SEED),
        "row": (0, MAX_ROWS - 1),
        "heightmap": (0, params.lid),
        "placement_z": (0, params.lid),
        "placement_support": (0, math.inf),
        "volume": (0, math.inf),
        "support_sum": (0, math.inf),
        "reward_sum": (-math.inf, math.inf),
    }
    for key, (low, high) in limits.items():
        value = state[key]
        if not bool((torch.isfinite(value) & (value >= low) & (value <= high)).all()):
            raise ValueError(
                f"state[{key!r}] has values that are not finite or outside {low}..{high}"
            )
    if bool((state["items_packed"] > state["num_items"]).any()):
        raise ValueError("state['items_packed'] exceeds state['num_items']")
    for key in ("boxes", "spaces"):
        lower, upper = state[key][..., :3], state[key][..., 3:]
        end = upper.new_tensor(params.pitches)
        if bool(((lower < 0) | (upper < lower) | (upper > end)).any()):
            raise ValueError(f"state[{key!r}] has corners that are swapped or out of range")


def _check_records(state: State) -> None:
    packed = state["items_packed"][..., None]
    for key in ("boxes", "placement", "placement_z", "placement_support"):
        records = state[key]
        later = torch.arange(records.shape[packed.dim() - 1], device=records.device) >= packed
        later = later.view(*later.shape, *(1,) * (records.dim() - later.dim()))
        if bool((records * later).any()):
            raise ValueError(f"state[{key!r}] lists more items than state['items_packed'] says")


def check_observed(env: Any, names: Iterable[str], reader: str) -> None:
    """Raise a ParameterError unless an environment has the observations that ``reader`` reads."""
    missing = sorted(set(names) - set(env.observation_spec["observation"].keys()))
    if missing:
        raise ParameterError(
            f"{reader} reads {missing}; add them to observation={env.params.observation}"
        )


def check_env(env: Any) -> None:
    """Raise a ParameterError unless an argument is an environment of TorchRL."""
    if not isinstance(env, EnvBase):
        raise ParameterError(
            f"env is of type {type(env).__name__}, but policies read TensorDicts: pass a "
            "PackingEnv, as packing_env.make_env returns"
        )
