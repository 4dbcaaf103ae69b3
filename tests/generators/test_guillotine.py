"""Guillotine cuts: pieces that fill the container, in orders in which they can be packed."""

import pytest
import torch
from tests.generators.test_cuboid_generators import CUBE

from packing_env import make_env
from packing_env.core.observation import cut_surfaces
from packing_env.generators import Guillotine
from packing_env.generators.base import Request
from packing_env.types import PackingParams

CASES = [
    (Guillotine(variant, low, high), PackingParams(container=container, cell=1.0, num_items=125))
    for variant in ("cut1", "cut2")
    for low, high, container in (
        (2, 5, (10.0, 10.0, 10.0)),
        (1, 1, (3.0, 4.0, 5.0)),
        (1, 4, (9.0, 6.0, 11.0)),
        (3, 5, (8.0, 13.0, 17.0)),
    )
]


def solved(
    source: Guillotine, params: PackingParams, size: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The solution's boxes, which of them are real, and the catalogue rows."""
    request = Request.of(params, seed, "train", size)
    _, made = source.make(request)
    boxes = source.solutions(request)
    return boxes, torch.arange(boxes.shape[1]) < made.num_items[:, None], made.item_id


@pytest.mark.parametrize(("source", "params"), CASES)
def test_pieces_fill_the_container_keep_the_range_and_follow_their_supports(
    source: Guillotine, params: PackingParams
) -> None:
    boxes, real, rows = solved(source, params, 12)
    sides = boxes[..., 3:] - boxes[..., :3]
    assert not boxes[~real].any()
    assert source.low <= int(sides[real].min())
    assert int(sides[real].max()) <= source.high
    grid = torch.zeros(12, *map(int, params.container), dtype=torch.int64)
    for row, pieces in zip(grid, boxes.tolist(), strict=True):
        for x0, y0, z0, x1, y1, z1 in pieces:
            row[x0:x1, y0:y1, z0:z1] += 1
    assert (grid == 1).all()
    cuboids, _ = source.make(Request.of(params, 0, "train", 12))
    assert torch.equal(cuboids.extents[rows][real], sides[real].double())
    for pieces, there in zip(boxes, real, strict=True):
        heights = torch.zeros(*map(int, params.container[:2]), dtype=torch.int64)
        for x0, y0, z0, x1, y1, z1 in pieces[there].tolist():
            assert (heights[x0:x1, y0:y1] == z0).all()
            heights[x0:x1, y0:y1] = z1


def guillotine_cut(pieces: torch.Tensor) -> bool:
    """Return True if plane cuts separate the pieces, each cut through all of its part."""
    if len(pieces) == 1:
        return True
    for axis in range(3):
        for at in pieces[:, axis].unique().tolist()[1:]:
            below = pieces[:, 3 + axis] <= at
            if bool((below | (pieces[:, axis] >= at)).all()):
                return guillotine_cut(pieces[below]) and guillotine_cut(pieces[~below])
    return False


def test_all_cuts_go_through() -> None:
    boxes, real, _ = solved(Guillotine(), CUBE, 20)
    assert all(guillotine_cut(row[there]) for row, there in zip(boxes, real, strict=True))
    turned = torch.tensor([[0, 0, 2, 1], [2, 0, 3, 2], [1, 2, 3, 3], [0, 1, 1, 3], [1, 1, 2, 2]])
    flat = torch.zeros(5, 6, dtype=torch.int64)
    flat[:, [0, 1, 3, 4]] = turned
    flat[:, 5] = 1
    assert not guillotine_cut(flat)  # a pinwheel


def test_the_first_variant_goes_by_height_and_the_second_by_support() -> None:
    by_height, real, _ = solved(Guillotine("cut1"), CUBE, 200)
    by_support, _, _ = solved(Guillotine("cut2"), CUBE, 200)
    falls = {}
    for name, boxes in (("cut1", by_height), ("cut2", by_support)):
        low = boxes[..., 2]
        falls[name] = ((low[:, 1:] < low[:, :-1]) & real[:, 1:]).any(1)
    assert not falls["cut1"].any()
    assert falls["cut2"].double().mean() > 0.9
    # the same pieces, and ties of height in random order
    ordered = [boxes.flatten(1).sort(1).values for boxes in (by_height, by_support)]
    assert torch.equal(*ordered)
    corner = (by_height[:, 0, :2] == 0).all(1).double().mean()
    assert 0.05 < float(corner) < 0.6


@pytest.mark.parametrize("variant", ["cut1", "cut2"])
def test_the_number_of_pieces_is_the_published_one(variant: str) -> None:
    """The released sequences of Zhao et al., AAAI 2021, have 26.3 pieces on average."""
    _, made = Guillotine(variant).make(Request.of(CUBE, 0, "test", 2100))
    assert abs(float(made.num_items.double().mean()) - 26.3) < 0.5


def test_areas_and_heights_tell_where_the_pieces_lay() -> None:
    """With CUT-1, the lowest part of the surface is where the next piece lay."""
    source, params = CASES[0]
    env = make_env(
        "cuboid_online", 1, generator=source, observation=["heightmap", "cut_surface"], pool_size=1
    )
    boxes, real, rows = solved(source, params, 40)
    items = torch.where(real, rows, -1)
    surfaces = cut_surfaces(items, env.catalogue.tensors(), params)
    assert surfaces.shape[2] == 24
    lowest = surfaces[..., 11:22].argmax(2)
    following = real[:, 1:]
    assert (lowest[:, :-1] == boxes[:, 1:, 2])[following].all()
    volume = (boxes[..., 3:] - boxes[..., :3]).prod(2).cumsum(1) / 1000
    torch.testing.assert_close(surfaces[..., -1], 1 - volume.float(), atol=1e-6, rtol=0)
    # The observation of a row is that of its visible item, and it is empty at the end.
    assert torch.equal(
        env.reset()["observation", "cut_surface"],
        cut_surfaces(env.instances.item_id[:, :1], env.catalogue.tensors(), params)[:, 0],
    )
