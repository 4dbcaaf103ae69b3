"""Voxels contain the solid, and nothing that is further away than the margin and a voxel."""

import math

import pytest
import torch
from tests.mesh_files import box_mesh

from packing_env.items import mesh_from_arrays
from packing_env.items.meshes.topology import winding_number
from packing_env.items.rotations import rotation_set
from packing_env.items.shapes import SHAPES
from packing_env.items.voxels import voxelize
from packing_env.reference.solids import Solid

CELL = 0.25


@pytest.mark.parametrize(
    ("sides", "margin", "voxels", "low"),
    [
        ((1.0, 0.5, 0.75), 0.0, (4, 2, 3), (0.0, 0.0, 0.0)),
        ((1.0, 0.5, 0.75), CELL, (6, 4, 5), (-CELL, -CELL, -CELL)),
        # What is left of a cell is equal on both sides.
        ((0.9, 0.5, 0.5), 0.0, (4, 2, 2), (-0.05, 0.0, 0.0)),
    ],
)
def test_a_box_and_its_margin_fill_whole_voxels(
    sides: tuple[float, ...], margin: float, voxels: tuple[int, ...], low: tuple[float, ...]
) -> None:
    found = voxelize(box_mesh(*sides), CELL, margin=margin)
    assert found.occupied.shape == voxels
    assert found.occupied.all()
    assert found.low.tolist() == pytest.approx(low)


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("name", list(SHAPES)[::12])
def test_points_of_a_solid_are_in_its_voxels(name: str, margin: float) -> None:
    mesh = SHAPES[name].mesh()
    cell = float(mesh.extents.max()) / 13.7
    voxels = voxelize(mesh, cell, margin * cell)
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(60, 3, generator=generator, dtype=torch.float64)
    points = mesh.vertices.amin(0) + points * mesh.extents
    for point in points:
        u, v, w = ((point - voxels.low) / cell).floor().to(torch.int64).tolist()
        if winding_number(point, mesh.vertices, mesh.faces) > 0.5:
            assert voxels.occupied[u, v, w]
    # The volume converges to that of the solid from above.
    finer = voxelize(mesh, cell / 6)
    volume = float(finer.occupied.sum()) * (cell / 6) ** 3
    assert mesh.volume <= volume * (1 + 1e-9)
    surface = 6 * math.prod(finer.occupied.shape) ** (2 / 3) * (cell / 6) ** 3
    assert volume - mesh.volume < 3 * surface


def test_a_turned_solid_has_the_turned_voxels() -> None:
    mesh = SHAPES["tetracube_l"].mesh()
    cell = float(mesh.extents.max()) / 9.3
    upright = voxelize(mesh, cell, 0.1 * cell).occupied
    for rotation in rotation_set("pi/2"):
        axes = rotation.abs().argmax(1).tolist()
        turned = upright.permute(*axes)
        mirrored = [k for k in range(3) if rotation[k, axes[k]] < 0]
        assert torch.equal(
            voxelize(mesh, cell, 0.1 * cell, rotation).occupied, turned.flip(mirrored)
        )


def test_a_margin_is_as_wide_across_the_axes() -> None:
    # A box turned by 45 degrees about z: its faces are 0.5 from the middle along (1, 1) / sqrt 2.
    rotation = rotation_set("pi/2", yaw_interval=math.pi / 4)
    turned = next(r for r in rotation if abs(float(r[0, 0]) - math.sqrt(0.5)) < 1e-9)
    cell, margin = 0.05, 0.15
    voxels = voxelize(box_mesh(1.0, 1.0, 1.0), cell, margin, turned)
    middle = torch.stack(torch.meshgrid(
        *(torch.arange(n) * cell for n in voxels.occupied.shape), indexing="ij"
    ), -1) + voxels.low + cell / 2  # fmt: skip
    middle = middle - torch.tensor([0.5, 0.5, 0.5]).double() @ turned.T
    across = (middle[..., 0].abs() + middle[..., 1].abs()) / math.sqrt(2)
    beside_a_face = (middle[..., :2].abs() > 0.2).all(-1)  # not at an edge of the box
    furthest = float(across[voxels.occupied & beside_a_face].max())
    assert 0.5 + margin <= furthest <= 0.5 + margin + cell * math.sqrt(0.5)


def test_a_cavity_is_empty_but_an_open_shell_is_filled() -> None:
    outer, inner = Solid.box((2.0, 2.0, 2.0)), Solid.box((1.0, 1.0, 1.0))
    faces = torch.cat(
        [torch.as_tensor(outer.faces), torch.as_tensor(inner.faces[:, ::-1].copy()) + 8]
    )
    corners = torch.cat([torch.as_tensor(outer.vertices), torch.as_tensor(inner.vertices) + 0.5])
    hollow = voxelize(mesh_from_arrays(corners, faces), CELL).occupied
    assert int(hollow.sum()) == 8**3 - 4**3
    assert not hollow[2:6, 2:6, 2:6].any()
    unclosed = mesh_from_arrays(outer.vertices, outer.faces[:-2])
    assert not unclosed.watertight
    for cell in (0.19, 0.25):  # with 0.25, the walls lie between two voxels
        assert voxelize(unclosed, cell).occupied.all()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="cell"):
        voxelize(box_mesh(1.0, 1.0, 1.0), 0.0)
    with pytest.raises(ValueError, match="margin"):
        voxelize(box_mesh(1.0, 1.0, 1.0), 0.1, -0.1)
    with pytest.raises(ValueError, match="larger cells"):
        voxelize(box_mesh(1.0, 1.0, 1.0), 1e-3)
