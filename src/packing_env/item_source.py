"""The catalogue of a task, built from its ``items`` option, which is checked beforehand."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch

from packing_env.constraints import Constraints
from packing_env.core import feasibility, stability
from packing_env.generators import Cuboids
from packing_env.items import Catalogue, shapes
from packing_env.items.inputs import Item
from packing_env.names import close_names
from packing_env.types import PackingParams, ParameterError, check_number

_LOGGER = logging.getLogger("packing_env.tasks")
_LISTED = 5
"""Number of parts whose warnings are logged one by one."""


def build_catalogue(
    items: Any,
    params: PackingParams,
    poses: Mapping[str, Any],
    split: str = "train",
    supplied: Cuboids | None = None,
) -> Catalogue:
    """Build the catalogue of a task's items, or load it from the disk cache.

    With ``items={"source": "meshes", "holdout": 0.25}`` the last quarter of the files (sorted by
    name) makes the test split's catalogue, the rest the training split's. With ``steady``, a
    stability rule, items without a pose that it accepts on the floor are left out.

    Args:
        items: The option of the task: a catalogue, a mapping with ``source``, or mesh files.
        params: The rules of the task.
        poses: ``orientations`` and ``scales``.
        split: ``"train"`` or ``"test"``.
        supplied: Cuboids of the generator, for ``items={"source": "cuboids"}`` without extents.

    Raises:
        ParameterError: The option is invalid, or does not go with the generator or the geometry.
    """
    if isinstance(items, Catalogue):
        return items
    options = _items_options(items)
    source = options.pop("source")
    holdout, steady = options.pop("holdout", 0.0), options.pop("steady", None)
    options |= {"cell": params.pitch, "container": params.container, **poses}
    if supplied is not None and (source != "cuboids" or options.get("extents") is not None):
        raise ParameterError(
            f"the generator supplies its own cuboids, so items (source {source}) must be just "
            "source=cuboids, without extents"
        )
    if source == "cuboids":
        catalogue = _cuboids(options, supplied, params.geometry == "maps")
    elif params.geometry == "boxes":
        raise ParameterError(
            f"geometry='boxes' packs cuboids, not items.source={source!r}; use source=cuboids, or "
            "geometry='maps'"
        )
    elif source == "meshes":
        catalogue = Catalogue.from_meshes(options.pop("paths"), **options)
        log_warnings(catalogue)
    else:
        catalogue = Catalogue.from_shapes(**options)
    check_size(catalogue, _UNIT_OF_ITEMS)
    if steady is not None:
        level = logging.WARNING if source == "meshes" else logging.INFO
        catalogue = _keep_steady(catalogue, params, steady, level)
    return _hold_out(catalogue, holdout, split) if holdout else catalogue


def _cuboids(options: dict[str, Any], supplied: Cuboids | None, maps: bool) -> Catalogue:
    """Make the catalogue of the given cuboids, or of those of the generator (metres)."""
    if options.get("extents") is not None:
        return Catalogue.from_cuboids(**options, maps=maps)
    if supplied is None:
        raise ParameterError(
            "items.source=cuboids needs items.extents, a list of (dx, dy, dz), or a generator that "
            "supplies its own cuboids, such as uniform_cuboids"
        )
    options |= {"extents": supplied.extents, "names": supplied.names, "unit": "m"}
    return Catalogue.from_cuboids(**options, upright=supplied.upright, maps=maps)


_UNIT_OF_ITEMS = "check items.unit (mm, cm, m, in, ...), and that container and cell are metres"


def check_size(catalogue: Catalogue, checked: str) -> None:
    """Raise if all items are smaller than a cell; ``checked``: the remedy."""
    largest = float(catalogue.extent.max())
    if largest < catalogue.cell:
        raise ParameterError(
            f"every part is smaller than a cell: the largest is {1e3 * largest:.3g} mm long, a "
            f"cell {1e3 * catalogue.cell:g} mm; {checked}"
        )


def log_warnings(catalogue: Catalogue) -> None:
    """Log what the files of a catalogue gave cause for, one by one for the first parts."""
    rows = zip(catalogue.names, catalogue.sources, strict=True)
    warned = {name: source["warnings"] for name, source in rows if source.get("warnings")}
    for name, warnings in list(warned.items())[:_LISTED]:
        _LOGGER.warning("%s: %s", name, "; ".join(warnings))
    if len(warned) > _LISTED:
        _LOGGER.warning("%d more parts have warnings; see `packing items`", len(warned) - _LISTED)


def are_embedded(items: Any) -> bool:
    """Return whether an ``items`` option names the embedded shapes, not parts of a user's own."""
    return (items.get("source") if isinstance(items, Mapping) else items) == "shapes"


