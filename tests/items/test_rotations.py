"""Rotation sets: distinct, complete, exact at quarter turns, in the promised order."""

import itertools
import math

import pytest
import torch

from packing_env.items import poses_with_yaws, rotation_set
from packing_env.items.rotations import QUARTER_TURN, UPWARD_FACES, source_axes


def _euler(roll: float, pitch: float, yaw: float) -> torch.Tensor:
    """Rz(yaw) Ry(pitch) Rx(roll), entry by entry."""
    (cr, sr), (cp, sp), (cy, sy) = ((math.cos(a), math.sin(a)) for a in (roll, pitch, yaw))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _brute_force(yaw_interval: float, roll_pitch_interval: float) -> list[torch.Tensor]:
    """Distinct rotations by comparing each Euler triple with all kept ones."""
    yaws = [k * yaw_interval for k in range(round(2 * math.pi / yaw_interval))]
    others = [k * roll_pitch_interval for k in range(round(2 * math.pi / roll_pitch_interval))]
    kept = torch.empty(0, 3, 3, dtype=torch.float64)
    for roll, pitch, yaw in itertools.product(others, others, yaws):
        rotation = _euler(roll, pitch, yaw)
        if not len(kept) or float((kept - rotation).abs().amax((1, 2)).min()) > 1e-9:
            kept = torch.cat([kept, rotation[None]])
    return list(kept)


def _same_set(a, b) -> bool:
    distance = (a[:, None] - b[None]).abs().amax((2, 3))
    return len(a) == len(b) and float(distance.amin(1).max()) < 1e-9


def test_quarter_turns_give_24_exact_rotations_in_order():
    rotations = rotation_set(math.pi / 2)
    assert rotations.shape == (24, 3, 3)
    assert rotations.dtype == torch.float64
    assert set(rotations.flatten().tolist()) == {-1.0, 0.0, 1.0}
    assert not torch.signbit(rotations[rotations == 0]).any()
    turn = torch.tensor(QUARTER_TURN, dtype=torch.float64)
    for face, pose in enumerate(UPWARD_FACES):
        expected = torch.tensor(pose, dtype=torch.float64)
        for k in range(4):
            assert torch.equal(rotations[4 * face + k], expected)
            expected = turn @ expected
    assert torch.equal(rotations[0], torch.eye(3, dtype=torch.float64))
    assert torch.equal(torch.linalg.det(rotations).round(), torch.ones(24, dtype=torch.float64))


@pytest.mark.parametrize(
    ("interval", "yaw", "roll_pitch", "count"),
    [
        (math.pi / 2, None, None, 24),
        (math.pi / 4, None, None, 208),
        (math.pi / 2, math.pi / 4, None, 48),
        (math.pi / 2, None, math.pi / 4, 112),
    ],
)
def test_sets_hold_each_euler_rotation_once(interval, yaw, roll_pitch, count):
    rotations = rotation_set(interval, yaw_interval=yaw, roll_pitch_interval=roll_pitch)
    assert len(rotations) == count
    assert _same_set(rotations, torch.stack(_brute_force(yaw or interval, roll_pitch or interval)))
    assert torch.equal(rotations[0], torch.eye(3, dtype=torch.float64))
    identity = torch.eye(3, dtype=torch.float64).expand(count, 3, 3)
    assert torch.allclose(rotations @ rotations.mT, identity, atol=1e-14)


def test_a_yaw_may_be_finer_than_a_quarter_turn():
    eighths = rotation_set("yaw_pi/4")
    assert len(eighths) == 8
    assert _same_set(eighths[::2], rotation_set("yaw"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("yaw_4", {}, "orientations"),
        ("yaw_pi/4", {"yaw_interval": math.pi / 8}, "yaw_interval"),
        # An interval without effect.
        *(
            (name, {"roll_pitch_interval": math.pi / 8}, f"roll_pitch_interval=.*{name}")
            for name in ("yaw", "upright", "yaw_pi/4", "none", "cuboid")
        ),
        *(
            (name, {"yaw_interval": math.pi / 8}, f"yaw_interval=.*{name}")
            for name in ("none", "cuboid")
        ),
        ("pi/2", {"yaw_interval": 0.0}, "does not divide a full turn"),
        ("pi/2", {"roll_pitch_interval": 0.0}, "does not divide a full turn"),
    ],
)
def test_rotations_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        rotation_set(name, **options)


def test_the_orientations_of_a_cuboid_are_the_six_orders_of_its_sides():
    rotations = rotation_set("cuboid")
    assert torch.equal(torch.linalg.det(rotations), torch.ones(6, dtype=torch.float64))
    assert "".join("xyz"[axis] for axis in source_axes(rotations).flatten()) == (
        "xyzyxzyzxzyxxzyzxy"
    )
    sides = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert (rotations[2] @ sides).abs().tolist() == [2.0, 3.0, 1.0]
    yaws = (rotation_set("yaw") @ sides).abs()
    assert torch.equal(yaws[:2], (rotations[:2] @ sides).abs())


def test_given_poses_are_turned_by_all_yaws():
    poses = torch.stack([_euler(0.3, 0.2, 0.1), torch.eye(3, dtype=torch.float64)])
    rotations = poses_with_yaws(poses)
    assert rotations.shape == (8, 3, 3)
    assert torch.equal(rotations[::4], poses)
    assert torch.allclose(rotations[1], _euler(0, 0, math.pi / 2) @ poses[0])
    again = poses_with_yaws(torch.cat([poses, rotations[5:6]]))
    assert torch.equal(again, rotations)  # a pose that is a yaw of another one adds nothing
