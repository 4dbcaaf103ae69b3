"""Stability rules: named, pluggable, batched.

A rule judges placements from the cells that support them: a footprint cell supports if
``float32(heightmap - bottom) >= float32(z - contact_tol)``, and its level is
``heightmap - bottom``. The formulas, and how to add one, are in
:mod:`packing_env.kernels.stability_rules`; here tensors are measured for them. A rule that needs
other measurements writes the two functions of :class:`Rule` and calls :func:`register`. The rules
in plain loops: :mod:`packing_env.reference.stability`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.cuboids import boxes
from packing_env.kernels import stability_rules as rules
from packing_env.kernels.boxes.contacts import chord
from packing_env.kernels.support.corners import corners_of
from packing_env.names import close_names
from packing_env.types import PILE_RULES_ON_MAPS, SLOPE_UNITS, PackingParams, ParameterError

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
        contact_tol: metres.
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
    contact_tol: float
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
        ground = (self.heightmap, self.bottom, self.z, self.contact_tol, self.stride)
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
        return _count_corners(levels, self, at_highest)

    def in_hull(self, centres: bool) -> Bool[Tensor, "B R Xs Ys"]:
        """Test if the windows' centres, or the centres of mass, lie in the hulls."""
        return self._hull(_HALF * self.size if centres else self.com, centres=centres)

    def inside(self, percent: int) -> Bool[Tensor, "B R Xs Ys"]:
        """Test if the centres of mass lie in the hulls with a margin around them."""
        return self._hull(self.com, margin=rules.margin(self.size, percent))

    def _hull(self, point: Int[Tensor, "B R 2"], **options: Any) -> Bool[Tensor, "B R Xs Ys"]:
        ground = (self.heightmap, self.bottom, self.z, point, self.contact_tol, self.stride)
        return kernels.com_hull(*ground, which=self.which, size=self.footprint_size, **options)

    def _cell(self, place: Int[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        """Return one cell of each lower surface; any where there is no surface."""
        cells = self.bottom.flatten(-2)
        if self.which is not None:
            return cells.flatten()[self.which.clamp(min=0) * cells.shape[1] + place]
        return cells.gather(2, place[..., None])[..., 0]


@dataclass(frozen=True)
class Touch:
    """One placement per row: ``z`` holds +inf where it need not be judged.

    Attributes:
        support: ``[B, U, V]`` supporting cells.
        footprint: ``[B, U, V]`` cells of the item.
        level: ``[B, U, V]`` heightmap - bottom, metres; any value outside the footprint.
        z: ``[B]`` rest height.
        com: ``[B, 2]`` centre of mass, 1/64 cell from the window's corner.
        contact_tol: metres.
        size: ``[B, 2]`` cells of the item's window.
    """

    support: Bool[Tensor, "B U V"]
    footprint: Bool[Tensor, "B U V"]
    level: Float[Tensor, "B U V"]
    z: Float[Tensor, " B"]
    com: Int[Tensor, "B 2"]
    contact_tol: float
    size: Int[Tensor, "B 2"]

    def areas(self) -> tuple[Tensor, Tensor]:
        """Return the counts of supporting cells, and of the cells of the footprints."""
        return self.support.sum((1, 2)), self.footprint.sum((1, 2))

    def corners(self, at_highest: bool) -> tuple[Tensor, Tensor]:
        """Count the corner cells at a level, and test if the highest supports."""
        level = torch.where(self.footprint, self.level, -torch.inf).flatten(1)
        columns = self.footprint.shape[2]
        cells = [(u * columns + v)[:, None] for u, v in _corner_cells(self.size)]
        return _count_corners([level.gather(1, c).squeeze(1) for c in cells], self, at_highest)

    def in_hull(self, centres: bool) -> Bool[Tensor, " B"]:
        """Test if the windows' centres, or the centres of mass, lie in the hulls."""
        point = _HALF * self.size if centres else self.com
        return hull_holds(self.support, point, centres=centres)

    def inside(self, percent: int) -> Bool[Tensor, " B"]:
        """Test if the centres of mass lie in the hulls with a margin around them."""
        corners = corners_of(self.com, rules.margin(self.size, percent))
        return torch.stack([hull_holds(self.support, point) for point in corners]).all(0)


@dataclass(frozen=True)
class Rule:
    """One stability rule; the functions are ``None`` for a rule that needs the packed boxes.

    Attributes:
        maps: Judges every placement of a :class:`Contact`; ``[B, R, Xs, Ys]`` bool.
        single: Judges one placement per row, a :class:`Touch`; ``[B]`` bool.
    """

    maps: Callable[[Contact], Tensor] | None
    single: Callable[[Touch], Tensor] | None


RULES: dict[str, Rule] = {}


def register(name: str, rule: Rule) -> None:
    """Add a rule as ``stability=name``; raise if the name is taken."""
    if name in RULES:
        raise ParameterError(f"stability rule {name!r} exists; choose another name")
    RULES[name] = rule


def get_rule(name: Any, option: str = "stability") -> Rule:
    """Return the rule of this name, the value of an option."""
    if not isinstance(name, str) or name not in RULES:
        raise ParameterError(
            f"{option}={name!r} is unknown{close_names(str(name), RULES)}; choose one of "
            f"{', '.join(sorted(RULES))}"
        )
    return RULES[name]


def check_rule(name: str, params: PackingParams, option: str = "stability") -> None:
    """Refuse a rule that is unknown, or that the task's geometry cannot evaluate."""
    get_rule(name, option)
    if params.geometry == "maps":
        for function in ("maps", "single"):
            _judge_of(name, function)
        if name in PILE_RULES_ON_MAPS:
            _check_pile_rule(name, params)
    if params.geometry == "boxes":
        boxes.check_rule(name)


def check_surest(params: PackingParams) -> None:
    """Refuse preferred rules that the task's geometry cannot evaluate."""
    for name in params.surest:
        if name in PILE_RULES_ON_MAPS:
            raise ParameterError(
                f"surest={list(params.surest)}: {name!r} reads the packed cuboids; use it as "
                "stability, or rules of the ground below an item, such as com_hull_20"
            )
        try:
            check_rule(name, params)
        except ParameterError as error:
            raise ParameterError(f"surest={list(params.surest)}: {error}") from error


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


def _judge_of(name: str, function: str) -> Callable[..., Tensor]:
    """Return one of the functions of a rule; raise for a rule that needs the packed boxes."""
    found: Callable[..., Tensor] | None = getattr(get_rule(name), function)
    if found is not None:
        return found
    known = sorted(other for other, rule in RULES.items() if rule.maps is not None)
    raise ParameterError(
        f"stability rule {name!r} follows the load from box to box, which heightmaps do not tell; "
        f"use geometry='boxes' with action_mode='candidate', or choose one of {known}"
    )


def judge_maps(name: str, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which of many placements a rule calls stable."""
    return _judge_of(name, "maps")(contact)


def judge(name: str, touch: Touch) -> Bool[Tensor, " B"]:
    """Return which rows' placements a rule calls stable."""
    return _judge_of(name, "single")(touch)


def supporting_cells(
    window: Float[Tensor, "B U V"],
    bottom: Float[Tensor, "B U V"],
    z: Float[Tensor, " B"],
    contact_tol: float,
) -> Bool[Tensor, "B U V"]:
    """Return the cells of the footprint whose gap to the ground is at most ``contact_tol``.

    Rows with ``z = +inf`` have no supporting cells.
    """
    return (window - bottom) >= (z - contact_tol)[:, None, None]


# ---------------------------------------------------------------------- hulls


def hull_holds(
    support: Bool[Tensor, "B U V"], point: Int[Tensor, "B 2"], *, centres: bool = False
) -> Bool[Tensor, " B"]:
    """Return True for a point (1/64 cell) in the hull of the supporting squares, boundary included.

    Seen from the point, corners to its left and right span a chord that passes above it iff their
    largest slopes ``dy / |dx|`` sum to at least 0, and below it iff their smallest sum to at most
    0. Corners straight above or below count on both sides with a slope of ``2**20 dy``. On each
    line of corners only the first and the last can be extreme. With ``centres``, the hull is that
    of the supporting cells' centres.
    """
    edges = torch.arange(1, support.shape[2] + 1, device=point.device, dtype=torch.float64)
    last = torch.where(support, edges, -torch.inf).amax(2)
    first = torch.where(support, 1 - edges, -torch.inf).amax(2)
    if not centres:
        last, first = _line_maximum(last), _line_maximum(first)
    inset = _HALF if centres else 0
    lines = torch.arange(last.shape[1], device=point.device)
    dx = (SLOPE_UNITS * lines + inset - point[:, :1]).double()
    distance = torch.where(dx == 0, 2.0**-20, dx.abs())
    upper = (SLOPE_UNITS * last - inset - point[:, 1:]) / distance
    lower = (SLOPE_UNITS * first - inset + point[:, 1:]) / distance
    left, right = dx <= 0, dx >= 0
    held: Tensor = rules.chords_hold(chord(upper, left, right), chord(lower, left, right))
    return held


def _line_maximum(rows: Float[Tensor, "B U"]) -> Float[Tensor, "B lines"]:
    """Return the maximum over the two rows that touch each line between window rows."""
    padded = torch.nn.functional.pad(rows, (1, 1), value=-torch.inf)
    return torch.maximum(padded[:, 1:], padded[:, :-1])


# ---------------------------------------------------------------------- judgements


def _judge_maps(rule: rules.Rule, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which of many placements a formula calls stable.

    None that leaves the container (``z = +inf``) is: there no cell supports, so a rule of hulls
    alone needs no mask.
    """
    stable = rules.evaluate(rule, contact)
    hull_alone = rule.hull is not None and not rule.percents and rule.corners is None
    return stable if hull_alone else (contact.z < torch.inf) & stable


def _judge_one(rule: rules.Rule, touch: Touch) -> Bool[Tensor, " B"]:
    """Return which rows' placements a formula calls stable."""
    return torch.ones_like(touch.z, dtype=torch.bool) & rules.evaluate(rule, touch)


def _count_corners(
    levels: Sequence[Tensor], placed: Contact | Touch, at_highest: bool
) -> tuple[Tensor, Tensor]:
    """Return the count of corner cells at the rule's level, and whether the highest supports.

    ``levels`` are those of the four corner cells of each window, -inf outside the footprint.
    """
    stacked, rest = torch.stack(list(levels)), placed.z - placed.contact_tol
    highest = stacked.amax(0)
    bar = highest - placed.contact_tol if at_highest else rest
    return (stacked >= bar).sum(0), highest >= rest


def _corner_cells(size: Int[Tensor, "*rows 2"]) -> list[tuple[Tensor, Tensor]]:
    """Return ``(u, v)`` of the four corner cells of windows of a size."""
    u, v = (size - 1).clamp(min=0).unbind(-1)
    zero = torch.zeros_like(u)
    return [(zero, zero), (u, zero), (zero, v), (u, v)]


def _register_margin(name: str, percent: int) -> None:
    register(name, Rule(lambda contact: contact.inside(percent), lambda t: t.inside(percent)))


for _name, _percent in rules.MARGINS.items():
    _register_margin(_name, _percent)
for _name, _rule in rules.RULES.items():
    register(_name, Rule(maps=partial(_judge_maps, _rule), single=partial(_judge_one, _rule)))
# Zhao et al., ICLR 2022 (PCT): the load goes from box to box. `core.cuboids.boxes` evaluates it.
register("stacking_tree", Rule(maps=None, single=None))
# As far as maps tell; `core.feasibility` judges the piles of packed boxes.
register("equilibrium", Rule(lambda c: c.z < torch.inf, lambda t: t.z < torch.inf))
