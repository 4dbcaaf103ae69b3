"""Places for one more part in a finished load on a grid, judged by the reference program alone.

The maps of the parts are those of the planner's catalogue; the check of the plan has already
compared them with the solids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packing_env import reference
from packing_env.constraints import Constraints, limit_in_mg, weight_in_mg
from packing_env.items.meshes.mesh import TooSmallError
from packing_env.kernels.stability_rules import LADDER
from packing_env.plan import Packing
from packing_env.planner import Part
from packing_env.planner.grid.containers import lay_grid
from packing_env.planner.grid.poses import Poses, build_poses
from packing_env.planner.packer import STANDS
from packing_env.planner.reading.constraints import constraints_of
from packing_env.planner.reading.containers import read_containers
from packing_env.reference import Episode
from packing_env.reference.maps import lid_tolerance
from packing_env.testing.episodes import reference_item, reference_rules

STANDS_TOLERANCE = 0.4
"""Widest gap that counts as contact with ``stands``, in cells."""
Sides = tuple[float, float, float]


class Grid:
    """The parts of an order in one size of container on a grid.

    Args:
        order: The parts, and the arguments of `pack`.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        constraints = {k: v for k, v in order.items() if k in Constraints.__dataclass_fields__}
        parts = [part for part in order["parts"] if not is_too_small(part)]
        (size,) = read_containers(order["container"])
        rules = constraints_of(order["parts"], [size], constraints)
        cell, stability = order["cell"], order["stability"]
        task: dict[str, Any] = {"stability": stability}
        if stability == STANDS:
            task = {"stability": LADDER[-1], "contact_tol": STANDS_TOLERANCE * cell}
        grid = lay_grid(size, cell, size.constraints(rules), **task)
        meshes = [part.load() for part in parts]
        self._parts, self._names = parts, [part.label for part in parts]
        self.poses: Poses = build_poses(parts, meshes, grid, stands=stability == STANDS)
        self._extents = [tuple(mesh.extents.tolist()) for mesh in meshes]

    @property
    def rules(self) -> Constraints:
        """The constraints on whole cells."""
        return self.poses.params.constraints

    def fits(
        self, name: str, *, on_cells: bool = False, faces: bool = True, turn: bool = True
    ) -> bool:
        """Return whether a part fits in some quarter turn, by its extents.

        Args:
            name: Name of the part.
            on_cells: Whether to compare whole cells, instead of lengths in the user's container.
            faces: Whether to heed which faces may be up.
            turn: Whether to heed that turns about z may be forbidden.
        """
        part = self._names.index(name)
        container, params = self.poses.container, self.poses.params
        x, y, height = container.size
        room = (*(params.grid if on_cells else (x, y)), height + lid_tolerance(height))
        return any(
            all(
                side <= length
                for side, length in zip(self._sides(turned, on_cells), room, strict=True)
            )
            for turned in self._turns(self._parts[part], self._extents[part], faces, turn)
        )

    def _sides(self, sides: Sides, on_cells: bool) -> Sides:
        if not on_cells:
            return sides
        dx, dy = (math.ceil(side / self.poses.params.cell - 1e-6) for side in sides[:2])
        return dx, dy, sides[2]

    @staticmethod
    def _turns(part: Part, extents: Sequence[float], faces: bool, turn: bool) -> Iterator[Sides]:
        upright = {face[1] for face in part.faces} if faces else set()
        for i, j, k in itertools.permutations(range(3)):
            if (part.turn or not turn or i == 0) and (not upright or "xyz"[k] in upright):
                yield extents[i], extents[j], extents[k]

    def is_too_heavy(self, name: str) -> bool:
        """Return whether one piece exceeds the weight limit."""
        part = self._names.index(name)
        limit = self.rules.weight_limit
        weight = weight_in_mg(self._parts[part].handling.get("weight", 0.0))
        return limit is not None and weight > limit_in_mg(limit)

    def place(
        self, packing: Packing | None, name: str, names: Sequence[str] = (), rule: str = ""
    ) -> tuple[int, ...] | None:
        """Return a place for one more part, or None.

        Args:
            packing: The finished load; None means an empty container.
            name: Name of the part.
            names: Constraints that are switched off; constraints that grids lack are ignored.
            rule: The stability rule; by default the rule of the part.
        """
        part = self._names.index(name)
        rules, poses = _without(self.rules, names), self.poses
        params = poses.params.evolve(constraints=rules, stability=rule or poses.rules[part])
        packed = packing.items if packing is not None else ()
        first, number = int(poses.first[part]), int(poses.count[part])
        rows = [int(poses.first[i.item_id]) + i.orientation for i in packed]
        items = [
            reference_item(poses.catalogue, row) for row in [*rows, *range(first, first + number)]
        ]
        episode = Episode(params.grid, items, reference_rules(params))
        for item in packed:
            z = reference.FLOAT(item.z if item.z_grid is None else item.z_grid)
            episode.place(0, 0, *item.cell, reference.Placement(True, z))
        for _ in range(number):
            for x, y in itertools.product(*map(range, params.grid)):
                if episode.examine(0, 0, x, y).legal:
                    return episode.queue[0] - len(packed), x, y
            episode.queue.pop(0)
        return None


def is_too_small(part: Part) -> bool:
    """Return whether a part is too small to be a solid."""
    try:
        part.load()
    except TooSmallError:
        return True
    return False


def _without(rules: Constraints, names: Sequence[str]) -> Constraints:
    free = {name: getattr(Constraints(), name) for name in names if hasattr(rules, name)}
    if "wall_clearance" in names:
        free["wall_clearance"] = 0.0  # None means the clearance
    return replace(rules, **free)
