"""Stability rules: named, pluggable, batched.

A rule judges placements from the cells that support them: a footprint cell supports if
``float32(heightmap - bottom) >= float32(z - contact_tol)``. To add a rule, write the two functions
of :class:`Rule` and :func:`register` it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.types import SLOPE_UNITS, ParameterError


@dataclass(frozen=True)
class Contact:
    """Many placements at once: ``z`` holds +inf where a placement need not be judged.

    Attributes:
        heightmap: ``[B, X, Y]`` metres.
        bottom: ``[B, R, U, V]`` metres, +inf outside the footprint.
        z: ``[B, R, Xs, Ys]`` rest heights.
        com: ``[B, R, 2]`` centre of mass, 1/64 cell from the window's corner.
        contact_tol: metres.
        stride: cells between placements.
    """

    heightmap: Float[Tensor, "B X Y"]
    bottom: Float[Tensor, "B R U V"]
    z: Float[Tensor, "B R Xs Ys"]
    com: Int[Tensor, "B R 2"]
    contact_tol: float
    stride: int


@dataclass(frozen=True)
class Rule:
    """One stability rule.

    Attributes:
        maps: Judges every placement of a :class:`Contact`; ``[B, R, Xs, Ys]`` bool.
        single: Judges one placement per row from its supporting cells ``[B, U, V]``, its
            footprint ``[B, U, V]`` and its centre of mass ``[B, 2]``; ``[B]`` bool.
    """

    maps: Callable[[Contact], Tensor]
    single: Callable[[Tensor, Tensor, Tensor], Tensor]


RULES: dict[str, Rule] = {}


def register(name: str, rule: Rule) -> None:
    """Make a rule known as ``stability=name``; a taken name is an error."""
    if name in RULES:
        raise ParameterError(f"stability rule {name!r} exists; choose another name")
    RULES[name] = rule


def get_rule(name: str) -> Rule:
    """The rule of that name."""
    if name not in RULES:
        raise ParameterError(f"stability={name!r} is unknown; choose one of {sorted(RULES)}")
    return RULES[name]


def supporting_cells(
    window: Float[Tensor, "B U V"],
    bottom: Float[Tensor, "B U V"],
    z: Float[Tensor, " B"],
    contact_tol: float,
) -> Bool[Tensor, "B U V"]:
    """Cells of the footprint whose gap to the ground is at most ``contact_tol``.

    Rows with ``z = +inf`` have none.
    """
    return (window - bottom) >= (z - contact_tol)[:, None, None]


def com_hull_single(
    support: Bool[Tensor, "B U V"], footprint: Bool[Tensor, "B U V"], com: Int[Tensor, "B 2"]
) -> Bool[Tensor, " B"]:
    """Whether the centre of mass lies in the hull of the supporting squares, boundary included.

    Seen from the centre of mass, corners to its left and right span a chord that passes above it
    iff their largest slopes ``dy / |dx|`` sum to at least 0, and below it iff their smallest sum to
    at most 0. Corners straight above or below count on both sides with a slope of ``2**20 dy``.
    On each line of corners only the first and the last can be extreme.
    """
    lines = torch.arange(support.shape[1] + 1, device=com.device)
    edges = torch.arange(1, support.shape[2] + 1, device=com.device, dtype=torch.float64)
    last = _line_maximum(torch.where(support, edges, -torch.inf).amax(2))
    first = _line_maximum(torch.where(support, 1 - edges, -torch.inf).amax(2))
    dx = (SLOPE_UNITS * lines - com[:, :1]).double()
    distance = torch.where(dx == 0, 2.0**-20, dx.abs())
    upper = (SLOPE_UNITS * last - com[:, 1:]) / distance
    lower = (SLOPE_UNITS * first + com[:, 1:]) / distance
    left, right = dx <= 0, dx >= 0
    return (_chord(upper, left, right) >= 0) & (_chord(lower, left, right) >= 0)


def _line_maximum(rows: Float[Tensor, "B U"]) -> Float[Tensor, "B lines"]:
    """Per line between window rows, the maximum over the two rows that touch it."""
    padded = torch.nn.functional.pad(rows, (1, 1), value=-torch.inf)
    return torch.maximum(padded[:, 1:], padded[:, :-1])


def _chord(slope: Tensor, left: Tensor, right: Tensor) -> Float[Tensor, " B"]:
    """Steepest slope on the left plus steepest on the right; -inf if a side is empty."""
    steepest = [torch.where(side, slope, -torch.inf).amax(1) for side in (left, right)]
    return steepest[0] + steepest[1]


def _com_hull_maps(contact: Contact) -> Tensor:
    return kernels.com_hull(
        contact.heightmap,
        contact.bottom,
        contact.z,
        contact.com,
        contact.contact_tol,
        contact.stride,
    )


register(
    "none",
    Rule(
        maps=lambda contact: torch.isfinite(contact.z),
        single=lambda support, footprint, com: torch.ones_like(support[:, 0, 0]),
    ),
)
register("com_hull", Rule(maps=_com_hull_maps, single=com_hull_single))
