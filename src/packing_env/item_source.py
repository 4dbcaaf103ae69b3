"""The catalogue of a task, built from its ``items`` option, which is checked first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from packing_env.constraints import Constraints
from packing_env.core import feasibility, stability
from packing_env.generators import Cuboids
from packing_env.items import Catalogue, shapes
from packing_env.items.inputs import Item
from packing_env.names import listed
from packing_env.types import PackingParams, ParameterError
from packing_env.values import Option, read, read_mapping

_LOGGER = logging.getLogger("packing_env.tasks")
_LISTED = 5
"""Number of parts whose warnings are logged individually."""


def build_catalogue(
    items: Any,
    params: PackingParams,
    poses: Mapping[str, Any],
    split: str = "train",
    supplied: Cuboids | None = None,
) -> Catalogue:
    """Build the catalogue of a task's items, or load it from the disk cache.

    With ``items={"source": "meshes", "holdout": 0.25}``, the last quarter of the items becomes the
    catalogue of the test split, and the rest that of the training split. Files of a folder are
    sorted by name; a list keeps its order. With ``steady``, the name of a stability rule, items for
    which this rule accepts no pose on the floor are left out.

    Args:
        items: The option of the task: a catalogue, a mapping with ``source``, or mesh files.
        params: The rules of the task.
        poses: ``orientations`` and ``scales``.
        split: ``"train"`` or ``"test"``.
        supplied: Cuboids of the generator, for ``items={"source": "cuboids"}`` without extents.

    Raises:
        ParameterError: The option is invalid, or incompatible with the generator or the geometry.
    """
    if isinstance(items, Catalogue):
        return items
    # 1. Read the option; some sources do not fit the generator or the geometry.
    source, options = _items_options(items)
    holdout, steady = options.pop("holdout", 0.0), options.pop("steady", None)
    options |= {"cell": params.pitch, "container": params.container, **poses}
    if supplied is not None and (source != "cuboids" or options.get("extents") is not None):
        raise ParameterError(
            f"the generator supplies its own cuboids, so items (source {source}) must be just "
            "source=cuboids, without extents"
        )
    # 2. Build the items.
    if source == "cuboids":
        catalogue = _cuboids(options, supplied, params.geometry)
    elif params.geometry == "boxes":
        raise ParameterError(
            f"geometry='boxes' packs cuboids, not items.source={source!r}; use source=cuboids, or "
            "geometry='maps'"
        )
    elif source == "meshes":
        options["voxels"] = params.geometry == "voxels"
        catalogue = Catalogue.from_meshes(options.pop("paths"), **options)
        log_warnings(catalogue.names, [source.get("warnings", ()) for source in catalogue.sources])
    else:
        catalogue = Catalogue.from_shapes(**options, voxels=params.geometry == "voxels")
    check_size(catalogue, _UNIT_OF_ITEMS)
    # 3. Leave out items.
    if steady is not None:
        level = logging.WARNING if source == "meshes" else logging.INFO
        catalogue = _keep_steady(catalogue, params, steady, level)
    return _hold_out(catalogue, holdout, split) if holdout else catalogue


def _cuboids(options: dict[str, Any], supplied: Cuboids | None, geometry: str) -> Catalogue:
    options |= {"maps": geometry != "boxes", "voxels": geometry == "voxels"}
    if options.get("extents") is not None:
        return Catalogue.from_cuboids(**options)
    if supplied is None:
        raise ParameterError(
            "items.source=cuboids needs items.extents, a list of (dx, dy, dz), or a generator that "
            "supplies its own cuboids, such as uniform_cuboids"
        )
    options |= {"extents": supplied.extents, "names": supplied.names, "unit": "m"}
    return Catalogue.from_cuboids(**options, upright=supplied.upright)


_UNIT_OF_ITEMS = "check items.unit (mm, cm, m, in, ...), and that container and cell are metres"


def check_size(catalogue: Catalogue, checked: str) -> None:
    """Raise if all items are smaller than a cell; ``checked`` is the remedy in the message."""
    largest = float(catalogue.extent.max())
    if largest < catalogue.cell:
        raise ParameterError(
            f"every part is smaller than a cell: the largest is {1000.0 * largest:.3g} mm long, a "
            f"cell {1000.0 * catalogue.cell:g} mm; {checked}"
        )


def log_warnings(names: Sequence[str], warnings: Sequence[Sequence[str]]) -> None:
    """Log the warnings about the meshes of parts, each text once, for the first parts."""
    parts: dict[str, list[str]] = {}
    for name, texts in zip(names, warnings, strict=True):
        if texts:
            parts.setdefault("; ".join(texts), []).append(name)
    for text, warned in list(parts.items())[:_LISTED]:
        _LOGGER.warning("%s: %s", listed(warned, _LISTED), text)
    if others := sum(map(len, list(parts.values())[_LISTED:])):
        _LOGGER.warning("%d more parts have warnings; see `packing items`", others)


def are_embedded(items: Any) -> bool:
    """Return whether an ``items`` option names the embedded shapes, not a user's parts."""
    return (items.get("source") if isinstance(items, Mapping) else items) == "shapes"


