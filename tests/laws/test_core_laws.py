"""Laws of the core: single placements on random grounds and piles, on grids up to 12 x 12."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import catalogue, cuboids
from torch import Tensor

from packing_env import reference
from packing_env.core import boxes, candidates, feasibility, metrics, spaces, transition
from packing_env.core.orientation import Placement, decode_placement
from packing_env.items import Catalogue
from packing_env.reference import boxes as plain_boxes
from packing_env.testing import KNOWN_RULES, reference_item, reference_rules
from packing_env.testing.episodes import BOX_RULES
from packing_env.types import PackingParams, State

core_laws = settings(max_examples=6 * settings.default.max_examples)
"""300 examples, unless a profile says otherwise."""
sides_of_grids = st.tuples(st.integers(1, 12), st.integers(1, 12))
seeds = st.integers(0, 2**16)


# ---------------------------------------------------------------------- random grounds


@dataclass(frozen=True)
class Ground:
    """One item and the ground it is put on.

    Attributes:
        items: A small catalogue.
        item: Row of it.
        heights: ``[X, Y]`` float32, metres.
        params: The task, with ``stability="none"``.
    """

    items: Catalogue = field(repr=False)
    item: int
    heights: Tensor
    params: PackingParams

    def maps(self, rule: str) -> feasibility.Maps:
        """All placements of the item."""
        return feasibility.placement_maps(
            self.heights[None],
            torch.tensor([[self.item]]),
            torch.ones(1, 1, dtype=torch.bool),
            self.items.tensors(),
            self.params.evolve(stability=rule),
        )

    @property
    def is_cuboid(self) -> bool:
        return self.items.cuboid.shape[-1] == 3


@st.composite
def grounds(draw: st.DrawFn) -> Ground:
    """Irregular items or cuboids, on heights that tie often, sometimes, or never."""
    x, y = draw(sides_of_grids, label="grid")
    random = np.random.default_rng(draw(seeds, label="seed"))
    if draw(st.booleans(), label="cuboids"):
        pitch = draw(st.sampled_from([1.0, 0.25, 0.1]))
        items = cuboids(int(random.integers(8)), (12, 12), 12, sides=(1, 6), pitch=pitch)
        levels = random.integers(0, random.integers(1, 5), (x, y)).astype(np.float64)
        tolerance = 0.0
    else:
        window = draw(st.integers(1, 5))
        items = catalogue(int(random.integers(8)), (12, 12), window=window)
        levels = random.integers(0, random.integers(1, 8), (x, y)) / 2.0
        levels = levels + random.random((x, y)) * random.choice([0, 0, 1])
        tolerance = draw(st.sampled_from([None, 0.0]))
    cell = items.cell
    params = PackingParams(
        container=(x * cell, y * cell, 6 * cell),
        cell=cell,
        grid_step=draw(st.integers(1, min(x, y, 3))),
        num_items=1,
        stability="none",
        contact_tol=tolerance,
        candidate_range=draw(st.sampled_from(["container", "pct"])),
    )
    heights = torch.from_numpy((levels * cell).astype(np.float32))
    return Ground(items, int(random.integers(len(items))), heights, params)


def some_places(legal: Tensor, count: int, random: np.random.Generator) -> np.ndarray:
    """Flat indices: half of them legal by no rule but gravity, if there are any."""
    flat = legal.flatten().numpy()
    anywhere = random.integers(0, len(flat), count)
    good = np.flatnonzero(flat)
    return anywhere if not len(good) else np.concatenate((anywhere, random.choice(good, count)))


@core_laws
@given(grounds(), seeds)
def test_places_are_judged_as_the_reference_judges_them(ground: Ground, seed: int) -> None:
    """Rest heights and legality under every rule: of the maps, and of single placements."""
    found = {rule: ground.maps(rule) for rule in KNOWN_RULES}
    index = some_places(found["none"].legal, 4, np.random.default_rng(seed))
    place = decode_placement(torch.from_numpy(index), ground.items.num_orientations, ground.params)
    rows = (
        ground.heights.expand(len(index), -1, -1),
        torch.full_like(place.x, ground.item),
        place.orientation,
        place.x,
        place.y,
        ground.items.tensors(),
    )
    plain = [
        plain_verdicts(ground, *at)
        for at in zip(*(tensor.tolist() for tensor in rows[2:5]), strict=True)
    ]
    for rule, maps in found.items():
        params = ground.params.evolve(stability=rule, stability_metric=rule)
        single = feasibility.examine(*rows, params)
        legal, z = (values.flatten()[index].tolist() for values in (maps.legal, maps.z))
        assert legal == single.legal.tolist() == single.stable.tolist()
        assert legal == [verdicts[rule] for _, verdicts in plain]
        assert z == single.z.tolist() == [float(at.z) for at, _ in plain]
        ratio = [
            at.support_ratio if good else 0.0 for (at, _), good in zip(plain, legal, strict=True)
        ]
        assert single.support_ratio.tolist() == ratio


def plain_verdicts(
    ground: Ground, orientation: int, x: int, y: int
) -> tuple[reference.Placement, dict[str, bool]]:
    """What the reference says of a placement under no rule, and its legality under each."""
    item, params = reference_item(ground.items, ground.item), ground.params
    episode = reference.Episode(
        params.grid, [item], reference_rules(params, cuboids=ground.is_cuboid)
    )
    episode.heightmap = ground.heights.numpy()
    found = episode.check(0, orientation, x, y)
    if not found.legal:
        return found, dict.fromkeys(KNOWN_RULES, False)
    bottom, com = item.bottom[orientation], item.com[orientation]
    touch = reference.touch_at(episode.heightmap, bottom, x, y, found.z, com, params.tolerance)
    return found, {rule: reference.is_stable(rule, touch) for rule in KNOWN_RULES}


@core_laws
@given(grounds())
def test_a_stricter_rule_is_never_laxer(ground: Ground) -> None:
    """What the rules' definitions imply of each other.

    The rules of areas ask for more than half of the footprint, which is enough for `center_hull`.
    Support of more than half of a full rectangle leaves no line through its centre with all of it
    on one side: for cuboids `center_hull` is enough for `com_hull`.
    """
    legal = {rule: ground.maps(rule).legal for rule in KNOWN_RULES}
    for rule in KNOWN_RULES:
        assert not (legal[rule] & ~legal["none"]).any()
    assert not (legal["area_corners"] & ~legal["center_hull"]).any()
    assert not (legal["area_corners_code"] & ~legal["center_hull"]).any()
    if ground.is_cuboid:
        assert not (legal["center_hull"] & ~legal["com_hull"]).any()


def flipped(ground: Ground, axis: int) -> Ground:
    """Ground and item in a mirror; what is outside the item's window stays behind it."""
    items = ground.items
    top, bottom, com = items.top.clone(), items.bottom.clone(), items.com.clone()
    for r in items.orientation_mask[ground.item].nonzero().flatten().tolist():
        length = int(items.size[ground.item, r, axis])
        for maps in (top, bottom):
            window = maps[ground.item, r].narrow(axis, 0, length)
            window.copy_(window.flip(axis))
        com[ground.item, r, axis] = 64 * length - com[ground.item, r, axis]
    mirrored = replace(items, top=top, bottom=bottom, com=com)
    return replace(ground, items=mirrored, heights=ground.heights.flip(axis))


