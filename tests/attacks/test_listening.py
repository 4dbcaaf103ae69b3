"""A Ray cluster that a sweep starts: nobody reaches it from another machine."""

import sys
from typing import Any

import pytest

from agents.cli import sweep
from agents.config.keys import Request


@pytest.mark.parametrize("own", ["", "hydra.launcher.ray.init.address=auto", "RAY_ADDRESS"])
def test_a_sweep_on_ray_is_reached_from_this_machine_only(own: str, monkeypatch: Any) -> None:
    words: list[str] = []
    monkeypatch.setattr(
        sweep.hydra, "main", lambda *_, **__: lambda task: lambda: words.extend(sys.argv)
    )
    monkeypatch.setattr(sweep, "_check", lambda request: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if own == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    overrides = ["seed=0,1", "hydra/launcher=ray", *[own] * ("=" in own)]
    sweep.sweep(Request("train", overrides, []), lambda *_: 0, lambda run: run())
    added = "++hydra.launcher.ray.init._node_ip_address=127.0.0.1" in words
    assert added == (not own)
    assert ("++hydra.launcher.ray.init.address=local" in words) == (not own)
    assert sys.argv != words
