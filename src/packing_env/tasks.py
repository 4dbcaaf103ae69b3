"""Named presets, and `make_env`, which builds an environment from one.

A preset is the complete set of defaults of a task. ``conf/env/<preset>.yaml`` holds the same
values, and ``_base.yaml`` the values that tasks share; a test checks that they equal the presets.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any

import torch

from packing_env.core import feasibility
from packing_env.envs import PackingEnv, checks
from packing_env.generators import GENERATORS, Generator, GeneratorError
from packing_env.generators.base import (
    SPLITS,
    Request,
    check_pool_memory,
    make_next_pool,
    make_pool,
)
from packing_env.item_source import are_embedded, build_catalogue
from packing_env.names import close_names
from packing_env.types import PackingParams, ParameterError
from packing_env.values import (
    Count,
    Length,
    Option,
    Positive,
    Seed,
    check,
    check_choice,
    check_container,
    check_names,
    read,
    read_mapping,
)

POOL_SIZE = 4096
"""Default number of instances per seed and split."""


@dataclass(frozen=True)
class Task:
    """A preset: the rules, the items and the source of instances.

    Attributes:
        params: The rules.
        items: Source of the items: ``source`` (shapes, meshes or cuboids) and its arguments.
        orientations: Rotations of an item (``items.rotations.rotation_set``).
        scales: Size variants of each embedded shape. A user's own parts keep their size unless
            :func:`make_env` gets ``scales``.
        generator: Source of instances (``generators.GENERATORS``), by name or with arguments.
        pool_size: Instances per seed and split.
        handling: Attributes of the items, such as weight and fragility
            (``Catalogue.with_handling``), which ``constraints`` read.
    """

    params: PackingParams
    items: Any = field(default_factory=lambda: {"source": "shapes"})
    orientations: Any = "pi/2"
    scales: Annotated[tuple[Positive, ...], Option(filled=True, example="[1.0]")] = (1.0,)
    generator: str | Mapping[str, Any] | Generator = "catalogue_mix"
    pool_size: Count = POOL_SIZE
    handling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class _Pool:
    """Options of the pool of instances (:func:`packing_env.generators.make_pool`)."""

    seed: Seed
    size: Count
    split: Annotated[str, Option(choices=SPLITS)] = "train"
    skip_infeasible: bool | None = None


LEAN = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations without the items' maps; with 24 orientations, these maps are the largest part."""

CUBOIDS = {"source": "cuboids"}
"""The cuboids that the generator supplies."""
RS_125 = {"name": "uniform_cuboids", "low": 1, "high": 5}
CUBOID = PackingParams(
    container=(10.0, 10.0, 10.0),
    cell=1.0,
    num_items=150,
    stability="center_hull",
    contact_tol=0.0,
    observation=LEAN,
)
"""The discrete setting of the cuboid literature: 10 x 10 x 10 cells of side 1, long streams."""

SHAPES = PackingParams(container=(0.32, 0.32, 0.30), cell=0.01, num_items=24)
"""Items of household size in a container of 32 x 32 cells of 10 mm."""

