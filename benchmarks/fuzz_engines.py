"""Fuzzing of every engine at once: presets against the reference, and random configurations.

    python benchmarks/fuzz_engines.py presets [--steps 10000] [--tasks irregular ...]
    python benchmarks/fuzz_engines.py configurations [--count 300] [--steps 30]

One environment per engine plays the same actions: `compiled` if it supports the task, `rules` with
compiled kernels, and `rules` in torch's own operations. Everything that a step returns, and the
state, must have the same bits. With `presets` the reference program also plays. Its heights, rest
heights, random bits of the mask, candidates and done flags must be equal, and its reward and
metrics equal to within 1e-6. With `configurations` each task is a preset with random overrides
(action modes, orders, previews, constraints, rewards, candidates, both kinds of reset, shapes of
the batch). Combinations that the environment refuses are counted and drawn again. The first
difference ends the run with exit status 1 and prints the task. `fused` needs a CUDA device
(`tests/gpu`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from provenance import provenance, write_json
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from packing_env import kernels, make_env
from packing_env.envs import PackingEnv
from packing_env.generators import GeneratorError
from packing_env.items import CatalogueError
from packing_env.tasks import PRESETS
from packing_env.testing import CheckError, Referee
from packing_env.testing.environment_checks import act
from packing_env.types import ParameterError

VARIANTS = (("compiled", None), ("rules", "numba"), ("rules", "eager"))
"""Engine and kernel backend; None: the fastest."""
MAP_GENERATORS = ("lowest_z", "corner_points", "level_set_vertices", "all_placements")
"""Candidate generators that support items of any shape."""
ROWS = {"irregular_paper": 4, "sls_nesting": 8, "cuboid_offline": 8}
"""Rows of these presets; the other presets have 16."""
OPTIONS: dict[str, dict[str, Any]] = {"nesting": {"cell": 0.01}}
"""Coarser presets for the reference, which tries every place of a part, voxel by voxel."""


@dataclass
class Variant:
    """An environment, the backend that its kernels run on, and its last observation."""

    env: PackingEnv
    backend: str | None
    root: TensorDictBase

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function with this variant's backend."""
        kernels.set_backend(self.backend)
        try:
            return function()
        finally:
            kernels.set_backend(None)


def build(task: str, options: dict[str, Any], autoresets: list[str]) -> list[Variant]:
    """Build the environments of a task, one per engine that supports it."""
    variants: list[Variant] = []
    for engine, backend in VARIANTS:
        kernels.set_backend(backend)
        try:
            env = make_env(task, engine=engine, autoreset=autoresets[len(variants)], **options)
        except ParameterError as error:
            if engine != "compiled" or "cannot carry out this task" not in str(error):
                raise
            continue
        finally:
            kernels.set_backend(None)
        variant = Variant(env, backend, TensorDict())
        variant.root = variant.call(env.reset)
        variants.append(variant)
    return variants


def leaves(values: TensorDictBase) -> dict[str, Tensor]:
    """Return the tensors of a tensordict by name."""
    return {str(key): value for key, value in values.items(True, True)}


def compare(what: str, step: int, first: TensorDictBase, other: TensorDictBase) -> None:
    """Raise unless two tensordicts hold the same keys with the same bits."""
    one, two = leaves(first), leaves(other)
    unlike = set(one) ^ set(two) or {key for key in one if not torch.equal(one[key], two[key])}
    if unlike:
        raise CheckError(f"step {step}: {what}: {sorted(unlike)} differ")


def advance(
    variants: list[Variant], step: int, judge: Callable[[TensorDictBase], None] | None = None
) -> TensorDictBase:
    """Step all environments with the first one's action, compare them; return ``next``.

    ``judge`` receives ``next`` of the first environment before its rows are reset.
    """
    first = variants[0]
    actions = first.root.select(*first.env.takes)

    def step_and_judge() -> tuple[TensorDictBase, TensorDictBase]:
        stepped = first.env.step(first.root)
        if judge is not None:
            judge(stepped["next"])
        return stepped, first.env.maybe_reset(first.env.step_mdp(stepped))

    first.root.update(actions)
    results = [first.call(step_and_judge)]
    for variant in variants[1:]:
        variant.root.update(actions)
        results.append(variant.call(partial(variant.env.step_and_maybe_reset, variant.root)))
    for variant, (result, root) in zip(variants[1:], results[1:], strict=True):
        what = f"{first.env.engine.name} and {variant.env.engine.name} ({variant.backend})"
        compare(f"{what}, next", step, results[0][0]["next"], result["next"])
        roots = (td.exclude(*first.env.takes) for td in (results[0][1], root))
        compare(f"{what}, root", step, *roots)
        compare(f"{what}, state", step, first.env.get_state(), variant.env.get_state())
    for variant, (_, root) in zip(variants, results, strict=True):
        variant.root = root
    return results[0][0]["next"]


