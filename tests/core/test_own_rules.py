"""A user's stability rules are compiled if registered early, and equal the reference program."""

import importlib
import subprocess
import sys

import pytest
import torch
from tests.core.test_stability import random_board, touches
from tests.engine.engines import needs_numba

from packing_env import make_env
from packing_env.core import stability
from packing_env.kernels import stability_rules as rules
from packing_env.kernels.stability_rules import Rule
from packing_env.reference import stability as reference
from packing_env.types import ParameterError


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stability, "RULES", dict(stability.RULES))
    monkeypatch.setattr(rules, "OWN", {})
    monkeypatch.setattr(rules, "RULES", dict(rules.RULES))
    monkeypatch.setattr(rules, "NAMES", list(rules.NAMES))
    monkeypatch.setattr(rules, "MAP_RULES", list(rules.MAP_RULES))


def test_the_reference_measures_what_a_formula_reads() -> None:
    """Our formulas, registered as a user's, give the verdicts of the specification."""
    judges = {name: reference.by_formula(rule) for name, rule in rules.RULES.items()}
    verdicts: dict[str, set[bool]] = {name: set() for name in judges}
    for seed in range(12):
        for _, touch in touches(random_board(seed, cuboids=False)):
            for name, judge in judges.items():
                verdict = judge(touch)
                assert verdict == reference.is_stable(name, touch)
                verdicts[name].add(verdict)
    assert verdicts.pop("none") == {True}
    assert all(found == {True, False} for found in verdicts.values())


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(lambda support: 2 * support.count >= support.area), "what its Rule declares"),
        (Rule(lambda support: support.in_hull, percents=(50,)), "what its Rule declares"),
        (Rule(lambda support: support.corners > 2, hull="mass"), "what its Rule declares"),
        (Rule(lambda support: support.corners > 2, corners="Rest"), "did you mean rest"),
        (Rule(lambda support: support.in_hull, hull="centre"), "did you mean centres"),
        (Rule(lambda support: support.count > 3, percents=50), "percents=50 must be a list"),
        (Rule(lambda support: support.count > 3, percents=(62.5,)), "must be an integer"),
        # These cannot be compiled, or read a limit that was not declared.
        (Rule(lambda support: support.count > 3 and support.in_hull, percents=(50,)), ""),
        (Rule(lambda support: support.count > support.limits[1], percents=(50,)), ""),
        (Rule(lambda support: not support.in_hull), ""),
        (Rule(lambda support: support.corners == 4), ""),
        (Rule(lambda support: support.count > 3, percents=(80, 50)), ""),
        (Rule, ""),
    ],
)
def test_a_rule_that_declares_something_else_than_it_reads_is_refused(rule, said) -> None:
    """Compiled code would have computed with arbitrary numbers, or with another hull."""
    with pytest.raises(ParameterError, match=f"'mine'.*{said}"):
        stability.register("mine", rule)
    assert "mine" not in stability.RULES


@pytest.mark.parametrize(
    "judge",
    [
        lambda contact: contact.z[:, :1] < 3,  # of one orientation
        lambda contact: (contact.z < 3).float(),
        lambda contact: None,
    ],
)
def test_a_function_that_returns_no_bool_per_placement_is_named(judge) -> None:
    stability.register("mine", judge)
    with pytest.raises(ParameterError, match="'mine'"):
        make_env("cuboid_online", stability="mine", pool_size=16, num_items=8)


@pytest.mark.parametrize(
    "judge",
    [
        Rule,
        Rule(lambda support: support.in_hull, hull="mass"),
        lambda support: 2 * support.count >= support.area,
        lambda support: support.in_hull,
    ],
)
def test_a_formula_in_the_table_of_functions_is_named(judge, monkeypatch) -> None:
    monkeypatch.setitem(stability.RULES, "mine", judge)
    with pytest.raises(ParameterError, match=r"'mine'.*Rule\(formula"):
        make_env("cuboid_online", stability="mine", pool_size=16, num_items=8)


def test_a_late_rule_is_evaluated_by_torch(caplog) -> None:
    pytest.importorskip("numba")
    options = {"num_envs": 3, "pool_size": 16, "num_items": 8, "stability_metric": "none"}

    def masks(rule: str) -> torch.Tensor:
        env = make_env("cuboid_online", stability=rule, **options)
        torch.manual_seed(0)  # of random actions
        return env.rollout(5, break_when_any_done=False)["action_mask"]

    expected = masks("center_hull")
    stability.register("mine", rules.RULES["center_hull"])
    assert "before the first environment" in caplog.text
    assert "mine" not in rules.MAP_RULES
    assert torch.equal(masks("mine"), expected)


@pytest.mark.parametrize("late", [False, True])
def test_machine_code_is_stale_if_it_lacks_a_rule(late, monkeypatch: pytest.MonkeyPatch) -> None:
    """An early rule may come after some kernels; code never contains a late one."""
    jit = pytest.importorskip("packing_env.kernels.compiled.jit")
    name = "packing_env.kernels.compiled.stability_rules"
    importlib.import_module(name)
    if not late:
        monkeypatch.delitem(sys.modules, name)
    before = jit.source_stamp()
    stability.register("mine", rules.RULES["center_hull"])
    assert (jit.source_stamp() == before) == late


PROGRAM = """
import torch
from packing_env import kernels, make_env
from packing_env.core import stability
from packing_env.engine.operations import supported_ground
from packing_env.kernels import compile_seconds, stability_rules as rules

for name in ("area_corners", "center_hull"):
    stability.register(f"my_{name}", rules.RULES[name])
for name in ("area_corners", "center_hull"):
    options = dict(num_envs=4, pool_size=16, num_items=12)
    envs = [
        make_env("cuboid_online", stability=rule, stability_metric=rule, **options)
        for rule in (name, f"my_{name}")
    ]
    assert all(supported_ground(env.catalogue.tensors(), env.params) == "cells" for env in envs)
    played = []
    for env in envs:
        torch.manual_seed(0)
        played.append(env.rollout(8, break_when_any_done=False))
    assert (played[0] == played[1]).all()
print(compile_seconds())
"""


@pytest.mark.slow
@needs_numba
def test_an_early_rule_is_compiled_like_ours(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)) for _ in range(2)
    ]
    assert seconds[0] > 0 == seconds[1]  # kept in a cache of its own
    assert list(tmp_path.glob("packing_env/numba/rules-*"))
