"""Poses in which a single solid rests on a flat floor."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_TILT = 15.0
"""Degrees by which a released solid may tilt and still count as resting in its pose."""
_PUSH = 1.0
"""Degrees by which the solid is first tilted, in :data:`_PUSHES` directions."""
_PUSHES = 8
_STEP = math.radians(0.25)
_MOST_VERTICES = 2000


def resting_poses(
    vertices: Float[Tensor, "V 3"], com: Float[Tensor, " 3"], rotations: Float[Tensor, "R 3 3"]
) -> Bool[Tensor, " R"]:
    """Return which rotations put a solid on a flat floor so that it stays there.

    A solid is tilted by one degree in each direction and released. It must come to rest within
    :data:`MAX_TILT` of the pose. It rolls slowly over its convex hull, in the direction in which
    its centre of mass sinks fastest, until the centre is above the polygon of contact (quasi-static
    tumbling, Goldberg et al., IJRR 1999). A round solid that could roll on without sinking counts
    as resting.

    Args:
        vertices: Vertices of the solid in its source's frame; only vertices of the hull matter.
        com: Centre of mass in that frame.
        rotations: Rotations from that frame to the container's frame, in which z is up.
    """
    # Scale so that the farthest vertex is at distance 1: steps and tolerances are then angles.
    down = -rotations[:, 2].double()
    distinct, index = torch.unique(down, dim=0, return_inverse=True)
    points = (vertices - com).double()
    points = _extreme(points / points.norm(dim=1).max())
    rests = _rests(points.numpy().tobytes(), distinct.numpy().tobytes())
    return torch.tensor(rests)[index]


@lru_cache(1024)
def _rests(points: bytes, down: bytes) -> list[bool]:
    """Return for each direction whether the solid rests if this direction points down.

    Points and directions are float64 vectors as bytes: hashable keys of a cache, because grids with
    other cells need the same shapes again.
    """
    poses = torch.frombuffer(bytearray(down), dtype=torch.float64).view(-1, 3)
    tilt = _tilt(
        np.frombuffer(points).reshape(-1, 3),
        _pushed(poses).numpy(),
        poses.repeat_interleave(_PUSHES, 0).numpy(),
    )
    return [bool(pose.all()) for pose in (tilt <= MAX_TILT).reshape(-1, _PUSHES)]


def lowest_pose(
    vertices: Float[Tensor, "V 3"], com: Float[Tensor, " 3"], rotations: Float[Tensor, "R 3 3"]
) -> Bool[Tensor, " R"]:
    """Return which rotations bring the centre of mass closest to the floor."""
    heights = ((com - vertices) @ rotations[:, 2].to(vertices).mT).amax(0)
    return heights <= heights.min() * (1 + 1e-9)


def _extreme(points: Float[Tensor, "V 3"]) -> Float[Tensor, "W 3"]:
    """Return the points that are farthest in one of many directions; all points if they are few."""
    if len(points) <= _MOST_VERTICES:
        return points
    # A spiral of equal steps in height covers the sphere evenly.
    step = torch.arange(2 * _MOST_VERTICES, dtype=torch.float64) + 0.5
    z, turn = 1 - step / _MOST_VERTICES, step * (math.pi * (3 - math.sqrt(5)))
    radius = (1 - z * z).sqrt()
    directions = torch.stack((radius * turn.cos(), radius * turn.sin(), z), 1)
    farthest = torch.cat([(points @ part.mT).argmax(0) for part in directions.split(256)])
    return points[farthest.unique()]


def _pushed(down: Float[Tensor, "S 3"]) -> Float[Tensor, "P 3"]:
    """Turn each vector by :data:`_PUSH` degrees, once towards each of :data:`_PUSHES` sides."""
    axis = torch.nn.functional.one_hot(down.abs().argmin(1), 3).double()
    first = torch.nn.functional.normalize(torch.linalg.cross(down, axis), dim=1)
    second = torch.linalg.cross(down, first)
    turns = torch.arange(_PUSHES, dtype=torch.float64) * (2 * math.pi / _PUSHES)
    side = turns.cos()[:, None] * first[:, None] + turns.sin()[:, None] * second[:, None]
    angle = math.radians(_PUSH)
    return (math.cos(angle) * down[:, None] + math.sin(angle) * side).flatten(0, 1)


def _tilt(
    points: Float[np.ndarray, "V 3"],
    start: Float[np.ndarray, "P 3"],
    poses: Float[np.ndarray, "P 3"],
) -> Float[np.ndarray, " P"]:
    """Return the angles ``[P]``, in degrees, between poses and the floor's directions at rest."""
    # Turn the floor against the point of contact that is nearest to the centre of mass. Stop when
    # this point is under the centre, or at MAX_TILT.
    down, live = start.copy(), np.arange(len(start))
    for _ in range(2 * round(math.radians(MAX_TILT) / _STEP)):
        towards = _nearest(points, down[live])
        distance = np.linalg.norm(towards, axis=1, keepdims=True)
        falls = distance[:, 0] > _STEP
        live, towards, distance = live[falls], towards[falls], distance[falls]
        turned = down[live] - _STEP * towards / distance
        down[live] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
        live = live[_angle(down[live], poses[live]) <= MAX_TILT]
        if not len(live):
            break
    return _angle(down, poses)


def _angle(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.degrees(np.arccos(np.clip((one * other).sum(1), -1.0, 1.0)))


def _nearest(
    points: Float[np.ndarray, "V 3"], down: Float[np.ndarray, "P 3"]
) -> Float[np.ndarray, "P 3"]:
    """Return the point of each polygon of contact that is nearest to the centre, in the plane."""
    # 1. Points that the floor may reach in one step are in contact.
    depth = points @ down.T  # [V, P]
    contact = depth >= depth.max(0) - _STEP
    touching = contact.any(1)
    depth, contact = depth[touching], contact[touching]
    flat = points[touching, None] - depth[..., None] * down  # [V, P, 3]
    # 2. Gilbert, SIAM J. Control 1966: move towards the contact that is farthest back, as long as
    #    the distance shrinks, until it is at most a step.
    paths = np.arange(len(down))
    nearest = flat[depth.argmax(0), paths]
    for _ in range(24):
        along = np.einsum("vpi,pi->vp", flat, nearest)
        along[~contact] = np.inf
        edge = flat[along.argmin(0), paths] - nearest
        length = np.maximum((edge * edge).sum(1), 1e-18)
        share = np.clip(-(nearest * edge).sum(1) / length, 0.0, 1.0)
        if not ((share > 0) & ((nearest * nearest).sum(1) > _STEP**2)).any():
            break
        nearest = nearest + share[:, None] * edge
    return nearest
