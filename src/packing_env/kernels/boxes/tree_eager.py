"""The stacking tree in torch; defined in :mod:`packing_env.reference.boxes`.

A loop over the boxes passes the loads down, from the last packed box to the first. Rows, candidates
and supports are tensor axes. Sums are written out term by term. The compiled kernel adds in the
same order, so it returns the same bits.

``C`` stands for the candidates ``P``, or is 1 if all candidates share a value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.boxes.contacts import Contacts, chord, contacts_of, first_supports

SHRINK = 0.1
"""Share by which the corners of the contacts' hull are moved towards the mean of the corners."""

TOLERANCE = 1e-6
"""Units; points this close to an outline count as on it, and smaller lever arms count as 0."""

BLOW_UP = 1.0 / (1.0 - SHRINK)
"""Inverse of the factor by which the hull shrinks.

The code multiplies by it, because devices round a division differently.
"""

MAX_SHARING = 16
"""Largest number of supports that share a load by least squares; supports packed later get nothing.
"""

RIDGE = 1e-10
"""Regularisation of the normal equations; it selects the smallest of all solutions."""

_CHUNK = 1 << 22
"""Number of pairs of points that are compared at once."""


@dataclass(frozen=True)
class _Support:
    """Supports of one query per candidate.

    Attributes:
        contacts: ``[B, C, N]`` the contacts.
        mean: ``[B, C, 2]`` float64 mean of the corners of the contacts' hull.
        slot: ``[B, C, S]`` the first supports in packing order; N for an empty slot.
        count: ``[B, C]`` number of all supports.
    """

    contacts: Contacts
    mean: Float[Tensor, "B C 2"]
    slot: Int[Tensor, "B C S"]
    count: Int[Tensor, "B C"]


def stacking_tree(
    boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B P 6"], contacts: Contacts
) -> Bool[Tensor, "B P"]:
    """Return which candidates, with all boxes below, are stable; undefined on the floor."""
    # 1. Put the load of each candidate on its contacts.
    packed = _supports(among_packed(boxes))
    loads = mass_and_moment(boxes)[:, :, None].repeat(1, 1, base.shape[1], 1)
    below = torch.zeros_like(loads[0], dtype=torch.bool)
    everywhere = torch.ones_like(base[..., 0], dtype=torch.bool)
    held = _pass_down(loads, below, mass_and_moment(base), _supports(contacts), everywhere)
    # 2. Go through the packed boxes below them, from the last to the first.
    for i in reversed(range(1, boxes.shape[1])):
        judged = below[..., i] & (boxes[:, None, i, 2] > 0)
        holds = _pass_down(loads, below, loads[..., i], _one(packed, i), judged)
        held = held & (holds | ~judged)
    return held


def among_packed(boxes: Int[Tensor, "B N 6"]) -> Contacts:
    """Return the contacts of the packed boxes with boxes packed before them."""
    contacts = contacts_of(boxes, boxes)
    order = torch.arange(boxes.shape[1], device=boxes.device)
    return replace(contacts, touch=contacts.touch & (order < order[:, None]))


def mass_and_moment(boxes: Int[Tensor, "B Q 6"]) -> Float[Tensor, "3 B Q"]:
    """Return the volume of boxes without loads, and the volume times their centre ``(x, y)``."""
    x0, y0, z0, x1, y1, z1 = boxes.double().unbind(-1)
    mass = (x1 - x0) * (y1 - y0) * (z1 - z0)
    return torch.stack((mass, mass * (0.5 * (x0 + x1)), mass * (0.5 * (y0 + y1))))


def _supports(contacts: Contacts) -> _Support:
    return _Support(contacts, _hull_mean(contacts), *first_supports(contacts, MAX_SHARING))


def _one(packed: _Support, i: int) -> _Support:
    """Return the supports of packed box ``i``, which are boxes packed before it."""
    contacts = packed.contacts
    columns = (contacts.touch, contacts.x0, contacts.y0, contacts.x1, contacts.y1)
    earlier = Contacts(*(column[:, i : i + 1, :i] for column in columns))
    slot = packed.slot[:, i : i + 1, :i].clamp(max=i)
    return _Support(earlier, packed.mean[:, i : i + 1], slot, packed.count[:, i : i + 1])


def _pass_down(
    loads: Float[Tensor, "3 B P N"],
    below: Bool[Tensor, "B P N"],
    load: Float[Tensor, "3 B P"],
    support: _Support,
    judged: Bool[Tensor, "B P"],
) -> Bool[Tensor, "B P"]:
    """Put a load on its supports, and return whether the supports hold its centre of mass.

    ``loads`` are mass and moments of each packed box including its load; ``below`` marks the boxes
    below the candidate. Both are updated in place.
    """
    # 1. The centre of mass of the load, and the share of each support.
    touch, (mass, moment_x, moment_y) = support.contacts.touch, load
    n, centre = touch.shape[-1], (moment_x / mass, moment_y / mass)
    share, at_x, at_y = _shares(support, centre)
    # 2. Add the parts to the boxes below, and mark these boxes.
    part = share * mass[..., None]
    loads[..., :n] += torch.where(touch, torch.stack((part, part * at_x, part * at_y)), 0.0)
    below[..., :n] |= touch & judged[..., None]
    return _is_held(support, centre)


