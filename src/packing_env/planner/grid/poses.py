"""Poses of parts: a catalogue with one row for every orientation of every part."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.constraints import Constraints
from packing_env.core.feasibility import legal_on_floor
from packing_env.item_source import check_size, log_warnings
from packing_env.items import Catalogue, CatalogueError, Mesh
from packing_env.items.meshes.mesh import UNITS
from packing_env.kernels.stability_rules import LADDER
from packing_env.planner.fit import misfit, none_fits
from packing_env.planner.grid.containers import Container
from packing_env.planner.grid.filling import Filling
from packing_env.planner.reading.parts import Part
from packing_env.planner.reasons import FALLS, OFF_CELLS
from packing_env.types import PackingParams, lid_tolerance

_LOGGER = logging.getLogger("packing_env.planner")

_EQUAL = 1e-4
"""Surfaces of one part whose heights differ by less are equal, in cells."""


@dataclass(frozen=True, eq=False)
class Poses:
    """The parts in all their orientations, for one container.

    Attributes:
        container: The container.
        params: Its task; the stability rule is the least strict rule among the parts.
        catalogue: One row per pose, with one orientation and the name of the part.
        first: ``[T]`` row of each part's first pose.
        count: ``[T]`` number of each part's poses; 0 for a part that is never packed.
        rules: The stability rule of each part.
        reasons: Why each part is never packed; "" if the part may be packed.
    """

    container: Container
    params: PackingParams
    catalogue: Catalogue
    first: Int[Tensor, " T"]
    count: Int[Tensor, " T"]
    rules: tuple[str, ...]
    reasons: tuple[str, ...]
    _fillings: list[Filling] = field(default_factory=list)

    def filling(self, num_items: int) -> Filling:
        """Return containers with room for at least a number of parts; reuse earlier ones."""
        large = [each for each in self._fillings if each.params.num_items >= num_items]
        if not large:
            params = self.params.evolve(num_items=num_items)
            large = [Filling(self.catalogue.tensors(), params, self.rules_of_rows)]
            self._fillings[:] = large
        return large[0]

    def of(
        self, part: Int[Tensor, " B"], pose: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """Return the rows of parts in a pose, or in all poses (-1), and a mask of existing rows."""
        places = torch.arange(max(1, int(self.count.max())))
        there = (places < self.count[part, None]) & (
            (pose < 0)[:, None] | (places == pose[:, None])
        )
        return torch.where(there, self.first[part, None] + places, 0), there

    @property
    def rules_of_rows(self) -> list[str]:
        """The stability rule of each row of the catalogue."""
        end = torch.tensor([len(self.catalogue)])
        rows = torch.diff(self.first, append=end).tolist()
        return [rule for rule, n in zip(self.rules, rows, strict=True) for _ in range(n)]

    def least_strict(self, parts: Iterable[int]) -> str:
        """Return the least strict stability rule of some parts (at least one)."""
        rules = {self.rules[part] for part in parts}
        return min(rules, key=LADDER.index) if len(rules) > 1 else rules.pop()

    @property
    def volume(self) -> Float[Tensor, " T"]:
        """Volume of each part, m^3."""
        return self.of_parts(self.catalogue.volume)

    def of_parts(self, values: Tensor) -> Tensor:
        """Return a value for each part from the values of its poses, which are all equal."""
        return values[self.first.clamp(max=len(values) - 1)]

    def origin(self, row: int) -> tuple[int, int]:
        """Return the part and the pose of a row."""
        part = int((self.first <= row).nonzero().max())
        return part, row - int(self.first[part])


def _better_unit(largest: float, unit: str, params: PackingParams) -> str:
    """Return a hint: the largest unit in which the parts are not much larger than the container."""
    for name in ("m", "in", "cm", "mm"):
        size = largest / UNITS[unit] * UNITS[name]
        if params.cell <= size <= 2.0 * max(params.container):
            return f"if the files are in {name}, it is {1e3 * size:.3g} mm long: give --unit {name}"
    return "check the unit of the parts: --unit m, cm, mm, in, ..."


def build_poses(
    parts: Sequence[Part], meshes: Sequence[Mesh], container: Container, *, stands: bool = False
) -> Poses:
    """Build the poses of parts, or load them from the cache of catalogues.

    Args:
        parts: The parts.
        meshes: Their solids.
        container: The container. The stability rule of its task applies to all parts unless
            ``stands`` is True.
        stands: Leave out poses in which a single part topples on a flat floor, and apply to each
            part the strictest rule of ``LADDER`` under which some pose stands on the floor.

    Raises:
        CatalogueError: No part fits into the container.
        ParameterError: All parts are smaller than a cell.
    """
    params = container.params
    pairs = list(zip(parts, meshes, strict=True))

    # 1. A catalogue of the parts.
    catalogue = _catalogue_of(pairs, container, stands)

    # 2. Find the parts that never fit, and the rule of each part.
    rows = catalogue.orientation_mask.sum(1)
    count = torch.where(catalogue.never_feasible, 0, rows)
    rules = [params.stability] * len(rows)
    reasons = [
        (_misfit(part, mesh, container) or OFF_CELLS) if never else ""
        for (part, mesh), never in zip(pairs, catalogue.never_feasible.tolist(), strict=True)
    ]
    if stands:
        levels = _strictest(catalogue, params)
        reasons = [
            FALLS if number and level < 0 else reason
            for number, level, reason in zip(count.tolist(), levels.tolist(), reasons, strict=True)
        ]
        count = torch.where(levels < 0, 0, count)
        weakest = int(levels[count > 0].min()) if bool(count.any()) else len(LADDER) - 1
        params = params.evolve(stability=LADDER[weakest])
        rules = [
            LADDER[level] if number else params.stability
            for level, number in zip(levels.tolist(), count.tolist(), strict=True)
        ]
        _warn_of_weak([part.label for part in parts], rules, reasons, count.tolist())

    # 3. Give each pose a row.
    sources = [of | part.source for of, part in zip(catalogue.sources, parts, strict=True)]
    first = rows.cumsum(0) - rows
    return Poses(
        container=container,
        params=params,
        catalogue=_one_row_per_pose(catalogue, sources),
        first=first,
        count=count,
        rules=tuple(rules),
        reasons=tuple(reasons),
    )


def _catalogue_of(
    pairs: Sequence[tuple[Part, Mesh]], container: Container, stands: bool
) -> Catalogue:
    params, unit = container.params, pairs[0][1].source.unit
    try:
        catalogue = Catalogue.from_meshes(
            [replace(mesh, name=part.label) for part, mesh in pairs],
            cell=params.cell,
            container=params.container,
            unit=unit,  # for the message if no part fits
            faces=[part.faces for part, _ in pairs],
            turn=[part.turn for part, _ in pairs],
            resting=stands,
        )
    except CatalogueError as error:
        misfits = [_misfit(part, mesh, container) for part, mesh in pairs]
        if not all(misfits):
            raise
        parts = [part for part, _ in pairs]
        x, y, height = container.size
        room = (x - 2 * container.constraints.walls, y - 2 * container.constraints.walls, height)
        raise none_fits(parts, room, container.type.unit, misfits.__getitem__) from error
    largest = float(catalogue.extent.max())
    check_size(catalogue, f"files are read in {unit}; {_better_unit(largest, unit, params)}")
    log_warnings(catalogue.names, [source.get("warnings", ()) for source in catalogue.sources])
    catalogue = replace(catalogue, orientation_mask=_distinct(catalogue, params.cell))
    keys = {key for part, _ in pairs for key in part.handling}
    handling = {key: [part.handling.get(key) for part, _ in pairs] for key in sorted(keys)}
    return catalogue.with_handling(handling) if handling else catalogue


def _distinct(catalogue: Catalogue, cell: float) -> Bool[Tensor, "T R"]:
    """Return the mask of orientations without those that equal an earlier one of the same part.

    The surfaces of round parts in several turns differ only by rounding errors.
    """
    mask = catalogue.orientation_mask.clone()
    for part in range(len(mask)):
        surfaces = torch.stack((catalogue.top[part], catalogue.bottom[part]), 1)
        surfaces = (surfaces / (_EQUAL * cell)).round() + 0.0  # no negative zeros
        earlier = set[bytes]()
        for turn, maps in enumerate(surfaces):
            key = maps.numpy().tobytes()
            mask[part, turn] &= key not in earlier
            earlier.add(key)
    return mask


def _misfit(part: Part, mesh: Mesh, container: Container) -> str:
    """Return why a part fits in no quarter turn on the cells of a container; "" if it fits."""
    sides: list[float] = mesh.extents.tolist()
    on_cells, whole = (
        misfit(part, sides, [[side + lid_tolerance(side) for side in size]])
        for size in (container.params.container, container.size)
    )
    return (whole or OFF_CELLS) if on_cells else ""


def _strictest(catalogue: Catalogue, params: PackingParams) -> Int[Tensor, " T"]:
    """Return the index in ``LADDER`` of the strictest rule that accepts each item on the floor.

    The index is -1 for an item that no rule accepts. Clearances and pre-placed boxes are respected
    unless they leave an item no place at all.
    """
    rules = params.constraints
    beside = Constraints(
        clearance=rules.clearance, wall_clearance=rules.wall_clearance, preplaced=rules.preplaced
    )
    levels = []
    for constraints in (beside, Constraints()):
        free = params.evolve(constraints=constraints)
        stands = [
            legal_on_floor(catalogue.tensors(), free.evolve(stability=rule)) for rule in LADDER
        ]
        levels.append(torch.stack([each.any(1) for each in stands]).sum(0) - 1)
    placed, alone = levels
    return torch.where(placed < 0, alone, placed)


def _warn_of_weak(
    names: Sequence[str], rules: Sequence[str], reasons: Sequence[str], count: Sequence[int]
) -> None:
    """Log the parts that stand in no pose, and the parts with a less strict rule."""
    if falls := [name for name, reason in zip(names, reasons, strict=True) if reason == FALLS]:
        text = "stands in no pose that fits (stability com_hull or none may pack it): %s"
        _LOGGER.warning(text, ", ".join(falls))
    for rule in LADDER[:-1]:
        weak = [n for n, r, c in zip(names, rules, count, strict=True) if c and r == rule]
        if weak:
            text = "packed under rule %s instead of %s, so less sure to stand: %s"
            _LOGGER.warning(text, rule, LADDER[-1], ", ".join(weak))


def _one_row_per_pose(catalogue: Catalogue, sources: Sequence[dict[str, object]]) -> Catalogue:
    """Return a catalogue of one orientation per row, without padding and without ``cuboid``."""
    real = catalogue.orientation_mask.flatten().nonzero().flatten()
    part = real.div(catalogue.peak.shape[1], rounding_mode="floor")

    def rows(value: Tensor) -> Tensor:
        turned = value.shape[:2] == catalogue.peak.shape
        return value.flatten(0, 1)[real][:, None] if turned else value[part]

    poses = catalogue.each(rows)
    return replace(
        poses,
        cuboid=poses.cuboid[:, :, :0],
        extent=catalogue.extent[part],  # the three sides have no orientation axis
        names=[catalogue.names[i] for i in part.tolist()],
        sources=[sources[i] for i in part.tolist()],
    )
