"""The referee: runs the reference program in step with an environment and compares them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from packing_env.core import candidates, feasibility
from packing_env.envs import PackingEnv
from packing_env.reference import Episode, spaces
from packing_env.reference.episode import Place
from packing_env.testing.episodes import (
    KNOWN_TERMS,
    begin_episode,
    current_scene,
    current_state,
    known_rules,
)
from packing_env.testing.errors import require

_TOLERANCE = 1e-6
_PLACES_IN_BOXES = 64
"""Default number of placements to compare per step in geometry "boxes", which has no mask."""


class Decision(NamedTuple):
    """One row's action in the form of the reference program (x and y in pitches)."""

    slot: int
    orientation: int
    x: int
    y: int
    layer: int = 0

    def place(self, layered: bool) -> Place:
        """Return the place of the reference program; only a ``layered`` one has a layer."""
        return tuple(self) if layered else self[:4]


NOWHERE = Decision(-1, -1, -1, -1)


def decode_place(env: PackingEnv, index: int) -> Decision:
    """Decode the index of a placement by plain division; return :data:`NOWHERE` if out of range."""
    xs, ys = env.params.lattice
    orientations = env.catalogue.tensors()["peak"].shape[1]
    index, layer = divmod(index, env.params.layers)
    if not 0 <= index < env.params.num_visible * orientations * xs * ys:
        return NOWHERE
    plane, place = divmod(index, xs * ys)
    slot, orientation = divmod(plane, orientations)
    x, y = divmod(place, ys)
    step = env.params.grid_step
    return Decision(slot, orientation, x * step, y * step, layer)


def decode_action(env: PackingEnv, action: int, row: int) -> Decision:
    """Decode a choice; return :data:`NOWHERE` if out of range.

    In a mode that lists placements, the choice is an index into the list in ``env.state``. So
    ``env.state`` must still be the state before the step. In all other modes, it is the index of a
    placement of the lattice.
    """
    if env.mode.lists:
        if not 0 <= action < env.mode.num_actions:
            return NOWHERE
        action = int(current_state(env)["candidate"][row, action])
    return decode_place(env, action)


