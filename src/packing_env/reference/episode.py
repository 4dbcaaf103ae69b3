"""The specification of an episode: items placed one at a time on the heightmap of one container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import numpy as np

from packing_env.reference import boxes, constraints, map_constraints, stability
from packing_env.reference.boxes import Box
from packing_env.reference.maps import (
    FLOAT,
    Item,
    drop_height,
    lid,
    nearest_level,
    supporting_cells,
    window_size,
)
from packing_env.reference.rewards import reward
from packing_env.reference.stability import touch_at

Place = tuple[int, ...]
"""Slot of the visible item, orientation, and lower corner x, y; with voxels also the layer."""


@dataclass
class Rules:
    """The constants of a task.

    Attributes:
        height: Height of the container, metres.
        cell: Side of a cell, metres.
        grid_step: Cells between two lattice points: actions have ``x, y`` in {0, s, 2 s, ...}.
        num_visible: Number of items at the front of the queue that may be chosen.
        stability: Rule that a legal placement must satisfy.
        stability_metric: Rule by which the metric ``stability`` is computed.
        contact_tol: Largest distance at which a cell supports, metres.
        illegal_action: Effect of an illegal action: "terminate", "noop" or "project".
        max_steps: Decisions after which the episode is truncated.
        reward: Weight per reward term.
        candidate_range: "container", or "pct": only lower corners at which the unrotated item would
            also fit. This is a bug in the program of Zhao et al., ICLR 2022, and affects its
            published numbers.
        whole_cells: True if all items are cuboids of whole cells. Heights are then rounded to the
            nearest float32 of a whole number of cells above the floor, or above the top of a
            pre-placed box, so that they do not depend on the items of a stack.
        constraints: Constraints on legal placements; None if there are none.
        surest: Preferred stability rules, from the least strict to the strictest; see
            :meth:`Episode.surest_rule`.
    """

    height: float
    cell: float
    grid_step: int = 1
    num_visible: int = 1
    stability: str = "com_hull"
    stability_metric: str = "com_hull"
    contact_tol: float = 0.0
    illegal_action: str = "terminate"
    max_steps: int = 10**9
    reward: dict[str, float] = field(default_factory=lambda: {"utilization": 1.0})
    candidate_range: str = "container"
    whole_cells: bool = False
    constraints: constraints.Constraints | None = None
    surest: tuple[str, ...] = ()


@dataclass
class Placement:
    """The properties of one placement.

    Attributes:
        legal: True if the placement is allowed.
        z: Rest height, metres; +inf outside the container.
        stable: True if ``Rules.stability_metric`` holds.
        support_ratio: Supported share of the footprint.
    """

    legal: bool
    z: np.float32
    stable: bool = False
    support_ratio: float = 0.0


class Episode:
    """One episode in one container, one item per decision.

    It is terminated when no item is left, when no visible item has a legal placement, or after an
    illegal action if ``illegal_action="terminate"``. It is truncated after ``max_steps`` decisions.
    A finished episode does not change any more. An action chooses among all placements of the
    lattice, or among those of a list.

    Args:
        grid: ``(X, Y)`` cells.
        items: The instance, in the order in which items are offered: :class:`Item`, or in another
            geometry the items of that geometry.
        rules: Constants of the task.
        fallback: If True, the episode continues as long as any placement on the lattice is legal,
            whether listed or not.
        floor: See :attr:`packing_env.reference.map_constraints.MapLoad.floor`; by default the size
            of the grid.

    Attributes:
        heightmap: ``[X, Y]`` float32 metres.
        queue: Positions in ``items`` of the items that are not packed yet.
        packed: Positions of the packed items; ``rest``, ``stable`` and ``support`` have the same
            order.
        places: Per packed item: position in the instance, orientation, x, y.
        listed: The candidates to choose from, best first; an illegal action is replaced by the
            first one. ``None`` means every placement on the lattice.
        following: The candidates after the decision.
        likely: Placements of the lattice that are tried first when any legal placement is sought.
            They affect how long the search takes, not its result.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        items: list[Any],
        rules: Rules,
        *,
        fallback: bool = True,
        floor: tuple[float, float] | None = None,
    ) -> None:
        self.rules = rules
        self.items = items
        self.heightmap = np.zeros(grid, FLOAT)
        self.load: map_constraints.MapLoad | None = None
        self._starts = [0.0]
        if rules.constraints is not None:
            boxes = rules.constraints.preplaced
            self.heightmap = map_constraints.start(grid, rules.cell, boxes)
            self._starts = map_constraints.starts_of_stacks(boxes, rules.cell)
            self.load = map_constraints.MapLoad(rules.constraints, np.full(grid, -1), floor or grid)
        self.queue = list(range(len(items)))
        self.packed: list[int] = []
        self.rest: list[np.float32] = []
        self.stable: list[bool] = []
        self.support: list[float] = []
        self.places: list[Place] = []
        self.listed: list[Place] | None = None
        self.following: list[Place] | None = None
        self.likely: list[Place] = []
        self.fallback = fallback
        self.steps = 0
        self.illegal_actions = 0
        self.terminated = False
        self.truncated = False
        self._surest: dict[int, str | None] = {}

    def visible(self) -> list[int]:
        """Return the positions of the items that may be chosen now."""
        return self.queue[: self.rules.num_visible]

    def check(self, slot: int, orientation: int, x: int, y: int) -> Placement:
        """Check a placement of the ``slot``-th visible item, on the lattice or off it.

        Legal means: inside the container, ``float32(z + peak) <= lid(height)``, stable by the rule,
        in range and within the constraints. With ``Rules.surest`` the placement must also satisfy
        :meth:`surest_rule` of its item. x and y are in cells.
        """
        placement = self.examine(slot, orientation, x, y)
        if placement.legal and (rule := self.surest_rule(slot)) is not None:
            placement.legal = self.examine(slot, orientation, x, y, metric=rule).stable
        return placement

    def surest_rule(self, slot: int) -> str | None:
        """Return the rule of ``Rules.surest`` that the placements of a visible item must satisfy.

        Only placements on the lattice that all other options allow are compared. The result is the
        last rule that one of them satisfies, or None if they satisfy no rule. The search ends at
        the first placement that satisfies a rule.
        """
        item = self.items[self.visible()[slot]]

        def leaves_any(rule: str) -> bool:
            places = chain(self.likely, self.lattice(len(item.bottom)))
            judged = (self.examine(*place, metric=rule) for place in places if place[0] == slot)
            return any(placement.legal and placement.stable for placement in judged)

        if slot not in self._surest:
            self._surest[slot] = next(filter(leaves_any, reversed(self.rules.surest)), None)
        return self._surest[slot]

    def examine(
        self, slot: int, orientation: int, x: int, y: int, *, metric: str | None = None
    ) -> Placement:
        """Check a placement as :meth:`check` does, but without ``Rules.surest``.

        ``metric`` is the rule for ``Placement.stable``, by default ``Rules.stability_metric``.
        """
        outside = Placement(False, FLOAT(np.inf))
        if not 0 <= slot < len(self.visible()) or x < 0 or y < 0:
            return outside
        item = self.items[self.visible()[slot]]
        if not 0 <= orientation < len(item.bottom) or item.bottom[orientation] is None:
            return outside

        # 1. Drop the item, and compare its peak with the lid.
        bottom, top, com = item.maps(orientation)
        z = drop_height(self.heightmap, bottom, x, y)
        if not FLOAT(z + FLOAT(top.max())) <= lid(self.rules.height):
            return Placement(False, z)

        # 2. Check stability on the ground below the item.
        touch = touch_at(self.heightmap, bottom, x, y, z, com, self.rules.contact_tol)

        def is_stable(rule: str) -> bool:
            if rule in boxes.ON_CELLS:
                return boxes.is_stable(rule, self.boxes(), self.box(item, orientation, x, y, z))
            return stability.is_stable(rule, touch)

        # 3. Apply the range and the constraints.
        case = self.case(item, orientation, x, y, z)
        return Placement(
            legal=is_stable(self.rules.stability)
            and self.in_range(item, x, y)
            and not (case and map_constraints.broken(case)),
            z=z,
            stable=is_stable(metric or self.rules.stability_metric),
            support_ratio=touch.support_ratio,
        )

    def case(
        self, item: Item, orientation: int, x: int, y: int, z: np.float32
    ) -> map_constraints.MapCase | None:
        """Return a placement at rest, as the constraints need it; None without constraints."""
        if self.load is None:
            return None
        bottom, _, com = item.maps(orientation)
        return map_constraints.MapCase(
            load=self.load,
            name="",  # only rules of boxes read names
            handling=item.handling,
            heightmap=self.heightmap,
            bottom=bottom,
            com=com,
            x=x,
            y=y,
            z=z,
            support=supporting_cells(self.heightmap, bottom, x, y, z, self.rules.contact_tol),
        )

    def in_range(self, item: Item, x: int, y: int) -> bool:
        """Test if the lower corner is allowed; with range "pct" the unrotated item must fit too."""
        if self.rules.candidate_range == "container":
            return True
        w, h = window_size(item.maps(0)[0])
        return x <= self.heightmap.shape[0] - w and y <= self.heightmap.shape[1] - h

    def lattice(self, num_orientations: int) -> Iterator[Place]:
        """Yield all placements of the lattice; the first visible item comes first."""
        xs, ys = (range(0, cells, self.rules.grid_step) for cells in self.heightmap.shape)
        return product(range(self.rules.num_visible), range(num_orientations), xs, ys)

    def mask(self, num_orientations: int) -> np.ndarray:
        """Return ``[L, R, Xs, Ys]`` bool: legal lattice placements; all True when terminated."""
        places, over = self.lattice(num_orientations), self.terminated
        legal = [over or self.check(*place).legal for place in places]
        xs, ys = (-(-cells // self.rules.grid_step) for cells in self.heightmap.shape)
        return np.array(legal).reshape(self.rules.num_visible, num_orientations, xs, ys)

    def any_legal(self, num_orientations: int) -> bool:
        """Test if a listed placement is legal; with ``fallback``, any placement on the lattice."""
        listed = None if self.fallback else self.following
        lattice = chain(self.likely, self.lattice(num_orientations))
        places = lattice if listed is None else listed
        return any(self.check(*place).legal for place in places)

    def nearest(self, wanted: Place, num_orientations: int) -> Place:
        """Find the legal placement nearest to an illegal one; ties go to the lower index.

        With a list, it is the first placement listed. Otherwise the cost is the squared distance on
        the lattice. Another orientation costs more than any distance, and another item costs more
        than another orientation plus any distance.
        """
        if self.listed is not None:
            return self.listed[0] if self.listed else wanted
        slot, orientation, x, y = wanted
        step, mask = self.rules.grid_step, self.mask(num_orientations)
        far = mask.shape[2] ** 2 + mask.shape[3] ** 2
        best, best_cost = wanted, 4 * far
        for s, r, i, j in np.argwhere(mask).tolist():
            cost = (i - x // step) ** 2 + (j - y // step) ** 2
            cost += far * (r != orientation) + 2 * far * (s != slot)
            if cost < best_cost:
                best, best_cost = (s, r, i * step, j * step), cost
        return best

    def place(self, slot: int, orientation: int, x: int, y: int, placement: Placement) -> None:
        """Place the visible item, record it, and remove it from the queue."""
        self._surest.clear()
        position = self.queue.pop(slot)
        case = self.case(self.items[position], orientation, x, y, placement.z)
        if case is not None:
            case.load.put(case)
        self.raise_heightmap(position, orientation, x, y, placement.z)
        self.places.append((position, orientation, x, y))
        self.packed.append(position)
        self.rest.append(placement.z)
        self.stable.append(placement.stable)
        self.support.append(placement.support_ratio)

    def raise_heightmap(
        self, position: int, orientation: int, x: int, y: int, z: np.float32
    ) -> None:
        """Raise the heightmap to the placed item's upper surface."""
        _, top, _ = self.items[position].maps(orientation)
        for u, v in np.argwhere(np.isfinite(top)):
            raised = FLOAT(z + top[u, v])
            if self.rules.whole_cells:
                raised = nearest_level(raised, self.rules.cell, self._starts)
            self.heightmap[x + u, y + v] = max(self.heightmap[x + u, y + v], raised)

    def decide(self, place: Place, num_orientations: int) -> float:
        """Execute one decision, with x and y in cells, and return its reward; 0 when finished.

        An illegal decision ends the episode, changes nothing, or is moved to the nearest legal
        placement, depending on ``Rules.illegal_action`` ("terminate", "noop", "project").
        """
        if self.done:
            return 0.0
        before = self.metrics()

        # 1. Look up the placement.
        placement = self.check(*place)
        legal = placement.legal
        if not legal and self.rules.illegal_action == "project":
            place = self.nearest(place, num_orientations)
            placement = self.check(*place)

        # 2. Place the item.
        if placement.legal:
            slot, orientation, x, y = place[:4]
            self.place(slot, orientation, x, y, placement)

        # 3. Set counts and flags, and compute the reward.
        self.steps += 1
        self.illegal_actions += not legal
        stopped = not legal and self.rules.illegal_action == "terminate"
        self.terminated = stopped or not self.queue or not self.any_legal(num_orientations)
        self.truncated = self.steps >= self.rules.max_steps
        return reward(self.rules.reward, before, self.metrics(), legal)

    @property
    def done(self) -> bool:
        """True if the episode has ended."""
        return self.terminated or self.truncated

    def metrics(self) -> dict[str, float]:
        """Return utilization, compactness, pyramidality and more; unclipped, 0 when empty."""
        volume = sum(self.items[n].volume for n in self.packed)
        base = self.heightmap.size * self.rules.cell**2
        peak = float(self.heightmap.max())
        under = float(self.heightmap.sum(dtype=np.float64)) * self.rules.cell**2
        count = len(self.packed)
        return {
            "utilization": volume / (base * self.rules.height),
            "compactness": volume / (base * peak) if peak > 0 else 0.0,
            "pyramidality": volume / under if under > 0 else 0.0,
            "stability": sum(self.stable) / count if count else 0.0,
            "support_ratio": sum(self.support) / count if count else 0.0,
            "items_packed": float(count),
            "height_ratio": peak / self.rules.height,
        }

    def boxes(self) -> list[Box]:
        """Return the packed items as boxes in cells; all items must be cuboids of whole cells."""
        return [
            self.box(self.items[position], orientation, x, y, rest)
            for (position, orientation, x, y), rest in zip(self.places, self.rest, strict=True)
        ]

    def box(self, item: Item, orientation: int, x: int, y: int, rest: np.float32) -> Box:
        """Return a cuboid of whole cells at rest as a box in cells."""
        bottom, top, _ = item.maps(orientation)
        w, h = window_size(bottom)
        z, d = (round(float(height) / self.rules.cell) for height in (rest, top.max()))
        return (x, y, z, x + w, y + h, z + d)