@core_laws
@given(grounds(), st.sampled_from(KNOWN_RULES), st.sampled_from([0, 1]))
def test_a_mirror_mirrors_every_verdict(ground: Ground, rule: str, axis: int) -> None:
    everywhere = ground.params.evolve(grid_step=1, candidate_range="container")
    ground = replace(ground, params=everywhere)
    maps, image = ground.maps(rule), flipped(ground, axis).maps(rule)
    cells = everywhere.grid[axis]
    for r in ground.items.orientation_mask[ground.item].nonzero().flatten().tolist():
        inside = cells - int(ground.items.size[ground.item, r, axis]) + 1
        for one, other in ((maps.z, image.z), (maps.legal, image.legal)):
            before, after = (m[0, 0, r].narrow(axis, 0, max(0, inside)) for m in (one, other))
            assert torch.equal(before, after.flip(axis))


# ---------------------------------------------------------------------- one decision


@core_laws
@given(grounds(), seeds)
def test_putting_an_item_down_raises_its_footprint_and_nothing_else(
    ground: Ground, seed: int
) -> None:
    """``z`` is the largest gap; heights become ``max(before, z + top)``; volume is conserved.

    Of cuboids, ``z + top`` is the nearest float32 to whole cells.
    """
    items, params = ground.items.tensors(), ground.params
    state = standing_on(ground)
    legal = ground.maps("none").legal.flatten(1)
    index = some_places(legal, 1, np.random.default_rng(seed))[-1:]
    place = decode_placement(torch.from_numpy(index), ground.items.num_orientations, params)
    after, outcome = transition.decide(state, place, items, params)
    assert bool(outcome.legal) == bool(legal[0, index[0]])
    before, raised = state["heightmap"][0].numpy(), after["heightmap"][0].numpy()
    expected = before.copy()
    if outcome.legal:
        r, x, y = (int(value) for value in (place.orientation, place.x, place.y))
        bottom, top = (items[name][ground.item, r].numpy() for name in ("bottom", "top"))
        w, h = np.argwhere(np.isfinite(bottom)).max(0) + 1
        window = np.s_[x : x + w, y : y + h]
        z = (before[window] - bottom[:w, :h]).max()
        assert float(after["placement_z"][0, 0]) == z
        surface = z + top[:w, :h]
        if ground.is_cuboid:
            surface = np.float32(np.round(surface / np.float64(params.cell)) * params.cell)
        expected[window] = np.maximum(before[window], surface)
    assert np.array_equal(raised, expected)
    assert (raised >= before).all()
    volume = float(items["volume"][ground.item]) if outcome.legal else 0.0
    found = metrics.measure(after, params)["utilization"]
    assert abs(float(found) - volume / params.container_volume) < 1e-12