def play_preset(task: str, steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """Play one preset against the reference; yield the counts after every decision."""
    rows = min(ROWS.get(task, 16), steps)
    options = {"num_envs": rows, "seed": seed, **OPTIONS.get(task, {})}
    variants = build(task, options, ["native", "masked", "native"])
    first, generator = variants[0], torch.Generator().manual_seed(seed)
    referee = Referee(first.env, mask_bits=64, seed=seed)
    referee.begin(torch.ones(rows, 1, dtype=torch.bool), first.root)
    episodes = 0
    for step in range(-(-steps // rows)):
        # Choose and decode the action before the step, which may overwrite the state.
        first.root, choice = act(first.env, first.root, generator)
        decisions = [] if choice is None else referee.decide(choice)
        following = advance(variants, step, partial(referee.step, decisions))
        referee.begin(following["done"], first.root)
        episodes += int(following["done"].sum())
        yield {
            "steps": referee.steps,
            "episodes": episodes,
            "engines": [f"{v.env.engine.name} ({v.backend or 'numba'})" for v in variants],
        }


def draw_constraints(random: np.random.Generator, container: tuple[float, ...]) -> dict[str, Any]:
    """Draw some constraints, and the item attributes that they need."""
    side = min(container[:2])
    drawn = {
        "no_stacking": True,
        "max_load": True,
        "fragile": str(random.choice(["last", "top"])),
        "lifo": True,
        "weight_limit": float(random.choice([10.0, 30.0])),
        "balance": float(random.choice([0.2, 0.4])),
        "clearance": 0.1 * side,
        "wall_clearance": 0.1 * side,
        "preplaced": [[0.0, 0.0, 0.0, 0.2 * side, 0.3 * side, 0.25 * container[2]]],
    }
    names = random.choice(list(drawn), size=int(random.integers(1, 4)), replace=False)
    return {name: drawn[name] for name in names}


def draw_configuration(random: np.random.Generator) -> dict[str, Any]:
    """Draw a preset with random overrides as plain values."""

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    task = pick("cuboid_online", "cuboid_buffer", "cuboid_offline", "cuboid_continuous",
                "irregular", "irregular_com_hull", "sls_nesting")  # fmt: skip
    visible = pick(1, 1, 2, 3)
    options: dict[str, Any] = {
        "seed": int(random.integers(0, 2**31)),
        "pool_size": 64,
        "num_envs": pick(1, 3, 8, (2, 3), (1, 1)),
        "num_items": 180 if task == "cuboid_offline" else int(random.integers(visible + 3, 20)),
        "num_visible": visible,
        "preview": pick(0, 0, 1, 3),
        "item_order": pick("arrival", "volume"),
        "illegal_action": pick("terminate", "noop", "project"),
        "max_steps": pick(None, 5, 40),
        "num_candidates": pick(1, 8, 40),
        "candidate_fallback": pick(True, False),
        "reward": pick(None, {"objective": 1.0}, {"item": 0.1, "height": 0.2},
                       {"utilization": 1.0, "illegal": 0.3}),
    }  # fmt: skip
    if task == "cuboid_continuous":
        options["candidate_generator"] = pick("split_spaces", "split_space_drops")
        options["stability"] = pick("none", "com_hull", "stacking_tree", "area_corners")
        options["candidate_range"] = pick("container", "pct")
        return {"task": task, "options": options}
    options["action_mode"] = pick("placement", "candidate", "multi_head", "hierarchical",
                                  "continuous")  # fmt: skip
    options["candidate_generator"] = pick(*MAP_GENERATORS)
    options["grid_step"] = pick(1, 1, 2, 3)
    options["observation"] = pick(
        None,
        ("heightmap", "item_id"),
        ("heightmap", "item_id", "item_features", "orientation_features", "drop_height"),
        ("heightmap", "item_id", "item_maps"),
    )
    if task.startswith("cuboid"):
        size = (float(pick(6, 10, 13)), float(pick(6, 10)), float(pick(8, 10, 12)))
        options["container"] = size
        options["orientations"] = pick("yaw", "cuboid")
        options["stability"] = pick("none", "area_corners", "center_hull", "com_hull",
                                    "com_hull_20", "equilibrium")  # fmt: skip
        options["num_spaces"] = pick(0, 0, 24)
        if task != "cuboid_offline":
            options["generator"] = {"name": "uniform_cuboids", "low": 1, "high": pick(3, 5)}
    else:
        size = PRESETS[task].params.container
        options["stability"] = pick(None, "none", "com_hull", "com_hull_20", "com_hull_strict")
        options["contact_tol"] = pick(None, 0.0, 0.004)
        options["orientations"] = pick("yaw", "pi/2")
        if task != "sls_nesting":
            options["cell"] = 0.02
            options["container"] = size = (0.32, 0.32, 0.3)
    if options["stability"] not in (None, "none", "equilibrium", "com_hull_20"):
        options["surest"] = pick(None, None, ("com_hull_20",))
    if random.random() < 0.35 and options["action_mode"] != "hierarchical":
        options["constraints"] = draw_constraints(random, size)
        options["handling"] = {"weight": 2.0, "max_load": 7.0, "group": 1, "stackable": True,
                               "fragile": bool(pick(True, False))}  # fmt: skip
    return {"task": task, "options": options}


def play_configuration(drawn: dict[str, Any], steps: int) -> dict[str, Any]:
    """Play one configuration with every engine that supports it; some actions are illegal."""
    seed = drawn["options"]["seed"]
    torch.manual_seed(seed)
    resets = [("native", "masked")[int(n)] for n in np.random.default_rng(seed).integers(0, 2, 3)]
    variants = build(drawn["task"], drawn["options"], resets)
    first = variants[0]
    for variant in variants[1:]:
        compare(f"{variant.env.engine.name} ({variant.backend})", 0, first.root, variant.root)
    episodes = illegal = 0
    for step in range(1, steps + 1):
        first.root = first.env.rand_action(first.root)
        if first.env.params.illegal_action != "project" and step % 7 == 0:
            for key, (dtype, shape) in first.env.takes.items():
                if not dtype.is_floating_point:
                    astray = torch.randint(-1, 6, shape, dtype=dtype)
                    rows = torch.rand(first.env.batch_size) < 0.3
                    rows = rows.view(*rows.shape, *[1] * (len(shape) - rows.ndim))
                    first.root.set(key, torch.where(rows, astray, first.root.get(key)))
        following = advance(variants, step)
        episodes += int(following["done"].sum())
        illegal = int(first.env.get_state()["illegal_actions"].sum()) + illegal
    return {
        "engines": [f"{v.env.engine.name} ({v.backend or 'numba'})" for v in variants],
        "rows": first.env.batch_size.numel(),
        "episodes": episodes,
    }


def run_presets(args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Play every preset; raise at the first difference."""
    results = report.setdefault("presets", {})
    for task in args.tasks or PRESETS:
        started = time.perf_counter()
        for counts in play_preset(task, args.steps, args.seed):
            results[task] = counts
        results[task]["seconds"] = round(time.perf_counter() - started, 1)
        print(task, results[task], flush=True)
        write_json(args.out, report)


def run_configurations(args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Play random configurations; raise at the first difference."""
    random, totals = np.random.default_rng(args.seed), Counter[str]()
    started = time.perf_counter()
    while totals["configurations"] < args.count:
        drawn = draw_configuration(random)
        report["last"] = drawn
        try:
            counts = play_configuration(drawn, args.steps)
        except (ParameterError, GeneratorError, CatalogueError) as error:
            if "is unknown" in str(error):  # a name that is drawn here no longer exists
                raise
            totals["refused"] += 1
            print(f"refused: {str(error)[:150]}", flush=True)
            continue
        totals["configurations"] += 1
        totals["episodes"] += counts["episodes"]
        totals["steps"] += args.steps * counts["rows"]
        totals[f"task {drawn['task']}"] += 1
        totals[f"mode {drawn['options'].get('action_mode', 'candidate')}"] += 1
        totals["with constraints"] += "constraints" in drawn["options"]
        totals["with the compiled engine"] += counts["engines"][0].startswith("compiled")
        report["totals"] = dict(totals)
        if totals["configurations"] % 20 == 0:
            print(f"{dict(totals)} {time.perf_counter() - started:.0f} s", flush=True)
            write_json(args.out, report)
    del report["last"]


def main() -> int:
    """Fuzz presets or configurations, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("presets", "configurations"))
    parser.add_argument(
        "--steps", type=int, default=None, help="default: 10,000 per preset, 30 per configuration"
    )
    parser.add_argument("--count", type=int, default=300, help="number of configurations")
    parser.add_argument("--tasks", nargs="+", choices=PRESETS, help="presets; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    args.steps = args.steps or {"presets": 10_000, "configurations": 30}[args.what]
    args.out = args.out or f"benchmarks/results/fuzz_{args.what}.json"
    report = provenance(args)
    started = time.perf_counter()
    try:
        {"presets": run_presets, "configurations": run_configurations}[args.what](args, report)
    except CheckError as error:
        print(f"DIFFERENT: {error}\n{report.get('last', '')}", file=sys.stderr)
        write_json(args.out, {**report, "difference": str(error)})
        return 1
    report |= {"differences": 0, "seconds": round(time.perf_counter() - started, 1)}
    write_json(args.out, report)
    print(f"no difference, {report['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
