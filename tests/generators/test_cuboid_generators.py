"""Generators that supply their own cuboids: their distributions, catalogues, and cuts."""

import pytest
import torch

from packing_env import make_env
from packing_env.core.observation import cut_surfaces
from packing_env.generators import (
    ContinuousCuboids,
    Cuboids,
    CuboidSource,
    Guillotine,
    Uniform,
    UniformCuboids,
)
from packing_env.generators.base import Request
from packing_env.items import Catalogue
from packing_env.testing import check_generator
from packing_env.types import Instances, PackingParams, ParameterError

CUBE = PackingParams(container=(10.0, 10.0, 10.0), cell=1.0, num_items=125)
UNIT = PackingParams(
    container=(1.0, 1.0, 1.0),
    cell=0.01,
    geometry="boxes",
    unit=0.001,
    num_items=80,
    action_mode="candidate",
    observation=("heightmap",),
)
SOURCES = {
    "uniform_cuboids": UniformCuboids(),
    "guillotine": Guillotine("cut2"),
    "continuous_cuboids": ContinuousCuboids(heights=(0.1, 0.2)),
}
TASKS = {"uniform_cuboids": CUBE, "guillotine": CUBE, "continuous_cuboids": UNIT}


def catalogue_of(cuboids: Cuboids, params: PackingParams, orientations: str = "yaw") -> Catalogue:
    return Catalogue.from_cuboids(
        cuboids.extents,
        cell=params.pitch,
        container=params.container,
        orientations=orientations,
        upright=cuboids.upright,
        names=cuboids.names,
        maps=params.geometry == "maps",
    )


def sampled(
    source: CuboidSource, params: PackingParams, size: int
) -> tuple[Instances, torch.Tensor]:
    """Instances, and the extents ``[P, N, 3]`` of their items."""
    request = Request.of(params, 0, "train", size)
    catalogue = catalogue_of(source.cuboids(request), params)
    made = source.sample(request, catalogue)
    return made, catalogue.extent[made.item_id]


# ---------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_they_keep_the_rules_of_generators(name: str) -> None:
    params = CUBE.evolve(num_items=4) if name == "continuous_cuboids" else CUBE
    check_generator(SOURCES[name], params=params, num_instances=16)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_an_instance_depends_only_on_its_index(name: str) -> None:
    source, params = SOURCES[name], TASKS[name]
    few, many = (sampled(source, params, size)[1] for size in (8, 40))
    assert torch.equal(few, many[:8])
    made, extents = sampled(source, params.evolve(num_items=params.num_items + 5), 8)
    real = torch.arange(params.num_items) < made.num_items[:, None]
    assert torch.equal(extents[:, :-5][real], few[real])


# ---------------------------------------------------------------------- whole sides


@pytest.mark.parametrize(("low", "types"), [(1, 125), (2, 64)])
def test_whole_extents_are_drawn_with_equal_probability(low: int, types: int) -> None:
    source = UniformCuboids(low=low)
    made, extents = sampled(source, CUBE, 1000)
    count = made.item_id.flatten().bincount()
    assert len(count) == types
    expected = 125_000 / types
    chi_squared = float(((count - expected) ** 2 / expected).sum())
    assert abs(chi_squared - types) < 5 * (2 * types) ** 0.5
    for axis in range(3):
        sides = extents[..., axis].flatten().long().bincount(minlength=6)
        assert sides[:low].sum() == 0
        assert torch.allclose(sides[low:] / 125_000, torch.tensor(1 / (6 - low)), atol=0.005)
    assert set(made.num_items.tolist()) == {125}


def test_the_extents_stand_in_a_fixed_order() -> None:
    cuboids = UniformCuboids(high=3).cuboids(Request.of(CUBE.evolve(cell=0.5)))
    assert cuboids.extents.dtype == torch.float64
    assert (cuboids.extents[:4] / 0.5).tolist() == [[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 1]]


def test_sides_may_be_multiples_of_a_step() -> None:
    with pytest.raises(ParameterError, match=r"generator\.high=14"):
        UniformCuboids(low=3, high=14, step=3)
    cuboids = UniformCuboids(low=3, high=15, step=3).cuboids(Request.of(CUBE))
    assert cuboids.extents.unique().tolist() == [3, 6, 9, 12, 15]
    assert len(cuboids.extents) == 125


def test_the_draws_are_those_of_the_uniform_generator() -> None:
    """Meshes of all the cuboids, drawn uniformly, give the same streams."""
    catalogue = catalogue_of(UniformCuboids().cuboids(Request.of(CUBE)), CUBE)
    request = Request.of(
        CUBE.evolve(num_items=125), 7, "test", 16, torch.ones(125, dtype=torch.bool)
    )
    own = UniformCuboids().sample(request, catalogue)
    assert torch.equal(own.item_id, Uniform().sample(request, catalogue).item_id)


# ---------------------------------------------------------------------- continuous sides


def test_continuous_sides_are_uniform_thousandths() -> None:
    made, extents = sampled(ContinuousCuboids(), UNIT, 250)
    assert extents.shape == (250, 80, 3)
    assert torch.equal(made.item_id.flatten(), torch.arange(20_000))
    steps = (extents * 1000).round()
    assert torch.equal(steps / 1000, extents)  # the very numbers 0.100, 0.101, ...
    count = steps.flatten().long().bincount()
    assert int(count[:100].sum()) == 0
    assert len(count) == 501
    inner = count[101:500].double()
    expected = 60_000 / 400
    assert abs(float(((inner - expected) ** 2 / expected).sum()) - 399) < 5 * (2 * 399) ** 0.5
    for end in (100, 500):  # rounding leaves the ends half an interval
        assert abs(float(count[end]) - expected / 2) < 5 * (expected / 2) ** 0.5
    centred = extents.flatten(0, 1) - 0.3
    assert float(torch.corrcoef(centred.T).fill_diagonal_(0.0).abs().max()) < 0.03


def test_heights_may_be_chosen_from_a_list() -> None:
    """Settings 1 and 3 of the published program: x and y as before, z one of five."""
    heights = [0.1, 0.2, 0.3, 0.4, 0.5]
    _, extents = sampled(ContinuousCuboids(heights=heights), UNIT, 250)
    _, free = sampled(ContinuousCuboids(), UNIT, 250)
    assert torch.equal(extents[..., :2], free[..., :2])
    found, count = extents[..., 2].unique(return_counts=True)
    assert found.tolist() == heights
    assert torch.allclose(count / 20_000, torch.tensor(0.2), atol=0.015)


# ---------------------------------------------------------------------- guillotine cuts

CUTS = [
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


@pytest.mark.parametrize(("source", "params"), CUTS)
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
    source, params = CUTS[0]
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
