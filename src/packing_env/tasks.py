"""Named presets, and `make_env`, which builds an environment from one.

A preset is the complete set of defaults of a task. ``conf/env/<preset>.yaml`` holds the same
values; a test keeps the two equal.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from packing_env.core import candidates, feasibility
from packing_env.envs import PackingEnv, specs
from packing_env.envs.action_modes import get_mode
from packing_env.generators import (
    GENERATORS,
    Generator,
    GeneratorError,
    check_pool,
    make_pool,
    split_stream,
)
from packing_env.items import Catalogue, Mesh, shapes
from packing_env.items.inputs import EmbeddedShape
from packing_env.types import (
    PackingParams,
    ParameterError,
    check_container,
    check_integer,
    check_number,
    whole_cells,
)

MESH_INPUTS = (str, Path, Mesh, EmbeddedShape)
"""What ``items.paths`` may hold."""
_LOGGER = logging.getLogger("packing_env.tasks")
_SHOWN = 5
"""Parts whose warnings are logged one by one."""

POOL_SIZE = 4096
"""Instances per seed and split."""


@dataclass(frozen=True)
class Task:
    """A preset: the rules, the items and the source of instances.

    Attributes:
        params: The rules.
        items: Where items come from: ``source`` (shapes, meshes or cuboids) and its arguments.
        orientations: Which rotations an item may take (``items.rotations.rotation_set``).
        scales: Size variants of each item.
        generator: Source of instances (``generators.GENERATORS``).
    """

    params: PackingParams
    items: Mapping[str, Any] = field(default_factory=lambda: {"source": "shapes"})
    orientations: str | float = "pi/2"
    scales: tuple[float, ...] = (1.0,)
    generator: str = "catalogue_mix"


LEAN = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations without the items' maps, which at 24 orientations outweigh everything else."""

PRESETS: dict[str, Task] = {
    # The demo and the default of training.
    "irregular": Task(
        PackingParams(container=(0.32, 0.32, 0.30), cell=0.01, num_items=24),
    ),
    # Huang et al., RA-L 2023: 0.40 x 0.40 x 0.30 m at 200 x 200 pixels, 50 objects of household
    # size scaled by 0.8-1.2, the largest K = 20 offered.
    "irregular_paper": Task(
        PackingParams(
            container=(0.40, 0.40, 0.30),
            cell=0.002,
            grid_step=4,
            num_items=50,
            num_visible=20,
            item_order="volume",
            stability="none",
            reward={"objective": 1.0},
            observation=LEAN,
        ),
        items={"source": "shapes", "families": ("household",)},
        scales=(0.8, 0.9, 1.0, 1.1, 1.2),
    ),
    # Parts nested in the powder bed of a laser-sintering printer: powder carries them, so no
    # stability rule; every part counts the same.
    "sls_nesting": Task(
        PackingParams(
            container=(0.20, 0.25, 0.33),
            cell=0.005,
            num_items=40,
            num_visible=8,
            item_order="volume",
            stability="none",
            reward={"item": 1.0},
            observation=LEAN,
        ),
        items={"source": "shapes", "families": ("brackets", "extrusions", "revolutions")},
        scales=(0.5, 0.75),
    ),
}


def make_env(
    task: str = "irregular",
    num_envs: int | Sequence[int] = 1,
    device: torch.device | str = "cpu",
    seed: int = 0,
    **overrides: Any,
) -> PackingEnv:
    """Build an environment from a preset.

    Args:
        task: Name in :data:`PRESETS`.
        num_envs: Rows ``B``, or ``(E, A)``.
        device: Where the environment lives.
        seed: Seed of the instance pool and of the rows' streams.
        **overrides: Any field of :class:`PackingParams` or :class:`Task`, and ``resolution``
            (cells along X), ``split`` ("train" or "test"), ``pool_size``, ``skip_infeasible``,
            ``autoreset``, ``draw``, ``row_offset``. ``None`` keeps the preset's value. ``items``
            is a mapping with ``source``, or a catalogue, or a list of mesh files or folders.

    Returns:
        The environment, not yet reset.

    Raises:
        ParameterError: The preset or an override is unknown or impossible.
    """
    if task not in PRESETS:
        raise ParameterError(f"task={task!r} is unknown; choose one of {sorted(PRESETS)}")
    options = {name: value for name, value in overrides.items() if value is not None}
    shell = {k: options.pop(k) for k in ("autoreset", "draw", "row_offset") if k in options}
    pool = {k: options.pop(k) for k in ("split", "skip_infeasible") if k in options}
    size, seed = check_pool(options.pop("pool_size", POOL_SIZE), seed)
    preset = _override(PRESETS[task], options)
    batch = _batch(num_envs)
    _check_choices(preset.params, batch, device, shell, pool)
    generator = build_generator(preset.generator)
    catalogue = build_catalogue(preset, pool.get("split", "train"))
    tensors = catalogue.tensors()
    playable = feasibility.legal_on_floor(tensors, preset.params).any(1)
    instances = make_pool(
        generator, catalogue, preset.params, playable, seed=seed, size=size, **pool
    )
    return PackingEnv(
        preset.params, catalogue, instances, num_envs=batch, device=device, seed=seed, **shell
    )