# ---------------------------------------------------------------------- the outline


def _is_held(support: _Support, centre: tuple[Tensor, Tensor]) -> Bool[Tensor, "B P"]:
    """Return whether the centre of mass lies strictly inside the shrunken hull of the contacts.

    Instead of shrinking the hull towards the mean of its corners, the code moves the point away
    from this mean. The chord test is the one of `boxes.eager`; it is made twice, with the point
    moved by the tolerance in both directions.
    """
    # 1. Move the point away from the mean, instead of shrinking the hull.
    contacts = support.contacts
    x, y = (
        ((value - SHRINK * support.mean[..., axis]) * BLOW_UP)[..., None]
        for axis, value in enumerate(centre)
    )
    # 2. Corners to its left and right; corners within the tolerance count on both sides.
    touch = torch.cat((contacts.touch, contacts.touch), -1)
    dx = torch.cat((contacts.x0 - x, contacts.x1 - x), -1)
    distance = dx.abs().clamp(min=TOLERANCE)
    left, right = touch & (dx <= TOLERANCE), touch & (dx >= -TOLERANCE)
    held = (touch & (dx < -TOLERANCE)).any(-1) & (touch & (dx > TOLERANCE)).any(-1)
    # 3. The chords above and below, with the point moved by the tolerance.
    for reach in (contacts.y1 - (y + TOLERANCE), (y - TOLERANCE) - contacts.y0):
        slope = torch.cat((reach, reach), -1) / distance
        held = held & (chord(slope, left, right) > 0)
    return held


def _hull_mean(contacts: Contacts) -> Float[Tensor, "B Q 2"]:
    """Return the mean of the corners of the contacts' hull; points inside an edge do not count.

    Upper corners of the hull come from upper corners of contacts, and lower corners from lower
    corners.
    """
    # 1. Upper and lower corners of the hull.
    touch = torch.cat((contacts.touch, contacts.touch), -1)
    x = torch.cat((contacts.x0, contacts.x1), -1)
    above = torch.cat((contacts.y1, contacts.y1), -1)
    below = torch.cat((contacts.y0, contacts.y0), -1)
    upper, lower = _upper_corners(touch, x, above), _upper_corners(touch, x, -below)
    # 2. Their mean, from sums of integers.
    count = (upper.sum(-1) + lower.sum(-1)).clamp(min=1)
    sum_x = torch.where(upper, x, 0).sum(-1) + torch.where(lower, x, 0).sum(-1)
    sum_y = torch.where(upper, above, 0).sum(-1) + torch.where(lower, below, 0).sum(-1)
    return torch.stack((sum_x.double() / count, sum_y.double() / count), -1)


