"""The common part of the Gymnasium environments: spaces, and calls of `PackingEnv`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, MultiCategorical, TensorSpec

from packing_env.envs.torchrl_env import PackingEnv
from packing_env.names import close_names
from packing_env.tasks import LEAN, PRESETS, make_env
from packing_env.types import MAX_SEED, ParameterError, check_integer

RENDER_FPS = 4
FLAT = ("heightmap", "item_features", "orientation_features")
"""Entries of the observation ``"flat"``, in this order; in mode ``candidate``, ``candidates``
follows.
"""


def space_of(spec: TensorSpec) -> spaces.Space[Any]:
    """Convert one row of a batched spec to a Gymnasium space."""
    shape = tuple(spec.shape[1:])
    if isinstance(spec, Binary):
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(spec.nvec.reshape(-1, *shape)[0].cpu().numpy())
    if isinstance(spec, Categorical):
        return spaces.Discrete(int(spec.space.n))
    if isinstance(spec, Bounded):
        low, high = spec.space.low[0].cpu().numpy(), spec.space.high[0].cpu().numpy()
        return spaces.Box(low, high, shape, low.dtype.type)
    raise TypeError(f"{type(spec).__name__} has no Gymnasium space here; use the TorchRL interface")


Observation = dict[str, Any]
Info = dict[str, Any]


class Shell:
    """A :class:`PackingEnv` with the calls that the Gymnasium environments need.

    Args:
        task: A preset, or an existing environment.
        num_envs: Rows.
        seed: Seed of the instance pool and of the first episodes. Without it, the pool has seed 0,
            and episodes are drawn at random until ``reset(seed=...)``.
        overrides: Arguments of :func:`packing_env.make_env`; ``observation="flat"`` joins
            :data:`FLAT` into one vector under the key ``observation``.
    """

    def __init__(
        self, task: str | PackingEnv, num_envs: int, seed: int | None, overrides: dict[str, Any]
    ) -> None:
        check_integer("num_envs", num_envs, 1)
        if isinstance(task, PackingEnv):
            self.env = _given(task, num_envs, overrides)
        else:
            if "frameskip" in overrides:  # torchrl's GymEnv expects this error
                raise TypeError("__init__() got an unexpected keyword argument 'frameskip'")
            if "num_envs" in overrides:
                raise ParameterError(
                    "gymnasium.make makes an environment of one container; "
                    f"gymnasium.make_vec(..., num_envs={overrides['num_envs']}) makes several"
                )
            # In worker processes, seeds tell environments apart, as everywhere in Gymnasium.
            options = {"observation": _observation_of(task), "row_offset": 0, **overrides}
            if options["observation"] == "flat":
                options["observation"] = FLAT
            elif isinstance(options["observation"], str):
                raise ParameterError(
                    f"observation={options['observation']!r} must be 'flat' or a list of entries, "
                    "as in ['heightmap', 'item_features']"
                )
            self.env = make_env(task, num_envs, seed=0 if seed is None else seed, **options)
        self._first_seed = seed
        self._warned: set[str] = set()
        self._has_streams = isinstance(task, PackingEnv)
        # 1. The observation: entries or one joined vector, and masks by flat names.
        spec = self.env.observation_spec
        entries = {name: space_of(entry) for name, entry in spec["observation"].items()}
        self._joined: tuple[str, ...] = ()
        if overrides.get("observation") == "flat":
            self._joined = tuple(name for name in (*FLAT, "candidates") if name in entries)
            entries = {"observation": _joined_space([entries[name] for name in self._joined])}
        self.mask_keys = {_flat_name(key): key for key in self.env.mode.mask_keys}
        entries |= {name: space_of(spec[key]) for name, key in self.mask_keys.items()}
        self.observation_space = spaces.Dict(entries)
        # 2. The action: a single part, or a dict of parts.
        self._parts = {_part_name(key): key for key in self.env.takes}
        parts = {
            name: space_of(self.env.full_action_spec[key]) for name, key in self._parts.items()
        }
        self.action_space = parts["action"] if set(parts) == {"action"} else spaces.Dict(parts)

    def start(
        self, seed: int | Iterable[int | None] | None, random: np.random.Generator
    ) -> TensorDict:
        """Start an episode in every row.

        Args:
            seed: One seed per row; None means the next episode of the row's stream. One integer
                ``s`` gives row i the seed ``s + i``. With a seed, a row plays the same episode as a
                single environment with that seed.
            random: Source of seeds for rows that have neither a random stream nor a seed.

        Raises:
            ParameterError: A seed is out of range.
            ValueError: The number of seeds differs from the number of rows.
        """
        rows = self.env.batch_size.numel()
        seeds = _spread(seed, rows)
        # The first episodes use the constructor's seed or, without one, random seeds.
        if not self._has_streams:
            drawn = random.integers(MAX_SEED, size=rows).tolist()
            first = drawn if self._first_seed is None else _spread(self._first_seed, rows)
            pairs = zip(seeds, first, strict=True)
            seeds = [own if chosen is None else chosen for chosen, own in pairs]
        if all(chosen is None for chosen in seeds):
            return self.env.reset()
        started = self.env.reset_as_single(seeds)
        self._has_streams = True
        return started

    def step(self, action: Any) -> TensorDictBase:
        """Carry out one decision per row."""
        return self.env.step(self._entries(action)).get("next")

    def step_and_restart(self, action: Any) -> tuple[TensorDictBase, TensorDictBase]:
        """Carry out one decision per row, and restart the rows that it finishes.

        Returns:
            The ``next`` entry, and the root with the first observations of restarted rows.
        """
        taken, following = self.env.step_and_maybe_reset(self._entries(action))
        return taken.get("next"), following

    def warn_of(self, action: Any, finished: bool) -> None:
        """Warn once about a step after the end, and once about an action outside the action space.

        Args:
            action: Actions of all rows, on the host.
            finished: Whether all rows had finished before the step.
        """
        if finished:
            self._warn(
                "finished",
                "step() was called after the episode ended (terminated or truncated); this "
                "changes nothing: call reset()",
            )
        if "action" not in self._warned and not self._contains(action):
            self._warn(
                "action",
                f"the action {action!r} is not in {self.action_space}; it counts as illegal. "
                'Sample legal ones with action_space.sample(mask=info["action_mask"])',
            )

    def warn_of_options(self, options: Mapping[str, Any] | None, *known: str) -> None:
        """Warn once if ``reset`` gets options that it does not know."""
        if unknown := sorted(map(str, set(options or ()) - set(known))):
            near, read = close_names(unknown[0], known), ", ".join(known) or "no options"
            self._warn("options", f"reset() ignores options {unknown}{near}; it reads {read}")

    def _warn(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            gymnasium.logger.warn(message)

    def _contains(self, action: Any) -> bool:
        """Return whether an action that consists of integers is in range."""
        space = self.action_space
        if not isinstance(space, spaces.Discrete):
            return True
        numbers = np.asarray(action)
        if numbers.dtype.kind not in "iu":
            return True
        return bool(((numbers >= 0) & (numbers < int(space.n))).all())

    def _entries(self, action: Any) -> TensorDictBase:
        if set(self._parts) == {"action"}:
            action = {"action": action}
        elif not isinstance(action, Mapping) or set(action) != set(self._parts):
            raise TypeError(
                f"the action must be a dict of {' and '.join(self._parts)}, got "
                f"{type(action).__name__}"
            )
        entries = TensorDict({}, self.env.batch_size)
        for name, key in self._parts.items():
            entries.set(key, self._entry(name, key, action[name]))
        return entries

    def observation(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the observation as a flat dict, including masks."""
        entries = dict(out["observation"].items())
        if self._joined:
            parts = [entries[name].flatten(out.dim()) for name in self._joined]
            entries = {"observation": torch.cat(parts, -1)}
        return entries | self.masks(out)

    def masks(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the masks by name; empty in a mode where every action is legal."""
        return {name: out[key] for name, key in self.mask_keys.items()}

    def info(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the metrics, and the action mode's reports on the last decision."""
        reports = {_flat_name(key): out[key] for key in self.env.mode.report_keys}
        return {key: value.squeeze(-1) for key, value in out["metrics"].items()} | reports

    def action_mask(self, out: TensorDictBase | None) -> Tensor:
        """Return the mask of the environment's only action.

        Raises:
            ParameterError: The action mode has several masks or none.
            RuntimeError: :meth:`start` was not called yet.
        """
        if "action_mask" not in self.mask_keys:
            raise ParameterError(
                f"action_mode={self.env.params.action_mode!r} has no mask over all its actions; "
                f"its masks: {', '.join(self.mask_keys) or 'none, every action is legal'}"
            )
        if out is None:
            raise RuntimeError("there is no action mask before the first reset(); call reset()")
        return out["action_mask"]

    def _entry(self, name: str, key: NestedKey, action: Any) -> Tensor:
        """Convert one part of the action; numbers out of range are kept and count as illegal."""
        dtype, shape = self.env.takes[key]
        kind = "numbers" if dtype.is_floating_point else "whole numbers"
        try:
            value = torch.as_tensor(action)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"{name}={action!r}; this environment takes {kind}") from error
        if value.is_floating_point() and not dtype.is_floating_point:
            raise TypeError(f"{name} is {value.dtype}; this environment takes {kind}")
        if value.numel() != shape.numel():
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; this environment takes {kind} "
                f"{tuple(shape)}, with containers as the first axis"
            )
        return value.to(self.env.device, dtype).reshape(shape)


