from math import gamma, pi

import numpy as np
import pytest
import shapes as script
import torch

from packing_env.items import shapes
from packing_env.reference import solids as reference
from packing_env.reference.solids import is_one_closed_shell, measure

EVERY = pytest.mark.parametrize("name", shapes.SHAPES)


def solid_of(name: str) -> reference.Solid:
    mesh = shapes.SHAPES[name].mesh()
    return reference.Solid(mesh.vertices.numpy(), mesh.faces.numpy())


def surface_volume(solid: reference.Solid) -> float:
    """Signed volume inside the surface: positive if its faces point outward."""
    return measure(solid)[0]


def superquadric_volume(half: tuple[float, float, float], e1: float, e2: float) -> float:
    """Jaklic, Leonardis, Solina, "Segmentation and Recovery of Superquadrics", 2000."""

    def beta(x: float, y: float) -> float:
        return gamma(x) * gamma(y) / gamma(x + y)

    return 2 * np.prod(half) * e1 * e2 * beta(e1 / 2 + 1, e1) * beta(e2 / 2, e2 / 2)


@EVERY
def test_a_shape_is_closed_in_one_piece_and_faces_outward(name: str) -> None:
    solid, mesh = solid_of(name), shapes.SHAPES[name].mesh()
    assert is_one_closed_shell(solid.faces)
    assert len(np.unique(solid.vertices, axis=0)) == len(solid.vertices)
    assert set(solid.faces.ravel().tolist()) == set(range(len(solid.vertices)))
    assert surface_volume(solid) > 0
    assert mesh.watertight
    assert mesh.volume_reliable
    assert mesh.warnings == ()
    assert mesh.volume == pytest.approx(surface_volume(solid), rel=1e-9)
    assert mesh.vertices.dtype == torch.float64


def test_the_script_models_the_shapes_of_the_package() -> None:
    solids = script.solids()
    assert list(solids) == [f"{shape.family}/{name}" for name, shape in shapes.SHAPES.items()]
    for name, solid in zip(shapes.SHAPES, solids.values(), strict=True):
        kept = solid_of(name)
        np.testing.assert_allclose(solid.vertices, kept.vertices, rtol=0, atol=1e-12)
        assert np.array_equal(solid.faces, kept.faces)


WORKED_OUT = {
    "tetracube_l": 4 * 0.5**3,
    "l_profile": 0.9 * (1.4 * 1.0 - 1.0 * 0.6),
    "ramp": 1.0 * (1.5 * 0.8 - 1.3 * 0.8 / 2),
    "open_box": 1.3 * 1.0 * 0.9 - 1.1 * 0.8 * 0.8,
    "divided_tray": 1.8 * 1.0 * 0.55 - 2 * 0.75 * 0.8 * 0.4,
    "plank": 2.1 * 0.7 * 0.4,
}
SMOOTH = {
    "cone": pi * 0.65**2 * 1.6 / 3,
    "dome": 2 / 3 * pi * 0.72**3,
    "torus": 2 * pi**2 * 0.55 * 0.25**2,
    "pipe": pi * (0.55**2 - 0.4**2) * 1.3,
    "dumbbell": pi * (2 * 0.45**2 * 0.4 + 0.16**2 * 0.8),
    "counterbored_block": 1.2 * 0.9 * 0.75 - pi * (0.18**2 * 0.35 + 0.32**2 * 0.4),
    "flange": pi * (0.8**2 * 0.25 + 0.4**2 * 0.5 - 0.24**2 * 0.75 - 6 * 0.08**2 * 0.25),
    "sphere": superquadric_volume((0.55, 0.55, 0.55), 1, 1),
    "rounded_cylinder": superquadric_volume((0.45, 0.45, 0.65), 0.3, 1),
    "pillow": superquadric_volume((0.8, 0.65, 0.35), 1, 0.4),
    "octahedron": superquadric_volume((0.85, 0.85, 0.85), 2, 2),
}
"""Litres of solids that tessellations come close to."""


@pytest.mark.parametrize("name", [*WORKED_OUT, *SMOOTH])
def test_volumes_are_those_worked_out_by_hand(name: str) -> None:
    litres, tolerance = (WORKED_OUT | SMOOTH)[name], 1e-9 if name in WORKED_OUT else 0.06
    assert surface_volume(solid_of(name)) == pytest.approx(litres * 1e-3, rel=tolerance)


def test_published_dimensions_are_kept() -> None:
    # Calli et al. 2015, millimetres.
    for name, extents in {
        "sugar_box": (38, 89, 175),
        "tomato_soup_can": (66, 66, 101),
        "master_chef_can": (102, 102, 139),
        "tuna_fish_can": (33, 85, 85),
        "potted_meat_can": (50, 82, 97),
        "mustard_bottle": (50, 85, 175),
        "bowl": (53, 159, 159),
        "wine_glass": (89, 89, 137),
    }.items():
        measured = np.sort(np.ptp(solid_of(name).vertices, axis=0)) * 1000
        np.testing.assert_allclose(measured, extents, atol=0.5, err_msg=name)
