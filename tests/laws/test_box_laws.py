"""Laws of the core: integer boxes on random piles of boxes, on grids up to 12 x 12."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.cases import core_laws, seeds, sides_of_grids
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility, transition
from packing_env.core.cuboids import boxes, spaces
from packing_env.core.orientation import Placement
from packing_env.items import Catalogue
from packing_env.reference import boxes as plain_boxes
from packing_env.testing import KNOWN_RULES
from packing_env.testing.episodes import BOX_RULES
from packing_env.types import PackingParams


@dataclass(frozen=True)
class Pile:
    """Boxes put down one after the other anywhere, stable or not, and a box to put on them.

    Attributes:
        boxes: ``[N, 6]`` in packing order, then zeros.
        heights: ``[X, Y]`` of the unit squares, built without the code under test.
        size: The new box.
        params: Geometry "boxes", unit 1.
    """

    boxes: np.ndarray
    heights: np.ndarray
    size: tuple[int, int, int]
    params: PackingParams

    def places(self) -> np.ndarray:
        """``[P, 2]`` every lower corner at which the new box stays between the walls."""
        x, y = (max(0, n - s + 1) for n, s in zip(self.heights.shape, self.size, strict=False))
        return np.stack(np.meshgrid(range(x), range(y), indexing="ij"), -1).reshape(-1, 2)

    def judged(self, places: np.ndarray, rule: str) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = np.broadcast_to(self.size, (len(places), 3))
        listed, lower, size = (
            torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32))[None]
            for array in (self.boxes, places, sizes)
        )
        return boxes.judge(listed, lower, size, self.params.evolve(stability=rule))

    @property
    def listed(self) -> list[tuple[int, ...]]:
        """Return the boxes in the reference's form."""
        return [tuple(box) for box in self.boxes.tolist() if box[5] > box[2]]


HEIGHT = 12


@st.composite
def piles(draw: st.DrawFn) -> Pile:
    x, y = draw(sides_of_grids, label="grid")
    random = np.random.default_rng(draw(seeds, label="seed"))
    count = draw(st.integers(0, 8), label="boxes")
    longest = [min(side, draw(st.sampled_from([3, 6]))) for side in (x, y)]
    heights = np.zeros((x, y), int)
    listed = np.zeros((count + int(random.integers(2)), 6), int)
    place = 0
    for _ in range(count):
        w, h, d = (int(random.integers(1, top + 1)) for top in (*longest, 3))
        u, v = random.integers(0, x - w + 1), random.integers(0, y - h + 1)
        z = heights[u : u + w, v : v + h].max()
        if z + d <= HEIGHT:
            listed[place] = (u, v, z, u + w, v + h, z + d)
            heights[u : u + w, v : v + h] = z + d
            place += 1
    size = tuple(int(random.integers(1, top + 1)) for top in (*longest, 4))
    params = PackingParams(
        container=(float(x), float(y), float(HEIGHT)),
        cell=1.0,
        num_items=max(1, len(listed)),
        geometry="boxes",
        action_mode="candidate",
        contact_tol=0.0,
        observation=("heightmap",),
    )
    return Pile(listed, heights, size, params)


@core_laws
@given(piles(), seeds)
def test_boxes_are_judged_as_the_reference_judges_them(pile: Pile, seed: int) -> None:
    """The places are also next to the walls and beyond them."""
    random = np.random.default_rng(seed)
    corners = random.integers(-1, np.array(pile.heights.shape) + 1, (6, 2))
    container = (*pile.heights.shape, HEIGHT)
    for rule in BOX_RULES:
        z, legal = pile.judged(corners, rule)
        for i, (x, y) in enumerate(corners.tolist()):
            expected = plain_boxes.is_legal(rule, pile.listed, (x, y), pile.size, container)
            assert bool(legal[0, i]) == expected, (rule, x, y)
            if expected:
                box = plain_boxes.drop(pile.listed, (x, y), pile.size)
                assert int(z[0, i]) == box[2]


