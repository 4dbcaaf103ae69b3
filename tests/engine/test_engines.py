"""The choice of an engine, and what the rules carry from one step to the next."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from tests.tiny import differing, play, stream, tiny_env

from packing_env import kernels
from packing_env.core import feasibility, metrics
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

compiled = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)


def by_rules(num_envs: int = 4, **params: Any) -> PackingEnv:
    return tiny_env(num_envs, shell={"engine": "rules"}, **params)


@compiled
def test_an_engine_is_chosen_at_build_and_stays() -> None:
    env = tiny_env(4)
    kernels.set_backend("eager")
    try:
        assert env.engine.name == "compiled"
        assert tiny_env(4).engine.name == "rules"
    finally:
        kernels.set_backend(None)


@compiled
def test_all_engines_give_the_same() -> None:
    env, other = tiny_env(4), by_rules()
    assert (env.engine.name, other.engine.name) == ("compiled", "rules")
    assert not differing(play(env, 12, stream()), play(other, 12, stream()))


def test_a_log_line_says_why_no_faster_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="packing_env.engine"):
        tiny_env(1, illegal_action="project")
    (record,) = [r for r in caplog.records if r.name == "packing_env.engine"]
    assert record.getMessage().startswith("engine: rules, placements from height maps; not compile")


def test_impossible_choices_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"engine='fast' is unknown; choose one of \['auto'"):
        tiny_env(1, shell={"engine": "fast"})
    with pytest.raises(ParameterError, match="engine='compiled' cannot carry out this task"):
        tiny_env(1, illegal_action="project", shell={"engine": "compiled"})


@pytest.mark.parametrize("action_mode", ["placement", "continuous"])
def test_each_state_is_measured_once(action_mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = by_rules(action_mode=action_mode)
    step, root = env.step_and_maybe_reset(env.rand_action(env.reset()))
    calls = []
    for module, name in ((metrics, "measure"), (feasibility, "maps_in")):
        honest = getattr(module, name)

        def counted(*given: Any, honest: Any = honest, name: str = name) -> Any:
            calls.append(name)
            return honest(*given)

        monkeypatch.setattr(module, name, counted)
    for _ in range(6):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
    assert (calls.count("measure"), calls.count("maps_in")) == (6, 6)
    assert step["next"].isfinite().all()


@pytest.mark.parametrize("action_mode", ["placement", "continuous"])
def test_a_state_changed_from_outside_is_noticed(action_mode: str) -> None:
    """In place or by another tensor: what was carried is dropped."""
    plays = []
    for how in ("in place", "another", "restored"):
        env = by_rules(action_mode=action_mode)
        _, root = env.step_and_maybe_reset(env.reset().update(first_actions(env)))
        raised = env.state["heightmap"] + 0.02
        if how == "in place":
            env.state["heightmap"].copy_(raised)
        elif how == "another":
            env.state["heightmap"] = raised
        else:
            root = env.reset(env.get_state().set("heightmap", raised), set_state=True)
        step = env.step(root.update(first_actions(env)))["next"]
        plays.append(step.select("reward", "metrics", "done"))
    assert not differing(plays[0], plays[1])
    assert not differing(plays[0], plays[2])


def first_actions(env: PackingEnv) -> dict[str, torch.Tensor]:
    """Entries that depend on the state alone."""
    torch.manual_seed(0)
    return dict(env.rand_action().select("action").items())
