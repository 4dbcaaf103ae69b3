"""`nest`: parts at true size into a build volume, in three dimensions and without gravity."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from packing_env.constraints import Constraints
from packing_env.item_source import log_warnings
from packing_env.items.handling import allowed
from packing_env.items.meshes.mesh import MeshSource
from packing_env.nesting.cells import MAX_VOXELS, default_cell
from packing_env.nesting.levels import EXACT, Level, MeshPart, Room, Sketch, as_given
from packing_env.nesting.options import check_handling, read_rotations, read_rules
from packing_env.nesting.pieces import Leaving, leaving
from packing_env.nesting.search import NestSearch
from packing_env.plan import Packing, PlacedItem
from packing_env.planner.copies import Fill, most_copies
from packing_env.planner.fit import misfit, none_fits
from packing_env.planner.packer import load_solids
from packing_env.planner.reading.containers import (
    Containers,
    ContainerType,
    container_limit,
    read_containers,
)
from packing_env.planner.reading.lengths import read_length
from packing_env.planner.reading.parts import Part, Parts, read_parts
from packing_env.planner.reasons import CAUSES, INTERRUPTED, NO_ROOM, OFF_CELLS, TOO_LARGE
from packing_env.planner.result import Plan, left_over
from packing_env.values import ParameterError, check_number

COARSE = (2,)
"""For each coarser level of the search: how many voxels are joined along each axis."""
MAX_PIECES = 5_000
"""Largest number of pieces of an order: the search compares all pairs."""
OUT_OF_TIME = "not tried in time; give more seconds, or a larger cell"
"""Reason of parts that are left over when the time ends before every part has been tried."""


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
    no two solids are closer than ``clearance``. Each part can be taken out in a straight line along
    an axis, in the reverse order of the plan.

    Args:
        parts: As for :func:`packing_env.pack`; :class:`packing_env.planner.Fill` nests as many
            copies as fit.
        container: The build volume, ``"200x250x330mm"`` or ``(X, Y, H)`` in metres; one size.
        seconds: Time of the search. Reading, voxels and compiling (once) take additional time.
        unit: Unit of files and boxes that state none, as for :func:`packing_env.pack`.
        cell: Side of a voxel, ``"2mm"`` or metres. By default, it makes about 16 million voxels in
            the container, or fewer if ``seconds`` is less than 30; if all faces of all parts are
            parallel to the axes, as those of boxes are, it divides their lengths. Smaller voxels
            nest more tightly and take more time. Up to one cell of the container is lost along each
            axis on which its side is not a whole number of cells.
        containers: How many containers may be used; by default the number that the container
            states, or 1.
        yaw: Degrees. By default, only turns by 90 degrees about the axes are tried. With ``yaw``,
            parts are also turned about z by multiples of this angle.
        lowest: If all parts are packed, make the nest as low as possible in the remaining time.
        interlocking: Also accept nests from which parts cannot be taken out along an axis.
        seed: Seed of the search. Threads compete, so equal seeds need not give equal nests.
        **constraints: ``clearance`` and ``wall_clearance`` (as ``"1mm"`` or metres), and
            ``preplaced``, boxes that stay empty, such as ``"50x50x20mm@0,0,0"``.

    Returns:
        The plan; ``packing_env.planner.save`` writes it.

    Raises:
        ValueError: The parts, the container or an option is wrong; the message names the remedy.
    """
    # 1. Read the containers, the options and the parts.
    check_number("seconds", seconds, above=0.0)
    types = read_containers(container)
    if len(types) > 1:
        raise ParameterError("a nest has containers of one size; give one container")
    limit = types[0].number or 1
    if containers is not None:
        limit = min(container_limit(types, containers), types[0].number or containers)
    if lowest and isinstance(parts, Fill):
        raise ParameterError("lowest=True has no effect with fill; leave one of them out")
    rules = read_rules(types[0], constraints)
    rotations = read_rotations(yaw)
    entries = parts.parts if isinstance(parts, Fill) else parts
    size = () if isinstance(parts, Fill) else types[0].size
    order = read_parts(entries, unit, default=types[0].unit, container=size)
    check_handling(order)
    number = sum(part.quantity for part in order)
    if number > MAX_PIECES:
        raise ParameterError(
            f"{number:,} pieces are more than {MAX_PIECES:,}; nest fewer of them at a time, or use "
            "packing pack"
        )
    # 2. Load the solids; parts that are too small for one are left over.
    order, meshes, small = load_solids(order)
    if small and isinstance(parts, Fill):
        raise ParameterError(f"{small[0].name}: {small[0].reason}, or leave it out of the copies")
    log_warnings([part.label for part in order], [mesh.warnings for mesh in meshes])
    sources = [
        MeshPart(mesh, allowed(rotations, part.faces, part.turn).numpy())
        for part, mesh in zip(order, meshes, strict=True)
    ]
    # 3. Make the voxels of the parts, and coarser ones, with which the search begins.
    if cell is None:
        side = default_cell(order, types[0], rules, yaw, seconds)
    else:
        side = read_length("cell", cell)
    level = _level(order, sources, types[0], rules, side)
    coarse = level.coarser(COARSE)
    _warm_up()
    # 4. Search.
    begin = partial(NestSearch, interlocking=interlocking, lowest=lowest, seed=seed)

    def run(order: Sequence[Part], seconds: float, trial: bool) -> Plan:
        return _Nester(order, sources, types[0], rules, level, coarse).nest(seconds, limit, begin)

    if isinstance(parts, Fill):
        return most_copies(order, run, seconds, pieces=MAX_PIECES)
    plan = run(order, seconds, False)
    return replace(plan, left=(*plan.left, *small))


