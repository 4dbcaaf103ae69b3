"""Static equilibrium of piles in torch; defined in :mod:`packing_env.reference.equilibrium`.

A loop over the boxes passes the loads down, from the last packed box to the first. Rows,
candidates, supports and corners are tensor axes. Sums over corners add the two halves repeatedly
(:func:`_total`). The compiled kernel adds in the same order, so it returns the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.boxes.contacts import Contacts, first_supports
from packing_env.kernels.boxes.tree_eager import among_packed, mass_and_moment

MARGIN = 1.0 / 64.0
"""Units; the forces of a contact act at least this far inside its edges."""

ROUNDS = 6
"""Largest number of rounds in which corners that would pull are left out."""

MAX_CONTACTS = 16
"""If a load has more contacts than this, and its centre of mass is above none of them, it is
refused.
"""

FLAT = 1e-9
"""Corners lie on a line if the determinant is at most this share of the diagonal's product."""


@dataclass(frozen=True)
class _Slots:
    """The first supports of one query per candidate, in packing order; ``C`` is P or 1.

    Attributes:
        index: ``[B, C, S]`` the supports; N for an empty slot.
        count: ``[B, C]`` number of all supports.
        x: ``[B, C, S, 4]`` corners, moved inside by the margin; undefined in empty slots.
        y: ``[B, C, S, 4]`` the same along y.
    """

    index: Int[Tensor, "B C S"]
    count: Int[Tensor, "B C"]
    x: Float[Tensor, "B C S 4"]
    y: Float[Tensor, "B C S 4"]


def equilibrium(
    boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B P 6"], contacts: Contacts
) -> Bool[Tensor, "B P"]:
    """Return which candidates leave a stable pile; undefined for candidates on the floor."""
    # 1. Put the candidates on their contacts.
    packed = among_packed(boxes)
    loads = mass_and_moment(boxes)[:, :, None].repeat(1, 1, base.shape[1], 1)
    held = _pass_down(loads, mass_and_moment(base), contacts)
    # 2. Go through the packed boxes from the last to the first, each with all its loads.
    for i in reversed(range(1, boxes.shape[1])):
        columns = (packed.touch, packed.x0, packed.y0, packed.x1, packed.y1)
        earlier = Contacts(*(column[:, i : i + 1, :i] for column in columns))
        on_floor = boxes[:, None, i, 2] == 0  # also True for padding
        held = held & (_pass_down(loads, loads[..., i], earlier) | on_floor)
    return held


def _pass_down(
    loads: Float[Tensor, "3 B P N"], load: Float[Tensor, "3 B P"], contacts: Contacts
) -> Bool[Tensor, "B P"]:
    """Add a load to the boxes below it, in place; return whether the contacts hold it."""
    # 1. If the centre of mass is inside a contact, by the margin, the first such contact takes the
    #    load.
    mass = load[0]
    x, y = (load[1] / mass)[..., None], (load[2] / mass)[..., None]
    over = contacts.touch & (x - contacts.x0 >= MARGIN) & (contacts.x1 - x >= MARGIN)
    over = over & (y - contacts.y0 >= MARGIN) & (contacts.y1 - y >= MARGIN)
    first = over & (over.cumsum(-1) == 1)
    directly = over.any(-1)
    # 2. Otherwise the corners of all contacts share it.
    slots = _slots(contacts)
    force, solved = _plate(slots, contacts.touch.shape[-1], x, y)
    taken = (mass[..., None, None] * force)[None]
    taken = torch.cat((taken, taken * slots.x, taken * slots.y))
    # Written term by term, in the order of the compiled kernel.
    part = ((taken[..., 0] + taken[..., 1]) + taken[..., 2]) + taken[..., 3]
    num = contacts.touch.shape[-1]
    # 3. Add each supporting box's part; empty slots go to an additional entry.
    shares = part.new_zeros(*part.shape[:-1], num + 1)
    shares = shares.scatter(-1, slots.index.expand(part.shape), part)[..., :num]
    shares = torch.where(directly[..., None], torch.where(first, load[..., None], 0.0), shares)
    loads[..., :num] += torch.where(contacts.touch, shares, 0.0)
    return directly | solved


def _slots(contacts: Contacts) -> _Slots:
    """Return the first supports and their corners, in the order of the reference."""
    # 1. The supports in packing order, at most MAX_CONTACTS.
    index, count = first_supports(contacts, MAX_CONTACTS)
    at = index.clamp(max=contacts.touch.shape[-1] - 1)
    # 2. Their corners, moved inside by the margin.
    x0, y0, x1, y1 = (
        side.expand(contacts.touch.shape).gather(-1, at).double()
        for side in (contacts.x0, contacts.y0, contacts.x1, contacts.y1)
    )
    x0, y0, x1, y1 = x0 + MARGIN, y0 + MARGIN, x1 - MARGIN, y1 - MARGIN
    across, along = torch.stack((x0, x0, x1, x1), -1), torch.stack((y0, y1, y0, y1), -1)
    return _Slots(index, count, across, along)


def _plate(
    slots: _Slots, num: int, x: Float[Tensor, "B P 1"], y: Float[Tensor, "B P 1"]
) -> tuple[Float[Tensor, "B P S 4"], Bool[Tensor, "B P"]]:
    """Return the forces at the corners under a mass of 1 at ``(x, y)``, and whether forces exist.

    If they do not exist, 0 is returned. Corners that would have to pull are left out, round by
    round.
    """
    # 1. Corners relative to the load: springs of equal stiffness that can only push.
    dx, dy = slots.x - x[..., None], slots.y - y[..., None]
    active = (slots.index < num)[..., None].expand(dx.shape)
    sought = (slots.count >= 2) & (slots.count <= MAX_CONTACTS)
    sought = sought.expand(dx.shape[:-2])
    solved, force = torch.zeros_like(sought), torch.zeros_like(dx)
    # 2. Solve for a plane of forces, drop the corners that pull, and solve again.
    for _ in range(ROUNDS):
        # Sums of the normal equations.
        terms = torch.stack((torch.ones_like(dx), dx, dy, dx * dx, dx * dy, dy * dy))
        n, sx, sy, sxx, sxy, syy = _total(torch.where(active, terms, 0.0).flatten(-2))
        # Cramer's rule; corners on a line have no determinant.
        a, b, c = sxx * syy - sxy * sxy, sxy * sy - sx * syy, sx * sxy - sxx * sy
        determinant = n * a + sx * b + sy * c
        sought = sought & (determinant > FLAT * (n * sxx * syy))
        # The forces, and whether any of them pulls.
        a, b, c, scale = (value[..., None, None] for value in (a, b, c, determinant))
        tried = (a + b * dx + c * dy) / scale
        pulls = active & (tried < 0)
        now = sought & ~pulls.flatten(-2).any(-1)
        force = torch.where(now[..., None, None] & active, tried, force)
        solved, sought, active = solved | now, sought & ~now, active & ~pulls
    return force, solved


def _total(terms: Float[Tensor, "*rows W"]) -> Float[Tensor, "*rows"]:
    """Pad with zeros to a power of two; add the two halves until one number is left."""
    width = 1 << max(0, terms.shape[-1] - 1).bit_length()
    terms = torch.nn.functional.pad(terms, (0, width - terms.shape[-1]))
    while width > 1:
        width //= 2
        terms = terms[..., :width] + terms[..., width:]
    return terms[..., 0]
