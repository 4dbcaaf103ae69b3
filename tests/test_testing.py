"""The public checks accept correct parts and name the fault of wrong ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from tests.small_tasks import random_catalogue, small_env
from tests.tiny import cuboids, play_beside_reference, play_by_the_rules

from packing_env import kernels
from packing_env.core import (
    candidates,
    feasibility,
)
from packing_env.core.actions import MODES, CandidateMode, Outlook
from packing_env.core.cuboids import boxes
from packing_env.generators import Generator, GeneratorError, Uniform, make_pool
from packing_env.generators.base import Request
from packing_env.items import Catalogue
from packing_env.testing import (
    CheckError,
    Referee,
    check_env,
    check_generator,
    check_reward,
)
from packing_env.types import Instances, PackingParams, ParameterError, State


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"num_visible": 2, "preview": 1, "grid_step": 2, "illegal_action": "project"},
        {"action_mode": "candidate", "num_candidates": 8, "illegal_action": "noop"},
        {"stability": "none", "reward": {"objective": 1.0}, "num_envs": (2, 2)},
        {"action_mode": "multi_head", "num_visible": 2, "illegal_action": "noop"},
        {"action_mode": "hierarchical", "num_visible": 2, "preview": 1, "num_envs": (2, 2)},
        {"action_mode": "continuous", "num_visible": 2, "grid_step": 2},
        {"action_mode": "continuous", "illegal_action": "project"},
    ],
)
def test_check_env_passes_the_environment(task: dict[str, Any]) -> None:
    check_env(small_env(**task), num_steps=6)


@pytest.mark.parametrize(
    ("steps", "task"),
    [
        (1, {"stability": "stacking_tree", "illegal_action": "noop"}),
        (4, {"stability": "none", "candidate_range": "pct", "illegal_action": "project"}),
        (2, {"stability_metric": "stacking_tree", "num_visible": 2, "num_candidates": 7}),
    ],
)
def test_check_env_passes_cuboids_as_boxes(steps: int, task: dict[str, Any]) -> None:
    """``steps`` units of 3 mm to a cell."""
    items = cuboids(
        grid=(8 * steps, 6 * steps),
        height=10 * steps,
        sides=(1 + steps, 4 * steps),
        pitch=0.003,
        orientations="cuboid",
        maps=False,
    )
    check_env(small_env(items, cell=0.003 * steps, unit=0.003, **task), num_steps=6)


@pytest.mark.parametrize(("num_envs", "rows"), [((3, 3), [0, 2, 5, 8]), (2, [0, 1])])
def test_check_env_compares_a_few_rows(num_envs: Any, rows: list[int]) -> None:
    env = small_env(num_envs=num_envs)
    env.reset()
    assert Referee(env, num_rows=4).rows == rows
    assert len(Referee(env).rows) == env.numel()
    check_env(env, num_steps=6)


class SpreadMode(CandidateMode):
    """A mode whose candidate list has an empty slot before each candidate."""

    @property
    def num_actions(self) -> int:
        """2 K."""
        return 2 * self.params.num_candidates

    def outlook(self, state: State, maps: feasibility.Maps | None) -> Outlook:
        """Return the generator's list, spread."""
        outlook = super().outlook(state, maps)
        index, z = (outlook.entries[key] for key in ("candidate", "candidate_z"))
        spread = {
            "candidate": torch.stack((torch.full_like(index, -1), index), -1).flatten(1),
            "candidate_z": torch.stack((z, z), -1).flatten(1),
        }
        return replace(outlook, entries=outlook.entries | spread)