def _upper_corners(touch: Tensor, x: Tensor, y: Tensor) -> Bool[Tensor, "B Q W"]:
    """Return which points are corners on the upper side of their hull; each corner is marked once.

    A point is a corner iff two conditions hold. First, the slope from any point on the left to this
    point exceeds the slope from this point to any point on the right. Second, the point is the
    first of the highest points at its x.
    """
    # 1. For each point, the smallest slope from its left and the largest slope to its right.
    num = touch.shape[-1]
    step = max(1, _CHUNK // max(1, touch.numel()))
    arriving = torch.full(touch.shape, torch.inf, dtype=torch.float64, device=touch.device)
    leaving = -arriving
    hidden = ~touch
    order = torch.arange(num, device=touch.device)
    # Process the other points in parts, to limit the memory.
    for start in range(0, num, step):
        part = slice(start, start + step)
        dx = x[..., None] - x[..., None, part]
        dy = (y[..., None] - y[..., None, part]).double()
        there = touch[..., None, part]
        slope = dy / torch.where(dx == 0, 1, dx)
        rise = torch.where(there & (dx > 0), slope, torch.inf).amin(-1)
        fall = torch.where(there & (dx < 0), slope, -torch.inf).amax(-1)
        arriving, leaving = torch.minimum(arriving, rise), torch.maximum(leaving, fall)
        # 2. Of the points with the same x, only the first of the highest points remains.
        earlier = order[part] < order[:, None]
        hidden = hidden | (there & (dx == 0) & ((dy < 0) | ((dy == 0) & earlier))).any(-1)
    return ~hidden & (arriving > leaving)


# ---------------------------------------------------------------------- shares


def _shares(
    support: _Support, centre: tuple[Tensor, Tensor]
) -> tuple[Float[Tensor, "B P N"], Float[Tensor, "B P N"], Float[Tensor, "B P N"]]:
    """Return each support's share of the load, and the point (x, y) where it acts."""
    # 1. A single support takes the whole load, and so does the first support under the centre of
    #    mass.
    contacts = support.contacts
    x, y = centre[0][..., None], centre[1][..., None]
    over = contacts.touch & (x - contacts.x0 > TOLERANCE) & (y - contacts.y0 > TOLERANCE)
    over = over & (contacts.x1 - x > TOLERANCE) & (contacts.y1 - y > TOLERANCE)
    over = over | (contacts.touch & (support.count == 1)[..., None])
    first = over & (over.cumsum(-1) == 1)
    directly = over.any(-1, keepdim=True)
    # 2. Otherwise the supports share the load, each at the centre of its contact.
    middle_x = 0.5 * (contacts.x0 + contacts.x1).double()
    middle_y = 0.5 * (contacts.y0 + contacts.y1).double()
    sharing = _share_between(support, centre, middle_x, middle_y)
    share = torch.where(directly, first.double(), sharing)
    return share, torch.where(directly, x, middle_x), torch.where(directly, y, middle_y)


def _share_between(
    support: _Support, centre: tuple[Tensor, Tensor], middle_x: Tensor, middle_y: Tensor
) -> Float[Tensor, "B P N"]:
    """Return shares by the lever rule for two supports, and by least squares for more."""
    # 1. The centres of the contacts of the first supports.
    num, slots = middle_x.shape[-1], support.slot.shape[-1]
    at = support.slot.clamp(max=max(0, num - 1))
    x = torch.where(support.slot < num, middle_x.gather(-1, at), 0.0)
    y = torch.where(support.slot < num, middle_y.gather(-1, at), 0.0)
    rows = (*centre[0].shape, num + 1)
    sharing = torch.zeros(rows, dtype=torch.float64, device=x.device)
    if slots < 2:
        return sharing[..., :num]
    # 2. Solve for any number of supports; with two, the lever rule replaces the solution.
    solved = _least_squares(support.slot < num, x, y, centre)
    lever = _lever(x, y, centre, slots)
    solved = torch.where((support.count == 2)[..., None], lever, solved)
    # 3. Scatter to the boxes; empty slots go to an additional entry.
    target = support.slot.clamp(max=num).expand(solved.shape)
    return sharing.scatter(-1, target, solved)[..., :num]


def _lever(
    x: Tensor, y: Tensor, centre: tuple[Tensor, Tensor], slots: int
) -> Float[Tensor, "B P S"]:
    """Return the shares of the first two slots by the lever rule."""
    # The arm of the load from one support, divided by the distance between both.
    along_x, along_y = x[..., 0] - x[..., 1], y[..., 0] - y[..., 1]
    length = along_x * along_x + along_y * along_y
    arms = [
        ((centre[0] - x[..., k]) * along_x + (centre[1] - y[..., k]) * along_y).abs() / length
        for k in (1, 0)
    ]
    rest = [torch.zeros_like(arms[0])] * (slots - 2)
    return torch.stack([*arms, *rest], -1)


def _least_squares(
    there: Bool[Tensor, "B C S"], x: Tensor, y: Tensor, centre: tuple[Tensor, Tensor]
) -> Float[Tensor, "B P S"]:
    """Return shares by the normal equations, one row per slot; empty slots get share 0."""
    slots = there.shape[-1]
    # 1. Lever arms of the load about each support, along the lines to the other supports.
    along_x, along_y = x[..., :, None] - x[..., None, :], y[..., :, None] - y[..., None, :]
    off_x, off_y = centre[0][..., None] - x, centre[1][..., None] - y
    arm = off_x[..., :, None] * along_x + off_y[..., :, None] * along_y
    other = off_x[..., None, :] * along_x + off_y[..., None, :] * along_y
    index = torch.arange(slots, device=x.device)
    pair = there[..., :, None] & there[..., None, :]
    # 2. Ratios of the arms; pairs whose arm is 0 do not count.
    counts = pair & (index[:, None] < index) & ~(arm.abs() <= TOLERANCE)
    ratio = torch.where(counts, other.abs() / arm, 0.0)
    # 3. The normal equations, summed in the order of the compiled kernel.
    square = torch.zeros_like(ratio[..., 0, :])
    for i in range(slots):
        square = square + ratio[..., i, :] * ratio[..., i, :]
    diagonal = (1.0 + RIDGE) + counts.sum(-1).double() + square
    diagonal = torch.where(there, diagonal, 1.0)
    matrix = torch.where(pair, 1.0 - ratio, 0.0)
    matrix.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return _solve(matrix, there.double().expand(square.shape).clone())


def _solve(
    matrix: Float[Tensor, "B P S S"], solved: Float[Tensor, "B P S"]
) -> Float[Tensor, "B P S"]:
    """Solve symmetric positive systems, given by their upper triangles, in place."""
    slots = solved.shape[-1]
    # Eliminate.
    for k in range(slots - 1):
        row = matrix[..., k, k + 1 :]
        factor = row / matrix[..., k, k : k + 1]
        matrix[..., k + 1 :, k + 1 :] -= factor[..., :, None] * row[..., None, :]
        solved[..., k + 1 :] -= factor * solved[..., k : k + 1]
    # Substitute backwards.
    for k in reversed(range(slots)):
        solved[..., k] /= matrix[..., k, k]
        solved[..., :k] -= matrix[..., :k, k] * solved[..., k : k + 1]
    return solved