def _level(
    order: Sequence[Part],
    sources: Sequence[MeshPart],
    kind: ContainerType,
    rules: Constraints,
    side: float,
) -> Level:
    """Return the parts and the container as voxels.

    Raises:
        ParameterError: The cell is too small or too large.
        CatalogueError: No part fits.
    """
    # 1. Check the side of the voxels.
    size = np.array([float(side) for side in kind.size])
    keep_outs = [
        (np.array(box[:3]), np.array(box[:3]) + np.array(box[3:])) for box in rules.preplaced
    ]
    room = Room(size, rules.clearance or 0.0, rules.walls, keep_outs)
    inner = size - 2 * (room.walls - room.clearance / 2)
    volume = float(inner.prod())
    if volume / side**3 > MAX_VOXELS:
        raise ParameterError(
            f"cell={side:g} m makes {volume / side**3:.3g} voxels, more than {MAX_VOXELS:,}; give "
            f"at least {(volume / MAX_VOXELS) ** (1 / 3):.2g} m"
        )
    if side > inner.min() + EXACT:
        raise ParameterError(f"cell={side:g} m is larger than the container; give a smaller cell")
    # 2. Make the voxels; find out whether any part fits.
    level = Level([source.voxels for source in sources], room, side)
    if not any(level.rows[: len(sources)]):
        free = size - 2 * room.walls
        if any(part.fits(rotation, free) for part in sources for rotation in part.rotations):
            boxes = all(part.is_box for part in order)
            pack = ", or use packing pack: boxes need no cells" if boxes else ""
            raise ParameterError(
                f"cell={side:g} m: the parts fit into the container, but not into its "
                f"{' x '.join(map(str, level.container))} whole voxels; give a smaller cell that "
                f"divides the sides of container and parts{pack}"
            )

        def reason(number: int) -> str:
            sides = [float(length) for length in order[number].exact_sides]
            return misfit(order[number], sides, [(free + EXACT).tolist()]) or TOO_LARGE

        raise none_fits(order, free.tolist(), kind.unit, reason)
    return level


def _warm_up() -> None:
    """Pack parts of one voxel, so that the kernels are compiled before the clock starts."""
    level = Level([as_given(np.ones((1, 1, 1), bool))], Room(np.ones(3)), 0.5)
    search = NestSearch(level, [1.0], [2])
    search.fill(time.perf_counter() + 1.0)
    search.left = [1]
    search.add(time.perf_counter() + 1.0)
    leaving(level, search.pieces)


class _Nester:
    """Containers that are filled one after the other."""

    def __init__(
        self,
        order: Sequence[Part],
        sources: Sequence[MeshPart],
        kind: ContainerType,
        rules: Constraints,
        level: Level,
        coarse: Sketch | None,
    ) -> None:
        self.order, self.sources, self.kind, self.rules = order, sources, kind, rules
        self.level, self.coarse = level, coarse
        self.left = [part.quantity for part in order]
        self.tried = 0
        self.interrupted = self.out_of_time = False

    def nest(self, seconds: float, limit: int, begin: Callable[..., NestSearch]) -> Plan:
        """Fill up to ``limit`` containers, each with a search that ``begin`` returns."""
        start = time.perf_counter()
        packings: list[Packing] = []
        while any(self._open()) and len(packings) < limit and not self.interrupted:
            spare = max(0.0, start + seconds - time.perf_counter())
            if packings and not spare:  # placing the first part in another container takes time
                self.out_of_time = True
                break
            search = begin(self.level, [source.volume for source in self.sources], self.left)
            try:
                deadline = time.perf_counter() + spare / (limit - len(packings))
                search.search(deadline, self.coarse)
            except KeyboardInterrupt:  # the nest so far is the result
                self.interrupted = True
            self.out_of_time |= not search.tried_all
            if not search.pieces:
                break
            packings.append(self._packing(search))
            self.left = search.left
            self.tried += search.tried
        if self.interrupted and not packings:
            raise KeyboardInterrupt  # a plan without parts would replace an earlier one
        return Plan(
            containers=tuple(packings),
            left=left_over(self.order, self.left, self._reason),
            unit=self.kind.unit,
            tried=self.tried,
            seconds=time.perf_counter() - start,
            interrupted=self.interrupted,
        )

    def _reason(self, part: int) -> str:
        """Return why a part is left over."""
        if self.level.rows[part]:
            if self.interrupted:
                return INTERRUPTED
            if self.out_of_time:
                return OUT_OF_TIME
            # Every part was tried in a container that has only the pre-placed boxes.
            nothing = self.left == [each.quantity for each in self.order]
            if self.rules.preplaced and nothing:
                return f"preplaced: {CAUSES['preplaced']}"
            return NO_ROOM
        free = np.array([float(side) for side in self.kind.size]) - 2 * self.rules.walls
        source = self.sources[part]
        fits = any(source.fits(rotation, free) for rotation in source.rotations)
        return OFF_CELLS if fits else TOO_LARGE

    def _open(self) -> list[bool]:
        rows = self.level.rows
        return [count > 0 and bool(rows[part]) for part, count in enumerate(self.left)]

    def _packing(self, search: NestSearch) -> Packing:
        x, y, height = (float(side) for side in self.kind.size)
        level = self.level
        return Packing(
            container=(x, y, height),
            cell=level.cell,
            stability="none",
            items=tuple(
                self._item(order, step, level)
                for order, step in enumerate(leaving(level, search.pieces))
            ),
            num_items=sum(self.left),
            geometry="solids",
            constraints=self.rules.to_json(),
            name=self.kind.name,
            container_unit=self.kind.unit,
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
            source="cuboid" if extent else origin.path or f"mesh:{part.label}",
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
            mesh=part.load() if part.sides is None else None,
        )
