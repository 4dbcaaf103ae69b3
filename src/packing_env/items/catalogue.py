"""Catalogues: the heightmaps of many items in many orientations, stacked on one device.

Row m is one item at one scale. Orientations that are wider than the container, or whose maps repeat
those of an earlier orientation, are left out. The remaining orientations come first, followed by
padding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import folders
from packing_env.items import cuboids, shapes, storage
from packing_env.items.build import MeshBuild, read_settings
from packing_env.items.handling import Handling, read_each
from packing_env.items.inputs import CatalogueError, Item, expand
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.rows import REMEDY, Grid, stack, windows
from packing_env.memory import check_memory, num_bytes

FORMAT = 3
"""Version of the file format; `load` refuses any other version."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items as tensors; the core receives `tensors()`.

    There are M rows, R orientations (padded), and windows of U x V cells. Cuboids may have no maps:
    then U and V are 0, and rules that read maps cannot be used with the catalogue.

    Attributes:
        top: upper surface, metres above the item's lowest point; -inf outside and in padding.
        bottom: lower surface; +inf outside and in padding.
        size: cells (w, h) of each window; 0 for padding.
        peak: highest point; +inf for padding, which is therefore never legal.
        com: centre of mass (x, y) in 1/64 cell from the window's lower corner.
        volume: m^3; the volume of the columns if the mesh does not define a reliable volume.
        extent: bounding box in orientation 0, metres.
        orientation_mask: False for padding.
        rotation: rotation from the source frame.
        offset: p_map = rotation @ (scale * unit * p_file) + offset, metres.
        cuboid: rotated sides (w, h, d) in cells; 0 for padding. D is 3 if every row is a cuboid of
            whole cells (`items.cuboids.whole_cuboids`), otherwise 0.
        volume_reliable: False where `volume` is the volume of the columns.
        never_feasible: True where no orientation fits into the empty container.
        names: one per row; only the scale variants of an item share a name (`inputs.item_names`).
        sources: one per row: source, unit, scale, and the warnings of its mesh.
        cell: metres.
        container: (X, Y, H) metres.
        handling: attributes of each row for constraints, such as weight and fragility; None if not
            given.
        voxels: the cubes of side `cell` that a solid meets, from the lower corner of its window;
            False in padding. None unless built with `voxels=True`.
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
    handling: Handling | None = None
    voxels: Bool[Tensor, "M R U V W"] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        names = ", ".join(self.names[:3]) + (", ..." if len(self) > 3 else "")
        return (
            f"Catalogue({len(self)} items: {names}; {self.num_orientations} orientations, "
            f"cells of {self.cell:g} m)"
        )

    @property
    def num_orientations(self) -> int:
        """R, padding included."""
        return self.top.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that the rules read, by name, all on one device."""
        held = self._held()
        rules = {name: value for name, value in held.items() if name in RULE_TENSORS}
        return rules if self.handling is None else rules | self.handling.tensors()

    def _held(self) -> dict[str, Tensor]:
        """Return the tensors of the catalogue; `voxels` may be missing."""
        values = {name: getattr(self, name) for name in _TENSORS}
        return {name: value for name, value in values.items() if value is not None}

    def with_handling(self, given: Mapping[str, Any]) -> Catalogue:
        """Return the catalogue with attributes for constraints; see `Handling.with_values`."""
        handling = Handling.default(len(self))
        if self.handling is not None:
            handling = self.handling.each(Tensor.cpu)
        handling = handling.with_values(given, self.names, self.volume.cpu())
        return replace(self, handling=handling.each(lambda value: value.to(self.volume.device)))

    def to(self, device: torch.device | str) -> Catalogue:
        """Return the catalogue on another device; raise if it does not fit into its memory."""
        device, tensors = torch.device(device), self._held()
        if device.type != self.top.device.type:
            what = f"a catalogue of {len(self)} items"
            size = num_bytes(tensors.values())
            check_memory(what, size, device, lambda _: REMEDY, error=CatalogueError)
        return self.each(lambda value: value.to(device))

    def select(self, ids: Sequence[int] | Tensor) -> Catalogue:
        """Return the rows with the given indices, in their order."""
        rows = torch.as_tensor(ids, dtype=torch.int64, device=self.top.device).flatten()
        names, sources = (
            [values[i] for i in rows.tolist()] for values in (self.names, self.sources)
        )
        return replace(self.each(lambda value: value[rows]), names=names, sources=sources)

    def each(self, change: Callable[[Tensor], Tensor]) -> Catalogue:
        """Return the catalogue with every tensor changed."""
        changed: dict[str, Any] = {name: change(value) for name, value in self._held().items()}
        handling = None if self.handling is None else self.handling.each(change)
        return replace(self, **changed, handling=handling)

    def save(self, path: str | Path, *, key: str | None = None) -> None:
        """Write the catalogue to one file, completely or not at all; `load` can check the key."""
        meta: dict[str, Any] = {
            "format": FORMAT,
            "key": key,
            "names": self.names,
            "sources": self.sources,
            "cell": self.cell,
            "container": list(self.container),
            "window": list(self.top.shape[2:]),
        }
        inside = windows(self.size, self.top.shape[2:])
        maps = {name: getattr(self, name)[inside] for name in _MAPS}
        rest = {name: value for name, value in self._held().items() if name not in _MAPS}
        handling = {} if self.handling is None else self.handling.tensors()
        rest |= {f"{_HANDLING}{name}": value for name, value in handling.items()}
        storage.write(Path(path), {**maps, **rest}, meta)

    @classmethod
    def load(
        cls, path: str | Path, device: torch.device | str = "cpu", *, key: str | None = None
    ) -> Catalogue:
        """Read a file that `save` wrote with this key; None accepts any key.

        Raises:
            CatalogueError: The file is missing, truncated, altered, not a catalogue of this
                version, or has another key.
        """
        try:
            tensors, meta = storage.read(Path(path))
        except (OSError, storage.StorageError) as error:
            raise CatalogueError(
                f"{path}: not a readable catalogue of this version ({error}); build it again from "
                "its sources"
            ) from error
        extra = {name for name in tensors if name.startswith(_HANDLING)}
        known = set(tensors) - extra | {"voxels"}
        if meta.get("format") != FORMAT or known != set(_TENSORS):
            raise CatalogueError(
                f"{path}: written by another version (format {meta.get('format')}, not {FORMAT}); "
                "build it again from its sources"
            )
        if key is not None and meta.get("key") != key:
            raise CatalogueError(
                f"{path} holds the catalogue of other items or settings; build it again from its "
                "sources"
            )
        handling = {name.removeprefix(_HANDLING): tensors.pop(name) for name in extra}
        inside = windows(tensors["size"], meta["window"])
        for name, outside in _MAPS.items():
            padding = torch.full(inside.shape, outside)
            tensors[name] = padding.masked_scatter_(inside, tensors[name])
        return cls(
            **tensors,
            names=list(meta["names"]),
            sources=list(meta["sources"]),
            cell=float(meta["cell"]),
            container=tuple(meta["container"]),
            handling=Handling(**handling) if handling else None,
        ).to(device)

    @classmethod
    def from_meshes(
        cls,
        paths_or_meshes: Item | Iterable[Item],
        *,
        faces: Sequence[Sequence[str]] | None = None,
        turn: Sequence[bool] | None = None,
        strict: bool = False,
        resting: bool = False,
        voxels: bool = False,
        use_cache: bool = True,
        cache_dir: str | Path | None = None,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> Catalogue:
        """Build a catalogue from mesh files, folders of them, or meshes.

        Args:
            paths_or_meshes: files, folders (all supported files in them and their subfolders,
                sorted, without the parts of URDF trees found there), `Mesh` objects, or a list of
                any of these.
            faces: for each item, the faces that may be up ("+z", "-z", ...); empty means all.
            turn: for each item, False if its +x face must keep its direction; by default all items
                may turn.
            strict: refuse meshes that would cause warnings.
            resting: leave out orientations in which a single item topples on a flat floor
                (`items.poses`). If no resting pose fits, an item keeps the lowest pose that fits,
                with a warning.
            voxels: make voxels, and heightmaps of them (geometry "voxels").
            use_cache: cache the result on disk, in a file that is named by a hash of the inputs and
                the settings.
            cache_dir: folder of this cache; by default `packing_env` in the user's cache folder.
            device: device of the result.
            **settings: cell, container, orientations, scales and unit; see `build.read_settings`.

        Raises:
            CatalogueError: No items, an invalid setting, or nothing that fits into the container.
            MeshError: A mesh cannot be used; the message names the file.
        """
        inputs = expand(paths_or_meshes)
        read = read_settings(**settings)
        up, turns = read_each(faces, inputs), tuple(turn or ())
        if turns and len(turns) != len(inputs):
            raise CatalogueError(
                f"turn has {len(turns)} entries for {len(inputs)} items; give one for each item"
            )
        turns = () if all(turns) else turns
        build = MeshBuild(inputs, read, strict, bool(resting), up, turns, bool(voxels))
        catalogue = _cached(build, cache_dir) if use_cache else _built(build)
        _report(catalogue, read.unit)
        return catalogue.to(device)

    @classmethod
    def from_shapes(cls, families: Sequence[str] | None = None, **options: Any) -> Catalogue:
        """Build a catalogue of the embedded items of some `shapes.FAMILIES` (default: all).

        The options are those of `from_meshes`.
        """
        return cls.from_meshes(shapes.select(families), **options)

    @classmethod
    def from_cuboids(
        cls,
        extents: Sequence[Sequence[float | int]] | Tensor,
        *,
        names: Sequence[str] | None = None,
        upright: Sequence[Sequence[bool | int]] | Tensor | None = None,
        maps: bool = True,
        voxels: bool = False,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> Catalogue:
        """Build a catalogue of boxes; it equals the catalogue of their meshes.

        Args:
            extents: [M, 3] (dx, dy, dz) in `unit`; the source frame of a box is [0, dx] x ...
            names: one per box; by default its extents. Repeated names are numbered (``box#2``).
            upright: [M, 3], which of the three sides may stand vertically; by default all may.
            maps: whether to make heightmaps. Without them the extents must be whole multiples of
                the cell, which may be as small as needed; 100,000 boxes take about a second.
            voxels: whether to make voxels too (geometry "voxels"); needs maps.
            device: device of the result.
            **settings: cell, container, orientations, scales and unit; see `build.read_settings`.
                The orientations must be axis-aligned.

        Raises:
            CatalogueError: No boxes, an invalid setting, or nothing that fits into the container.
        """
        grid, rotations, scales, unit = read_settings(**settings)
        boxes = cuboids.check_boxes(extents, rotations)
        stands = cuboids.check_upright(upright, len(boxes)).repeat_interleave(len(scales), 0)
        metres = torch.stack([boxes * (UNITS[unit] * scale) for scale in scales], 1).flatten(0, 1)
        tensors = cuboids.cuboid_tensors(metres, rotations, stands, grid, maps=maps)
        if voxels:
            tensors["voxels"] = cuboids.cuboid_voxels(tensors["top"], grid)
        names = [name for name in cuboids.cuboid_names(boxes, names) for _ in scales]
        sources = [
            {"source": "cuboid", "extent": box, "unit": unit, "scale": scale}
            for box in boxes.tolist()
            for scale in scales
        ]
        catalogue = _catalogue(tensors, names, sources, grid)
        _report(catalogue, unit)
        return catalogue.to(device)


_OTHERS = ("names", "sources", "cell", "container", "handling")
_TENSORS = tuple(f.name for f in fields(Catalogue) if f.name not in _OTHERS)
_HANDLING = "handling."
"""Prefix of the attributes of items in a file."""
_MAPS = {"top": -torch.inf, "bottom": torch.inf}
"""Tensors stored without their padding, and the value of the padding."""
RULE_TENSORS = tuple(name for name in _TENSORS if name not in ("volume_reliable", "never_feasible"))
"""Keys of `Catalogue.tensors()`."""


def _built(build: MeshBuild) -> Catalogue:
    rows, grid = build.rows(), build.settings.grid
    names, sources = [row.name for row in rows], [row.source for row in rows]
    return _catalogue(stack(rows), names, sources, grid)


def _catalogue(
    tensors: dict[str, Tensor], names: list[str], sources: list[dict[str, Any]], grid: Grid
) -> Catalogue:
    columns: dict[str, Any] = dict(tensors)
    if "cuboid" not in columns:
        columns["cuboid"] = cuboids.whole_cuboids(tensors, grid.cell)
    return Catalogue(
        **columns,
        never_feasible=~(tensors["peak"] <= grid.lid).any(1),
        names=names,
        sources=sources,
        cell=grid.cell,
        container=grid.container,
    )


def _cached(build: MeshBuild, folder: str | Path | None) -> Catalogue:
    """Load a build from the cache, or run and save it; a cache failure only logs a warning."""
    key = build.key(FORMAT)
    try:
        folder = folders.own() if folder is None else Path(folder)
    except OSError as error:
        _LOGGER.warning("the catalogue is not cached: %s", error)
        return _built(build)
    path = folder / f"{key}.catalogue"
    if path.exists():
        try:
            return Catalogue.load(path, key=key)
        except CatalogueError as error:
            _LOGGER.warning("building the catalogue again: %s", error)
    catalogue = _built(build)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        catalogue.save(path, key=key)
    except OSError as error:
        _LOGGER.warning("the catalogue is not cached: %s", error)
    return catalogue


def _report(catalogue: Catalogue, unit: str) -> None:
    """Log the items that never fit; raise if none fits."""
    never = catalogue.never_feasible.nonzero().flatten().tolist()
    container = " x ".join(f"{length:g}" for length in catalogue.container)
    if never and len(never) == len(catalogue):
        smallest = float(catalogue.extent.amax(1).min())
        raise CatalogueError(
            f"none of the {len(catalogue)} items ({catalogue.names[0]}, ...) fits into the "
            f"{container} m container in any orientation; the smallest measures {smallest:.4g} m. "
            f"They were read in unit {unit!r}: if that is wrong, pass another (unit='mm'); "
            "otherwise use a larger container"
        )
    if never:
        names = [catalogue.names[i] for i in never[:8]] + ["..."] * (len(never) > 8)
        text = (
            "%d of %d items do not fit into the container (its cells cover %s m) in any "
            "orientation: %s"
        )
        _LOGGER.warning(text, len(never), len(catalogue), container, ", ".join(names))