def _given(env: PackingEnv, num_envs: int, overrides: dict[str, Any]) -> PackingEnv:
    """Return the given environment; raise if it does not fit the other arguments."""
    if overrides:
        raise TypeError(
            f"overrides {sorted(overrides)} have no effect on a given environment; pass them to "
            "packing_env.make_env"
        )
    if env.batch_size != torch.Size([num_envs]):
        raise ValueError(
            f"the given env has batch_size {list(env.batch_size)}, expected [{num_envs}]; "
            "num_envs is its number of rows"
        )
    return env


class TaskLimit:
    """The common part of Gymnasium's environments; keeps the spec of ``make`` or ``make_vec``."""

    _shell: Shell
    _spec: EnvSpec | None = None

    @property
    def packing_env(self) -> PackingEnv:
        """The underlying environment, with its state, catalogue and parameters."""
        return self._shell.env

    @property
    def spec(self) -> EnvSpec | None:
        """Spec from the registration; its ``max_episode_steps`` is the task's own limit."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        limit = self.packing_env.params.step_limit
        self._spec = spec and replace(spec, max_episode_steps=limit)


def _joined_space(parts: Sequence[spaces.Space[Any]]) -> spaces.Box:
    """Return the space of one vector that joins several boxes."""
    boxes = [part for part in parts if isinstance(part, spaces.Box)]
    low, high = (
        np.concatenate([end.ravel() for end in ends])
        for ends in ([box.low for box in boxes], [box.high for box in boxes])
    )
    return spaces.Box(low, high, dtype=np.float32)


def _spread(seed: int | Iterable[int | None] | None, rows: int) -> list[int | None]:
    """Return one seed per row: the given one, or ``seed + i``."""
    if seed is None:
        return [None] * rows
    if isinstance(seed, Iterable):
        seeds = list(seed)
        if len(seeds) != rows:
            raise ValueError(f"{len(seeds)} seeds for {rows} rows; pass one per row")
        return seeds
    first = check_integer("seed", seed, 0, MAX_SEED + 1 - rows)
    return [first + row for row in range(rows)]


def _flat_name(key: NestedKey) -> str:
    return key if isinstance(key, str) else "_".join(key)


def _part_name(key: NestedKey) -> str:
    """Name a part of the action: ``("manager", "action")`` is ``manager``."""
    return _flat_name(key[:-1] if isinstance(key, tuple) and key[-1] == "action" else key)


def to_numpy(value: Tensor) -> np.ndarray:
    """Convert to NumPy on the host; masks as int8, as in Gymnasium's spaces."""
    array = value.cpu().numpy()
    return array.view(np.int8) if array.dtype == bool else array


def check_render_mode(mode: str | None, known: Sequence[str]) -> None:
    """Raise ValueError if the environment does not have a render mode."""
    if mode is not None and mode not in known:
        raise ValueError(f"render_mode={mode!r} is unknown; choose one of {tuple(known)} or None")


def _observation_of(task: str) -> tuple[str, ...]:
    """Return the default observation of a preset: without maps of items, or the preset's own."""
    preset = PRESETS.get(task)
    return LEAN if preset is None or preset.params.geometry == "maps" else preset.params.observation
