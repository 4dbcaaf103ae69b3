"""Stability rules: named, pluggable, batched.

A rule judges placements from the cells that support them: a footprint cell supports if
``float32(heightmap - bottom) >= float32(z - tolerance)``, and its level is
``heightmap - bottom``. The formulas, and how to add one, are in
:mod:`packing_env.kernels.stability_rules`; here tensors are measured for them. A rule that needs
other measurements is a function of a :class:`Contact`, given to :func:`register`. One placement is
judged as a lattice of one place. The rules in plain loops: :mod:`packing_env.reference.stability`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.cuboids import boxes
from packing_env.kernels import stability_rules as rules
from packing_env.types import PILE_RULES_ON_MAPS, SLOPE_UNITS, PackingParams, ParameterError
from packing_env.values import check_choice

_HALF = SLOPE_UNITS // 2


@dataclass(frozen=True)
class Contact:
    """Many placements at once: ``z`` holds +inf where a placement need not be judged.

    Attributes:
        heightmap: ``[B, X, Y]`` metres.
        bottom: ``[B, R, U, V]`` metres, +inf outside the footprint; no rows for a rule that does
            not look at contact. With ``which``, ``[K, U, V]``, the surfaces that it picks from.
        z: ``[B, R, Xs, Ys]`` rest heights.
        com: ``[B, R, 2]`` centre of mass, 1/64 cell from the window's corner.
        tolerance: Largest gap of a cell that supports, metres.
        stride: cells between placements.
        size: ``[B, R, 2]`` cells of each item's window, 0 for padding orientations.
        which: ``[B, R]`` each orientation's lower surface is ``bottom[which]``, none if negative;
            :attr:`gathered` has them all. None if ``bottom`` holds them by row.
        footprint_size: with ``which``, ``[K, 2]`` as :func:`packing_env.kernels.surface_sizes`.
    """

    heightmap: Float[Tensor, "B X Y"]
    bottom: Float[Tensor, "rows R U V"] | Float[Tensor, "K U V"]
    z: Float[Tensor, "B R Xs Ys"]
    com: Int[Tensor, "B R 2"]
    tolerance: float
    stride: int
    size: Int[Tensor, "B R 2"]
    which: Int[Tensor, "B R"] | None = None
    footprint_size: Int[Tensor, "K 2"] | None = None

    @property
    def gathered(self) -> Float[Tensor, "rows R U V"]:
        """Lower surfaces by row: a copy of every one with ``which``."""
        if self.which is not None:
            return kernels.layout.gather_surfaces(self.bottom, self.which)
        return self.bottom

    def areas(self) -> tuple[Tensor, Tensor]:
        """Return the counts of supporting cells, and of the cells of the footprints."""
        ground = (self.heightmap, self.bottom, self.z, self.tolerance, self.stride)
        count = kernels.support_count(*ground, which=self.which, size=self.footprint_size)
        area = torch.isfinite(self.bottom).sum((-2, -1))
        if self.which is not None:
            area = area[self.which.clamp(min=0)]
        return count, area[:, :, None, None]

    def corners(self, at_highest: bool) -> tuple[Tensor, Tensor]:
        """Count the corner cells at a level, and test if the highest supports.

        A window one cell wide has some of them twice. Where the placement leaves the container
        (``z = +inf``) they mean nothing.
        """
        _, length, width = self.heightmap.shape
        heights, columns = self.heightmap.flatten(1), self.bottom.shape[-1]
        device = heights.device
        xs = torch.arange(0, length, self.stride, device=device)
        ys = torch.arange(0, width, self.stride, device=device)
        levels = []
        for u, v in _corner_cells(self.size):
            x = (xs + u[..., None]).clamp(max=length - 1)
            y = (ys + v[..., None]).clamp(max=width - 1)
            cell = x[..., :, None] * width + y[..., None, :]
            ground = heights.gather(1, cell.flatten(1)).view(cell.shape)
            edge = self._cell(u * columns + v)
            levels.append(ground - edge[..., None, None])
        stacked, rest = torch.stack(levels), self.z - self.tolerance
        highest = stacked.amax(0)
        bar = highest - self.tolerance if at_highest else rest
        return (stacked >= bar).sum(0), highest >= rest

    def in_hull(self, centres: bool) -> Bool[Tensor, "B R Xs Ys"]:
        """Test if the windows' centres, or the centres of mass, lie in the hulls."""
        return self._hull(_HALF * self.size if centres else self.com, centres=centres)

    def inside(self, percent: int) -> Bool[Tensor, "B R Xs Ys"]:
        """Test if the centres of mass lie in the hulls with a margin around them."""
        return self._hull(self.com, margin=rules.margin(self.size, percent))

    def _hull(self, point: Int[Tensor, "B R 2"], **options: Any) -> Bool[Tensor, "B R Xs Ys"]:
        ground = (self.heightmap, self.bottom, self.z, point, self.tolerance, self.stride)
        return kernels.com_hull(*ground, which=self.which, size=self.footprint_size, **options)

    def _cell(self, place: Int[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        cells = self.bottom.flatten(-2)
        if self.which is not None:
            return cells.flatten()[self.which.clamp(min=0) * cells.shape[1] + place]
        return cells.gather(2, place[..., None])[..., 0]


Judge = Callable[[Contact], Tensor]
"""Judges every placement of a contact: ``[B, R, Xs, Ys]`` bool."""

RULES: dict[str, Judge | None] = {}
"""Rules by name; None for one that needs the packed boxes."""


def register(name: str, judge: Judge | None) -> None:
    """Add a rule as ``stability=name``; raise if the name is taken."""
    if name in RULES:
        raise ParameterError(f"stability rule {name!r} exists; choose another name")
    RULES[name] = judge


def get_rule(name: Any, option: str = "stability") -> Judge | None:
    """Return the rule of this name, the value of an option."""
    return RULES[check_choice(option, name, RULES)]


def check_rule(name: str, params: PackingParams, option: str = "stability") -> None:
    """Refuse a rule that is unknown, or that the task's geometry cannot evaluate."""
    get_rule(name, option)
    if params.geometry == "maps":
        _judge_of(name)
        if name in PILE_RULES_ON_MAPS:
            _check_pile_rule(name, params)
    if params.geometry == "boxes":
        boxes.check_rule(name)


def _check_pile_rule(name: str, params: PackingParams) -> None:
    """Refuse a rule that reads the packed cuboids where the task does not have them all."""
    refusals = {
        "contact_tol": (params.tolerance != 0.0, "contact_tol=0.0"),
        "action_mode": (params.action_mode == "hierarchical", "another action_mode"),
        "constraints.preplaced": (bool(params.constraints.preplaced), "no preplaced boxes"),
    }
    for key, (refused, remedy) in refusals.items():
        if refused:
            raise ParameterError(
                f"stability rule {name!r} reads the packed cuboids alone, which {key} does not "
                f"allow here; use {remedy}, or another rule"
            )


def _judge_of(name: str) -> Judge:
    """Return a rule; raise for one that needs the packed boxes."""
    judge = get_rule(name)
    if judge is not None:
        return judge
    known = sorted(other for other, rule in RULES.items() if rule is not None)
    raise ParameterError(
        f"stability rule {name!r} follows the load from box to box, which heightmaps do not tell; "
        f"use geometry='boxes' with action_mode='candidate', or choose one of {known}"
    )


def judge_maps(name: str, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which placements a rule calls stable."""
    return _judge_of(name)(contact)


# ---------------------------------------------------------------------- judgements


def _judge_maps(rule: rules.Rule, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which of many placements a formula calls stable.

    None that leaves the container (``z = +inf``) is: there no cell supports, so a rule of hulls
    alone needs no mask.
    """
    stable = rules.evaluate(rule, contact)
    hull_alone = rule.hull is not None and not rule.percents and rule.corners is None
    return stable if hull_alone else (contact.z < torch.inf) & stable


def _corner_cells(size: Int[Tensor, "*rows 2"]) -> list[tuple[Tensor, Tensor]]:
    """Return ``(u, v)`` of the four corner cells of windows of a size."""
    u, v = (size - 1).clamp(min=0).unbind(-1)
    zero = torch.zeros_like(u)
    return [(zero, zero), (u, zero), (zero, v), (u, v)]


for _name, _percent in rules.MARGINS.items():
    register(_name, partial(Contact.inside, percent=_percent))
for _name, _rule in rules.RULES.items():
    register(_name, partial(_judge_maps, _rule))
# Zhao et al., ICLR 2022 (PCT): the load goes from box to box. `core.cuboids.boxes` evaluates it.
register("stacking_tree", None)
# As far as maps tell; `core.feasibility` judges the piles of packed boxes.
register("equilibrium", lambda contact: contact.z < torch.inf)