def test_check_env_takes_another_mode_that_lists_placements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, the checks knew only one such mode, by its name."""
    monkeypatch.setitem(MODES, "other", type("OtherMode", (CandidateMode,), {}))
    monkeypatch.setitem(MODES, "spread", SpreadMode)
    check_env(small_env(action_mode="other", num_candidates=5), num_steps=10)
    with pytest.raises(CheckError, match="gaps"):
        check_env(small_env(action_mode="spread", num_candidates=5), num_steps=10)


Spoil = Callable[[Callable[..., Any]], Callable[..., Any]]


def spoil_raster(honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: honest(*given).roll(1, 1)


def spoil_box(honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: honest(*given) + torch.tensor([0, 0, 1, 0, 0, 0], dtype=torch.int32)


def spoil_spaces(honest: Callable[..., Any]) -> Callable[..., Any]:
    def last_is_lost(spaces: torch.Tensor, *given: Any) -> Any:
        found, dropped = honest(spaces, *given)
        real = found.any(-1).sum(1, keepdim=True) - 1
        return torch.where((torch.arange(found.shape[1]) < real)[..., None], found, 0), dropped

    return last_is_lost


def spoil_verdict(honest: Callable[..., Any]) -> Callable[..., Any]:
    def all_legal(*given: Any) -> Any:
        z, legal = honest(*given)
        return z, torch.ones_like(legal)

    return all_legal


def spoil_list(change: Callable[[torch.Tensor], torch.Tensor]) -> Spoil:
    def spoiled(honest: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(scene: candidates.Scene) -> candidates.Candidates:
            found = honest(scene)
            return replace(found, index=change(found.index), z=change(found.z))

        return wrong

    return spoiled


@pytest.mark.parametrize(
    ("owner", "name", "spoil", "message"),
    [
        (boxes, "raise_heightmap", spoil_raster, "heightmap differs"),
        (boxes, "judge", spoil_verdict, "legality at|is not legal"),
        (boxes, "box_at", spoil_box, "boxes: "),
        (kernels, "split_spaces", spoil_spaces, "empty spaces: "),
        (candidates, "propose", spoil_list(lambda list_: list_.roll(1, 1)), "gaps in"),
        (candidates, "propose", spoil_list(lambda list_: list_[:, [0] * 48]), "is repeated"),
    ],
)
def test_check_env_finds_faults_of_boxes(
    owner: Any, name: str, spoil: Spoil, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, spoil(getattr(owner, name)))
    with pytest.raises(CheckError, match=message):
        check_env(small_env(cuboids(maps=False)), num_steps=10)


def test_a_wrong_mask_is_found_in_it_and_when_it_is_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Legality is computed once, so the environment executes what a wrong mask allows."""
    honest = feasibility.placement_maps

    def lenient(*given: Any) -> feasibility.Maps:
        maps = honest(*given)
        return replace(maps, legal=torch.isfinite(maps.z))

    monkeypatch.setattr(feasibility, "placement_maps", lenient)
    with pytest.raises(CheckError, match=r"legality at|terminated|heightmap differs"):
        check_env(small_env(container=(0.08, 0.08, 0.03)), num_steps=10)
    play_by_the_rules(monkeypatch)
    with pytest.raises(CheckError, match=r"heightmap|illegal_actions|terminated|done"):
        play_beside_reference(small_env(container=(0.08, 0.08, 0.03), num_envs=16), 10, mask_bits=0)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda b, a, legal: 1.0, "return a tensor"),
        (lambda b, a, legal: a["utilization"].mean(), "one value per row"),
        (lambda b, a, legal: legal, "return floats"),
        (lambda b, a, legal: a["utilization"] / b["items_packed"], "not finite"),
        (lambda b, a, legal: a["utilization"] - a["utilization"].mean(), "other rows"),
        (lambda b, a, legal: a["utilization"].sub_(1.0), "different values|changed"),
        (
            lambda b, a, legal: a["utilization"] + 0.0 * float(legal[0]),
            "reads a value back",
        ),
        (lambda b, a, legal: a["utilization"] + torch.rand(()).double(), "different values"),
    ],
)
def test_check_reward_names_the_fault(term: Callable[..., Any], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_reward(term)


@dataclass(frozen=True)
class Broken(Generator):
    """A generator with one fault."""

    fault: str

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        made = Uniform().sample(request, catalogue)
        if self.fault == "tuple":
            return (made.item_id, made.num_items)  # type: ignore[return-value]  # the fault to find
        changes: dict[str, Callable[[], Instances]] = {
            "dtype": lambda: replace(made, item_id=made.item_id.int()),
            "range": lambda: replace(made, item_id=made.item_id + 100),
            "negative": lambda: replace(made, item_id=made.item_id - 3),
            "short": lambda: replace(made, item_id=made.item_id[:, 1:]),
            "length": lambda: replace(made, num_items=made.num_items * 0),
            "count": lambda: Instances(made.item_id[:3], made.num_items[:3]),
            "global": lambda: replace(made, item_id=torch.randint_like(made.item_id, 2)),
            "seed": lambda: Uniform().sample(replace(request, seed=0), catalogue),
            "stream": lambda: Uniform().sample(replace(request, stream=0), catalogue),
        }
        return changes[self.fault]()


@pytest.mark.parametrize("fault", ["tuple", "dtype", "range", "negative", "short", "length"])
def test_a_pool_refuses_what_are_no_instances_of_the_catalogue(fault: str) -> None:
    items = random_catalogue()
    task = PackingParams(container=items.container, cell=items.cell, num_items=8)
    playable = torch.ones(len(items), dtype=torch.bool)
    with pytest.raises(GeneratorError, match="Broken"):
        make_pool(Broken(fault), items, task, playable, size=16)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("tuple", "must return Instances, not tuple"),
        ("dtype", "item_id must be int64"),
        ("range", r"must lie in 0\.\.5"),
        ("length", r"num_items must lie in 1\.\.8"),
        ("count", "64 instances were requested, but 3 were made"),
        ("global", "global stream"),
        ("seed", "another seed"),
        ("stream", "test split"),
    ],
)
def test_check_generator_names_the_fault(fault: str, message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_generator(Broken(fault))


def test_the_checks_name_what_they_cannot_check() -> None:
    for wrong in ("uniform", Uniform):
        with pytest.raises(CheckError, match="a Generator"):
            check_generator(wrong)  # type: ignore[arg-type]  # the mistake to name
    with pytest.raises(ParameterError, match="did you mean utilization"):
        check_reward("utilisation")
