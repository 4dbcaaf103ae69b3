"""Evaluation, search and validation on Ray workers: the numbers of one process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.conftest import TINY_OVERRIDES

from agents import heuristics
from agents.cli import validate
from agents.cli.protocols import Protocol
from agents.config.build import build_held_out
from agents.config.compose import compose
from agents.search import Budget, Lookahead
from agents.training import ray_workers
from agents.training.evaluate import StoppedError, evaluate, joined
from packing_env import extras

EVALUATION = ["evaluation.instances=10", "evaluation.rows=4"]
PROTOCOLS = [
    Protocol(
        name,
        "tiny",
        "cuboid_online",
        {"stability": rule, "max_steps": 6, "num_spaces": 64},
        policy,
        6,
    )
    for name, policy, rule in (
        ("V1", "heightmap_minimization", "center_hull"),
        ("V6", "random_legal", "none"),
        ("V5", "online_bph", "area_corners"),
        ("V5", "online_bph", "none"),
    )
]


@pytest.fixture
def _ray() -> None:
    if not extras.is_installed("ray"):
        pytest.skip(f"NOT TESTED: Ray is not installed: {extras.command('ray')}")


def tiny_config(*overrides: str) -> Any:
    return compose("eval", [*TINY_OVERRIDES, *EVALUATION, *overrides])


@pytest.mark.parametrize("policy", ["random_legal", "search"])
def test_rounds_are_the_same_wherever_they_are_played(policy: str) -> None:
    config = tiny_config()

    def build(env: Any) -> Any:
        if policy != "search":
            return heuristics.build(policy, env)
        base: Callable[[Any], Any] = lambda inner: heuristics.build("lowest_z", inner)  # noqa: E731
        return Lookahead(env, base, depth=None, budget=Budget(playouts=8))

    env = build_held_out(config)
    whole = evaluate(env, build(env), 10, keep=6)
    parts = []
    for number, start in reversed(list(enumerate(range(0, 10, 4)))):
        apart = build_held_out(config, part=range(start, start + 4))
        count = min(4, 10 - start)
        parts.append(evaluate(apart, build(apart), count, keep=6, first_round=number))
    found = joined(parts[::-1], keep=6)
    for name, values in whole.metrics.items():
        assert torch.equal(found.metrics[name], values), name
    assert whole.states is not None
    assert found.states is not None
    for key in ("heightmap", "item_id", "packed"):
        assert torch.equal(found.states[key], whole.states[key]), key
    assert len(found.steps) == sum(len(part.steps) for part in parts)


def run_command(folder: Path, *arguments: str) -> str:
    """Run a command in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PACKING_RAY_TEST": str(folder)},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def instances(results: Path) -> dict[str, Any]:
    """Return the values of every instance, by policy."""
    content = json.loads(results.read_text())
    return {name: found["instances"] for name, found in content["policies"].items()}


def left_over(folder: Path) -> list[str]:
    """Return the processes that still run for ``folder``."""
    mark, found = f"PACKING_RAY_TEST={folder}".encode(), []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("_ray")
@pytest.mark.timeout(1500)
def test_two_workers_find_the_numbers_of_one_process(tmp_path: Path) -> None:
    task = TINY_OVERRIDES
    common = ["eval", *task, *EVALUATION, "agent=search", "agent.base=lowest_z"]
    common += ["agent.depth=null", "agent.playouts=8", "evaluation.plan=plan.json"]
    common.append("evaluation.heuristics=[random_legal,deepest_bottom_left]")
    run_command(tmp_path, *common, "run_dir=alone")
    two = ["distributed=ray", "distributed.num_workers=2"]
    said = run_command(tmp_path, *common, *two, "run_dir=workers")
    assert "deepest_bottom_left" in said
    alone, workers = (instances(tmp_path / name / "results.json") for name in ("alone", "workers"))
    assert workers == alone
    assert len(alone) == 3
    plans = [json.loads((tmp_path / n / "plan.json").read_text()) for n in ("alone", "workers")]
    assert plans[0]["items"] == plans[1]["items"]
    assert not left_over(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_ray")
@pytest.mark.timeout(900)
def test_a_failure_and_a_stop_end_the_workers() -> None:
    import ray

    with pytest.raises(ZeroDivisionError):
        list(ray_workers.play_all(divmod, [(1, 1), (1, 0), (4, 2)], num_workers=2))
    assert not ray.is_initialized()
    with pytest.raises(StoppedError):
        list(ray_workers.play_all(divmod, [(1, 1)], num_workers=1, should_stop=lambda: True))
    assert not ray.is_initialized()
    assert list(ray_workers.play_all(divmod, [(7, n) for n in range(1, 6)], num_workers=2)) == [
        divmod(7, n) for n in range(1, 6)
    ]


def test_protocols_are_measured_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    _few_protocols(monkeypatch)

    def backwards(work: Any, pieces: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        return reversed([work(*piece) for piece in reversed(list(pieces))])

    work = validate.pieces([0])
    alone, other = validate.run(work), validate.run(work, mapped=backwards)
    assert _without_times(other[0]) == _without_times(alone[0])
    assert other[1] == alone[1]


def _few_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {p.options["stability"]: p for p in PROTOCOLS if p.name == "V5"}
    monkeypatch.setattr(validate, "protocols", lambda full=False: PROTOCOLS[:2])
    monkeypatch.setattr(validate, "ordering_protocols", lambda name, full=False: rules)
    monkeypatch.setattr(validate, "DISCRIMINATING", ("online_bph",))


def _without_times(results: list[validate.Result]) -> list[Any]:
    return [{**vars(one), "seconds": 0} for one in results]