def standing_on(ground: Ground) -> State:
    """The state of an episode of one item, on a ground that is not empty."""
    zero = torch.zeros(1, dtype=torch.int64)
    item = torch.tensor([[ground.item]])
    state = transition.begin(item, zero + 1, zero, zero, zero, ground.params)
    return state | {"heightmap": ground.heights[None].clone()}


# ---------------------------------------------------------------------- lists of candidates


@core_laws
@given(grounds(), seeds, st.integers(1, 12), st.booleans())
def test_a_list_holds_the_first_legal_proposals_and_counts_the_rest(
    ground: Ground, seed: int, capacity: int, fallback: bool
) -> None:
    """Whatever is proposed: illegal, repeated, or nothing."""
    random = np.random.default_rng(seed)
    maps = ground.maps("none")
    legal, z = maps.legal.flatten(), maps.z.flatten()
    proposed = np.concatenate((some_places(legal, 10, random), np.full(5, -1)))
    random.shuffle(proposed)
    lost = int(random.integers(0, 3))
    generator = candidates.Proposals(torch.from_numpy(proposed)[None], torch.tensor([lost]))
    params = ground.params.evolve(
        action_mode="candidate",
        candidate_generator="lowest_z",
        num_candidates=capacity,
        candidate_fallback=fallback,
    )
    scene = candidates.Scene(
        standing_on(ground),
        torch.tensor([[ground.item]]),
        torch.ones(1, 1, dtype=torch.bool),
        maps,
        ground.items.tensors(),
        params,
    )
    found = with_generator(lambda _: generator, scene)
    good = list(dict.fromkeys(int(i) for i in proposed if i >= 0 and legal[i]))
    assert int(found.overflow) == max(0, len(good) - capacity) + lost
    if not good and fallback and legal.any():
        lowest = torch.where(legal, z, torch.inf)
        good = [int((lowest == lowest.min()).int().argmax())]
    kept = good[:capacity]
    assert found.index[0].tolist() == kept + [-1] * (capacity - len(kept))
    heights = [float(z[i]) for i in kept] + [np.inf] * (capacity - len(kept))
    assert found.z[0].tolist() == heights


def with_generator(
    generator: candidates.Generator, scene: candidates.Scene
) -> candidates.Candidates:
    """What is listed of a generator's proposals."""
    honest = candidates.GENERATORS["lowest_z"]
    candidates.GENERATORS["lowest_z"] = generator
    try:
        return candidates.propose(scene)
    finally:
        candidates.GENERATORS["lowest_z"] = honest