def _batch(num_envs: Any) -> tuple[int, ...]:
    """``num_envs`` as the batch's shape."""
    wanted = "must be a positive integer B, or a list (E, A) of them"
    axes = list(num_envs) if isinstance(num_envs, Sequence) else [num_envs]
    if isinstance(num_envs, str) or not axes:
        raise ParameterError(f"num_envs={num_envs!r} {wanted}")
    try:
        return tuple(check_integer("num_envs", axis, 1) for axis in axes)
    except ParameterError as error:
        raise ParameterError(f"num_envs={num_envs!r} {wanted}") from error


def _check_choices(
    params: PackingParams,
    batch: tuple[int, ...],
    device: torch.device | str,
    shell: dict[str, Any],
    pool: dict[str, Any],
) -> None:
    """Refuse what the environment and the pool would refuse, before the items are built."""
    try:
        torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(f"device={device!r} is no device; use cpu, cuda or cuda:0") from error
    autoreset, draw = shell.get("autoreset", "native"), shell.get("draw", "random")
    specs.check_arguments(params, torch.Size(batch), device, autoreset, draw)
    get_mode(params.action_mode)
    candidates.get_generator(params.candidate_generator)
    check_integer("row_offset", shell.get("row_offset", 0), 0, 2**32 - math.prod(batch))
    split_stream(pool.get("split", "train"))
    if not isinstance(pool.get("skip_infeasible", False), bool):
        raise ParameterError(
            f"skip_infeasible={pool['skip_infeasible']!r} must be true, false or null"
        )


def _override(preset: Task, options: dict[str, Any]) -> Task:
    """The preset with some values changed; unknown names are an error that lists the known."""
    own = {f.name for f in fields(Task)} - {"params"}
    rules = {f.name for f in fields(PackingParams)}
    unknown = set(options) - own - rules - {"resolution"}
    if unknown:
        raise ParameterError(
            f"unknown option {sorted(unknown)}; known: {sorted(own | rules | {'resolution'})}"
        )
    changes = {name: value for name, value in options.items() if name in rules}
    if "resolution" in options:
        width = check_container(changes.get("container", preset.params.container))[0]
        cell = width / check_integer("resolution", options["resolution"], 1)
        if not math.isclose(check_number("cell", changes.get("cell", cell)), cell):
            raise ParameterError(
                f"resolution={options['resolution']} means cell={cell:.6g} m, but "
                f"cell={changes['cell']} is given too; leave one of them out"
            )
        changes["cell"] = cell
    kept = {f.name: getattr(preset, f.name) for f in fields(Task)}
    kept.update({name: value for name, value in options.items() if name in own})
    kept["params"] = preset.params.evolve(**changes)
    kept["scales"] = _scales(kept["scales"])
    return Task(**kept)


def _scales(scales: Any) -> tuple[float, ...]:
    """The size variants: a list of positive numbers."""
    if isinstance(scales, str) or not isinstance(scales, Iterable):
        raise ParameterError(f"scales={scales!r} must be a list of positive numbers, as in [1.0]")
    values = tuple(check_number("scales", scale, above=0.0) for scale in scales)
    if not values:
        raise ParameterError("scales is empty; use [1.0] for items as they are")
    return values


def build_generator(generator: str | Mapping[str, Any] | Generator) -> Generator:
    """A generator from its name, from ``{"name": ..., **arguments}``, or as it is."""
    if isinstance(generator, Generator):
        return generator
    if not isinstance(generator, (str, Mapping)):
        raise ParameterError(
            f"generator={generator!r} must be a name out of {sorted(GENERATORS)}, or a mapping "
            f"with its name and arguments"
        )
    options = {"name": generator} if isinstance(generator, str) else dict(generator)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in GENERATORS:
        raise GeneratorError(f"generator={name!r} is unknown; choose one of {sorted(GENERATORS)}")
    known = inspect.signature(GENERATORS[name]).parameters
    _check_names(f"generator {name}", options, set(known))
    missing = [key for key, p in known.items() if p.default is p.empty and key not in options]
    if missing:
        raise ParameterError(f"generator {name} needs {', '.join(missing)}")
    return GENERATORS[name](**options)


