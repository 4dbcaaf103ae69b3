"""Measure which packings stand in simulation: stability rule x policy x items.

Every packing is placed item by item in MuJoCo; each item comes to rest before the next is placed.
With ``--released``, all items are also released at once:

    python benchmarks/stands.py --task cuboid_online --piles 100 --walls 0
    python benchmarks/stands.py --task irregular --piles 200 --released
    python benchmarks/stands.py --task irregular_com_hull --piles 50 --meshes FOLDER \
        --policies deepest_bottom_left pretrained/irregular_com_hull
    python benchmarks/stands.py --task irregular --piles 50 --set cell=0.005 grid_step=2 \
        --physics moved_cells=2
    python benchmarks/stands.py --task irregular --policies deepest_bottom_left --tries 16 \
        --physics seed=1

With ``--tries``, every choice of the policy is simulated before it is played
(`agents.search.Finalists`; ``--limit`` sets its option `limit`). Such packings must be judged with
another seed of the simulation.

Without ``--rules``, the tasks in `RULES` are measured under the rules listed there. Any other task
is measured under its own rule, with its preference ``surest``.

A policy is a heuristic or a checkpoint: pretrained weights, or a training run. New combinations are
added to the result file; a combination that the file already has is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from provenance import provenance

import agents
import packing_env as pe
from agents.estimate import Estimate
from agents.search import Finalists
from agents.training import checkpoint, resume
from agents.training.evaluate import evaluate
from packing_env.physics import PhysicsReport, read_settings, simulate
from packing_env.plan import PlanError

POLICIES = ("random_legal", "deepest_bottom_left", "heightmap_minimization")
OWN = "preset"
"""Name for the preset's own rule, with its preference ``surest``."""
RULES = {
    "cuboid_online": ("none", "com_hull", "center_hull", "com_hull_strict", "equilibrium"),
    "irregular_com_hull": ("none", "com_hull", "com_hull_10", "com_hull_20"),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="cuboid_online")
    parser.add_argument("--rules", nargs="+", default=None)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--piles", type=int, default=100)
    parser.add_argument("--meshes", default=None, help="a folder of meshes instead of the shapes")
    parser.add_argument("--without", nargs="*", default=[], help="names of items to leave out")
    parser.add_argument("--set", nargs="*", default=[], help="overrides of make_env, as key=JSON")
    parser.add_argument("--surest", nargs="*", default=[], help="stricter rules, preferred")
    parser.add_argument("--physics", nargs="*", default=[], help="simulation settings, key=JSON")
    parser.add_argument("--tries", type=int, default=0, help="simulated choices per item")
    parser.add_argument("--limit", type=float, default=1.0, help="allowed share of the motion")
    parser.add_argument("--walls", type=int, nargs="+", default=[1], choices=[0, 1])
    parser.add_argument("--released", action="store_true", help="also release whole piles at once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/stands.json"))
    options = parser.parse_args()
    if options.surest and OWN in (options.rules or RULES.get(options.task, (OWN,))):
        parser.error("--surest needs --rules, because the preset's own rule has its own preference")
    return options


def pack(options: argparse.Namespace, rule: str, policy: str) -> tuple[list[Any], dict[str, Any]]:
    """Play held-out instances; return their packings and the overrides."""
    changes = read_pairs(options.set)
    if options.meshes:
        items = changes.get("items", {})
        changes["items"] = {"source": "meshes", "paths": options.meshes, **items}
    if options.without:
        every = pe.make_env(options.task, pool_size=1, **changes).catalogue
        rows = [i for i, name in enumerate(every.names) if name not in options.without]
        changes["items"] = every.select(rows)
    env = pe.make_env(
        options.task,
        num_envs=min(options.piles, 50),
        seed=0,
        split="test",
        draw="sequential",
        pool_size=max(64, options.piles),
        **({} if rule == OWN else {"stability": rule, "surest": options.surest}),
        **changes,
    )
    torch.manual_seed(0)
    build = partial(policy_of, policy)
    policy_played = build(env)
    if options.tries:
        policy_played = Finalists(env, build, tries=options.tries, limit=options.limit)
    evaluation = evaluate(env, policy_played, options.piles, keep=options.piles)
    return evaluation.packings(env), changes