class Referee:
    """The reference program, run in step with an environment, row by row, and compared with it.

    Heights, rest heights, masks, lists of boxes and spaces, and the done flags must agree bit for
    bit; rewards and metrics must agree to 1e-6. A mode that lists placements may list any legal
    placements; they must be distinct and at the front of the list. Call :meth:`begin` for rows that
    were reset, and :meth:`step` after each ``env.step``.

    Args:
        env: The environment, after ``reset()``.
        mask_bits: Number of random mask entries to compare per row and step; ``None`` means all.
        seed: Seed for the choice of these entries.
        num_rows: Number of rows to compare, spread over the batch; ``None`` means all.
    """

    def __init__(
        self,
        env: PackingEnv,
        mask_bits: int | None = None,
        seed: int = 0,
        num_rows: int | None = None,
    ) -> None:
        self.env = env
        self.mask_bits = mask_bits
        self.steps = 0
        self.orientations = int(env.catalogue.tensors()["peak"].shape[1])
        self._random = np.random.default_rng(seed)
        self._known = env.params.stability in known_rules(env.params)
        self._layered = env.params.geometry == "voxels"
        self._smallest = _smallest_side(env)
        self._items: dict[int, Any] = {}
        num_envs = env.batch_size.numel()
        spread = np.linspace(0, num_envs - 1, min(num_rows or num_envs, num_envs)).astype(int)
        self.rows = spread.tolist()
        self.episodes = {row: self._episode(row) for row in self.rows}
        self._spaces = {row: self._first_spaces() for row in self.rows}

    def _episode(self, row: int) -> Episode:
        episode = begin_episode(self.env, row, self._items)
        episode.listed = self._listed(row)
        return episode

    def begin(self, rows: Tensor, observed: TensorDictBase) -> None:
        """Restart the given rows (bool, any shape) and compare their first observation."""
        mask = _action_mask(self.env, observed)
        for row in (row for row in self.rows if rows.flatten()[row]):
            self.episodes[row] = self._episode(row)
            self._spaces[row] = self._first_spaces()
            if self._known and self.env.mode.mask_is_joint:
                self._compare_mask(row, mask[row], None)
            if self._known and self.env.mode.lists:
                self._compare_candidates(row, mask[row])

    def decide(self, action: Tensor) -> list[Decision]:
        """Decode a batch of choices; call it before ``env.step``, whose state it reads."""
        return [decode_action(self.env, a, row) for row, a in enumerate(action.flatten().tolist())]

    def step(self, decisions: list[Decision], observed: TensorDictBase) -> None:
        """Carry out decisions in the reference; compare with ``observed``, the ``next`` entry."""
        scene = current_scene(self.env)
        mask = _action_mask(self.env, observed)
        places = () if scene.maps else self._some_places(scene)
        for row, episode in self.episodes.items():
            decision = decisions[row]
            packed, live = len(episode.packed), not episode.done
            episode.likely = self._likely(row, scene)
            reward = self._take(row, decision)
            self._compare_row(row, observed, reward)
            if live and len(episode.packed) > packed:
                self._compare_packed(row, packed)
            if not self._known:
                continue
            if scene.maps is not None:
                self._compare_maps(row, mask[row], scene.maps)
            elif not episode.terminated:
                index, z, legal = (part[row] for part in places)
                self._compare_places(row, index, legal, z, only_legal=True)
            if self.env.mode.lists and not episode.terminated:
                self._compare_candidates(row, mask[row])
            self.steps += 1

    def _take(self, row: int, decision: Decision) -> float:
        """Carry out one decision in the reference and return its reward.

        If the reference does not define the stability rule, it uses the environment's legality.
        """
        episode, state = self.episodes[row], current_state(self.env)
        if not self._known and int(state["illegal_actions"][row]) > episode.illegal_actions:
            decision = NOWHERE
        episode.following = self._listed(row)
        reward = episode.decide(decision.place(self._layered), self.orientations)
        episode.listed = episode.following
        if not self._known:
            episode.terminated = bool(state["terminated"][row])
        return reward

    # ------------------------------------------------------------------ the environment's values

    def _some_places(self, scene: candidates.Scene) -> tuple[Tensor, Tensor, Tensor]:
        """Draw placements of geometry "boxes", with rest heights and legality, ``[B, P]`` each."""
        xs, ys = self.env.params.lattice
        size = self.env.params.num_visible * self.orientations * xs * ys
        shape = (self.env.batch_size.numel(), self.mask_bits or _PLACES_IN_BOXES)
        index = torch.from_numpy(self._random.integers(0, size, shape)).to(self.env.device)
        return index, *candidates.judge(scene, index)

    def _likely(self, row: int, scene: candidates.Scene) -> list[Place]:
        """Return a legal placement of each visible item that has one, if there are maps."""
        if scene.maps is None:
            return []
        legal = scene.maps.legal[row].flatten(1)
        first = enumerate(legal.int().argmax(1).tolist())
        places = (decode_place(self.env, slot * legal.shape[1] + place) for slot, place in first)
        return [place.place(self._layered) for place in places]

    def _listed(self, row: int) -> list[Place] | None:
        """Return the candidates of a row, in order; ``None`` in other modes."""
        if not self.env.mode.lists:
            return None
        listed = current_state(self.env)["candidate"][row].tolist()
        places = (decode_place(self.env, index) for index in listed if index >= 0)
        return [place.place(self._layered) for place in places]

    def _first_spaces(self) -> list[spaces.Space]:
        """Return the list of spaces of an empty container; empty if the task keeps no spaces."""
        params = self.env.params
        steps = params.units_per_cell
        x, y = (cells * steps for cells in params.grid)
        return spaces.initial((x, y, params.height_units)) if params.num_spaces else []

    # ------------------------------------------------------------------ comparisons

    def _where(self, row: int) -> str:
        return f"row {row}, step {self.episodes[row].steps} of its episode"

    def _expect(self, row: int, name: str, expected: object, found: object) -> None:
        message = f"{name}: {expected} in the reference, {found} in the environment"
        require(expected == found, f"{self._where(row)}: {message}")

    def _close(self, row: int, name: str, expected: float, found: float) -> None:
        good = abs(expected - found) <= _TOLERANCE * max(1.0, abs(expected))
        message = f"{name}: {expected:.9g} in the reference, {found} in the environment"
        require(good, f"{self._where(row)}: {message}")

    def _compare_row(self, row: int, observed: TensorDictBase, reward: float) -> None:
        state, episode = current_state(self.env), self.episodes[row]
        heights = state["heightmap"][row].cpu().numpy()
        cells = np.argwhere(heights != episode.heightmap)
        require(
            cells.size == 0,
            f"{self._where(row)}: heightmap differs in {len(cells)} cells, first {cells[:1]}",
        )
        self._expect(row, "terminated", episode.terminated, bool(state["terminated"][row]))
        self._expect(row, "truncated", episode.truncated, bool(state["truncated"][row]))
        self._expect(row, "illegal", episode.illegal_actions, int(state["illegal_actions"][row]))
        flat = observed.flatten(0, observed.batch_dims - 1) if observed.batch_dims > 1 else observed
        self._expect(row, "done", episode.done, bool(flat["done"][row]))
        if set(self.env.params.reward) <= set(KNOWN_TERMS):
            self._close(row, "reward", reward, float(flat["reward"][row]))
        expected = episode.metrics()
        if self.env.params.stability_metric not in known_rules(self.env.params):
            del expected["stability"]
        for name, value in expected.items():
            self._close(row, name, value, float(flat["metrics", name][row]))

    def _compare_packed(self, row: int, index: int) -> None:
        """Compare the placement of the item just packed, and the lists of boxes and spaces."""
        state, episode, params = current_state(self.env), self.episodes[row], self.env.params
        placement = state["placement"][row, index].tolist()
        self._expect(row, "placement", list(episode.places[-1]), placement)
        z = state["placement_z"][row, index].item()
        self._expect(row, "rest height of the placement", float(episode.rest[-1]), z)
        if not params.keeps_boxes:
            return
        packed = [list(box) for box in episode.boxes()]
        self._expect(row, "boxes", packed, state["boxes"][row, : len(packed)].tolist())
        later = state["boxes"][row, len(packed) :]
        require(
            not bool(later.any()),
            f"{self._where(row)}: there are entries after the last packed box",
        )
        if params.num_spaces:
            split = spaces.split(self._spaces[row], episode.boxes()[-1], self._smallest)
            self._spaces[row] = split[: params.num_spaces]
            expected = [list(space) for space in self._spaces[row]]
            expected += [[0] * 6] * (params.num_spaces - len(expected))
            self._expect(row, "empty spaces", expected, state["spaces"][row].tolist())

    def _compare_maps(self, row: int, mask: Tensor, maps: feasibility.Maps) -> None:
        """Compare rest heights and legality; in placement mode, also compare the mask."""
        over = self.episodes[row].terminated
        legal = torch.ones_like(maps.legal[row]) if over else maps.legal[row]
        self._compare_mask(row, legal, maps.z[row])
        in_state = current_state(self.env)["legal"][row]
        same = not in_state.numel() or torch.equal(in_state, legal.flatten())
        require(same, f"{self._where(row)}: state['legal'] is not the legality of placements")
        if not self.env.mode.lists:
            expected = legal.flatten() if self.env.mode.mask_is_joint else legal.flatten(1).any(1)
            same = not mask.numel() or torch.equal(mask, expected)
            require(same, f"{self._where(row)}: the mask is not the legality of placements")
        elif self.env.params.candidate_fallback and not over:
            require(
                bool(mask.any()) or not bool(legal.any()),
                f"{self._where(row)}: the lattice has a legal placement but the list is empty",
            )

    def _compare_mask(self, row: int, legal: Tensor, z: Tensor | None) -> None:
        """Compare legality (and rest height) of all placements, or of some random ones."""
        index = torch.arange(legal.numel())
        if self.mask_bits is not None:
            index = torch.from_numpy(self._random.choice(legal.numel(), self.mask_bits))
        index = index.to(legal.device)
        heights = None if z is None else z.flatten()[index]
        self._compare_places(row, index, legal.flatten()[index], heights)

    def _compare_places(
        self, row: int, index: Tensor, legal: Tensor, z: Tensor | None, only_legal: bool = False
    ) -> None:
        """Compare legality and rest height of placements; or only rest heights of legal ones."""
        episode = self.episodes[row]
        heights = [None] * len(index) if z is None else z.tolist()
        for place, good, height in zip(index.tolist(), legal.tolist(), heights, strict=True):
            where = decode_place(self.env, place).place(self._layered)
            placement = episode.check(*where)
            expected = episode.terminated or placement.legal
            self._expect(row, f"legality at {where}", expected, good)
            if height is not None and (placement.legal or not only_legal):
                self._expect(row, f"rest height at {where}", float(placement.z), height)

    def _compare_candidates(self, row: int, mask: Tensor) -> None:
        """Check that candidates are distinct legal placements, and their places in the list."""
        state = current_state(self.env)
        candidate, heights = (state[key][row].tolist() for key in ("candidate", "candidate_z"))
        places = [place for place, index in enumerate(candidate) if index >= 0]
        filled = [candidate[place] for place in places]
        where = self._where(row)
        require(
            mask.tolist() == [index >= 0 for index in candidate],
            f"{where}: action_mask and the candidate list disagree",
        )
        require(len(set(filled)) == len(filled), f"{where}: a candidate is repeated")
        in_front = candidate[: len(filled)] == filled
        require(in_front, f"{where}: gaps in the candidate list")
        if self.mask_bits is not None and len(places) > self.mask_bits:
            places = self._random.choice(places, self.mask_bits, replace=False).tolist()
        for place in places:
            at = decode_place(self.env, candidate[place]).place(self._layered)
            placement = self.episodes[row].check(*at)
            require(placement.legal, f"{where}: candidate {place}, {at}, is not legal")
            self._expect(row, f"height of candidate {place}", float(placement.z), heights[place])


def _action_mask(env: PackingEnv, observed: TensorDictBase) -> Tensor:
    """Return the mask as ``[B, A]`` for any batch shape; ``[B, 0]`` in a mode without a mask."""
    if not env.mode.mask_keys:
        return torch.zeros(env.batch_size.numel(), 0, dtype=torch.bool, device=env.device)
    return observed[env.mode.mask_keys[0]].flatten(0, len(env.batch_size) - 1)


def _smallest_side(env: PackingEnv) -> int:
    """Return the shortest side of any item in pitches; 1 if the task keeps no spaces."""
    if not env.params.num_spaces:
        return 1
    sides = env.catalogue.tensors()["cuboid"].flatten().tolist()
    return min(side for side in sides if side > 0)
