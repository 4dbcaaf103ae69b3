"""Catalogues: the height maps of many items in many orientations, stacked on one device.

Row m is one item at one scale. Orientations whose window is wider than the container are left out
(nothing could place them), so are orientations whose maps repeat an earlier one; the rest stand at
the front and padding follows.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.items import storage
from packing_env.items.cuboids import (
    check_boxes,
    check_upright,
    cuboid_names,
    cuboid_tensors,
    whole_cuboids,
)
from packing_env.items.inputs import (
    CatalogueError,
    EmbeddedShape,
    Item,
    code_digest,
    expand,
    fingerprint,
    item_names,
    mesh_of,
)
from packing_env.items.meshes.mesh import UNITS, Mesh
from packing_env.items.rotations import rotation_set
from packing_env.items.rows import Grid, Needs, Row, cuboid_row, mesh_row, stack, windows
from packing_env.memory import check_memory, num_bytes

FORMAT = 2
"""Version of the file; `load` refuses any other."""

_LOGGER = logging.getLogger(__name__)

Orientations = float | int | str | Tensor


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items as tensors; `tensors()` is what the core receives.

    M rows, R orientations (padded), windows of U x V cells. Cuboids may do without maps: U and V
    are 0 then, and what needs maps cannot use such a catalogue.

    Attributes:
        top: upper surface, metres above the item's lowest point; -inf outside and in padding.
        bottom: lower surface; +inf outside and in padding.
        size: cells (w, h) of each window; 0 for padding.
        peak: highest point; +inf for padding, which is therefore never legal.
        com: centre of mass (x, y) in 1/64 cell from the window's lower corner.
        volume: m^3; the column volume where the mesh makes it unreliable.
        extent: bounding box in orientation 0, metres.
        orientation_mask: False for padding.
        rotation: from the source frame.
        offset: p_map = rotation @ (scale * unit * p_file) + offset, metres.
        cuboid: rotated sides (w, h, d) in cells; 0 for padding. D is 3 if every row is a cuboid of
            whole cells (`items.cuboids.whole_cuboids`), else 0.
        volume_reliable: False where `volume` is a column volume.
        never_feasible: True where no orientation fits into the empty container.
        names: one per row; the scale variants of an item share it, no other row has it. Files are
            named by their stem, with folders in front where stems are alike (``a/part``).
        sources: one per row: source, unit, scale, and the warnings of its mesh.
        cell: metres.
        container: (X, Y, H) metres.
    """

    top: Float[Tensor, "M R U V"]
    bottom: Float[Tensor, "M R U V"]
    size: Int[Tensor, "M R 2"]
    peak: Float[Tensor, "M R"]
    com: Int[Tensor, "M R 2"]
    volume: Float[Tensor, " M"]
    extent: Float[Tensor, "M 3"]
    orientation_mask: Bool[Tensor, "M R"]
    rotation: Float[Tensor, "M R 3 3"]
    offset: Float[Tensor, "M R 3"]
    cuboid: Int[Tensor, "M R D"]
    volume_reliable: Bool[Tensor, " M"]
    never_feasible: Bool[Tensor, " M"]
    names: list[str]
    sources: list[dict[str, Any]]
    cell: float
    container: tuple[float, float, float]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_orientations(self) -> int:
        """R, padding included."""
        return self.top.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the rules, by name, all on one device."""
        return {name: getattr(self, name) for name in RULE_TENSORS}

    def to(self, device: torch.device | str) -> Catalogue:
        """The same catalogue on another device, where it must fit into the free memory."""
        device, tensors = torch.device(device), [getattr(self, name) for name in _TENSORS]
        if device.type != self.top.device.type:
            check_memory(
                f"a catalogue of {len(self)} items",
                num_bytes(tensors),
                device,
                lambda room: "use fewer items, scales or orientations, or a larger cell",
                error=CatalogueError,
            )
        return replace(self, **{name: getattr(self, name).to(device) for name in _TENSORS})

    def select(self, ids: Sequence[int] | Tensor) -> Catalogue:
        """The rows with these numbers, in this order."""
        rows = torch.as_tensor(ids, dtype=torch.int64, device=self.top.device).flatten()
        picked: dict[str, Any] = {name: getattr(self, name)[rows] for name in _TENSORS}
        numbers = rows.tolist()
        picked["names"] = [self.names[i] for i in numbers]
        picked["sources"] = [self.sources[i] for i in numbers]
        return replace(self, **picked)

    def save(self, path: str | Path, *, key: str | None = None) -> None:
        """Write the catalogue to one file (tensors and JSON, no pickle), all or nothing.

        Args:
            path: the file.
            key: what it was made of, for `load` to ask for.
        """
        meta: dict[str, Any] = {
            "format": FORMAT,
            "key": key,
            "names": self.names,
            "sources": self.sources,
            "cell": self.cell,
            "container": list(self.container),
        }
        inside = windows(self.size, self.top.shape[2:])
        maps = {name: getattr(self, name)[inside] for name in _MAPS}
        rest = {name: getattr(self, name) for name in _TENSORS if name not in _MAPS}
        meta["window"] = list(self.top.shape[2:])
        storage.write(Path(path), {**maps, **rest}, meta)

    @classmethod
    def load(
        cls, path: str | Path, device: torch.device | str = "cpu", *, key: str | None = None
    ) -> Catalogue:
        """Read what `save` wrote.

        Args:
            path: the file.
            device: device of the result.
            key: what it must be made of; None: anything.

        Raises:
            CatalogueError: missing, truncated, altered, not a catalogue of this version, or made
                of something else.
        """
        try:
            tensors, meta = storage.read(Path(path))
        except (OSError, storage.StorageError) as error:
            raise CatalogueError(f"{path}: not a readable catalogue ({error})") from error
        if meta.get("format") != FORMAT or set(tensors) != set(_TENSORS):
            raise CatalogueError(
                f"{path}: written by another version (format {meta.get('format')}, this one reads "
                f"{FORMAT}); build it again from its sources"
            )
        if key is not None and meta.get("key") != key:
            raise CatalogueError(f"{path}: the catalogue of other items or settings")
        inside = windows(tensors["size"], meta["window"])
        for name, outside in _MAPS.items():
            cells = tensors[name]
            tensors[name] = torch.full(inside.shape, outside).masked_scatter_(inside, cells)
        return cls(
            **tensors,
            names=list(meta["names"]),
            sources=list(meta["sources"]),
            cell=float(meta["cell"]),
            container=tuple(meta["container"]),
        ).to(device)

    @classmethod
    def from_meshes(
        cls,
        paths_or_meshes: Item | Iterable[Item],
        *,
        cell: float | int,
        container: Sequence[float | int],
        orientations: Orientations = "pi/2",
        scales: Sequence[float | int] = (1.0,),
        unit: str = "m",
        strict: bool = False,
        use_cache: bool = True,
        cache_dir: str | Path | None = None,
        device: torch.device | str = "cpu",
    ) -> Catalogue:
        """Rasterise mesh files, folders of them, or meshes.

        Args:
            paths_or_meshes: files, folders (all supported files below them, sorted, without the
                parts of URDF trees found there), `Mesh` objects, or a list of any of these.
            cell: side of a cell, metres.
            container: (X, Y, H), metres; X and Y whole multiples of the cell.
            orientations: interval or name for `rotation_set`, or rotations [R, 3, 3].
            scales: sizes of each item, one row each.
            unit: unit of the files.
            strict: refuse meshes with warnings.
            use_cache: keep the result on disk, by content.
            cache_dir: where; by default `packing_env` in the user's cache folder.
            device: device of the result.

        Raises:
            CatalogueError: no items, or nothing that fits into the container.
            MeshError: a mesh that cannot be used; names the file.
        """
        inputs = expand(paths_or_meshes)
        build = _Build(inputs, _grid(cell, container), _rotations(orientations), scales, unit)
        found = build.cached(cache_dir, strict) if use_cache else build.run(strict)
        _report(found, unit)
        return found.to(device)

    @classmethod
    def from_shapes(cls, families: Sequence[str] | None = None, **options: Any) -> Catalogue:
        """Rasterise the embedded items of some families (default: all).

        Args:
            families: names in `shapes.FAMILIES`.
            **options: as for `from_meshes`.
        """
        from packing_env.items import shapes

        names = [shape.name for shape in shapes.select(families)]
        return cls.from_meshes([EmbeddedShape(name) for name in names], **options)

    @classmethod
    def from_cuboids(
        cls,
        extents: Sequence[Sequence[float | int]] | Tensor,
        *,
        cell: float | int,
        container: Sequence[float | int],
        orientations: Orientations = "pi/2",
        scales: Sequence[float | int] = (1.0,),
        unit: str = "m",
        names: Sequence[str] | None = None,
        upright: Sequence[Sequence[bool | int]] | Tensor | None = None,
        maps: bool = True,
        device: torch.device | str = "cpu",
    ) -> Catalogue:
        """Boxes, without a mesh; equal to rasterising the meshes of the boxes.

        Args:
            extents: [M, 3] (dx, dy, dz) in `unit`; the source frame of a box is [0, dx] x ...
            cell: side of a cell, metres.
            container: (X, Y, H), metres; X and Y whole multiples of the cell.
            orientations: "pi/2", "cuboid", "yaw", "none", or axis-aligned rotations [R, 3, 3].
            scales: sizes of each box, one row each.
            unit: unit of the extents.
            names: one per box; by default its extents. Equal ones are numbered (``box#2``).
            upright: [M, 3] which of the three sides may stand vertically; orientations that stand
                on another one are left out. By default all may.
            maps: make height maps. Without them the extents must be whole multiples of the cell,
                which may be as fine as wanted, and 100,000 boxes take about a second.
            device: device of the result.

        Raises:
            CatalogueError: no boxes, bad extents, rotations that are not axis-aligned, or nothing
                that fits.
        """
        grid, rotations, scales = _grid(cell, container), _rotations(orientations), _scales(scales)
        boxes = check_boxes(extents, unit, rotations)
        stands = check_upright(upright, len(boxes)).repeat_interleave(len(scales), 0)
        metres = torch.stack([boxes * (UNITS[unit] * scale) for scale in scales], 1).flatten(0, 1)
        each = cuboid_names(boxes, names)
        names = [name for name in each for _ in scales]
        sources = [
            {"source": "cuboid", "extent": box, "unit": unit, "scale": scale}
            for box in boxes.tolist()
            for scale in scales
        ]
        if maps:
            per_row, needs = zip(names, metres, sources, stands, strict=True), Needs(len(names))
            rows = [cuboid_row(*row, grid, rotations, needs) for row in per_row]
            needs.check()
            found = _assemble(rows, grid)
        else:
            found = cls(
                **cuboid_tensors(metres, rotations, stands, grid),
                names=names,
                sources=sources,
                cell=grid.cell,
                container=grid.container,
            )
        _report(found, unit)
        return found.to(device)


_TENSORS = tuple(
    field.name
    for field in fields(Catalogue)
    if field.name not in ("names", "sources", "cell", "container")
)
_MAPS = {"top": -torch.inf, "bottom": torch.inf}
"""Tensors stored without their padding, and what the padding holds."""
RULE_TENSORS = tuple(name for name in _TENSORS if name not in ("volume_reliable", "never_feasible"))
"""Keys of `Catalogue.tensors()`."""


def _assemble(rows: Sequence[Row], grid: Grid) -> Catalogue:
    """A catalogue of rows."""
    made = stack(rows, grid)
    maps = made["top"], made["bottom"], made["size"]
    cuboid = whole_cuboids(*maps, made["orientation_mask"], made["volume"], grid.cell)
    return Catalogue(
        **made,
        cuboid=cuboid,
        names=[row.name for row in rows],
        sources=[row.source for row in rows],
        cell=grid.cell,
        container=grid.container,
    )


def _grid(cell: float | int, container: Sequence[float | int]) -> Grid:
    """The grid, checked: positive, and whole cells along X and Y."""
    if len(container) != 3 or not all(length > 0 for length in (*container, cell)):
        raise CatalogueError(
            f"container must be (X, Y, H) in metres and cell positive, got {container}, {cell}"
        )
    x, y, height = (float(length) for length in container)
    grid = Grid(float(cell), (x, y, height))
    try:
        _ = grid.cells
    except ValueError as error:
        raise CatalogueError(str(error)) from error
    return grid


def _rotations(orientations: Orientations) -> Float[Tensor, "R 3 3"]:
    """Rotations from an interval, a name, or rotations."""
    if isinstance(orientations, Tensor):
        if orientations.ndim != 3 or orientations.shape[1:] != (3, 3) or len(orientations) == 0:
            raise CatalogueError(
                f"orientations must be rotations [R, 3, 3], got {tuple(orientations.shape)}"
            )
        return orientations.to("cpu", torch.float64)
    try:
        return rotation_set(orientations)
    except ValueError as error:
        raise CatalogueError(str(error)) from error


def _scales(scales: Sequence[float | int]) -> tuple[float, ...]:
    """The scales, checked."""
    values = tuple(float(scale) for scale in scales)
    if not values or not all(0.0 < scale < float("inf") for scale in values):
        raise CatalogueError(f"scales must be positive numbers, at least one, got {scales}")
    return values


@dataclass(frozen=True)
class _Build:
    """One build of a catalogue from meshes."""

    inputs: list[Path | Mesh | EmbeddedShape]
    grid: Grid
    rotations: Tensor
    scales: Sequence[float | int]
    unit: str

    def run(self, strict: bool) -> Catalogue:
        """Load and rasterise everything."""
        scales = _scales(self.scales)
        rows, needs = [], Needs(len(self.inputs) * len(scales))
        for item, name in zip(self.inputs, item_names(self.inputs), strict=True):
            mesh = replace(mesh_of(item, self.unit, strict), name=name)
            rows += [mesh_row(mesh, scale, self.grid, self.rotations, needs) for scale in scales]
        needs.check()
        return _assemble(rows, self.grid)

    def cached(self, folder: str | Path | None, strict: bool) -> Catalogue:
        """From the cache, or built and put there; a cache that fails costs one log line."""
        where = Path(folder) if folder is not None else storage.cache_folder()
        key = self.key(strict)
        path = where / f"{key}.catalogue"
        if path.exists():
            try:
                return Catalogue.load(path, key=key)
            except CatalogueError as error:
                _LOGGER.warning("building the catalogue again: %s", error)
        built = self.run(strict)
        try:
            where.mkdir(parents=True, exist_ok=True)
            built.save(path, key=key)
        except OSError as error:
            _LOGGER.warning("the catalogue is not cached: %s", error)
        return built

    def key(self, strict: bool) -> str:
        """Hash of all that the result depends on."""
        settings = [
            FORMAT,
            code_digest(),
            self.grid.cell,
            self.grid.container,
            self.rotations.flatten().tolist(),
            list(_scales(self.scales)),
            self.unit,
            strict,
            find_spec("manifold3d") is not None,
            [fingerprint(item) for item in self.inputs],
        ]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


def _report(catalogue: Catalogue, unit: str) -> None:
    """Log the items that never fit; raise when that is all of them."""
    never = catalogue.never_feasible.nonzero().flatten().tolist()
    if not never:
        return
    if len(never) < len(catalogue):
        names = ", ".join(catalogue.names[i] for i in never[:8])
        _LOGGER.warning(
            "%d of %d items fit into the container in no orientation: %s%s",
            len(never),
            len(catalogue),
            names,
            ", ..." if len(never) > 8 else "",
        )
        return
    smallest = float(catalogue.extent.amax(1).min())
    size = " x ".join(f"{length:g}" for length in catalogue.container)
    raise CatalogueError(
        f"none of the {len(catalogue)} items ({catalogue.names[0]}, ...) fits into the {size} m "
        f"container in any orientation; the smallest measures {smallest:.4g} m. They were read in "
        f"unit {unit!r}: if that is wrong pass another (unit='mm'), else use a larger container"
    )
