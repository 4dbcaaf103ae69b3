"""Rows of a catalogue: made from solids, and stacked to padded tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.items.inputs import CatalogueError
from packing_env.items.maps import ItemMaps
from packing_env.items.meshes.mesh import Mesh
from packing_env.items.rasterization import (
    rasterize_many,
    scratch_bytes,
    window_cells,
    window_sizes,
)
from packing_env.items.voxels import voxelize
from packing_env.memory import check_grid, check_memory
from packing_env.types import lid, whole_cells

REMEDY = "use fewer items, scales or orientations, or a larger cell"
"""Advice for a catalogue that does not fit into memory."""
COM_STEPS = 64
"""Steps per cell to which the centre of mass is rounded."""
_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Grid:
    """The container and its cells.

    Attributes:
        cell: metres.
        container: (X, Y, H), metres; X and Y whole multiples of the cell.
        cells: number of the container's cells along x and y.
    """

    cell: float
    container: tuple[float, float, float]
    cells: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        x, y, _ = self.container
        cells = whole_cells(x, self.cell, "X"), whole_cells(y, self.cell, "Y")
        object.__setattr__(self, "cells", cells)

    @property
    def lid(self) -> float:
        """Highest legal peak, a float32 value."""
        return lid(self.container[2])

    @property
    def layers(self) -> int:
        """Whole cells along the height of the container."""
        return math.floor(self.container[2] / self.cell + 1e-6)


@dataclass(frozen=True, eq=False)
class Row:
    """One item at one scale, as in `Catalogue`; `com` is in the scaled source frame, metres."""

    name: str
    source: dict[str, Any]
    maps: list[ItemMaps]
    volume: float
    volume_reliable: bool
    com: Float[Tensor, " 3"]
    extent: Float[Tensor, " 3"]


class MemoryEstimate:
    """The memory for the maps of a catalogue that is being built.

    Every row is padded to the largest number of orientations and the largest window of any row, so
    one large item enlarges all rows. If an item would exceed the memory, it is refused before it is
    rasterised.

    Args:
        num_rows: number of items, each at one scale.
        grid: the container.
        voxels: whether the catalogue also holds voxels.

    Raises:
        CatalogueError: The container has too many cells for maps.
    """

    def __init__(self, num_rows: int, grid: Grid, *, voxels: bool = False) -> None:
        check_grid(grid.container, grid.cell, error=CatalogueError)
        self.num_rows = num_rows
        self.column_bytes = 2 * torch.float32.itemsize + (grid.layers if voxels else 0)
        self._largest = (1, 1, 1)  # number of orientations, and of window cells along x and y

    def add(self, orientations: int, sizes: Int[Tensor, "R 2"]) -> None:
        """Add an item with windows of these sizes in cells; raise if the maps do not fit."""
        width, depth = sizes.amax(0).tolist() if len(sizes) else (1, 1)
        before = self._largest
        self._largest = (max(before[0], orientations), max(before[1], width), max(before[2], depth))
        if self._largest != before:
            self.check(log=False)

    def check(self, *, log: bool = True) -> None:
        """Raise `CatalogueError` unless the maps fit; log their size if `log` is set."""
        turns, width, depth = self._largest
        what = f"a catalogue of {self.num_rows} items in {turns} orientations of {width} x {depth}"
        size = self.column_bytes * self.num_rows * turns * width * depth
        check_memory(f"{what} cells", size, _HOST, lambda _: REMEDY, error=CatalogueError, log=log)


def mesh_row(
    mesh: Mesh,
    scale: float,
    grid: Grid,
    rotations: Float[Tensor, "R 3 3"],
    memory: MemoryEstimate,
    *,
    voxels: bool = False,
) -> Row:
    """Make the row of a mesh at one scale; with `voxels`, compute its maps from its voxels."""
    solid = mesh.scaled(scale)
    fitting = _fitting_voxels if voxels else _fitting_maps
    maps = fitting(solid, grid, rotations, memory)
    extents = (maps[0].rotation if maps else rotations[0]) @ solid.vertices.mT
    columns = [m.column_volume for m in maps]
    warnings = list(mesh.warnings)
    if int((solid.extents < grid.cell).sum()) >= 2:
        warnings.append(
            f"thinner than a cell ({grid.cell:g} m) in two directions: its footprint is rounded up"
        )
    return Row(
        name=mesh.name,
        source={
            "source": mesh.source.path or f"mesh:{mesh.name}",
            "unit": mesh.source.unit,
            "scale": solid.source.scale,
            "warnings": warnings,
        },
        maps=maps,
        volume=solid.volume if mesh.volume_reliable or not columns else min(columns),
        volume_reliable=mesh.volume_reliable,
        com=solid.com,
        extent=extents.amax(1) - extents.amin(1),
    )


def _fitting_maps(
    solid: Mesh, grid: Grid, rotations: Float[Tensor, "R 3 3"], memory: MemoryEstimate
) -> list[ItemMaps]:
    """Return the distinct maps whose window is not wider than the container."""
    # 1. Drop an orientation only if all its quarter turns are too wide, so that the maps of an
    #    orientation do not depend on the container.
    width, depth = grid.cells
    sizes = window_sizes(solid, rotations, grid.cell)
    possible = (sizes <= max(width, depth)).all(1)
    _check_scratch(solid.name, len(solid.faces), sizes[possible])
    fitting = sizes[(sizes[:, 0] <= width) & (sizes[:, 1] <= depth)]
    memory.add(1, fitting)  # one orientation for now: equal maps are kept once
    # 2. Rasterise the others; keep maps that fit and differ in window, top or bottom.
    maps = rasterize_many(solid, rotations[possible], grid.cell) if bool(possible.any()) else []
    distinct: dict[tuple[Any, ...], ItemMaps] = {}
    for m in maps:
        if m.size[0] <= width and m.size[1] <= depth:
            key = (m.size, m.top.cpu().numpy().tobytes(), m.bottom.cpu().numpy().tobytes())
            distinct.setdefault(key, m)
    memory.add(len(distinct), fitting)
    return list(distinct.values())


def _fitting_voxels(
    solid: Mesh, grid: Grid, rotations: Float[Tensor, "R 3 3"], memory: MemoryEstimate
) -> list[ItemMaps]:
    """Return the maps of the distinct sets of voxels that fit into the container."""
    distinct: dict[tuple[Any, ...], ItemMaps] = {}
    container = torch.tensor((*grid.cells, grid.layers))
    for rotation in rotations:
        points = solid.vertices @ rotation.to(solid.vertices.dtype).mT
        extent = window_cells((points.amax(0) - points.amin(0)) / grid.cell)
        if bool((extent.cpu() > container).any()):
            continue
        memory.add(len(distinct) + 1, extent[None, :2])
        voxels = voxelize(solid, grid.cell, rotation=rotation)
        key = (voxels.occupied.shape, voxels.occupied.cpu().numpy().tobytes())
        if key not in distinct:
            turned = ItemMaps.of_voxels(voxels.occupied, voxels.low, rotation, grid.cell)
            distinct[key] = turned
    return list(distinct.values())


def _check_scratch(name: str, num_faces: int, sizes: Tensor) -> None:
    """Raise `CatalogueError` if the free memory does not suffice to rasterise an item."""
    window = " x ".join(f"{side:.6g}" for side in sizes.amax(0).tolist()) if len(sizes) else "0"
    what = f"rasterising {name}, {num_faces:,} triangles in windows of up to {window} cells"
    remedy = "use a mesh of fewer triangles, or a larger cell"
    size = scratch_bytes(num_faces, sizes)
    check_memory(what, size, _HOST, lambda _: remedy, error=CatalogueError, log=False)


def windows(size: Int[Tensor, "*rows 2"], shape: Sequence[int]) -> Bool[Tensor, "*rows U V"]:
    """Mark the cells inside the window of each orientation."""
    u = torch.arange(shape[0], device=size.device) < size[..., :1]
    v = torch.arange(shape[1], device=size.device) < size[..., 1:]
    return u[..., :, None] & v[..., None, :]


def stack(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Stack the rows to padded tensors; see `Catalogue`."""
    # 1. Padding: no window, and a peak above every lid.
    shape = (len(rows), max([1, *(len(row.maps) for row in rows)]))
    window = [max([1, *(m.size[axis] for row in rows for m in row.maps)]) for axis in (0, 1)]
    out = {
        "top": torch.full((*shape, *window), -torch.inf),
        "bottom": torch.full((*shape, *window), torch.inf),
        "size": torch.zeros(*shape, 2, dtype=torch.int64),
        "peak": torch.full(shape, torch.inf),
        "com": torch.zeros(*shape, 2, dtype=torch.int64),
        "volume": torch.tensor([row.volume for row in rows], dtype=torch.float64),
        "extent": torch.stack([row.extent for row in rows]),
        "orientation_mask": torch.zeros(shape, dtype=torch.bool),
        "rotation": torch.eye(3, dtype=torch.float64).repeat(*shape, 1, 1),
        "offset": torch.zeros(*shape, 3, dtype=torch.float64),
        "volume_reliable": torch.tensor([row.volume_reliable for row in rows]),
    }
    solids = [m.voxels for row in rows for m in row.maps if m.voxels is not None]
    if solids:
        layers = max(solid.shape[2] for solid in solids)
        out["voxels"] = torch.zeros(*shape, *window, layers, dtype=torch.bool)
    # 2. Copy the maps of each row; padding comes last.
    for i, row in enumerate(rows):
        for r, m in enumerate(row.maps):
            u, v = m.size
            out["top"][i, r, :u, :v] = m.top
            out["bottom"][i, r, :u, :v] = m.bottom
            out["size"][i, r] = torch.tensor([u, v])
            out["peak"][i, r] = m.top.max()
            com = (m.rotation @ row.com + m.offset)[:2]  # from the window's lower corner
            out["com"][i, r] = (com * (COM_STEPS / m.cell)).round().to(torch.int64)
            out["orientation_mask"][i, r] = True
            out["rotation"][i, r] = m.rotation
            out["offset"][i, r] = m.offset
            if m.voxels is not None:
                out["voxels"][i, r, :u, :v, : m.voxels.shape[2]] = m.voxels
    return out
