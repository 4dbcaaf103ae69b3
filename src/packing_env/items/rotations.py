"""Sets of distinct rotations, the orientations of items.

A rotation takes column vectors of the source frame to the container frame. Euler angles are about
fixed axes: roll about x, then pitch about y, then yaw about z: R = Rz(yaw) Ry(pitch) Rx(roll).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.items.meshes.topology import first_rows
from packing_env.names import close_names

QUARTER = math.pi / 2

UPWARD_FACES = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),  # +z up: as given
    ((1, 0, 0), (0, -1, 0), (0, 0, -1)),  # -z up
    ((1, 0, 0), (0, 0, -1), (0, 1, 0)),  # +y up
    ((1, 0, 0), (0, 0, 1), (0, -1, 0)),  # -y up
    ((0, 0, -1), (0, 1, 0), (1, 0, 0)),  # +x up
    ((0, 0, 1), (0, 1, 0), (-1, 0, 0)),  # -x up
)
"""One rotation for each axis of the source that can point up."""

QUARTER_TURN = ((0, -1, 0), (1, 0, 0), (0, 0, 1))
"""Rotation about z by +90 degrees: (x, y) becomes (-y, x)."""

CUBOID = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),  # xyz: as given
    ((0, -1, 0), (1, 0, 0), (0, 0, 1)),  # yxz
    ((0, 1, 0), (0, 0, 1), (1, 0, 0)),  # yzx
    ((0, 0, 1), (0, 1, 0), (-1, 0, 0)),  # zyx
    ((1, 0, 0), (0, 0, -1), (0, 1, 0)),  # xzy
    ((0, 0, 1), (1, 0, 0), (0, 1, 0)),  # zxy
)
"""One rotation for each order of a cuboid's sides: "zxy" has the z side along x, x along y and y
upright. The order is that of the program of Zhao et al., ICLR 2022 (PCT); the first two are its two
yaws."""

MAX_ROTATIONS = 2**15
"""Largest number of combinations of three angles; pi/16 has as many."""
NAMES = ("pi/2", "pi/4", "pi/8", "yaw", "yaw_pi/4", "upright", "cuboid", "none", "identity")
"""Names that `rotation_set` accepts; "pi/K" and "yaw_pi/K" work for any whole K."""


def rotation_set(
    interval: float | str = QUARTER,
    yaw_interval: float | None = None,
    roll_pitch_interval: float | None = None,
) -> Float[Tensor, "R 3 3"]:
    """Return the distinct rotations whose Euler angles are multiples of the search interval.

    Args:
        interval: radians, a whole fraction of a turn, or "pi/K", for all three angles. "yaw" or
            "upright": the source's z axis stays up, and only the yaw varies, by quarter turns
            unless `yaw_interval` is given, or by pi/K in "yaw_pi/K". "cuboid": the six rotations
            of `CUBOID`. "none" or "identity": only the identity.
        yaw_interval: radians, for the yaw alone.
        roll_pitch_interval: radians, for roll and pitch alone.

    Returns:
        [R, 3, 3] float64, identity first, yaw varying fastest. For pi/2 these are the 24 rotations
        r = 4 * face + quarter_turn, with entries exactly -1, 0 or 1.

    Raises:
        ValueError: An unknown name, an interval that does not divide a turn, or an interval for
            angles that the named rotations do not vary.
    """
    # 1. Named sets.
    if isinstance(interval, str):
        _check_used(interval, yaw_interval, roll_pitch_interval)
    if interval in ("none", "identity"):
        return torch.eye(3, dtype=torch.float64)[None]
    if isinstance(interval, str) and interval.startswith("yaw_"):
        if yaw_interval is not None:
            raise ValueError(f"{interval!r} and yaw_interval={yaw_interval} set the yaw; omit one")
        interval, yaw_interval = "yaw", _radians(interval.removeprefix("yaw_"))
    if interval in ("yaw", "upright"):
        yaw = QUARTER if yaw_interval is None else yaw_interval
        return poses_with_yaws(torch.eye(3, dtype=torch.float64)[None], yaw)
    if interval == "cuboid":
        return torch.tensor(CUBOID, dtype=torch.float64)
    # 2. Intervals. In steps of pi/2, roll and pitch only choose the face that is up.
    step = _radians(interval)
    yaw, roll_pitch = (step if own is None else own for own in (yaw_interval, roll_pitch_interval))
    if math.isclose(roll_pitch, QUARTER):
        return poses_with_yaws(torch.tensor(UPWARD_FACES, dtype=torch.float64), yaw)
    angles = _multiples(roll_pitch)
    if (count := len(angles) ** 2 * len(_multiples(yaw))) > MAX_ROTATIONS:
        raise ValueError(
            f"orientations={interval!r} are {count:,} combinations of three angles, more than "
            f"{MAX_ROTATIONS:,}; use a larger interval, as in pi/8"
        )
    pitch, roll = torch.cartesian_prod(angles, angles).unbind(1)
    return poses_with_yaws(_about(1, pitch) @ _about(0, roll), yaw)


def poses_with_yaws(
    poses: Float[Tensor, "P 3 3"], yaw_interval: float = QUARTER
) -> Float[Tensor, "R 3 3"]:
    """Rotate poses, such as stable ones, about z by all multiples of an interval in radians.

    Returns:
        [R, 3, 3] float64, distinct, in the order of the poses, yaw varying fastest.

    Raises:
        ValueError: A pose is not a rotation, or the interval does not divide a turn.
    """
    poses = poses.to(torch.float64)
    unit = poses @ poses.mT - torch.eye(3, dtype=torch.float64, device=poses.device)
    if bool((unit.abs() > 1e-6).any()) or bool((torch.linalg.det(poses) < 0).any()):
        raise ValueError("poses must be rotations: orthonormal, with determinant +1")
    yaws = _about(2, _multiples(yaw_interval)).to(poses.device)
    return _distinct(_snap((yaws[None] @ poses[:, None]).flatten(0, 1)))


def source_axes(rotations: Float[Tensor, "R 3 3"]) -> Int[Tensor, "R 3"]:
    """Return the source axis along x, y and z of the container, for axis-aligned rotations."""
    return rotations.abs().argmax(2)


def quarter_turn_plan(rotations: Float[Tensor, "R 3 3"]) -> tuple[list[int], list[int]]:
    """Write each rotation as an earlier one (or itself), followed by quarter turns about z.

    Returns:
        For each rotation, the index of the earlier one and the number of quarter turns.
    """
    turn = rotations.new_tensor(QUARTER_TURN)
    base, turns = [], []
    distinct: list[int] = []
    for i, rotation in enumerate(rotations):
        for k in range(4):
            same = (rotations[distinct] - rotation).abs().amax((1, 2)) < 1e-12
            if bool(same.any()):
                base.append(distinct[int(same.int().argmax())])
                turns.append(k)
                break
            rotation = turn.T @ rotation
        else:
            distinct.append(i)
            base.append(i)
            turns.append(0)
    return base, turns


def _check_used(name: str, yaw_interval: float | None, roll_pitch_interval: float | None) -> None:
    """Raise if an interval is given for angles that the named rotations do not change."""
    unused = {}
    if name in ("none", "identity", "cuboid"):
        unused = {"yaw_interval": yaw_interval, "roll_pitch_interval": roll_pitch_interval}
    elif name.startswith(("yaw", "upright")):
        unused = {"roll_pitch_interval": roll_pitch_interval}
    for option, value in unused.items():
        if value is not None:
            raise ValueError(f"{option}={value} has no effect on {name!r}; omit it")


def _radians(interval: float | str) -> float:
    if not isinstance(interval, str):
        return float(interval)
    pi, _, divisor = (part.strip() for part in interval.partition("/"))
    if pi == "pi" and divisor.isdigit() and int(divisor) > 0:
        return math.pi / int(divisor)
    raise ValueError(
        f"unknown orientations {interval!r}{close_names(interval, NAMES)}; use radians or one of "
        f"{', '.join(NAMES)}"
    )


def _multiples(interval: float) -> Float[Tensor, " S"]:
    steps = round(2 * math.pi / interval) if interval > 0 else 0
    if steps < 1 or not math.isclose(steps * interval, 2 * math.pi, rel_tol=1e-9):
        raise ValueError(
            f"orientations={interval}: this angle (in radians) does not divide a full turn; use "
            f"2 pi / K, or one of {', '.join(NAMES)}"
        )
    return torch.arange(steps, dtype=torch.float64) * (2 * math.pi / steps)


def _about(axis: int, angle: Float[Tensor, " S"]) -> Float[Tensor, "S 3 3"]:
    """Return rotations about a coordinate axis, exact at quarter turns."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    matrix = torch.eye(3, dtype=torch.float64).repeat(len(angle), 1, 1)
    matrix[:, first, first] = matrix[:, second, second] = angle.cos()
    matrix[:, second, first] = angle.sin()
    matrix[:, first, second] = -angle.sin()
    return _snap(matrix)


def _snap(matrix: Float[Tensor, "S 3 3"]) -> Float[Tensor, "S 3 3"]:
    """Replace entries within rounding error of -1, 0 or 1 by the exact value (never -0)."""
    whole = matrix.round() + 0.0
    return torch.where((matrix - whole).abs() < 1e-12, whole, matrix)


def _distinct(rotations: Float[Tensor, "S 3 3"]) -> Float[Tensor, "R 3 3"]:
    """Drop rotations that repeat an earlier one, keeping the order."""
    # Entries of equal rotations differ by rounding errors, those of others by far more than 1e-7.
    # The offset keeps common entries, such as 0.5, away from the boundaries of the rounding.
    key = torch.floor((rotations.flatten(1) + 0.1234567891) * 1e7).to(torch.int64)
    return rotations[first_rows(key)]