def read_pairs(entries: list[str]) -> dict[str, Any]:
    """Return the values of entries ``key=JSON``."""
    pairs = dict(entry.split("=", 1) for entry in entries)
    return {key: json.loads(value) for key, value in pairs.items()}


def shown(changes: dict[str, Any], items: str) -> str:
    """Return overrides as text; a folder of meshes is shown by its name only."""
    if isinstance(changes.get("items"), dict) and "paths" in changes["items"]:
        changes = {**changes, "items": {**changes["items"], "paths": items}}
    return str(changes)


def name_setting(options: argparse.Namespace) -> str:
    """Return the part of a row's key that is not task, items, rule or policy."""
    surest = [f"surest={','.join(options.surest)}"] if options.surest else []
    without = [f"without={','.join(options.without)}"] if options.without else []
    judge = [f"physics.{entry}" for entry in options.physics]
    tries = [f"tries={options.tries} limit={options.limit}"] if options.tries else []
    return " ".join([*options.set, *without, *surest, *judge, *tries])


def policy_of(name: str, env: pe.PackingEnv) -> Any:
    """Return a heuristic by its name, or the policy of a checkpoint (its name has a slash)."""
    if "/" not in name:
        return agents.heuristics.build(name, env)
    saved = checkpoint.load(name, device="cpu")
    return resume.load_policy(OmegaConf.create(saved.meta["config"]), saved, env)


def cell(packings: list[Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Simulate packings; return means and half-widths of 95 % intervals."""
    reports = []
    settings = read_settings(changes)
    start = time.perf_counter()
    for packing in packings:
        try:
            reports.append(simulate(packing, settings))
        except PlanError as error:
            print(f"left out: {error}")
    values = {
        "utilization": [r.utilization for r in reports],
        "kept": [r.utilization_kept for r in reports],
        "collapsed": [float(not r.stands) for r in reports],
        "moved": [r.count("moved") / max(1, len(r.items)) for r in reports],
        "toppled": [r.count("toppled") / max(1, len(r.items)) for r in reports],
    }
    means = {
        key: vars(Estimate.of(torch.tensor(value, dtype=torch.float64)))
        for key, value in values.items()
    }
    share = means["kept"]["mean"] / max(1e-9, means["utilization"]["mean"])
    return {
        **means,
        "kept_share": share,
        "each": {key: values[key] for key in ("utilization", "kept")},
        "failures": failures(reports),
        "piles": len(reports),
        "seconds_a_pile": (time.perf_counter() - start) / max(1, len(reports)),
    }


def failures(reports: list[PhysicsReport]) -> dict[str, Any]:
    """Count whether the item that moved first in sequential piles was the one just placed."""
    failed = [r.items[r.first_failure] for r in reports if r.first_failure is not None]
    placed = [item for item in failed if item.moved]
    return {
        "placed": len(placed),
        "older": len(failed) - len(placed),
        "placed_items": dict(Counter(item.name for item in placed).most_common()),
    }


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    content = json.loads(options.out.read_text()) if options.out.exists() else {"cells": []}
    content |= provenance()
    done = {tuple(c["key"]) for c in content["cells"]}
    items = Path(options.meshes).name if options.meshes else "own"
    orders = ["sequential", *(["released"] if options.released else [])]
    for rule in options.rules or RULES.get(options.task, (OWN,)):
        for policy in options.policies:
            trials = [
                (options.task, items, name_setting(options), rule, policy, order, bool(walls))
                for walls in options.walls
                for order in orders
            ]
            trials = [trial for trial in trials if trial not in done]
            if not trials:
                continue
            packings, changes = pack(options, rule, policy)
            for trial in trials:
                judged = {"order": trial[-2], "walls": trial[-1], **read_pairs(options.physics)}
                row = cell(packings, judged)
                content["cells"].append({"key": trial, "changes": shown(changes, items), **row})
                write(options.out, content)
                line = {
                    k: round(row[k]["mean"], 3)
                    for k in ("utilization", "kept", "collapsed", "moved")
                }
                print(*trial, line, f"{row['seconds_a_pile']:.2f} s", flush=True)


if __name__ == "__main__":
    main()
