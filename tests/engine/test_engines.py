"""The choice of an engine, and the values that the rules carry from step to step."""

from typing import Any

import pytest
from tests.engine.engines import needs_numba
from tests.tiny import tiny_env

from packing_env import kernels
from packing_env.core import feasibility
from packing_env.types import ParameterError


@needs_numba
def test_an_engine_is_chosen_at_build_and_stays() -> None:
    env = tiny_env(4)
    kernels.set_backend("eager")
    assert env.engine.name == "compiled"
    assert tiny_env(4).engine.name == "rules"


def test_impossible_choices_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"engine='fast' is unknown; choose one of \['auto'"):
        tiny_env(1, shell={"engine": "fast"})
    with pytest.raises(ParameterError, match="engine='compiled' cannot carry out this task"):
        tiny_env(1, illegal_action="project", shell={"engine": "compiled"})


@pytest.mark.parametrize("action_mode", ["placement", "continuous"])
@pytest.mark.parametrize("illegal_action", ["terminate", "project"])
def test_legality_is_found_once_a_state(
    action_mode: str, illegal_action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"action_mode": action_mode, "illegal_action": illegal_action}
    env = tiny_env(4, shell={"engine": "rules"}, **options)
    _, root = env.step_and_maybe_reset(env.rand_action(env.reset()))
    calls, honest = [], feasibility.maps_in

    def counted(*given: Any) -> Any:
        calls.append("maps_in")
        return honest(*given)

    monkeypatch.setattr(feasibility, "maps_in", counted)
    for _ in range(6):
        _, root = env.step_and_maybe_reset(env.rand_action(root))
    assert len(calls) == 6
