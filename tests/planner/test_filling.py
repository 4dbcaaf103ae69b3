"""The containers of a search equal those of full steps with the same placements."""

import math
from typing import Any

import pytest
import torch

from packing_env.core.lowest import LowestPlacement
from packing_env.planner import Part
from packing_env.planner.grid.containers import lay_grid
from packing_env.planner.grid.filling import Filling
from packing_env.planner.grid.poses import Poses, build_poses
from packing_env.planner.reading.containers import ContainerType

PARTS = [
    Part(sides=(0.05, 0.04, 0.03), handling={"weight": 2.0, "max_load": 3.0, "group": 1}),
    Part(sides=(0.03, 0.03, 0.02), handling={"weight": 1.0, "max_load": 5.0, "group": 2}),
    Part(sides=(0.03, 0.03, 0.03), handling={"weight": 1.5, "max_load": 2.0, "group": 2}),
]
RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "load and order": {"max_load": True, "lifo": True},
    "obstacles": {"preplaced": ((0.0, 0.0, 0.0, 0.03, 0.03, 0.02),), "clearance": 0.005},
}
ROWS, STEPS = 3, 24


def poses_under(rules: dict[str, Any]) -> Poses:
    params = lay_grid(
        ContainerType((0.1, 0.09, 0.08)), 0.005, stability="com_hull", constraints=rules
    )
    return build_poses(PARTS, [part.load() for part in PARTS], params)


@pytest.mark.parametrize("rules", RULES)
def test_full_steps_make_the_same_container(rules: str) -> None:
    poses = poses_under(RULES[rules])
    volumes = [math.prod(part.sides) for part in PARTS]  # the last one has a single pose
    assert poses.volume.tolist() == pytest.approx(volumes)
    items = poses.catalogue.tensors()
    filling = Filling(items, poses.params.evolve(num_items=STEPS), poses.rules_of_rows)
    state, put = filling.empty(ROWS), torch.zeros(ROWS, dtype=torch.int64)
    draw = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        part = torch.randint(len(PARTS), (ROWS,), generator=draw)
        state, carried = filling.put(state, *poses.of(part, torch.full_like(part, -1)))
        put += carried
    assert torch.equal(state["items_packed"], put)
    assert int(put.min()) >= 3
    assert int(put.max()) < STEPS  # some found no place
    for row in range(ROWS):
        mine = {key: value[row : row + 1] for key, value in state.items()}
        full = filling.replay(mine)
        count = int(put[row])
        for key in mine.keys() - {"item_id", "placement", "step", "z"}:
            assert torch.equal(full[key], mine[key]), key
        assert torch.equal(full["placement"][:, :count], mine["placement"][:, :count])
        assert float(full["placement_support"][0, :count].min()) > 0


def test_both_kernels_of_the_places_are_compiled_before_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, the kernel of maps was compiled within the time of a search that gave up."""
    rules: list[str] = []
    find = LowestPlacement.from_maps

    def from_maps(lowest: LowestPlacement, *args: Any) -> Any:
        rules.append(lowest.params.stability)
        return find(lowest, *args)

    monkeypatch.setattr(LowestPlacement, "from_maps", from_maps)
    poses = poses_under({})
    Filling(poses.catalogue.tensors(), poses.params, poses.rules_of_rows)
    assert rules == ["com_hull"]


def test_replay_refuses_a_place_that_is_not_legal() -> None:
    poses = poses_under({})
    filling = Filling(
        poses.catalogue.tensors(), poses.params.evolve(num_items=4), poses.rules_of_rows
    )
    part = torch.tensor([0])
    state, _ = filling.put(filling.empty(1), *poses.of(part, torch.tensor([0])))
    state["placement"][0, 0, 2] = 19  # across the wall
    with pytest.raises(RuntimeError, match="part 0 where a full step refuses it"):
        filling.replay(state)
