"""`PackingEnv`: the batched environment as a TorchRL ``EnvBase``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from packing_env.core import transition
from packing_env.engine import FLAGS, Observations, Step, Task, make_engine
from packing_env.envs import checks
from packing_env.envs.choices import Choices
from packing_env.envs.emission import Emission
from packing_env.envs.specs import Specs
from packing_env.generators import Generator
from packing_env.items import Catalogue
from packing_env.types import (
    MAX_SEED,
    Instances,
    PackingParams,
    ParameterError,
    State,
    check_integer,
)


class PackingEnv(EnvBase):
    """Environment that packs items into containers, one per row, all on one device.

    The simulator's state is ``env.state``, a single TensorDict. A step may change it in place;
    :meth:`get_state` copies it. With ``autoreset="native"`` a finished row starts its next episode
    inside :meth:`step_and_maybe_reset`, without a host read. ``"masked"`` uses TorchRL's own path,
    as wrappers do. The rollouts are the same, and ``("next", ...)`` of a finished row holds its
    true terminal observation. :meth:`step` alone never resets.

    Args:
        params: The task.
        catalogue: The items of the task.
        instances: The pool from which episodes are drawn.
        num_envs: Number of rows ``B``, or ``(E, A)`` for a batch of shape ``[E, A]``.
        device: Device of all tensors.
        seed: Row i draws its instances from Philox(seed, row_offset + i, episode).
        row_offset: Index of the first row; None means 0. If several processes make environments
            with one function, as in ``ParallelEnv``, give each environment a different value;
            otherwise their rows play the same items. With None, an environment in a process of
            ``multiprocessing`` logs a warning.
        autoreset: ``"native"`` or ``"masked"``.
        draw: ``"random"`` draws instances from the pool. ``"sequential"`` gives row i the pool's
            instances i, i + B, i + 2 B, ... (for evaluation; the stride is the size of this batch).
        engine: A name in :data:`packing_env.engine.ENGINES`; ``"auto"`` takes the fastest for the
            task.
        generator: Source of the instances, for planners that redraw the hidden items.
    """

    _supports_set_state = True
    _seed: Tensor
    pools: Callable[[int], Instances] | None = None  # set by make_env, for redraw
    painter: Callable[[PackingEnv, int], Any] | None = None  # set by make_env, for render

    def __init__(
        self,
        params: PackingParams,
        catalogue: Catalogue,
        instances: Instances,
        *,
        num_envs: int | Sequence[int] = 1,
        device: torch.device | str = "cpu",
        seed: int = 0,
        row_offset: int | None = None,
        autoreset: str = "native",
        draw: str = "random",
        engine: str = "auto",
        generator: Generator | None = None,
    ) -> None:
        row_offset = checks.first_row(row_offset)
        shell = checks.Shell(num_envs, device, seed, row_offset, autoreset, draw, engine)
        checks.check_arguments(params, shell)
        batch_size = torch.Size(shell.num_envs)
        super().__init__(device=shell.device, batch_size=batch_size, allow_done_after_reset=True)
        self.params, self.draw, self.generator = params, draw, generator
        self.state: TensorDict | None = None
        self._engine_name = engine
        self._reseeded = False
        self._rows = row_offset + torch.arange(batch_size.numel(), device=self.device)
        one_row = self._build(catalogue, instances)
        specs = Specs(self.mode, batch_size, self.device, one_row.entries)
        actions = specs.actions()
        self.takes = {key: (spec.dtype, spec.shape) for key, spec in actions.items()}
        self.choices = Choices(self.mode, batch_size, actions, self._legal_placements)
        self.observation_spec = specs.observation()
        self.action_spec = specs.action(actions)
        self.reward_spec = specs.reward()
        self.done_spec = specs.done()
        self.autoreset = checks.supported_autoreset(autoreset)
        self.set_seed(seed, static_seed=True)

    def _build(self, catalogue: Catalogue, instances: Instances) -> Observations:
        """Move items and instances to the device, and choose the engine.

        Returns the observations of one row, with which the memory is estimated.
        """
        # A copy, because `exchange` writes to the pool.
        self.instances = Instances(
            item_id=instances.item_id.to(self.device, copy=True),
            num_items=instances.num_items.to(self.device, copy=True),
        )
        self.catalogue = catalogue.to(self.device)
        task = Task(self.params, self.catalogue.tensors(), self.instances, self.draw)
        checks.check_items(self.params, task.catalogue)
        self.engine = make_engine(task, self._engine_name)
        self.mode = self.engine.mode
        self._emission = Emission(self.mode, self.batch_size, self.device)
        zero = torch.zeros(1, dtype=torch.int64, device=self.device)
        state, one_row = self.engine.begin(zero, zero, zero)
        checks.check_memory(self.engine, state, one_row, len(self._rows))
        return one_row

    def redraw(self, number: int) -> None:
        """Replace the pool's instances by the instances of pool ``number``; 0 is the first pool.

        Running episodes keep their items. Nothing is read from the device. Raises ParameterError
        unless ``make_env`` made the environment.
        """
        if self.pools is None:
            raise ParameterError("redraw() needs an environment that make_env built")
        self.exchange(self.pools(number))

    def exchange(self, instances: Instances) -> None:
        """Overwrite the pool with other instances; if there are fewer, they are repeated."""
        rows = torch.arange(len(self.instances)) % len(instances)
        self.instances.item_id.copy_(instances.item_id[rows])
        self.instances.num_items.copy_(instances.num_items[rows])

    def __repr__(self) -> str:
        x, y, height = self.params.container
        return (
            f"{type(self).__name__}({x:g} x {y:g} x {height:g} in {self.params.grid[0]} x "
            f"{self.params.grid[1]} cells, {self.params.num_items} of {len(self.catalogue)} items, "
            f"{self.params.num_visible} visible, stability={self.params.stability!r}, action_mode="
            f"{self.params.action_mode!r}, {self.mode.num_actions:,} actions, batch_size="
            f"{list(self.batch_size)}, device={str(self.device)!r}, engine={self.engine_name!r})"
        )

    @property
    def engine_name(self) -> str:
        """Name of the engine that carries out the steps."""
        return type(self.engine).__module__.rpartition(".")[2]

    def render(self, row: int = 0) -> Any:
        """Draw the container of one row, ``[height, width, 3]`` uint8.

        Raises ParameterError unless ``make_env`` made the environment.
        """
        if self.painter is None:
            raise ParameterError(
                "render() needs an environment that make_env built; use "
                "packing_env.render.frame(env) for others"
            )
        return self.painter(self, check_integer("row", row, 0, len(self._rows) - 1))

    # ------------------------------------------------------------------ state

    def get_state(self) -> TensorDict:
        """Return a copy of the complete simulator state, ``[*batch_size]``.

        ``env.reset(state, set_state=True)`` continues from it, bit for bit. Do this also after you
        change a state, so that the legality is computed again.
        """
        state = {
            key: value.clone() for key, value in self._emission.shaped(self._current()).items()
        }
        return TensorDict(state, self.batch_size, device=self.device)

    def get_known_state(self) -> State:
        """Return a copy of the state ``[B, ...]`` without hidden items and random streams."""
        known = transition.without_future(self._current(), self.params.num_slots)
        return {key: value.clone() for key, value in known.items()}

    def _current(self) -> State:
        if self.state is None:
            raise RuntimeError("there is no state before the first reset(); call env.reset() first")
        return dict(self.state.items())

    def _keep(self, state: State) -> None:
        self.state = TensorDict(state, [self._rows.shape[0]], device=self.device)

    def _shown(self, observations: Observations, reward: Tensor | None = None) -> TensorDict:
        """Return observations of the current state; the action specs then draw from its masks."""
        packed = self._emission.packed(observations, reward)
        self.choices.show({key: packed.get(key) for key in self.mode.mask_keys})
        return packed

    # ------------------------------------------------------------------ TorchRL's contract

    def to(self, device: torch.device | str) -> PackingEnv:
        """Move everything to a device, including the state."""
        super().to(checks.known_device(device))
        self._rows, self._seed = self._rows.to(self.device), self._seed.to(self.device)
        self.state = None if self.state is None else self.state.to(self.device)
        self._build(self.catalogue, self.instances)
        if self.choices.masks:  # empty before the first reset
            masks = self.choices.masks.items()
            self.choices.show({key: mask.to(self.device) for key, mask in masks})
        return self

    def _set_seed(self, seed: int | Tensor | None) -> None:
        """Set one seed, or one per row; the next ``reset()`` of all rows starts from it.

        Running episodes, and the automatic restarts after them, keep their seeds.
        """
        if not isinstance(seed, Tensor):
            seed = torch.tensor(0 if seed is None else check_integer("seed", seed, 0, MAX_SEED))
        self._seed = torch.zeros_like(self._rows) + seed.to(self.device)
        self._reseeded = True

    def _restart(self, state: State, observations: Observations) -> TensorDict:
        self._keep(state)
        return self._shown(observations)

    def _first(self) -> tuple[State, Observations]:
        """Return the start of episode 0 of every row."""
        return self.engine.begin(self._seed, self._rows, torch.zeros_like(self._rows))

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        if kwargs.get("set_state"):
            return self._restore(tensordict)
        # 1. All rows: start episode 0 of their streams.
        rows = None if tensordict is None else tensordict.get("_reset", None)
        if self.state is None or (self._reseeded and rows is None):
            self._reseeded = False
            state, observations = self._first()
            return self._restart(state, observations)
        if rows is not None and rows.dtype != torch.bool:
            raise ParameterError(f"_reset is {rows.dtype}, expected bool: True restarts a row")
        # 2. Some rows: start the next episode of the stream of each.
        chosen = self._rows >= 0 if rows is None else self._emission.flat(rows).squeeze(-1)
        old = self._current()
        fresh, observations = self.engine.begin(old["seed"], old["row"], old["episode"] + chosen)
        # EnvBase reads only the chosen rows of the result, but transforms see the masks of all
        # rows.
        present = {key: self._emission.flat(mask) for key, mask in self.choices.masks.items()}
        masks = transition.select(chosen, observations.masks, present)
        following = transition.select(chosen, fresh, old)
        return self._restart(following, replace(observations, masks=masks))

    def _restore(self, tensordict: TensorDictBase | None) -> TensorDict:
        state = checks.check_state(tensordict, self._first()[0], self.batch_size, self.mode)
        state = {k: self._emission.flat(v).contiguous().clone() for k, v in state.items()}
        self._reseeded = False
        state, observations = self.engine.observe(state)
        return self._restart(state, observations)

    def reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Start episodes; with ``set_state=True``, continue from a copy of the given state.

        A ``"_reset"`` mask ``[*batch_size, 1]`` starts new episodes in those rows only.
        """
        if kwargs.get("set_state"):
            state = None if tensordict is None else tensordict.copy()
            keys = (*self.mode.mask_keys, *self.mode.report_keys, *FLAGS)
            return super().reset(state, **kwargs).select("observation", "metrics", *keys)
        # If a mask of rows comes without observations, compute the observations of the other rows.
        entries = {} if tensordict is None else tensordict
        partly = entries.get("metrics", None) is None and entries.get("_reset", None) is not None
        out = super().reset(tensordict, **kwargs)
        if partly and not kwargs.get("select_reset_only"):
            out.update(self._shown(self.engine.observe(self._current())[1]))
        return out

    def reset_rows(self, rows: Tensor, root: TensorDictBase) -> TensorDict:
        """Start the next episode in some rows, without a host read.

        Args:
            rows: ``[B]`` True for the rows to reset.
            root: Observations of the present state; it is not changed.

        Returns:
            The observations after the reset.
        """
        state = self._current()
        following, observations = self.engine.reset(rows, state, self._emission.unpacked(root))
        if following is not state:
            self._keep(following)
        return self._shown(observations)

    def reset_as_single(self, seeds: Sequence[int | None]) -> TensorDict:
        """Start, in every row, the episode that an environment with a single row would play.

        Args:
            seeds: One seed per row. The row then plays the stream (seed, row_offset), from its
                first episode. None means the next episode of the row's current stream. With
                ``draw="sequential"`` seeds have no effect, and rows keep their own streams.

        Raises:
            ParameterError: A seed is out of range.
        """
        # Rows with a seed start at episode 0 of its stream; the others continue their own streams.
        numbers = [check_integer("seed", seed or 0, 0, MAX_SEED) for seed in seeds]
        seeded = torch.tensor([seed is not None for seed in seeds], device=self.device)
        row = self._rows if self.draw == "sequential" else self._rows[:1].expand_as(self._rows)
        first = {
            "seed": torch.tensor(numbers, device=self.device),
            "row": row,
            "episode": torch.zeros_like(row),
        }
        own = {**first, "seed": self._seed, "row": self._rows}
        if self.state is not None:
            own = {key: self.state[key] + (key == "episode") for key in own}
        self._reseeded = False
        start = transition.select(seeded, first, own)
        state, observations = self.engine.begin(start["seed"], start["row"], start["episode"])
        return self._restart(state, observations)

    def _advance(self, tensordict: TensorDictBase, *, reset: bool) -> Step:
        """Carry out one decision per row; with ``reset``, restart finished rows."""
        state = self._current()
        actions = checks.read_actions(tensordict, self.takes, self.params.action_mode, self.device)
        flat = {key: self._emission.flat(value) for key, value in actions.items()}
        step = self.engine.advance(state, flat, reset=reset)
        if step.state is not state:
            self._keep(step.state)
        return step

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        step = self._advance(tensordict, reset=False)
        return self._shown(step.observations, step.reward)

    def _step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        if self.autoreset == "masked":
            return super()._step_and_maybe_reset(tensordict)
        if tensordict.device != self.device:
            tensordict = tensordict.to(self.device)
        # Afterwards the state holds the next episodes; the step's observations go under "next".
        step = self._advance(tensordict, reset=True)
        assert step.start is not None
        root = self._shown(step.start)
        following = self._emission.following(tensordict, root)
        if following is None:
            following = self._step_mdp(tensordict.set("next", root))
        emitted = self._emission.packed(step.observations, step.reward)
        return tensordict.set("next", emitted), following

    def _legal_placements(self) -> Tensor:
        """Return ``[*batch_size, A]`` legal placements in the current state."""
        return self._emission.shaped({"legal": self._current()["legal"]})["legal"]
