"""A Ray cluster that a command starts: nobody reaches it from another machine."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.cli import sweep
from agents.config.keys import Request
from agents.training import ray_workers
from packing_env import extras


class FakeRay:
    """Notes how it is started."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.private: tuple[int, bool] | None = None

    def init(self, **options: Any) -> None:
        self.options = options
        if place := options.get("_temp_dir"):
            self.private = os.stat(place).st_mode & 0o777, not os.listdir(place)

    def shutdown(self) -> None:
        pass


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    process = SimpleNamespace(children=lambda recursive: [])
    psutil = SimpleNamespace(Process=lambda: process, wait_procs=lambda rays, timeout: ([], []))
    monkeypatch.setattr(extras, "require", lambda name, purpose: fake if name == "ray" else psutil)
    for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    return fake


def test_a_cluster_that_we_start_is_reached_from_this_machine_only(ray: FakeRay) -> None:
    """Nor is another user's joined, of which Ray finds a note in the temporary folder."""
    with ray_workers.cluster(3):
        pass
    assert ray.options["address"] == "local"
    assert ray.options["_node_ip_address"] == "127.0.0.1"
    assert ray.options["include_dashboard"] is False
    assert ray.options["num_cpus"] == 3


def test_its_files_are_the_users_alone(ray: FakeRay, monkeypatch: Any, tmp_path: Path) -> None:
    with ray_workers.cluster(3):
        assert ray.private == (0o700, True)
    assert not Path(ray.options["_temp_dir"]).exists()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with ray_workers.cluster(3):
        assert "_temp_dir" not in ray.options


@pytest.mark.parametrize("variable", [True, False])
def test_a_running_cluster_is_joined_as_it_is(
    variable: bool, ray: FakeRay, monkeypatch: Any
) -> None:
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with ray_workers.cluster(3, None if variable else "10.0.0.1:6379"):
        pass
    assert ray.options["address"] == (None if variable else "10.0.0.1:6379")
    assert not {"_node_ip_address", "_temp_dir", "num_cpus"} & ray.options.keys()


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
