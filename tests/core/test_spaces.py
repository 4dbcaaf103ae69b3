"""The list of empty maximal spaces in the state; the referee compares the list itself."""

import torch
from tests.tiny import act, cuboid_env, stream

from packing_env.core.cuboids import spaces
from packing_env.items import Catalogue
from packing_env.reference import spaces as reference


def test_spaces_that_do_not_fit_into_the_list_are_counted() -> None:
    env, generator = cuboid_env(5, stability="none", num_items=12, num_spaces=3), stream(1)
    smallest = int(spaces.smallest_side(env.catalogue.tensors()))
    lists, dropped = [reference.initial((7, 6, 8))] * 5, [0] * 5
    root = env.reset()
    for _ in range(10):
        before = env.state["items_packed"].tolist()
        root = env.step_mdp(env.step(act(env, root, generator)))
        for row, count in enumerate(before):
            if int(env.state["items_packed"][row]) == count:
                continue
            box = tuple(env.state["boxes"][row, count].tolist())
            found = reference.split(lists[row], box, smallest)
            lists[row], dropped[row] = found[:3], dropped[row] + len(found[3:])
    assert env.state["overflow"].tolist() == dropped
    assert sum(dropped) > 0


def test_the_smallest_side_is_of_any_item() -> None:
    """The first orientation of the item does not fit, and is left out."""
    turned = Catalogue.from_cuboids([(9, 2, 3)], cell=1.0, container=(4, 5, 9))
    found = spaces.smallest_side(turned.tensors())
    assert torch.equal(found, torch.tensor(2, dtype=torch.int32))