RULES = [rule for rule in KNOWN_RULES if rule in BOX_RULES]
"""Those of both geometries."""


@core_laws
@given(piles(), st.sampled_from(RULES), st.sampled_from([1.0, 0.1, 0.3, 0.07]))
def test_both_geometries_agree(pile: Pile, rule: str, pitch: float) -> None:
    """Heights, rest heights and verdicts are equal bit for bit if a unit is a cell."""
    x, y = pile.heights.shape
    container = {"container": (x * pitch, y * pitch, HEIGHT * pitch), "cell": pitch}
    as_boxes = pile.params.evolve(**container)
    as_maps = as_boxes.evolve(geometry="maps", action_mode="placement", stability=rule)
    items, heights = cuboids_of(pile, pitch), torch.zeros(1, x, y)
    raster, placed = heights, torch.ones(1, dtype=torch.bool)
    for number, box in enumerate(pile.listed):
        place = Placement(*(torch.tensor([value]) for value in (0, 0, *box[:2], True)))
        if number >= len(pile.listed) - 3:
            heights = put_down(raster, number, place, items, as_maps)
        raster = boxes.raise_heightmap(raster, torch.tensor([box]).int(), placed, as_boxes)
        assert number < len(pile.listed) - 3 or torch.equal(heights, raster)
    item = torch.full((1, 1), len(pile.listed))
    there = torch.ones(1, 1, dtype=torch.bool)
    maps = feasibility.placement_maps(heights, item, there, items.tensors(), as_maps)
    places = pile.places()
    z, legal = pile.judged(places, rule)
    u, v = places.T
    assert torch.equal(maps.z[0, 0, 0][u, v], boxes.metres(z[0], as_boxes))
    assert torch.equal(maps.legal[0, 0, 0][u, v], legal[0])
    assert int(maps.legal.sum()) == int(legal.sum())


def put_down(
    heights: Tensor, item: int, place: Placement, items: Catalogue, params: PackingParams
) -> Tensor:
    """The heightmap after one more item, stable or not."""
    zero = torch.zeros(1, dtype=torch.int64)
    params = params.evolve(stability="none")
    state = transition.begin(torch.tensor([[item]]), zero + 1, zero, zero, zero, params)
    state["heightmap"] = heights
    legal = feasibility.judge(state, place, items.tensors(), params)
    assert legal
    after, _ = transition.decide(state, place, legal, items.tensors(), params)
    return after["heightmap"]


def cuboids_of(pile: Pile, pitch: float) -> Catalogue:
    """The boxes of a pile in packing order, then the box to put on them."""
    sizes = [tuple(b - a for a, b in zip(box[:3], box[3:], strict=True)) for box in pile.listed]
    extents = torch.tensor([*sizes, pile.size], dtype=torch.float64) * pitch
    container = tuple(pitch * side for side in (12, 12, HEIGHT))
    return Catalogue.from_cuboids(extents, cell=pitch, container=container, orientations="none")


@core_laws
@given(piles())
def test_empty_spaces_are_all_that_is_open_from_above(pile: Pile) -> None:
    """A cube is in a space iff nothing is in it or over it; no space lies in another."""
    params = pile.params.evolve(num_spaces=256)
    found = spaces.initial(1, params, torch.device("cpu"))
    for box in torch.from_numpy(pile.boxes.astype(np.int32)):
        found, dropped = kernels.split_spaces(found, box[None], box[5:] > 0, torch.tensor(1).int())
        assert int(dropped) == 0
    listed = [space for space in found[0].tolist() if any(space)]
    covered = np.zeros((*pile.heights.shape, HEIGHT), bool)
    for x0, y0, z0, x1, y1, z1 in listed:
        covered[x0:x1, y0:y1, z0:z1] = True
    assert np.array_equal(covered, np.arange(HEIGHT) >= pile.heights[..., None])
    for one, other in itertools.permutations(listed, 2):
        inscribed = all(one[a] >= other[a] and one[a + 3] <= other[a + 3] for a in range(3))
        assert not inscribed