# ---------------------------------------------------------------------- piles of boxes


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

    def judged(self, places: np.ndarray, rule: str) -> boxes.Judged:
        sizes = np.broadcast_to(self.size, (len(places), 3))
        listed, lower, size = (
            torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32))[None]
            for array in (self.boxes, places, sizes)
        )
        return boxes.judge(listed, lower, size, self.params, rule)

    @property
    def listed(self) -> list[tuple[int, ...]]:
        """The boxes as the reference takes them."""
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
@given(piles())
def test_a_box_rests_on_the_highest_top_under_it(pile: Pile) -> None:
    places = pile.places()
    found = pile.judged(places, "none")
    w, h, d = pile.size
    z = [pile.heights[x : x + w, y : y + h].max() for x, y in places]
    assert found.z[0].tolist() == z
    assert found.legal[0].tolist() == [height + d <= HEIGHT for height in z]


@core_laws
@given(piles(), seeds)
def test_boxes_are_judged_as_the_reference_judges_them(pile: Pile, seed: int) -> None:
    """Also next to the walls and beyond them."""
    random = np.random.default_rng(seed)
    corners = random.integers(-1, np.array(pile.heights.shape) + 1, (6, 2))
    container = (*pile.heights.shape, HEIGHT)
    for rule in BOX_RULES:
        found = pile.judged(corners, rule)
        for i, (x, y) in enumerate(corners.tolist()):
            expected = plain_boxes.is_legal(rule, pile.listed, (x, y), pile.size, container)
            assert bool(found.legal[0, i]) == expected, (rule, x, y)
            if expected:
                box = plain_boxes.drop(pile.listed, (x, y), pile.size)
                assert int(found.z[0, i]) == box[2]


@core_laws
@given(piles())
def test_a_stricter_rule_is_never_laxer_on_boxes(pile: Pile) -> None:
    """As on maps; the stacking tree asks for a shrunken `com_hull`, and more."""
    legal = {rule: pile.judged(pile.places(), rule).legal for rule in BOX_RULES}
    for strict, lax in itertools.pairwise(("area_corners", "center_hull", "com_hull", "none")):
        assert not (legal[strict] & ~legal[lax]).any()
    assert not (legal["area_corners_code"] & ~legal["center_hull"]).any()
    assert not (legal["stacking_tree"] & ~legal["com_hull"]).any()


@core_laws
@given(piles(), st.sampled_from(BOX_RULES), st.sampled_from(["x", "y", "swap"]))
def test_a_mirror_mirrors_every_verdict_on_boxes(pile: Pile, rule: str, axis: str) -> None:
    places = pile.places()
    image, image_places = mirrored(pile, places, axis)
    found, seen = pile.judged(places, rule), image.judged(image_places, rule)
    assert torch.equal(found.z, seen.z)
    assert torch.equal(found.legal, seen.legal)


def mirrored(pile: Pile, places: np.ndarray, axis: str) -> tuple[Pile, np.ndarray]:
    """The pile and its places in a mirror, in the same order."""
    if axis == "swap":
        w, h, d = pile.size
        x, y, height = pile.params.container
        params = pile.params.evolve(container=(y, x, height))
        listed = pile.boxes[:, [1, 0, 2, 4, 3, 5]]
        return Pile(listed, pile.heights.T, (h, w, d), params), places[:, ::-1]
    a = "xy".index(axis)
    length = pile.heights.shape[a]
    listed, turned = pile.boxes.copy(), places.copy()
    real = listed[:, 5] > 0
    listed[real, a], listed[real, a + 3] = (
        length - pile.boxes[real, a + 3],
        length - pile.boxes[real, a],
    )
    turned[:, a] = length - pile.size[a] - places[:, a]
    return Pile(listed, np.flip(pile.heights, a), pile.size, pile.params), turned


