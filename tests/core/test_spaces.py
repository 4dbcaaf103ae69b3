"""The list of empty maximal spaces in the state of an environment."""

from typing import Any

import pytest
import torch
from tests.tiny import legal_action, stream

from packing_env.core.cuboids import spaces
from packing_env.items import Catalogue
from packing_env.reference import spaces as reference
from packing_env.testing import small_env

SIZES = ((1, 2, 3), (2, 2, 2), (3, 1, 4), (2, 4, 1))
CANDIDATES: dict[str, Any] = {"action_mode": "candidate", "candidate_generator": "split_spaces"}
BOXES: dict[str, Any] = {
    **CANDIDATES,
    "geometry": "boxes",
    "unit": 0.5,
    "observation": ("heightmap", "boxes"),
}


def catalogue(boxed: bool = False) -> Catalogue:
    return Catalogue.from_cuboids(
        SIZES,
        cell=0.5 if boxed else 1.0,
        container=(6, 5, 7),
        orientations="cuboid",
        maps=not boxed,
    )


def env_of(task: dict[str, Any], capacity: int):
    boxed = task.get("geometry") == "boxes"
    params = {"stability": "none", "stability_metric": "none", "contact_tol": 0.0, **task}
    return small_env(
        catalogue(boxed),
        5,
        cell=1.0,
        num_items=30,
        num_spaces=capacity,
        shell={"seed": 3},
        **params,
    )


@pytest.mark.parametrize("task", [{}, CANDIDATES, BOXES], ids=["placement", "candidate", "boxes"])
@pytest.mark.parametrize("capacity", [3, 40])
def test_the_state_lists_what_the_plain_program_finds(task: dict[str, Any], capacity: int) -> None:
    env = env_of(task, capacity)
    generator = stream(1)
    root = env.reset()
    unit = 2 if task.get("geometry") == "boxes" else 1
    container = tuple(unit * side for side in (6, 5, 7))
    lists = [reference.initial(container)] * 5
    dropped = [0] * 5
    for _ in range(12):
        before = env.state.clone()
        live = ~(before["terminated"] | before["truncated"])
        root = env.step_mdp(
            env.step(root.set("action", legal_action(root["action_mask"], generator)))
        )
        for row in range(5):
            count = int(env.state["items_packed"][row])
            if count > int(before["items_packed"][row]):
                box = tuple(env.state["boxes"][row, count - 1].tolist())
                found = reference.split(lists[row], box, unit)
                lists[row], lost = found[:capacity], max(0, len(found) - capacity)
                dropped[row] += lost
            real = [tuple(s) for s in env.state["spaces"][row].tolist() if s[3] > s[0]]
            assert real == lists[row]
        if not task:  # no generator adds to the count
            assert env.state["overflow"].tolist() == dropped
        assert live.any() or torch.equal(before["spaces"], env.state["spaces"])
    assert (sum(dropped) > 0) == (capacity == 3)


@pytest.mark.parametrize("boxed", [False, True])
def test_the_smallest_side_is_of_any_item(boxed: bool) -> None:
    found = spaces.smallest_side(catalogue(boxed).tensors())
    assert found.shape == ()
    assert found.dtype == torch.int32
    assert int(found) == (2 if boxed else 1)
    turned = Catalogue.from_cuboids([(9, 2, 3)], cell=1.0, container=(4, 5, 9))
    assert int(spaces.smallest_side(turned.tensors())) == 2  # the first orientation is left out