def _check_names(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    """Refuse arguments that do not exist, listing those that do."""
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        listed = f"known: {', '.join(sorted(known))}" if known else "it takes none"
        raise ParameterError(f"{what} has no argument {', '.join(unknown)}; {listed}")


def build_catalogue(preset: Task, split: str = "train") -> Catalogue:
    """The catalogue of a task's items, from the disk cache where it was built before.

    With ``items={"source": "meshes", "holdout": 0.25}`` the last quarter of the files (sorted by
    name) makes the test split's catalogue, the rest the training split's.
    """
    if isinstance(preset.items, Catalogue):
        return preset.items
    options = _items_options(preset.items)
    source = options.pop("source")
    holdout = options.pop("holdout", 0.0)
    params = preset.params
    for axis, length in zip("XY", params.container[:2], strict=True):
        whole_cells(length, params.cell, axis)
    options |= {
        "cell": params.cell,
        "container": params.container,
        "orientations": preset.orientations,
        "scales": preset.scales,
    }
    if source == "meshes":
        catalogue = Catalogue.from_meshes(options.pop("paths"), **options)
        _check_meshes(catalogue)
    else:
        catalogue = _SOURCES[source](**options)
    return _hold_out(catalogue, holdout, split) if holdout else catalogue


def _check_meshes(catalogue: Catalogue) -> None:
    """Log what the files were warned about; refuse parts that are all smaller than a cell."""
    largest = float(catalogue.tensors()["extent"].max())
    if largest < catalogue.cell:
        raise ParameterError(
            f"every part is smaller than a cell: the largest measures {largest:.3g} m, the cell "
            f"{catalogue.cell} m; check items.unit (mm, cm, m, in, ...)"
        )
    warned = {
        name: source["warnings"]
        for name, source in zip(catalogue.names, catalogue.sources, strict=True)
        if source.get("warnings")
    }
    for name, warnings in list(warned.items())[:_SHOWN]:
        _LOGGER.warning("%s: %s", name, "; ".join(warnings))
    if len(warned) > _SHOWN:
        _LOGGER.warning("%d more parts have warnings; see `packing items`", len(warned) - _SHOWN)


_SOURCES: dict[str, Callable[..., Catalogue]] = {
    "shapes": Catalogue.from_shapes,
    "meshes": Catalogue.from_meshes,
    "cuboids": Catalogue.from_cuboids,
}
_BUILDING = {"unit", "strict", "use_cache", "cache_dir"}
ITEM_ARGUMENTS: dict[str, set[str]] = {
    "shapes": {"families", *_BUILDING},
    "meshes": {"paths", *_BUILDING},
    "cuboids": {"extents", "names", "unit"},
}
"""What ``items`` may hold beside ``source`` and ``holdout``, for each source."""


def _items_options(items: Any) -> dict[str, Any]:
    """``items`` as a mapping with a known source and arguments that exist."""
    options = dict(items if isinstance(items, Mapping) else _named_source(items))
    source = options.get("source")
    if not isinstance(source, str) or source not in _SOURCES:
        raise ParameterError(
            f"items.source={source!r} is unknown; choose one of {', '.join(_SOURCES)}"
        )
    _check_names(
        f"items (source {source})", options, {"source", "holdout"} | ITEM_ARGUMENTS[source]
    )
    share = check_number("items.holdout", options.setdefault("holdout", 0.0))
    if not 0 <= share < 1:
        raise ParameterError(f"items.holdout={share} must lie between 0 and 1")
    if source == "shapes":
        _check_families(options.get("families"))
    elif source == "meshes":
        options["paths"] = _paths(options.get("paths"))
    else:
        _check_extents(options.get("extents"))
    return options


def _check_families(families: Any) -> None:
    try:
        if isinstance(families, str) or not isinstance(families, (Iterable, type(None))):
            raise ValueError(f"{families!r} is no list; choose from {', '.join(shapes.FAMILIES)}")
        shapes.select(families)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"items.families: {error}") from error


def _paths(paths: Any) -> list[Any]:
    """The inputs of ``Catalogue.from_meshes`` as a list."""
    one = isinstance(paths, MESH_INPUTS) or not isinstance(paths, Iterable)
    given = [paths] if one else list(paths)
    if paths is None or not given or "" in given:
        raise ParameterError("items.paths is empty; name a folder or mesh files")
    for item in given:
        if not isinstance(item, MESH_INPUTS):
            raise ParameterError(f"items.paths holds {item!r}; name folders or mesh files")
    return given


def _check_extents(extents: Any) -> None:
    try:
        fits = torch.as_tensor(extents, dtype=torch.float64).shape[1:] == (3,)
    except (RuntimeError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ParameterError(
            f"items.extents={extents!r} must be a list of (dx, dy, dz), one for each cuboid"
        )


def _named_source(items: Any) -> Mapping[str, Any]:
    """``"shapes"``, or a path or list of paths of meshes, as a source."""
    return {"source": "shapes"} if items == "shapes" else {"source": "meshes", "paths": items}


def _hold_out(catalogue: Catalogue, share: float, split: str) -> Catalogue:
    """The rows of the items kept for training, or of those held out."""
    names = list(dict.fromkeys(catalogue.names))
    kept = len(names) - max(1, round(share * len(names)))
    if kept < 1:
        raise ParameterError(f"items.holdout={share} leaves none of {len(names)} items to train on")
    wanted = set(names[:kept] if split == "train" else names[kept:])
    return catalogue.select([i for i, name in enumerate(catalogue.names) if name in wanted])