@core_laws
@given(piles(), st.sampled_from(KNOWN_RULES), st.sampled_from([1.0, 0.1, 0.3, 0.07]))
def test_both_geometries_agree(pile: Pile, rule: str, pitch: float) -> None:
    """Heights, rest heights and verdicts bit for bit, where a unit is a cell."""
    x, y = pile.heights.shape
    container = {"container": (x * pitch, y * pitch, HEIGHT * pitch), "cell": pitch}
    as_boxes = pile.params.evolve(**container)
    as_maps = as_boxes.evolve(geometry="maps", action_mode="placement", stability=rule)
    items, heights = cuboids_of(pile, pitch), torch.zeros(1, x, y)
    raster, placed = heights, torch.ones(1, dtype=torch.bool)
    for number, box in enumerate(pile.listed):
        place = Placement(*(torch.tensor([value]) for value in (0, 0, *box[:2], True)))
        heights = put_down(heights, number, place, items, as_maps)
        raster = boxes.raise_heightmap(raster, torch.tensor([box]).int(), placed, as_boxes)
        assert torch.equal(heights, raster)
    item = torch.full((1, 1), len(pile.listed))
    there = torch.ones(1, 1, dtype=torch.bool)
    maps = feasibility.placement_maps(heights, item, there, items.tensors(), as_maps)
    places = pile.places()
    found = pile.judged(places, rule)
    u, v = places.T
    assert torch.equal(maps.z[0, 0, 0][u, v], boxes.metres(found.z[0], as_boxes))
    assert torch.equal(maps.legal[0, 0, 0][u, v], found.legal[0])
    assert int(maps.legal.sum()) == int(found.legal.sum())


def put_down(
    heights: Tensor, item: int, place: Placement, items: Catalogue, params: PackingParams
) -> Tensor:
    """The heightmap after one more item, stable or not."""
    zero = torch.zeros(1, dtype=torch.int64)
    params = params.evolve(stability="none")
    state = transition.begin(torch.tensor([[item]]), zero + 1, zero, zero, zero, params)
    state["heightmap"] = heights
    after, outcome = transition.decide(state, place, items.tensors(), params)
    assert outcome.legal
    return after["heightmap"]


def cuboids_of(pile: Pile, pitch: float) -> Catalogue:
    """The boxes of a pile in packing order, then the box to put on them."""
    sizes = [tuple(b - a for a, b in zip(box[:3], box[3:], strict=True)) for box in pile.listed]
    extents = torch.tensor([*sizes, pile.size], dtype=torch.float64) * pitch
    container = tuple(pitch * side for side in (12, 12, HEIGHT))
    return Catalogue.from_cuboids(extents, cell=pitch, container=container, orientations="none")


@core_laws
@given(piles(), st.integers(1, 5))
def test_the_raster_is_the_highest_unit_under_each_cell(pile: Pile, steps: int) -> None:
    """A cell of several units holds the highest of them, so the raster is never too low."""
    x, y = (-(-n // steps) for n in pile.heights.shape)
    params = pile.params.evolve(container=(float(x * steps), float(y * steps), float(HEIGHT)),
                                cell=float(steps), unit=1.0)  # fmt: skip
    raster = torch.zeros(1, x, y)
    placed = torch.ones(1, dtype=torch.bool)
    for box in torch.from_numpy(pile.boxes.astype(np.int32)):
        raised = boxes.raise_heightmap(raster, box[None], placed, params)
        assert (raised >= raster).all()
        raster = raised
    padded = np.zeros((x * steps, y * steps))
    padded[: pile.heights.shape[0], : pile.heights.shape[1]] = pile.heights
    expected = padded.reshape(x, steps, y, steps).max((1, 3))
    assert np.array_equal(raster[0].numpy(), expected)


@core_laws
@given(piles())
def test_empty_spaces_are_empty_and_hold_all_that_is_open_from_above(pile: Pile) -> None:
    """No space reaches into a box or lies in another; a cube with nothing over it is in one."""
    params = pile.params.evolve(num_spaces=256)
    found = spaces.initial(1, params, torch.device("cpu"))
    for box in torch.from_numpy(pile.boxes.astype(np.int32)):
        found, dropped = spaces.split(found, box[None], (box[5:] > 0), torch.tensor(1).int())
        assert int(dropped) == 0
    listed = [space for space in found[0].tolist() if any(space)]
    covered = np.zeros((*pile.heights.shape, HEIGHT), bool)
    for x0, y0, z0, x1, y1, z1 in listed:
        covered[x0:x1, y0:y1, z0:z1] = True
    for x0, y0, z0, x1, y1, z1 in pile.listed:
        assert not covered[x0:x1, y0:y1, z0:z1].any()
    level = np.arange(HEIGHT)
    assert covered[level >= pile.heights[..., None]].all()
    for one, other in itertools.permutations(listed, 2):
        inscribed = all(one[a] >= other[a] and one[a + 3] <= other[a + 3] for a in range(3))
        assert not inscribed
