"""What an action index means, the queue, and projection to the nearest legal placement."""

import torch
from tests.tiny import stream
from torch import Tensor

from packing_env.core.actions.placement import PlacementMode
from packing_env.core.orientation import (
    Placement,
    decode_placement,
    encode_placement,
    nearest_legal,
    project,
    visible_items,
)
from packing_env.types import PackingParams

PARAMS = PackingParams(
    container=(0.07, 0.05, 0.1), cell=0.01, grid_step=2, num_items=6, num_visible=2
)
R = 3


def at(slot: int, orientation: int, x: int, y: int, valid: bool = True) -> Placement:
    return Placement(*(torch.tensor([v]) for v in (slot, orientation, x, y)), torch.tensor([valid]))


def test_every_index_decodes_to_the_placement_it_encodes() -> None:
    assert PARAMS.lattice == (4, 3)
    count = 2 * R * 4 * 3
    index = torch.arange(count)
    found = decode_placement(index, R, PARAMS)
    assert found.valid.all()
    assert torch.equal(encode_placement(found, R, PARAMS), index)
    assert (found.x % 2 == 0).all()
    assert found.x.max() == 6
    assert found.y.max() == 4
    assert (found.slot[-1], found.orientation[-1]) == (1, 2)


def test_the_queue_hands_out_what_is_left_in_order() -> None:
    state = {
        "queue": torch.tensor([[2, 0, 3, 1]]),
        "item_id": torch.tensor([[10, 11, 12, 13]]),
        "num_items": torch.tensor([4]),
        "items_packed": torch.tensor([1]),
    }
    item_id, there = visible_items(state, 4)
    assert item_id.tolist() == [[12, 10, 13, 0]]
    assert there.tolist() == [[True, True, True, False]]


def brute_nearest(asked: tuple[int, int, int, int], legal: torch.Tensor) -> int:
    """Same item before same orientation before distance, ties to the lower index."""
    places = legal.nonzero().tolist()
    far = 10_000

    def cost(p: list[int]) -> int:
        distance = (p[2] - asked[2]) ** 2 + (p[3] - asked[3]) ** 2
        return 2 * far * (p[0] != asked[0]) + far * (p[1] != asked[1]) + distance

    best = min(places, key=cost)  # the first of equals: lowest index
    return int(torch.tensor([best[0], best[1], best[2], best[3]]) @ torch.tensor([36, 12, 3, 1]))


def test_projection_finds_the_nearest_legal_placement() -> None:
    generator = stream(3)
    for _ in range(100):
        legal = torch.rand(1, 2, R, 4, 3, generator=generator) < 0.1
        legal.view(-1)[torch.randint(0, 72, (1,), generator=generator)] = True
        slot, orientation, x, y = (
            int(torch.randint(0, n, (1,), generator=generator)) for n in (2, R, 4, 3)
        )
        asked = at(slot, orientation, 2 * x, 2 * y)
        nearest = nearest_legal(asked, legal, PARAMS)
        assert int(nearest) == brute_nearest((slot, orientation, x, y), legal[0])
        moved = projected(asked, legal)
        where = (moved.slot, moved.orientation, moved.x // 2, moved.y // 2)
        assert bool(legal[(0, *(int(v) for v in where))])
        if legal[0, slot, orientation, x, y]:
            assert (int(moved.x), int(moved.y)) == (2 * x, 2 * y)


def test_projection_moves_what_is_off_the_lattice_or_out_of_range() -> None:
    legal = torch.zeros(1, 2, R, 4, 3, dtype=torch.bool)
    legal[0, 0, 0, 0, 0] = legal[0, 1, 2, 3, 2] = True
    for asked in (at(0, 0, 1, 0), at(0, 0, 0, 0, valid=False)):
        moved = projected(asked, legal)
        assert bool(moved.valid)
        assert bool(moved.projected)
        assert int(moved.x) == 0


def projected(asked: Placement, legal: Tensor) -> Placement:
    """The placement that is carried out instead, as the engine finds it."""
    mode = PlacementMode(PARAMS, {"peak": torch.zeros(1, R)})
    state = {"legal": legal.flatten(1)}
    return project(asked, mode.project(asked, state), kept=mode.is_legal(asked, state))
