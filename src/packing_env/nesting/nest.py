"""`nest`: parts at true size into a build volume, in three dimensions and without gravity."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from packing_env.constraints import Constraints
from packing_env.items import CatalogueError
from packing_env.items.meshes.mesh import MeshSource
from packing_env.items.rotations import rotation_set
from packing_env.nesting.levels import Array, Level, MeshPart, Room, TurnedVoxels
from packing_env.nesting.search import Leaving, NestSearch
from packing_env.plan import Packing, PlacedItem
from packing_env.planner.copies import Fill, most_copies
from packing_env.planner.reading.constraints import read_options
from packing_env.planner.reading.containers import (
    Containers,
    ContainerType,
    container_limit,
    read_containers,
)
from packing_env.planner.reading.lengths import read_length
from packing_env.planner.reading.parts import Part, Parts, read_parts
from packing_env.planner.reasons import NO_ROOM, TOO_LARGE
from packing_env.planner.result import LeftOver, Plan
from packing_env.values import ParameterError, check_number

VOXELS = 4_000_000
"""Number of voxels of a container if no cell is given."""
MAX_VOXELS = 100_000_000
"""Largest number of voxels of a container."""
COARSE, COARSE_SHARE = 1.6, 0.55
"""Side of the voxels with which the search begins, in cells, and its share of the time."""
_WITHOUT_EFFECT = ("weight", "value", "priority")
"""Attributes of parts that a nest may ignore: nothing rests on anything."""


def nest(
    parts: Parts | Fill,
    container: Containers,
    seconds: float = 60.0,
    *,
    unit: str | None = None,
    cell: str | float | None = None,
    containers: int | None = None,
    yaw: float | None = None,
    lowest: bool = False,
    interlocking: bool = False,
    seed: int = 0,
    **constraints: Any,
) -> Plan:
    """Pack parts in three dimensions: inside and below each other, as in a powder bed.

    Collisions are judged with voxels that contain the solids and half the clearance around them, so
    that no two solids are nearer than asked. Each part can be taken out in a straight line along an
    axis, in the reverse order of the plan.

    Args:
        parts: As for :func:`packing_env.pack`; :class:`packing_env.planner.Fill` nests as many
            copies as fit.
        container: The build volume, ``"200x250x330mm"`` or ``(X, Y, H)`` in metres; one size.
        seconds: Time of the search. Reading, voxels and compiling (once) take additional time.
        unit: Unit of files and boxes that state none, as for :func:`packing_env.pack`.
        cell: Side of a voxel, ``"2mm"`` or metres; by default 4 million voxels in the container.
            Smaller ones nest more tightly and take more time.
        containers: How many containers may be used; by default 1.
        yaw: Degrees; parts are turned about z by multiples of this angle, besides the turns of the
            axes by 90 degrees, which are all that is tried by default.
        lowest: If all parts are packed, make the nest as low as possible in the remaining time.
        interlocking: Also accept nests from which parts cannot be taken out along an axis.
        seed: Seed of the search.
        **constraints: ``clearance`` and ``wall_clearance`` (as ``"1mm"`` or metres), and
            ``preplaced``, boxes that stay empty, such as ``"50x50x20mm@0,0,0"``.

    Returns:
        The plan; ``packing_env.planner.save`` writes it.

    Raises:
        ValueError: The parts, the container or an option is wrong; the message names the remedy.
    """
    check_number("seconds", seconds, above=0.0)
    types = read_containers(container)
    if len(types) > 1:
        raise ParameterError("a nest has containers of one size; give one container")
    limit = container_limit(types, containers) if containers or types[0].number else 1
    rules = _rules(types[0], constraints)
    rotations = _rotations(yaw)
    entries = parts.parts if isinstance(parts, Fill) else parts
    order = read_parts(entries, unit, default=types[0].unit, container=types[0].size)
    _check_handling(order)
    meshes = [part.load() for part in order]
    sources = [
        MeshPart(mesh, _allowed(part, rotations)) for part, mesh in zip(order, meshes, strict=True)
    ]
    levels = _levels(sources, types[0], rules, cell)
    settings = _Settings(limit, lowest, interlocking, seed)

    def run(order: Sequence[Part], seconds: float, trial: bool) -> Plan:
        nester = _Nester(order, sources, types[0], rules, levels)
        return nester.nest(seconds, settings)

    return (
        most_copies(order, run, seconds) if isinstance(parts, Fill) else run(order, seconds, False)
    )


@dataclass(frozen=True)
class _Settings:
    """Options of :func:`nest`."""

    limit: int
    lowest: bool
    interlocking: bool
    seed: int


def _rules(kind: ContainerType, constraints: dict[str, Any]) -> Constraints:
    """Return the constraints; refuse those that have no meaning without gravity."""
    known = ("clearance", "wall_clearance", "preplaced")
    others = [name for name in constraints if name not in known]
    if others:
        raise ParameterError(f"{', '.join(others)}: a nest has {', '.join(known)} only")
    if kind.deck or any(kind.overhang) or kind.cut or kind.weight_limit or kind.cost is not None:
        raise ParameterError(
            "the container of a nest states its size, name and number only; leave out deck, "
            "overhang, cut, weight_limit and cost"
        )
    rules = Constraints.read(read_options(constraints))
    x, y, height = (float(side) for side in kind.size)
    rules.check_container((x, y, height))
    return rules


def _rotations(yaw: float | None) -> Array:
    """Return the rotations ``[R, 3, 3]`` in which parts are tried."""
    if yaw is None:
        return rotation_set("pi/2").numpy()
    check_number("yaw", yaw, above=0.0)
    if abs(90.0 / yaw - round(90.0 / yaw)) > 1e-9:
        raise ParameterError(f"yaw={yaw:g} degrees must divide 90, as 45, 30 or 15 do")
    return rotation_set("pi/2", yaw_interval=math.radians(yaw)).numpy()


def _allowed(part: Part, rotations: Array) -> Array:
    """Return the rotations that leave an allowed face up, and the length along x if it must."""
    allowed = np.ones(len(rotations), bool)
    if part.faces:
        up = [np.eye(3)["xyz".index(f[1])] * (1 if f[0] == "+" else -1) for f in part.faces]
        allowed &= np.any([rotations[:, 2] @ face > 1 - 1e-9 for face in up], axis=0)
    if not part.turn:
        allowed &= rotations[:, 0, 0] > 1 - 1e-9
    return rotations[allowed]


def _check_handling(order: Sequence[Part]) -> None:
    for part in order:
        for name in part.handling:
            if name not in _WITHOUT_EFFECT:
                raise ParameterError(
                    f"{part.label}: {name} has no meaning in a nest, where nothing rests on "
                    "anything; leave it out, or use packing pack"
                )


def _levels(
    sources: Sequence[MeshPart], kind: ContainerType, rules: Constraints, cell: str | float | None
) -> list[Level]:
    """Return the coarse and the fine level of the search.

    Raises:
        ParameterError: The cell is too small.
        CatalogueError: No part fits.
    """
    size = np.array([float(side) for side in kind.size])
    volume = float(size.prod())
    side = (volume / VOXELS) ** (1 / 3) if cell is None else read_length("cell", cell)
    if volume / side**3 > MAX_VOXELS:
        raise ParameterError(
            f"cell={side:g} m makes {volume / side**3:.3g} voxels, more than {MAX_VOXELS:,}; give "
            f"at least {(volume / MAX_VOXELS) ** (1 / 3):.2g} m"
        )
    keep_outs = [
        (np.array(box[:3]), np.array(box[:3]) + np.array(box[3:])) for box in rules.preplaced
    ]
    room = Room(size, rules.clearance or 0.0, rules.walls, keep_outs)
    levels = [Level(sources, room, side * factor) for factor in (COARSE, 1.0)]
    if not any(levels[-1].rows[: len(sources)]):
        raise CatalogueError(
            "no part fits into the container in any rotation; state the unit of the parts "
            "(--unit), or give a larger container"
        )
    _warm_up()
    return levels


class _Cube:
    """A part of one voxel, with which the kernels are compiled before the clock starts."""

    volume = 1.0
    rotations = np.eye(3)[None]

    def voxels(self, cell: float, margin: float) -> list[TurnedVoxels]:
        return [TurnedVoxels(np.ones((1, 1, 1), bool), np.zeros(3))]


def _warm_up() -> None:
    level = Level([_Cube()], Room(np.ones(3)), 0.5)
    search = NestSearch(level, [1.0], [2])
    search.fill(time.perf_counter() + 1.0)
    search.left = [1]
    search.add(time.perf_counter() + 1.0)
    search.leaving()


class _Nester:
    """Containers that are filled one after the other."""

    def __init__(
        self,
        order: Sequence[Part],
        sources: Sequence[MeshPart],
        kind: ContainerType,
        rules: Constraints,
        levels: Sequence[Level],
    ) -> None:
        self.order, self.sources, self.kind, self.rules = order, sources, kind, rules
        self.levels = levels
        self.left = [part.quantity for part in order]
        self.tried = 0

    def nest(self, seconds: float, settings: _Settings) -> Plan:
        """Fill up to `settings.limit` containers."""
        start = time.perf_counter()
        packings: list[Packing] = []
        while any(self._open()) and len(packings) < settings.limit:
            spare = max(0.0, start + seconds - time.perf_counter())
            search = self._search(spare / (settings.limit - len(packings)), settings)
            if not search.pieces:
                break
            packings.append(self._packing(search))
            self.left = search.left
            self.tried += search.tried
        return Plan(
            containers=tuple(packings),
            left=tuple(
                LeftOver(part.label, count, NO_ROOM if rows else TOO_LARGE)
                for part, count, rows in zip(
                    self.order, self.left, self.levels[-1].rows, strict=False
                )
                if count
            ),
            unit=self.kind.unit,
            tried=self.tried,
            seconds=time.perf_counter() - start,
        )

    def _open(self) -> list[bool]:
        rows = self.levels[-1].rows
        return [count > 0 and bool(rows[part]) for part, count in enumerate(self.left)]

    def _search(self, seconds: float, settings: _Settings) -> NestSearch:
        """Fill one container: coarse voxels first, then fine ones."""
        start = time.perf_counter()
        coarse, fine = self.levels
        search = NestSearch(
            coarse,
            [source.volume for source in self.sources],
            self.left,
            interlocking=settings.interlocking,
            seed=settings.seed,
        )
        with suppress(KeyboardInterrupt):  # the nest so far is the result
            search.fill(start + COARSE_SHARE * seconds)
            search.add(start + COARSE_SHARE * seconds)
            search.refine(fine)
            if not search.pieces:  # parts that only just fit
                search.fill(start + seconds)
            search.add(start + seconds)
            if settings.lowest and not any(search.left):
                search.lower(start + seconds)
        return search

    def _packing(self, search: NestSearch) -> Packing:
        x, y, height = (float(side) for side in self.kind.size)
        level = search.level
        return Packing(
            container=(x, y, height),
            cell=level.cell,
            stability="none",
            contact_tol=0.0,
            items=tuple(
                self._item(order, step, level) for order, step in enumerate(search.leaving())
            ),
            num_items=sum(self.left),
            geometry="solids",
            constraints=self.rules.to_json(),
            name=self.kind.name,
        )

    def _item(self, order: int, step: Leaving, level: Level) -> PlacedItem:
        piece, part = step.piece, self.order[step.piece.part]
        source = self.sources[piece.part]
        rotation_id, translation = level.pose(piece.row, np.array(piece.place))
        rotation = source.rotations[rotation_id]
        corner = (source.mesh.vertices.numpy() @ rotation.T + translation).min(0)
        origin: MeshSource = source.mesh.source
        extent = None
        if part.sides is not None:
            dx, dy, dz = (float(side) for side in part.sides)
            extent = dx, dy, dz
        return PlacedItem(
            order=order,
            name=part.label,
            source="cuboid" if extent else origin.path or f"mesh:{source.mesh.name}",
            unit=part.unit if extent else origin.unit,
            scale=origin.scale,
            extent=extent,
            rotation=rotation,
            translation=translation,
            cell=(round(corner[0] / level.cell), round(corner[1] / level.cell)),
            z=float(corner[2]),
            orientation=rotation_id,
            item_id=piece.part,
            support_ratio=0.0,
            volume=source.volume,
            handling={**part.handling, **part.poses},
            leaves=step.way,
        )