PRESETS: dict[str, Task] = {
    # The default of the demo and of training: items that can stand, in poses that rest on a floor,
    # at the placements that are most likely to stand (docs/results.md).
    "irregular": Task(
        SHAPES.evolve(
            stability="com_hull_strict",
            surest=("com_hull_10", "com_hull_20"),
            contact_tol=0.001,
        ),
        items={"source": "shapes", "resting": True, "steady": "com_hull_20"},
    ),
    # The default of versions 0 and 1: all embedded shapes in all poses, centre of mass over the
    # hull of the support, contact within one cell. Two thirds of the packed volume do not
    # stay in place.
    "irregular_com_hull": Task(SHAPES),
    # Huang et al., RA-L 2023: 0.40 x 0.40 x 0.30 m at 200 x 200 pixels, 50 objects of household
    # size scaled by 0.8-1.2, of which the K = 20 largest are offered.
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
    # Parts nested in the powder bed of a laser-sintering printer: powder supports them, so there is
    # no stability rule; the reward is 1 per part.
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
    # Parts nested in a powder bed as voxels: they may also lie in cavities and under overhangs of
    # other parts, and every part can still be taken out (Cui et al., SIGGRAPH 2023).
    "nesting": Task(
        PackingParams(
            container=(0.12, 0.12, 0.12),
            cell=0.005,
            geometry="voxels",
            num_items=24,
            num_visible=2,
            stability="none",
            stability_metric="none",
            contact_tol=0.0,
            action_mode="candidate",
            candidate_generator="closest",
            candidate_fallback=False,
            num_candidates=48,
            observation=("heightmap", "item_id", "item_features", "orientation_features"),
        ),
        items={"source": "shapes", "families": ("polycubes", "extrusions", "brackets", "cups")},
        scales=(0.5,),
    ),
    # RS-125 of Zhao et al., AAAI 2021, and later papers: sides of 1 to 5 cells, one item at a time.
    "cuboid_online": Task(CUBOID, CUBOIDS, "yaw", generator=RS_125),
    "cuboid_buffer": Task(CUBOID.evolve(num_visible=5), CUBOIDS, "yaw", generator=RS_125),
    # The pieces of a container that was cut up, all known in advance, so the container can be
    # filled completely.
    "cuboid_offline": Task(
        CUBOID.evolve(num_items=64, num_visible=20, item_order="volume"),
        CUBOIDS,
        "yaw",
        generator={"name": "guillotine", "variant": "cut2", "low": 2, "high": 5},
    ),
    # The continuous setting of Zhao et al., ICLR 2022 (no stability rule, six orientations).
    "cuboid_continuous": Task(
        PackingParams(
            container=(1.0, 1.0, 1.0),
            cell=0.01,
            geometry="boxes",
            unit=0.001,
            num_items=80,
            stability="none",
            contact_tol=0.0,
            action_mode="candidate",
            num_spaces=96,
            num_candidates=128,
            candidate_generator="split_spaces",
            observation=("heightmap", "item_id", "item_features", "orientation_features", "boxes"),
        ),
        CUBOIDS,
        "cuboid",
        generator={"name": "continuous_cuboids", "low": 0.1, "high": 0.5},
        pool_size=512,
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
        num_envs: Number of rows ``B``, or ``(E, A)``.
        device: Device of the environment.
        seed: Seed of the rows' random streams.
        **overrides: Any field of :class:`PackingParams` or :class:`Task`, and ``resolution`` (cells
            along X), ``split`` ("train" or "test"), ``pool_size``, ``pool_seed`` (seed of the
            instance pool, by default ``seed``; ``set_seed`` and ``reset`` do not change the pool),
            ``skip_infeasible``, ``autoreset``, ``draw``, ``row_offset``, ``engine``. ``None`` keeps
            the preset's value. If ``stability`` is given without ``surest``, ``surest`` is empty,
            because the preset's ``surest`` belongs to the preset's ``stability``. ``items`` is a
            mapping with ``source``, a catalogue, or a list of mesh files or folders. Such items are
            scaled only by ``scales``, never by the preset.

    Returns:
        The environment, which is not reset yet.

    Raises:
        ParameterError: The preset or an override is unknown or invalid.
    """
    check_choice("task", task, PRESETS)
    options = {name: value for name, value in overrides.items() if value is not None}
    if options.get("observation") == "flat":
        raise ParameterError(
            "observation='flat' is one vector, for Gymnasium and Stable-Baselines3: pass "
            "it to gym.make, gym.make_vec, PackingGymEnv, PackingVectorEnv or PackingSB3VecEnv; "
            "make_env takes a list of entries, as in observation=['heightmap', 'item_features']"
        )
    shell = _pop(options, "autoreset", "draw", "row_offset", "engine")
    pool = _pop(options, "split", "skip_infeasible")
    seed = read("seed", seed, Seed)
    pool_seed = read("pool_seed", options.pop("pool_seed", seed), Seed)
    preset = _override(PRESETS[task], options)
    params = preset.params
    # 1. Check everything before building items, which may take minutes.
    pool = read_mapping(_Pool, {**pool, "seed": pool_seed, "size": preset.pool_size}, "pool", "")
    shell |= {"num_envs": num_envs, "device": device, "seed": seed}
    checks.check_arguments(params, checks.Shell(**shell))
    generator = build_generator(preset.generator)
    check_pool_memory(generator, preset.pool_size, params.num_items)
    # 2. Build the items (or let the generator supply cuboids), then the instances.
    split = pool.get("split", "train")
    supplied = generator.cuboids(Request.of(params, pool_seed, split, preset.pool_size))
    poses = {"orientations": preset.orientations, "scales": preset.scales}
    catalogue = build_catalogue(preset.items, params, poses, split, supplied)
    if any(value is not None for value in preset.handling.values()):
        catalogue = catalogue.with_handling(preset.handling)
    playable = feasibility.legal_on_floor(catalogue.tensors(), params).any(1)
    source = (generator, catalogue, params, playable)
    # 3. The environment.
    env = PackingEnv(params, catalogue, make_pool(*source, **pool), **shell, generator=generator)
    env.pools = partial(make_next_pool, task=source, **pool)
    env.painter = _paint
    return env


def _paint(env: PackingEnv, row: int) -> Any:
    from packing_env import render

    return render.frame(env, row)


def override_names() -> list[str]:
    """Return the name of every override of :func:`make_env`."""
    of_rules = [f.name for f in fields(PackingParams)]
    of_task = [f.name for f in fields(Task) if f.name != "params"]
    pool = ("split", "pool_seed", "skip_infeasible")
    return [*of_rules, *of_task, "resolution", *pool, "autoreset", "draw", "row_offset", "engine"]


def _pop(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _override(preset: Task, options: dict[str, Any]) -> Task:
    """Return the preset with some values changed; an unknown name raises an error."""
    own = {f.name for f in fields(Task)} - {"params"}
    rules = {f.name for f in fields(PackingParams)}
    check_names("the environment", options, [*override_names(), "num_envs", "device", "seed"])
    changes = {name: value for name, value in options.items() if name in rules}
    if "resolution" in options:
        width = check_container(changes.get("container", preset.params.container))[0]
        cell = width / read("resolution", options["resolution"], Count)
        if not math.isclose(read("cell", changes.get("cell", cell), Length), cell):
            raise ParameterError(
                f"resolution={options['resolution']} means cell={cell:.6g} m, but "
                f"cell={changes['cell']} is given too; remove one of them"
            )
        changes["cell"] = cell
    chosen = {name: value for name, value in options.items() if name in own}
    if not are_embedded(chosen.get("items", preset.items)):
        chosen.setdefault("scales", (1.0,))
    return replace(preset, params=preset.params.evolve(**changes), **chosen)


def build_generator(generator: str | Mapping[str, Any] | Generator) -> Generator:
    """Build a generator from its name or ``{"name": ..., **arguments}``; keep an existing one."""
    if isinstance(generator, Generator):
        return generator
    options = {"name": generator} if isinstance(generator, str) else dict(generator)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in GENERATORS:
        raise GeneratorError(
            f"generator={name!r} is unknown{close_names(str(name), GENERATORS)}; choose one of "
            f"{sorted(GENERATORS)}"
        )
    kind = GENERATORS[name]
    if not (isinstance(kind, type) and issubclass(kind, Generator)):
        raise GeneratorError(f"generator {name!r} is {kind!r}; register a subclass of Generator")
    known = inspect.signature(kind).parameters
    check_names(f"generator {name}", options, known)
    missing = [key for key, p in known.items() if p.default is p.empty and key not in options]
    if missing:
        example = " ".join(f"generator.{key}=..." for key in missing)
        raise ParameterError(f"generator {name} needs {', '.join(missing)}; set {example}")
    return kind(**options)