def _paths(paths: Any, name: str) -> list[Any]:
    one = isinstance(paths, Item) or not isinstance(paths, Iterable)
    inputs = [paths] if one else list(paths)
    if not inputs or "" in inputs:
        raise ParameterError(f"{name} is empty; name a folder or mesh files")
    for item in inputs:
        if not isinstance(item, Item):
            raise ParameterError(f"{name} holds {item!r}; name folders or mesh files")
    return inputs


def _extents(extents: Any, name: str) -> Any:
    shape = None
    with suppress(RuntimeError, TypeError, ValueError):
        shape = torch.as_tensor(extents, dtype=torch.float64).shape[1:]
    if shape != (3,):
        raise ParameterError(f"{name}={extents!r} must be a list of (dx, dy, dz), one per cuboid")
    return extents


@dataclass(frozen=True)
class _Items:
    """Options of ``items`` in addition to ``source``.

    Attributes:
        holdout: Share of the items that is reserved for ``split="test"``: the last items.
        unit: Unit of lengths.
    """

    holdout: Annotated[float, Option(at_least=0.0, below=1.0)] = 0.0
    unit: str = "m"


@dataclass(frozen=True)
class _Solids(_Items):
    """Options of ``Catalogue.from_meshes``, and the stability rule ``steady``."""

    strict: bool = False
    resting: bool = False
    steady: str | None = None
    use_cache: bool = True
    cache_dir: str | Path | None = None


@dataclass(frozen=True)
class _Shapes(_Solids):
    families: Annotated[tuple[str, ...], Option(choices=shapes.FAMILIES, filled=True)] | None = None


@dataclass(frozen=True)
class _Meshes(_Solids):
    paths: Annotated[Any, Option(read=_paths)] = ""


@dataclass(frozen=True)
class _Cuboids(_Items):
    """Options of ``Catalogue.from_cuboids``; without ``extents`` the generator supplies them."""

    extents: Annotated[Any, Option(read=_extents)] = None
    names: tuple[str, ...] | None = None


SOURCES: dict[str, type[_Items]] = {"shapes": _Shapes, "meshes": _Meshes, "cuboids": _Cuboids}
"""The options of each source."""


def _items_options(items: Any) -> tuple[str, dict[str, Any]]:
    """Return the source and its checked options.

    ``"shapes"``, or one or several paths of meshes, is short for a mapping with that source.
    """
    if not isinstance(items, Mapping):
        items = {"source": "shapes"} if items == "shapes" else {"source": "meshes", "paths": items}
    options = dict(items)
    source = options.pop("source", None)
    read("items.source", source, Annotated[str, Option(choices=tuple(SOURCES))])
    if source == "meshes" and options.get("paths") is None:
        options["paths"] = []
    return source, read_mapping(SOURCES[source], options, f"items (source {source})", "items.")


def _keep_steady(catalogue: Catalogue, params: PackingParams, rule: str, level: int) -> Catalogue:
    """Select the items that a stability rule accepts in some pose on an empty container's floor.

    The names of the other items are logged at ``level``.
    """
    # Constraints do not affect whether an item stands.
    alone = params.evolve(constraints=Constraints())
    stability.check_rule(rule, alone, "items.steady")
    judged = alone.evolve(stability=rule)
    stands = feasibility.legal_on_floor(catalogue.tensors(), judged).any(1)
    if not bool(stands.any()):
        raise ParameterError(
            f"items.steady={rule}: no item stands on the floor under this rule; choose another "
            "rule, or set items.steady to null"
        )
    left_out = [name for name, of in zip(catalogue.names, stands.tolist(), strict=True) if not of]
    if left_out:
        _LOGGER.log(level, "items.steady=%s leaves out %s", rule, ", ".join(left_out))
    return catalogue.select(stands.nonzero()[:, 0])


def _hold_out(catalogue: Catalogue, share: float, split: str) -> Catalogue:
    names = list(dict.fromkeys(catalogue.names))
    count = len(names) - max(1, round(share * len(names)))
    if count < 1:
        raise ParameterError(
            f"items.holdout={share} leaves none of {len(names)} items to train on; use a smaller "
            "share or more items"
        )
    chosen = set(names[:count] if split == "train" else names[count:])
    return catalogue.select([i for i, name in enumerate(catalogue.names) if name in chosen])
