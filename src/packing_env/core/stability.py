"""Stability rules by name, on batches of placements.

A rule decides from the cells that support a placement. A footprint cell supports the item if
``float32(heightmap - bottom) >= float32(z - tolerance)``. The level of a cell is ``heightmap -
bottom``. :mod:`packing_env.kernels.stability_rules` holds the formulas and explains how to add one.
This module computes the measurements that the formulas read. :func:`register` adds a formula, or,
if a rule needs other measurements, a function of a :class:`Contact`. A single placement is
checked as a lattice with one point. :mod:`packing_env.reference.stability` specifies the rules in
plain loops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packing_env import kernels
from packing_env.core.cuboids import boxes
from packing_env.core.orientation import Surfaces
from packing_env.kernels import stability_rules as rules
from packing_env.types import (
    PILE_RULES_ON_MAPS,
    SLOPE_UNITS,
    Catalogue,
    PackingParams,
    ParameterError,
)
from packing_env.values import check, check_choice

_HALF = SLOPE_UNITS // 2
_MOST_SHARES = 3
_FORMULA = "register a formula of a Support with register(NAME, Rule(formula, ...))"
_LOGGER = logging.getLogger("packing_env.core.stability")


@dataclass(frozen=True)
class Contact:
    """Contact of many placements with the ground; ``z`` is +inf where no check is needed.

    Attributes:
        heightmap: ``[B, X, Y]`` metres.
        bottom: ``[B, R, U, V]`` metres, +inf outside the footprint. With ``which``, it holds the
            surfaces ``[K, U, V]`` from which ``which`` selects.
        z: ``[B, R, Xs, Ys]`` rest heights.
        com: ``[B, R, 2]`` centre of mass, in 1/64 cell from the window's corner.
        tolerance: Largest distance at which a cell still supports, metres.
        stride: Cells between placements.
        size: ``[B, R, 2]`` cells of each item's window, 0 for padding orientations.
        which: ``[B, R]`` index of each orientation's surface in ``bottom``; negative for padding.
            None if ``bottom`` already has one surface per row and orientation. :attr:`gathered`
            holds these surfaces in both cases.
        footprint_size: With ``which``, ``[K, 2]`` as in :func:`packing_env.kernels.surface_sizes`.
        footprint_area: With ``which``, ``[K]`` number of finite cells of each surface, if known.
    """

    heightmap: Float[Tensor, "B X Y"]
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"]
    z: Float[Tensor, "B R Xs Ys"]
    com: Int[Tensor, "B R 2"]
    tolerance: float
    stride: int
    size: Int[Tensor, "B R 2"]
    which: Int[Tensor, "B R"] | None = None
    footprint_size: Int[Tensor, "K 2"] | None = None
    footprint_area: Int[Tensor, " K"] | None = None

    @property
    def gathered(self) -> Float[Tensor, "B R U V"]:
        """Lower surfaces per row and orientation; with ``which`` they are copies."""
        if self.which is not None:
            return kernels.layout.gather_surfaces(self.bottom, self.which)
        return self.bottom

    # ------------------------------------------------------------------ measurements

    def areas(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of supporting cells and of footprint cells."""
        count = kernels.support_count(
            self.heightmap,
            self.bottom,
            self.z,
            self.tolerance,
            self.stride,
            which=self.which,
            size=self.footprint_size,
        )
        area = self.footprint_area
        if area is None:
            area = torch.isfinite(self.bottom).sum((-2, -1))
        # Padding orientations (which < 0) have no support, so their footprint does not matter.
        if self.which is not None:
            area = area[self.which.clamp(min=0)]
        return count, area[:, :, None, None]

    def corners(self, at_highest: bool) -> tuple[Tensor, Tensor]:
        """Count the corner cells at a level, and test whether the highest corner cell supports.

        In a window that is one cell wide, some corner cells count twice. The results are undefined
        where the placement leaves the container (``z = +inf``).
        """
        _, length, width = self.heightmap.shape
        heights, columns = self.heightmap.flatten(1), self.bottom.shape[-1]
        xs = torch.arange(0, length, self.stride, device=heights.device)
        ys = torch.arange(0, width, self.stride, device=heights.device)
        # 1. The level of a corner cell is the height at which the item would rest on it alone.
        # Beyond the container the index is clamped; the value there does not matter.
        levels = []
        for u, v in _corner_cells(self.size):
            x = (xs + u[..., None]).clamp(max=length - 1)
            y = (ys + v[..., None]).clamp(max=width - 1)
            cell = x[..., :, None] * width + y[..., None, :]
            ground = heights.gather(1, cell.flatten(1)).view(cell.shape)
            edge = self._cell(u * columns + v)
            levels.append(ground - edge[..., None, None])
        # 2. Count the corner cells that are level with the highest one, or that support.
        stacked, rest = torch.stack(levels), self.z - self.tolerance
        highest = stacked.amax(0)
        bar = highest - self.tolerance if at_highest else rest
        return (stacked >= bar).sum(0), highest >= rest

    def in_hull(self, centres: bool) -> Bool[Tensor, "B R Xs Ys"]:
        """Test whether the windows' centres, or the centres of mass, lie in the hulls."""
        return self._hull(_HALF * self.size if centres else self.com, centres=centres)

    def inside(self, percent: int) -> Bool[Tensor, "B R Xs Ys"]:
        """Test whether the centres of mass, with a margin around them, lie in the hulls."""
        return self._hull(self.com, margin=rules.margin(self.size, percent))

    def _hull(
        self,
        point: Int[Tensor, "B R 2"],
        *,
        centres: bool = False,
        margin: Int[Tensor, "B R 2"] | None = None,
    ) -> Bool[Tensor, "B R Xs Ys"]:
        return kernels.com_hull(
            self.heightmap,
            self.bottom,
            self.z,
            point,
            self.tolerance,
            self.stride,
            centres=centres,
            which=self.which,
            size=self.footprint_size,
            margin=margin,
        )

    def _cell(self, place: Int[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        # One value per orientation: of its own surface, or of the surface that ``which`` selects.
        cells = self.bottom.flatten(-2)
        if self.which is not None:
            return cells.flatten()[self.which.clamp(min=0) * cells.shape[1] + place]
        return cells.gather(2, place[..., None])[..., 0]


def _corner_cells(size: Int[Tensor, "*rows 2"]) -> list[tuple[Tensor, Tensor]]:
    """Return ``(u, v)`` of the four corner cells of windows of the given sizes."""
    # Padding has size 0; its corner is cell 0.
    u, v = (size - 1).clamp(min=0).unbind(-1)
    zero = torch.zeros_like(u)
    return [(zero, zero), (u, zero), (zero, v), (u, v)]


def contact_of(
    below: Surfaces,
    heightmap: Float[Tensor, "B X Y"],
    z: Float[Tensor, "B LR Xs Ys"],
    item_id: Int[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Contact:
    """Return the contact of items at rest heights ``z``, the input of rules.

    ``below`` is :func:`packing_env.core.orientation.surfaces` of the items.
    """
    return Contact(
        heightmap=heightmap,
        bottom=below.bottom,
        z=z,
        com=catalogue["com"][item_id].flatten(1, 2),
        tolerance=params.tolerance,
        stride=params.grid_step,
        size=catalogue["size"][item_id].flatten(1, 2),
        which=below.which,
        footprint_size=below.size,
    )


# ---------------------------------------------------------------------- rules by name

Judge = Callable[[Contact], Tensor]
"""Function that checks every placement of a contact: ``[B, R, Xs, Ys]`` bool."""

RULES: dict[str, Judge | None] = {
    # Zhao et al., ICLR 2022 (PCT): loads are passed from box to box. `core.cuboids.boxes` has it.
    "stacking_tree": None,
    # Only the part of the rule that heightmaps can decide; `core.feasibility` checks the piles.
    "equilibrium": lambda contact: contact.z < torch.inf,
}
"""Rules by name; None for a rule that needs the packed boxes."""


def register(name: str, judge: Judge | rules.Rule | None) -> None:
    """Register a rule as ``stability=name``.

    Args:
        name: A new name.
        judge: A formula in a :class:`packing_env.kernels.stability_rules.Rule`, or a function of a
            :class:`Contact`. A formula is compiled for the CPU step, and plans are checked with it,
            if it is registered before the first environment is built. A function is evaluated by
            torch only.

    Raises:
        ParameterError: The name is taken, or the formula does not consist of operators.
    """
    if name in RULES:
        raise ParameterError(f"stability rule {name!r} exists; choose another name")
    if isinstance(judge, rules.Rule):
        _check_formula(name, judge)
        if not rules.add(name, judge):
            _LOGGER.warning(
                "stability rule %r was registered after the kernels were loaded, so torch "
                "evaluates it, which is slower; register it before the first environment is built",
                name,
            )
        judge = partial(_by_formula, judge)
    _check_judge(name, judge)
    RULES[name] = judge


def _check_judge(name: str, judge: Any) -> None:
    if judge is not None and (isinstance(judge, type) or not callable(judge)):
        raise ParameterError(
            f"stability rule {name!r} must be a function of a Contact, not {judge!r}; {_FORMULA}"
        )


def _check_formula(name: str, rule: rules.Rule) -> None:
    """Raise a ParameterError unless a formula returns the same for numbers and for tensors."""
    check(rule, f"stability rule {name!r}: ")
    if len(rule.percents) > _MOST_SHARES or tuple(sorted(rule.percents)) != rule.percents:
        raise ParameterError(f"stability rule {name!r}: percents must be at most three, ascending")
    # 1. Make twenty supports, from no supporting cell to all cells. They have only the measurements
    # that the rule declares, because compiled code makes no others.
    counts, area = torch.arange(20), 19
    batch = rules.Support(*[_Undeclared()] * len(rules.Support._fields))
    if rule.percents:
        limits = tuple(torch.full_like(counts, rules.limit(area, each)) for each in rule.percents)
        batch = batch._replace(count=counts, limits=limits, area=torch.full_like(counts, area))
    if rule.corners:
        batch = batch._replace(corners=counts % 5, touching=counts % 3 == 0)
    if rule.hull:
        batch = batch._replace(in_hull=counts % 2 == 0)
    plain = [tree_map_only(Tensor, partial(_number, row), batch) for row in counts.tolist()]
    # 2. Evaluate them one by one, as compiled code does, and together.
    try:
        one_by_one = torch.tensor([bool(rule.formula(each)) for each in plain])
        together = torch.as_tensor(rule.formula(batch)).expand(len(plain))
    except Exception as error:  # the user's formula may raise any error
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    else:
        if torch.equal(one_by_one, together.bool()):
            return
        reason = "its results for numbers and for tensors differ"
    raise ParameterError(
        f"stability rule {name!r}: the formula must consist of operators (& | ~, comparisons, "
        f"arithmetic; no and, or, not, if) on what its Rule declares ({reason})"
    )


class _Undeclared:
    """A measurement that a rule does not declare; every use of it raises a TypeError."""

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("the formula reads a measurement that its Rule does not declare")

    __bool__ = __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]  # as for every class that defines equality


def _number(row: int, values: Tensor) -> Any:
    # A rule is registered once, on the CPU, so this read is not on the hot path.
    return values[row].item()


def get_rule(name: Any, option: str = "stability") -> Judge | None:
    """Return the rule with this name (the value of an option)."""
    judge = RULES[check_choice(option, name, RULES)]
    _check_judge(name, judge)  # the user may have put it into RULES
    return judge


def check_rule(name: str, params: PackingParams, option: str = "stability") -> None:
    """Raise if a rule is unknown, or if it cannot be evaluated in the task's geometry."""
    get_rule(name, option)
    if params.geometry == "boxes":
        boxes.check_rule(name)
        return
    if params.geometry == "voxels" and name != "none":
        raise ParameterError(
            f"{option}={name!r} is for items that fall, but in geometry='voxels' powder holds "
            f"them; use {option}='none', or geometry='maps'"
        )
    _judge_of(name)
    if name in PILE_RULES_ON_MAPS:
        params.check_piles(name)


def judge_maps(name: str, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which placements are stable by a rule.

    Raises:
        ParameterError: A user's function reads what a contact does not have, or returns something
            other than a bool per placement.
    """
    try:
        stable = _judge_of(name)(contact)
    except AttributeError as error:
        if error.obj is not contact:
            raise
        raise ParameterError(
            f"stability rule {name!r} is a function of a Contact, which has no {error.name!r}; "
            f"{_FORMULA}"
        ) from error
    expected = (torch.bool, tuple(contact.z.shape))
    kind = (stable.dtype, tuple(stable.shape)) if isinstance(stable, Tensor) else type(stable)
    if kind != expected:
        raise ParameterError(
            f"stability rule {name!r} must return a bool per placement, {expected}, not {kind}; "
            f"{_FORMULA}"
        )
    return stable


def _judge_of(name: str) -> Judge:
    """Return a rule; raise for one that needs the packed boxes."""
    judge = get_rule(name)
    if judge is not None:
        return judge
    # Rules without a function are for boxes only.
    known = sorted(other for other, rule in RULES.items() if rule is not None)
    raise ParameterError(
        f"stability rule {name!r} follows the load from box to box, which heightmaps do not "
        f"contain; use geometry='boxes' with action_mode='candidate', or choose one of {known}"
    )


def _by_formula(rule: rules.Rule, contact: Contact) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which placements are stable by a formula; placements outside the container are not.

    Outside the container (``z = +inf``) no cell supports, so a rule that reads only hulls needs no
    mask.
    """
    stable = rules.evaluate(rule, contact)
    hull_alone = rule.hull is not None and not rule.percents and rule.corners is None
    return stable if hull_alone else (contact.z < torch.inf) & stable


# Rules on heightmaps: the margins of hulls, then the formulas.
for _name, _percent in rules.MARGINS.items():
    register(_name, partial(Contact.inside, percent=_percent))
for _name, _rule in rules.RULES.items():
    register(_name, partial(_by_formula, _rule))
