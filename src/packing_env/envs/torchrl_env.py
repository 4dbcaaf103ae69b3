"""`PackingEnv`: the batched environment as a TorchRL ``EnvBase``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from packing_env import kernels
from packing_env.core import cuboid, feasibility, metrics, observation, orientation, transition
from packing_env.core.orientation import Placement, visible_items
from packing_env.engine.compiled import CompiledStep, ground_of
from packing_env.envs import specs
from packing_env.envs.action_modes import get_mode
from packing_env.items import Catalogue
from packing_env.types import Instances, PackingParams, State

_LOGGER = logging.getLogger("packing_env.envs")
DONE = ("done", "terminated", "truncated")


class PackingEnv(EnvBase):
    """Packs items into containers, one per row, all on one device.

    The simulator's state is ``env.state``, one TensorDict, which a step may change in place:
    :meth:`get_state` copies it. With ``autoreset="native"`` a finished row starts
    its next episode inside :meth:`step_and_maybe_reset` without a host read; ``"masked"`` takes
    TorchRL's own path, as every wrapper (``TransformedEnv``, ``ParallelEnv``) does. All give the
    same rollouts, and ``("next", ...)`` of a finished row holds its true terminal observation.
    :meth:`step` alone never resets.

    Args:
        params: The task.
        catalogue: Its items.
        instances: The pool that episodes are drawn from.
        num_envs: Rows ``B``, or ``(E, A)`` for a batch of shape ``[E, A]``.
        device: Where everything lives.
        seed: Row i draws its instances from Philox(seed, row_offset + i, episode).
        row_offset: Index of the first row.
        autoreset: ``"native"`` or ``"masked"``.
        draw: ``"random"`` draws instances from the pool, ``"sequential"`` gives row i the pool's
            instances i, i + B, i + 2 B, ... (for evaluation; the stride is this batch's size).
    """

    _supports_set_state = True

    def __init__(
        self,
        params: PackingParams,
        catalogue: Catalogue,
        instances: Instances,
        *,
        num_envs: int | Sequence[int] = 1,
        device: torch.device | str = "cpu",
        seed: int = 0,
        row_offset: int = 0,
        autoreset: str = "native",
        draw: str = "random",
    ) -> None:
        batch_size = torch.Size([num_envs] if isinstance(num_envs, int) else num_envs)
        specs.check_arguments(params, batch_size, device, autoreset, draw)
        super().__init__(device=device, batch_size=batch_size, allow_done_after_reset=True)
        self.params = params
        self.catalogue = catalogue.to(self.device)
        self.instances = Instances(
            instances.item_id.to(self.device), instances.num_items.to(self.device)
        )
        self.draw = draw
        self.state: TensorDict | None = None
        self._items = self.catalogue.tensors()
        specs.check_items(params, self._items)
        if params.geometry == "maps":
            whole = cuboid.applies(self._items, params)
            _LOGGER.info("all placements: from %s", "whole cells" if whole else "height maps")
        self._floor = feasibility.legal_on_floor(self._items, params)
        self._fused = self._whole_step()
        self._task = specs.fingerprint(params, self._items)
        self.mode = get_mode(params.action_mode)(params, self._items)
        self._try_one_row(batch_size.numel())
        self._rows = row_offset + torch.arange(batch_size.numel(), device=self.device)
        self.observation_spec = specs.observation_spec(self)
        written = self.mode.action_specs(self.batch_size, self.device)
        self.takes = {key: (spec.dtype, spec.shape) for key, spec in written.items()}
        self.action_spec = specs.action_spec(self, written)
        self.reward_spec = specs.reward_spec(self)
        self.done_spec = specs.done_spec(self)
        self.autoreset = _supported(autoreset)
        self.set_seed(seed, static_seed=True)

    def _try_one_row(self, num_rows: int) -> None:
        """Let what cannot be played, or played in so many rows, say so now."""
        nothing = torch.zeros(1, dtype=torch.int64, device=self.device)
        state, maps = self._begin(nothing, nothing, nothing)
        seen = observation.observe(state, maps, self._items, self.params)
        seen |= self.mode.observe(state, maps) | self.mode.masks(state, maps)
        specs.check_memory(self, state, seen, num_rows)

    def _whole_step(self) -> CompiledStep | None:
        """What may take a whole step at once, if it knows the task."""
        if ground_of(self._items, self.params) is None:
            return None
        given = (self.params, self._items, self.instances, self._floor)
        return CompiledStep(*given, sequential=self.draw == "sequential")

    # ------------------------------------------------------------------ state

    def get_state(self) -> TensorDict:
        """A copy of the complete simulator state, ``[*batch_size]``.

        ``env.reset(state, set_state=True)`` continues from it, bit for bit.
        """
        if self.state is None:
            raise RuntimeError("there is no state before the first reset(); call env.reset() first")
        return TensorDict(
            {key: self._shaped(value).clone() for key, value in self.state.items()},
            self.batch_size,
            device=self.device,
        )

    def _keep(self, state: State) -> None:
        """Make ``state`` the environment's state."""
        self.state = TensorDict(state, [self._rows.shape[0]], device=self.device)

    def _own(self) -> State:
        """The state, for changes in place: out of inference mode, those made in it are copied."""
        assert self.state is not None
        state = dict(self.state.items())
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
            return state
        if state["step"].is_inference():
            state = {key: value.clone() for key, value in state.items()}
            self._keep(state)
        return state

    def _shaped(self, value: Tensor) -> Tensor:
        """``[B, ...]`` as ``[*batch_size, ...]``."""
        return value if len(self.batch_size) == 1 else value.unflatten(0, self.batch_size)

    def _flat(self, value: Tensor) -> Tensor:
        """``[*batch_size, ...]`` as ``[B, ...]``."""
        return value if len(self.batch_size) == 1 else value.flatten(0, len(self.batch_size) - 1)

    # ------------------------------------------------------------------ the rules, called

    def _advance(self, tensordict: TensorDictBase) -> tuple[State, TensorDict]:
        """One decision per row: the next state and the full ``next`` entry, terminal rows true."""
        if self.state is None:
            raise RuntimeError("there is no episode before the first reset(); call env.reset()")
        before = dict(self.state.items())
        placement = self._placement(tensordict, before)
        after, outcome, outlook = transition.advance(
            before,
            placement,
            self._items,
            self.params,
            lambda state: self.mode.look(state, self._maps(state)),
        )
        carried = outcome.legal & ~transition.is_done(before)
        out = self._observe(after, outlook.maps, self.mode.report(carried, placement))
        out.set("reward", self._shaped(outcome.reward[:, None]))
        return after, out

    @property
    def steps_at_once(self) -> bool:
        """Whether a compiled operation takes the whole step, in place, to the same bits."""
        return self._fused is not None and kernels.is_compiled_for(self.device.type)

    def _play(self, tensordict: TensorDictBase, *, renews: bool) -> list[TensorDict]:
        """The ``next`` entry of a decision that is carried out in ``self.state``.

        Where it ``renews``, finished rows begin their next episode; then what follows comes second.
        """
        if self.state is None:
            raise RuntimeError("there is no episode before the first reset(); call env.reset()")
        assert self._fused is not None
        action = self._flat(specs.read_actions(tensordict, self)["action"])
        state = self._own()
        taken = self._fused.advance(state, action.view(len(action), -1), reset=renews)
        out = [self._seen(taken.observations, taken.metrics, taken.reward)]
        if taken.start is not None:
            out.append(self._seen(taken.start.observations, taken.start.metrics))
        return out

    def _seen(
        self, shown: State, measured: dict[str, Tensor], reward: Tensor | None = None
    ) -> TensorDict:
        """Observations, masks, metrics and flags out of what :class:`Taken` holds."""
        entries = {key: shown[key] for key in observation.entries(self.params.observation)}
        out = {"action_mask": shown["mask"].flatten(1)}
        out |= {key: shown[key][:, None] for key in DONE}
        if reward is not None:
            out["reward"] = reward[:, None]
        if len(self.batch_size) > 1:
            entries, measured, out = (
                {key: self._shaped(value) for key, value in part.items()}
                for part in (entries, measured, out)
            )
        nested = {"observation": self._bare(entries), "metrics": self._bare(measured)}
        return self._bare(nested | out)

    def _bare(self, entries: dict[str, Any]) -> TensorDict:
        """A TensorDict of what has the batch's shape and device, which nothing checks again."""
        if torch.compiler.is_compiling():
            return TensorDict._new_unsafe(entries, self.batch_size, device=self.device)
        made = TensorDict._new_unsafe(entries, self.batch_size, nested=False)
        made._device = self.device  # given above, it would be looked up anew
        return made

    def _placement(self, tensordict: TensorDictBase, state: State) -> Placement:
        """Decode the action; with ``illegal_action="project"`` move it to a legal placement."""
        actions = specs.read_actions(tensordict, self)
        actions = {key: self._flat(value) for key, value in actions.items()}
        placement = self.mode.place(actions, state, partial(self._maps, state))
        if self.params.illegal_action != "project":
            return placement
        maps = self._maps(state)
        nearest = self.mode.project(placement, state, maps)
        legal = None if maps is None else maps.legal
        return orientation.project(placement, nearest, legal, self.params)

    def _maps(self, state: State) -> feasibility.Maps | None:
        if self.params.geometry == "boxes":
            return None
        item_id, there = visible_items(state, self.params.num_visible)
        return feasibility.placement_maps(
            state["heightmap"], item_id, there, self._items, self.params
        )

    def _begin(
        self, seed: Tensor, row: Tensor, episode: Tensor
    ) -> tuple[State, feasibility.Maps | None]:
        """The given episode of each row's stream, at its start."""
        pool = self.instances
        if self.draw == "sequential":
            index = (row + episode * len(row)) % len(pool)
        else:
            index = transition.draw_instance(seed, row, episode, len(pool))
        state = transition.begin(
            pool.item_id[index], pool.num_items[index], seed, row, episode, self.params
        )
        item_id, there = visible_items(state, self.params.num_visible)
        maps = feasibility.empty_container_maps(
            item_id, there, self._floor, self._items, self.params
        )
        state |= self.mode.look(state, maps).entries
        state["task"] = torch.full_like(seed, self._task)
        return state, maps

    def _first(self) -> tuple[State, feasibility.Maps | None]:
        """Episode 0 of every row."""
        return self._begin(self._seed, self._rows, torch.zeros_like(self._rows))

    def _renew(
        self, rows: Tensor, state: State, seen: TensorDictBase
    ) -> tuple[State, TensorDictBase]:
        """Start the next episode in the given rows; ``seen`` is what the others observe.

        The state may be changed in place.
        """
        if self.steps_at_once:
            return state, self._renew_at_once(rows, state, seen.clone())
        fresh, maps = self._begin(state["seed"], state["row"], state["episode"] + rows)
        start = self._observe(fresh, maps)
        chosen = self._shaped(rows)
        observed = start.apply(lambda new, old: torch.where(_like(chosen, new), new, old), seen)
        return transition.select(rows, fresh, state), observed

    def _renew_at_once(self, rows: Tensor, state: State, seen: TensorDictBase) -> TensorDictBase:
        """The same in ``state`` and ``seen`` themselves."""
        assert self._fused is not None
        shown = {key: self._flat(value) for key, value in seen["observation"].items()}
        shown |= {key: self._flat(seen[key]).squeeze(-1) for key in DONE}
        placements = (len(rows), self.params.num_visible, -1, *self.params.lattice)
        shown["mask"] = self._flat(seen["action_mask"]).view(placements)
        measured = [self._flat(value) for value in seen["metrics"].values()]
        self._fused.reset(rows, state, shown, measured)
        return seen

    def _observe(
        self,
        state: State,
        maps: feasibility.Maps | None,
        report: dict[NestedKey, Tensor] | None = None,
    ) -> TensorDict:
        """Observations, masks, metrics and flags of a state; ``report`` on the step before."""
        entries = observation.observe(state, maps, self._items, self.params)
        entries.update(self.mode.observe(state, maps))
        finished = transition.is_done(state)
        measured = metrics.measure(state, self.params)
        for index, term in enumerate(self.params.reward):
            measured[f"reward/{term}"] = state["reward_sum"][:, index]
        out = {
            "observation": self._nest(entries),
            "metrics": self._nest({k: v.float()[:, None] for k, v in measured.items()}),
            "done": self._shaped(finished[:, None]),
            "terminated": self._shaped(state["terminated"][:, None].clone()),
            "truncated": self._shaped(state["truncated"][:, None].clone()),
        }
        seen = TensorDict(out, self.batch_size, device=self.device)
        for key, mask in self.mode.masks(state, maps).items():
            seen.set(key, self._shaped(mask | _like(finished, mask)))
        if report is None:
            report = self.mode.report(torch.zeros_like(finished), None)
        for key, value in report.items():
            seen.set(key, self._shaped(value))
        return seen

    def _nest(self, entries: dict[str, Tensor]) -> TensorDict:
        shaped = {key: self._shaped(value) for key, value in entries.items()}
        return TensorDict(shaped, self.batch_size, device=self.device)

    # ------------------------------------------------------------------ TorchRL's contract

    def to(self, device: torch.device | str) -> PackingEnv:
        """Move everything, the state included."""
        super().to(device)
        self.catalogue = self.catalogue.to(self.device)
        self._items = self.catalogue.tensors()
        self.instances = Instances(
            self.instances.item_id.to(self.device), self.instances.num_items.to(self.device)
        )
        self._rows, self._floor = self._rows.to(self.device), self._floor.to(self.device)
        self._seed = self._seed.to(self.device)
        self.state = None if self.state is None else self.state.to(self.device)
        self.mode = get_mode(self.params.action_mode)(self.params, self._items)
        self._fused = self._whole_step()
        self._try_one_row(len(self._rows))
        return self

    def _set_seed(self, seed: int | Tensor | None) -> None:
        """The next reset starts episode 0 of this seed's streams (or of one seed per row)."""
        given = 0 if seed is None else torch.as_tensor(seed, device=self.device)
        self._seed = torch.zeros_like(self._rows) + given
        self.state = None

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        if kwargs.get("set_state"):
            return self._restore(tensordict)
        if self.state is None:
            state, maps = self._first()
            self._keep(state)
            return self._observe(state, maps)
        rows = None if tensordict is None else tensordict.get("_reset", None)
        chosen = torch.ones_like(self._rows, dtype=torch.bool)
        if rows is not None:
            chosen = self._flat(rows).squeeze(-1)
        old = dict(self.state.items())
        fresh, maps = self._begin(old["seed"], old["row"], old["episode"] + chosen)
        self._keep(transition.select(chosen, fresh, old))
        return self._observe(fresh, maps)  # EnvBase takes the chosen rows of it

    def _restore(self, tensordict: TensorDictBase | None) -> TensorDict:
        """Continue from a state that :meth:`get_state` returned."""
        state = specs.check_state(tensordict, self, self._first()[0])
        whole = torch.contiguous_format
        flat = {k: self._flat(v).clone(memory_format=whole) for k, v in state.items()}
        maps = self._maps(flat)
        offered = self.mode.look(flat, maps).entries  # by this task's rules, whatever the state's
        flat |= {key: offered[key] for key in ("candidate", "candidate_z")}
        seen = self._observe(flat, maps)
        self._keep(flat)
        return seen

    def reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Start episodes, or with ``set_state=True`` continue from a copy of the given state.

        A ``"_reset"`` mask ``[*batch_size, 1]`` starts new episodes in those rows only.
        """
        if kwargs.get("set_state"):
            given = None if tensordict is None else tensordict.copy()
            return super().reset(given, **kwargs).select(*self._observed, *DONE)
        bare = tensordict is not None and tensordict.get("metrics", None) is None
        partly = bare and tensordict.get("_reset", None) is not None
        seen = super().reset(tensordict, **kwargs)
        if partly and not kwargs.get("select_reset_only"):
            state = dict(self.state.items())
            seen.update(self._observe(state, self._maps(state)))
        return seen

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.steps_at_once:
            return self._play(tensordict, renews=False)[0]
        after, out = self._advance(tensordict)
        self._keep(after)
        return out

    def _step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        if self.autoreset == "masked":
            return super()._step_and_maybe_reset(tensordict)
        if tensordict.device != self.device:
            tensordict = tensordict.to(self.device)
        if self.steps_at_once:
            out, root = self._play(tensordict, renews=True)
            following = self._following(tensordict, root)
            return tensordict.set("next", out), following
        after, out = self._advance(tensordict)
        state, root = self._renew(transition.is_done(after), after, out.exclude("reward"))
        self._keep(state)
        tensordict.set("next", out)
        return tensordict, self._step_mdp(tensordict).update(root)

    def _following(self, tensordict: TensorDictBase, root: TensorDict) -> TensorDictBase:
        """What TorchRL's ``step_mdp`` makes of a step with ``root`` as its ``next`` entry."""
        seen, others = dict(root.items()), {}
        seen.pop("reward", None)
        for key, value in tensordict.items():
            if key in ("observation", "metrics"):
                known = set(value.keys()) <= set(seen[key].keys())
            else:
                known = key in seen or key in ("next", "reward", "_reset")
                if not known and isinstance(value, Tensor):
                    others[key], known = value, True
            if not known:
                return self._step_mdp(tensordict.set("next", root))
        return self._bare(others | seen)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """A uniformly random legal action per row."""
        if tensordict is None:
            tensordict = TensorDict({}, self.batch_size, device=self.device)
        masks = {key: tensordict.get(key, None) for key in self.mode.mask_keys}
        if not self.mode.masks_suffice or any(mask is None for mask in masks.values()):
            masks = self._present_masks()
        for key, action in self.mode.random(masks, self.batch_size).items():
            tensordict.set(key, action)
        return tensordict

    def _present_masks(self) -> dict[NestedKey, Tensor]:
        """What :meth:`rand_action` draws from, of the state as it is."""
        if self.state is None:
            raise RuntimeError("there is no action mask before the first reset()")
        state = dict(self.state.items())
        maps, finished = self._maps(state), transition.is_done(state)
        masks = self.mode.masks(state, maps)
        if not self.mode.masks_suffice and maps is not None:
            masks = {"joint_mask": maps.legal.flatten(1)}
        return {key: self._shaped(mask | _like(finished, mask)) for key, mask in masks.items()}

    @property
    def _observed(self) -> tuple[NestedKey, ...]:
        return ("observation", "metrics", *self.mode.mask_keys, *self.mode.report_keys)


def _like(rows: Tensor, value: Tensor) -> Tensor:
    """``rows [*batch]`` with trailing axes of size 1, to broadcast against ``value``."""
    return rows.view(*rows.shape, *(1,) * (value.dim() - rows.dim()))


def _supported(autoreset: str) -> str:
    """``"masked"`` with one log line where this TorchRL has no hook for the native path."""
    if autoreset == "native" and "_step_and_maybe_reset" not in vars(EnvBase):
        _LOGGER.warning("this TorchRL has no hook for autoreset='native'; using 'masked'")
        return "masked"
    return autoreset
