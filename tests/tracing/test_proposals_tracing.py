"""Candidate generators read nothing back: fake tensors, the profiler, one graph."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.core.boards import Board, random_boxes, scene
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env.core import candidates
from packing_env.core.candidates import Scene
from packing_env.core.feasibility import Maps

OVER_BOXES = (
    "all_placements",
    "split_spaces",
    "split_space_drops",
)
OVER_MAPS = (*OVER_BOXES, "corner_points", "level_set_vertices")
CASES = [("maps", name) for name in OVER_MAPS] + [("boxes", name) for name in OVER_BOXES]
ONCE = [(("maps", "boxes")[name in OVER_BOXES[::2]], name) for name in OVER_MAPS]
"""Each generator in one geometry."""


def board_scene(geometry: str, name: str) -> Scene:
    boards = [Board(random_boxes(seed, 3 * seed)) for seed in range(3)]
    items = [[0, None], [1, 2], [3, 0]]
    return scene(
        boards, items, geometry=geometry, candidate_generator=name, num_candidates=16, num_spaces=24
    )


def loose(here: Scene) -> dict[str, Tensor]:
    found = {f"state.{key}": value for key, value in here.state.items()}
    found |= {f"catalogue.{key}": value for key, value in here.catalogue.items()}
    if here.maps is not None:
        found |= {"maps.z": here.maps.z, "maps.legal": here.maps.legal}
    return {**found, "item_id": here.item_id, "there": here.there}


def runner(here: Scene) -> Callable[[dict[str, Tensor]], tuple[Tensor, ...]]:
    """Return a function that proposes placements from the tensors of such a scene."""

    def run(tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
        def part(name: str) -> dict[str, Tensor]:
            given = [key for key in tensors if key.startswith(f"{name}.")]
            return {key.removeprefix(f"{name}."): tensors[key] for key in given}

        found = candidates.propose(
            replace(
                here,
                state=part("state"),
                catalogue=part("catalogue"),
                maps=None if here.maps is None else Maps(**part("maps")),
                item_id=tensors["item_id"],
                there=tensors["there"],
            )
        )
        return found.index, found.z, found.overflow

    return run


@pytest.mark.parametrize(("geometry", "name"), CASES)
def test_proposals_on_fake_tensors(geometry: str, name: str) -> None:
    here = board_scene(geometry, name)
    expected = runner(here)(loose(here))
    with FakeTensorMode() as mode:
        fakes = runner(here)({key: mode.from_tensor(value) for key, value in loose(here).items()})
    for fake, real in zip(fakes, expected, strict=True):
        assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize(("geometry", "name"), ONCE)
def test_proposals_are_one_graph(geometry: str, name: str) -> None:
    here = board_scene(geometry, name)
    torch.compiler.reset()
    compiled = torch.compile(runner(here), backend="eager", fullgraph=True)
    for got, expected in zip(compiled(loose(here)), runner(here)(loose(here)), strict=True):
        assert torch.equal(got, expected)
