"""Poses of parts: a catalogue in which every orientation of every part is a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.item_source import check_size, log_warnings
from packing_env.items import Catalogue, Mesh
from packing_env.items.meshes.mesh import UNITS
from packing_env.planner.parts import Part
from packing_env.types import PackingParams


@dataclass(frozen=True, eq=False)
class Poses:
    """The parts in all their orientations, for one container.

    Attributes:
        params: The rules.
        catalogue: A row per pose, with one orientation.
        first: ``[T]`` row of each part's first pose.
        count: ``[T]`` number of its poses; 0 for a part that never fits.
    """

    params: PackingParams
    catalogue: Catalogue
    first: Int[Tensor, " T"]
    count: Int[Tensor, " T"]

    def of(
        self, part: Int[Tensor, " B"], pose: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """Return the rows of parts in a pose, or in all (-1), and which of them exist."""
        places = torch.arange(max(1, int(self.count.max())))
        there = (places < self.count[part, None]) & (
            (pose < 0)[:, None] | (places == pose[:, None])
        )
        return torch.where(there, self.first[part, None] + places, 0), there

    @property
    def volume(self) -> Float[Tensor, " T"]:
        """Volume of each part, m^3."""
        return self.of_parts(self.catalogue.volume)

    def of_parts(self, values: Tensor) -> Tensor:
        """Return a value of each part from those of its poses, which are equal."""
        return values[self.first.clamp(max=len(values) - 1)]

    def origin(self, row: int) -> tuple[int, int]:
        """Return part and pose of a row."""
        part = int((self.first <= row).nonzero().max())
        return part, row - int(self.first[part])


def _better_unit(largest: float, unit: str, params: PackingParams) -> str:
    """Return a hint: the largest unit in which the parts are not much larger than the container.

    Args:
        largest: Longest side of a part, metres, read in ``unit``.
        unit: That of the parts.
        params: The container.
    """
    sizes = {name: largest / UNITS[unit] * UNITS[name] for name in ("m", "in", "cm", "mm")}
    room = 2.0 * max(params.container)
    found = next((name for name, size in sizes.items() if params.cell <= size <= room), None)
    if found is None:
        return "check the unit of the parts: --unit m, cm, mm, in, ..."
    return (
        f"if the files are in {found}, it is {1e3 * sizes[found]:.3g} mm long: give --unit {found}"
    )


def build_poses(parts: Sequence[Part], meshes: Sequence[Mesh], params: PackingParams) -> Poses:
    """Build the poses of parts, or load them from the cache of catalogues.

    Raises:
        CatalogueError: No part fits into the container.
        ParameterError: All parts are smaller than a cell.
    """
    unit = meshes[0].source.unit  # for the message that none fits
    faces = [part.faces for part in parts]
    found = Catalogue.from_meshes(
        meshes, cell=params.cell, container=params.container, unit=unit, faces=faces
    )
    largest = float(found.extent.max())
    check_size(found, f"files are read in {unit}; {_better_unit(largest, unit, params)}")
    log_warnings(found)
    rows = found.orientation_mask.sum(1)
    found = _with_handling(found, parts)
    catalogue = _one_row_per_pose(found, [part.source for part in parts])
    count = torch.where(found.never_feasible, 0, rows)
    return Poses(params, catalogue, rows.cumsum(0) - rows, count)


def _with_handling(found: Catalogue, parts: Sequence[Part]) -> Catalogue:
    """Return the catalogue of the parts with what they ask for, if any asks for anything."""
    given = {
        key: [part.handling.get(key) for part in parts] for part in parts for key in part.handling
    }
    return found.with_handling(given) if given else found


def _one_row_per_pose(found: Catalogue, sources: Sequence[dict[str, object]]) -> Catalogue:
    """Return a catalogue of one orientation per row, without padding; whole cells are forgotten."""
    real = found.orientation_mask.flatten().nonzero().flatten()
    part = real.div(found.peak.shape[1], rounding_mode="floor")
    changes: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, Tensor):
            turned = value.shape[:2] == found.peak.shape
            changes[field.name] = value.flatten(0, 1)[real][:, None] if turned else value[part]
    changes["handling"] = None if found.handling is None else found.handling.select(part)
    changes["cuboid"] = changes["cuboid"][:, :, :0]
    changes["extent"] = found.extent[part]  # three sides are not orientations
    names = [found.names[i] for i in part.tolist()]
    return replace(found, **changes, names=names, sources=[sources[i] for i in part.tolist()])
