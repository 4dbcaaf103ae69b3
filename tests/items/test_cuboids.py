"""Cuboids in catalogues: known by their maps, kept upright, and made without maps."""

import pytest
import torch

from packing_env.items import Catalogue
from packing_env.items.cuboids import whole_cuboids

SIDES = torch.cartesian_prod(*[torch.arange(1, 6)] * 3)
CUBE = {"cell": 1.0, "container": (10.0, 10.0, 10.0)}


def without_maps(catalogue: Catalogue) -> dict[str, torch.Tensor]:
    tensors = catalogue.tensors() | {"never_feasible": catalogue.never_feasible}
    return {name: value for name, value in tensors.items() if name not in ("top", "bottom")}


@pytest.mark.parametrize("orientations", ["pi/2", "cuboid", "yaw", "none"])
def test_the_sides_of_each_orientation_are_listed(orientations):
    catalogue = Catalogue.from_cuboids(SIDES, **CUBE, orientations=orientations)
    cuboid, mask = catalogue.tensors()["cuboid"], catalogue.orientation_mask
    assert cuboid.dtype == torch.int32
    assert cuboid.shape == (*mask.shape, 3)
    assert torch.equal(cuboid[:, 0], SIDES.int())
    assert torch.equal(cuboid[..., :2].long(), catalogue.size)
    assert torch.equal(catalogue.com, 32 * catalogue.size)
    assert torch.equal(cuboid[..., 2].float()[mask], catalogue.peak[mask])
    assert not cuboid[~mask].any()
    turned = (catalogue.rotation @ SIDES[:, None, :, None].double()).squeeze(-1).abs()
    assert torch.equal(cuboid[mask].double(), turned[mask])
    assert len({tuple(row) for row in cuboid[27].tolist()}) == mask[27].sum() + (~mask[27]).any()


@pytest.mark.parametrize(
    "extent",
    [(2.5, 2, 2), (2, 1.9999, 2), (2, 2, 2.5), (2, 2, 0.5)],
    ids=["width", "depth", "height", "flat"],
)
def test_extents_that_are_not_whole_cells_make_no_cuboid(extent):
    catalogue = Catalogue.from_cuboids([(1, 1, 1), extent], **CUBE, orientations="yaw")
    assert catalogue.cuboid.shape == (2, catalogue.num_orientations, 0)
    assert Catalogue.from_cuboids([(1, 1, 1)], **CUBE).cuboid.shape == (1, 1, 3)


def test_a_solid_with_a_cuboids_top_view_may_not_be_a_cuboid():
    one = Catalogue.from_cuboids([(3, 2, 2)], **CUBE, orientations="none")
    names = ("top", "bottom", "size", "orientation_mask", "volume")
    tensors = {name: getattr(one, name) for name in names}

    def sides(**changes):
        return whole_cuboids({**tensors, **changes}, 1.0)

    assert sides().tolist() == [[[3, 2, 2]]]
    assert sides(volume=one.volume - 1).shape == (1, 1, 0)  # a cavity
    hole, dent = one.bottom.clone(), one.top.clone()
    hole[0, 0, 1, 1], dent[0, 0, 0, 0] = 1.0, 1.0
    assert sides(bottom=hole).shape == (1, 1, 0)
    assert sides(top=dent).shape == (1, 1, 0)
    gone = torch.zeros_like(one.orientation_mask)  # padding is no witness
    assert sides(bottom=hole, orientation_mask=gone).tolist() == [[[0, 0, 0]]]


# ------------------------------------------------------------------------------------ upright


def test_only_allowed_sides_stand_upright():
    upright = [(0, 0, 1), (1, 0, 0), (1, 1, 1)]
    catalogue = Catalogue.from_cuboids(
        [(1, 2, 3)] * 3, **CUBE, orientations="cuboid", upright=upright
    )
    assert catalogue.orientation_mask.sum(1).tolist() == [2, 2, 6]
    assert catalogue.cuboid[0, :2].tolist() == [[1, 2, 3], [2, 1, 3]]
    assert catalogue.cuboid[1, :2].tolist() == [[2, 3, 1], [3, 2, 1]]
    assert catalogue.extent[1].tolist() == [2.0, 3.0, 1.0]
    yawed = Catalogue.from_cuboids(
        [(1, 2, 3)] * 3, **CUBE, orientations="yaw", upright=torch.tensor(upright)
    )
    assert yawed.never_feasible.tolist() == [False, True, False]


# ------------------------------------------------------------------------------------ without maps


@pytest.mark.parametrize("orientations", ["pi/2", "cuboid", "yaw", "none"])
@pytest.mark.parametrize(
    ("factor", "grid", "unit"),
    [
        (1.0, CUBE, "m"),
        (1.0, {"cell": 0.01, "container": (0.1, 0.07, 0.08)}, "cm"),
        (0.03, {"cell": 0.03, "container": (0.12, 0.09, 0.30)}, "m"),
    ],
    ids=["whole", "cm", "thirds"],
)
def test_cuboids_without_maps_are_the_same(orientations, factor, grid, unit):
    generator = torch.Generator().manual_seed(0)
    upright = torch.rand(len(SIDES), 3, generator=generator) > 0.4
    upright[:, 2] |= ~upright.any(1)
    options = {**grid, "orientations": orientations, "unit": unit, "scales": (1.0, 2.0)}
    extents = SIDES.double() * factor
    mapped = Catalogue.from_cuboids(extents, **options, upright=upright)
    bare = Catalogue.from_cuboids(extents, **options, upright=upright, maps=False)
    expected = without_maps(mapped)
    for name, value in without_maps(bare).items():
        assert value.dtype == expected[name].dtype, name
        assert torch.equal(value, expected[name]), name
    assert bare.top.shape == bare.bottom.shape == (250, expected["peak"].shape[1], 0, 0)
    assert (bare.names, bare.sources) == (mapped.names, mapped.sources)
    assert (bare.cell, bare.container) == (mapped.cell, mapped.container)