_BUILDING = {"unit", "strict", "resting", "steady", "use_cache", "cache_dir"}
ITEM_ARGUMENTS: dict[str, set[str]] = {
    "shapes": {"families", *_BUILDING},
    "meshes": {"paths", *_BUILDING},
    "cuboids": {"extents", "names", "unit"},
}
"""Keys of ``items`` beside ``source`` and ``holdout``, for each source."""


def _items_options(items: Any) -> dict[str, Any]:
    """Return ``items`` as a mapping; raise unless its source, arguments and values are valid.

    ``"shapes"``, or a path or a list of paths of meshes, stands for a mapping with that source.
    """
    if not isinstance(items, Mapping):
        items = {"source": "shapes"} if items == "shapes" else {"source": "meshes", "paths": items}
    options = dict(items)
    source = options.get("source")
    if not isinstance(source, str) or source not in ITEM_ARGUMENTS:
        raise ParameterError(
            f"items.source={source!r} is unknown{close_names(str(source), ITEM_ARGUMENTS)}; choose "
            f"one of {', '.join(ITEM_ARGUMENTS)}"
        )
    check_names(f"items (source {source})", options, {"source", "holdout"} | ITEM_ARGUMENTS[source])
    share = check_number("items.holdout", options.setdefault("holdout", 0.0))
    if not 0 <= share < 1:
        raise ParameterError(f"items.holdout={share} must lie between 0 and 1")
    if options.get("resting") is None:
        options.pop("resting", None)
    elif not isinstance(options["resting"], bool):
        raise ParameterError(f"items.resting={options['resting']!r} must be true, false or null")
    if source == "shapes":
        _check_families(options.get("families"))
    elif source == "meshes":
        options["paths"] = _paths(options.get("paths"))
    else:
        _check_extents(options.get("extents"))
    return options


def _check_families(families: Any) -> None:
    """Raise unless ``families`` is null or a list of known families."""
    try:
        if isinstance(families, str) or not isinstance(families, (Iterable, type(None))):
            raise ValueError(
                f"{families!r} is not a list; choose from {', '.join(shapes.FAMILIES)}"
            )
        shapes.select(None if families is None else list(families))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"items.families: {error}") from error


def _paths(paths: Any) -> list[Any]:
    """Return the inputs of ``Catalogue.from_meshes`` as a list."""
    one = isinstance(paths, Item) or not isinstance(paths, Iterable)
    given = [paths] if one else list(paths)
    if paths is None or not given or "" in given:
        raise ParameterError("items.paths is empty; name a folder or mesh files")
    for item in given:
        if not isinstance(item, Item):
            raise ParameterError(f"items.paths holds {item!r}; name folders or mesh files")
    return given


def _check_extents(extents: Any) -> None:
    """Raise unless ``extents`` is null or [M, 3] numbers."""
    if extents is None:
        return
    shape = None
    with suppress(RuntimeError, TypeError, ValueError):
        shape = torch.as_tensor(extents, dtype=torch.float64).shape[1:]
    if shape != (3,):
        raise ParameterError(
            f"items.extents={extents!r} must be a list of (dx, dy, dz), one for each cuboid"
        )


def _keep_steady(catalogue: Catalogue, params: PackingParams, rule: str, level: int) -> Catalogue:
    """Select the items with a pose that a stability rule accepts on an empty container's floor.

    The names of the others are logged at ``level``.
    """
    # how surely an item stands does not depend on the constraints, nor on what is preferred
    alone = params.evolve(surest=(), constraints=Constraints())
    stability.check_rule(rule, alone, "items.steady")
    judged = alone.evolve(stability=rule)
    stands = feasibility.legal_on_floor(catalogue.tensors(), judged).any(1)
    if not bool(stands.any()):
        raise ParameterError(f"items.steady={rule}: no item stands on the floor by that rule")
    left_out = [
        name for name, kept in zip(catalogue.names, stands.tolist(), strict=True) if not kept
    ]
    if left_out:
        _LOGGER.log(level, "items.steady=%s leaves out %s", rule, ", ".join(left_out))
    return catalogue.select(stands.nonzero()[:, 0])


def _hold_out(catalogue: Catalogue, share: float, split: str) -> Catalogue:
    """Select the rows of the items kept for training, or of those held out."""
    names = list(dict.fromkeys(catalogue.names))
    kept = len(names) - max(1, round(share * len(names)))
    if kept < 1:
        raise ParameterError(f"items.holdout={share} leaves none of {len(names)} items to train on")
    wanted = set(names[:kept] if split == "train" else names[kept:])
    return catalogue.select([i for i, name in enumerate(catalogue.names) if name in wanted])


def check_names(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    """Raise on arguments that do not exist, listing those that do."""
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        listed = f"known: {', '.join(sorted(known))}" if known else "it takes none"
        near = close_names(unknown[0], sorted(known))
        raise ParameterError(f"{what} has no argument {', '.join(unknown)}{near}; {listed}")
