"""`pack`, the planner of orders: parts at true size in as few containers as the search finds."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from packing_env.constraints import Constraints
from packing_env.core.stability import check_rule
from packing_env.files import finished_first
from packing_env.item_source import log_warnings
from packing_env.items import CatalogueError, Mesh
from packing_env.items.handling import Stacking
from packing_env.items.meshes.mesh import TooSmallError
from packing_env.kernels import clock
from packing_env.kernels.stability_rules import LADDER
from packing_env.plan import Packing, read_state, settle
from packing_env.plan.loading.search import compile_kernels
from packing_env.planner.boxes.container_sets import CHEAPEST, CHOICES, FEWEST
from packing_env.planner.boxes.order import is_exact, read_boxes
from packing_env.planner.boxes.packer import BoxPacker
from packing_env.planner.boxes.plans import packing_of_boxes
from packing_env.planner.boxes.reasons import BoxReasons
from packing_env.planner.copies import Fill, most_copies, wants_kits, whole_kits
from packing_env.planner.fit import none_fits
from packing_env.planner.grid.containers import Container, choose_cell, lay_grid
from packing_env.planner.grid.poses import Poses, build_poses
from packing_env.planner.grid.reasons import Reasons
from packing_env.planner.grid.search import OrderSearch
from packing_env.planner.reading.constraints import constraints_of
from packing_env.planner.reading.containers import (
    Containers,
    ContainerType,
    check_costs,
    container_limit,
    read_containers,
)
from packing_env.planner.reading.lengths import read_length
from packing_env.planner.reading.parts import Part, Parts, read_parts
from packing_env.planner.result import LeftOver, Plan, left_over
from packing_env.types import State
from packing_env.values import ParameterError, check_choice, check_number, options

_LOGGER = logging.getLogger("packing_env.planner")

TOO_SMALL = "too small for a solid; check its unit"
"""Reason of parts that are too small for a solid."""
_LEAST_SECONDS = 5.0
"""Least number of seconds for the last parts and for the reasons, even after a short search."""
_TRIAL = 0.3
"""Share of a container's time in which its size is chosen."""
STANDS = "stands"
"""The stability of :func:`pack` that gives each part the strictest rule that it can satisfy."""
_TOLERANCE = 0.4
"""With ``stands``: widest gap below a part that still counts as contact, in cells."""


def pack(
    parts: Parts | Fill,
    container: Containers,
    seconds: float = 30.0,
    *,
    unit: str | None = None,
    cell: str | float | None = None,
    containers: int | None = None,
    choose: str = FEWEST,
    stability: str = "com_hull",
    seed: int = 0,
    **constraints: Any,
) -> Plan:
    """Pack parts, each as often as its quantity says, at true size.

    Orders of boxes are packed exactly, without a grid, if the stability is ``"none"``,
    ``com_hull``, ``com_hull_strict``, ``com_hull_10``, ``com_hull_20``, or ``"stands"``, which
    means ``com_hull_20`` for boxes. A mesh counts as a box if its solid is one, its sides are whole
    multiples of 0.00025 mm, and no ``cell`` is given. All other orders are packed on heightmaps.

    Boxes go into as few containers as the search finds. Among equal numbers, the cheapest or
    smallest containers win; ``choose`` sets another criterion. The search ends when no better
    choice is possible. On a grid, containers are filled one after the other. The next one is the
    smallest that takes all remaining parts, or else the one that takes most of them.

    Args:
        parts: A folder, files, an order file, a list with quantities (``["a.stl", "x12",
            "b.stl"]``), or a mapping to quantities (:func:`packing_env.planner.read_parts`).
            ``packing_env.planner.Fill`` of these packs the order as often as it fits.
        container: ``"240x180x150mm"``, or ``(X, Y, H)`` in metres, or a list of these to choose
            from. :func:`packing_env.planner.read_containers` also reads a number, a cost, a weight
            limit and a name, and tables.
        seconds: Time of the search. Reading the parts and compiling (once) take additional time.
        unit: Unit of files and boxes that state none; by default metres for GLB files, and the unit
            of the container for all others.
        cell: Side of a cell of the grid, ``"5mm"`` or metres; by default 48 to 64 cells along the
            floor. Smaller cells pack more tightly and take more time.
        containers: How many containers may be used; by default all, or 1 if a container states no
            number.
        choose: For orders of boxes: ``"fewest"`` containers, the ``"cheapest"`` ones, or
            ``"balanced"``: the fewest, as equal in weight (or volume, if no box has a weight) as
            the search finds.
        stability: Rule that every placement satisfies, or ``"stands"``: contact within 0.4 cells,
            poses in which a part does not topple alone on a floor, and ``com_hull_20``. A part
            without such a pose gets the strictest of ``com_hull_10``, ``com_hull_strict`` and
            ``com_hull`` by which it stands on the floor.
        seed: Seed of the search.
        **constraints: Entries of :class:`packing_env.constraints.Constraints`: ``clearance`` and
            ``wall_clearance`` (as ``"2mm"`` or metres), ``weight_limit``, ``balance``,
            ``preplaced`` (also as ``"50x50x20mm@0,0,0"``), ``fragile``. Constraints of the parts
            (``max_load``, ``fragile``, ...) apply without an entry; ``fragile="top"`` or
            ``lifo=False`` changes them.

    Returns:
        The plan; ``packing_env.planner.save`` writes it.

    Raises:
        ValueError: The parts, the container or an option is wrong; the message names the remedy.
    """
    check_number("seconds", seconds, above=0.0)
    types = read_containers(container)
    container_unit, limit = types[0].unit, container_limit(types, containers)
    check_choice("choose", choose, CHOICES)
    if choose == CHEAPEST:
        check_costs(types)
    types.sort(key=lambda kind: (kind.volume, kind.cost or 0.0))
    largest = () if isinstance(parts, Fill) else max((kind.size for kind in types), key=max)
    entries = parts.parts if isinstance(parts, Fill) else parts
    order = read_parts(entries, unit, default=container_unit, container=largest)
    rule = LADDER[-1] if stability == STANDS else stability
    spacing = None if cell is None else read_length("cell", cell)
    exactly = is_exact(order, rule, cell=cell is not None)
    solids = [part for part in order if exactly and part.sides is None]
    log_warnings([part.label for part in solids], [part.load().warnings for part in solids])
    if exactly and cell is not None:
        _LOGGER.warning("cell has no effect: orders of boxes are packed exactly, without a grid")
    if not exactly and choose != FEWEST:
        raise ParameterError(f"choose={choose!r} applies only to orders of boxes; leave it out")

    def run(
        order: Sequence[Part], seconds: float, trial: bool, first: Sequence[int] | None = None
    ) -> Plan:
        rules = constraints_of(order, types, constraints)
        if exactly:
            packer = BoxPacker(read_boxes(order, types, rules, rule), limit, choose)
            return _pack_boxes(packer, container_unit, seconds, trial, first)
        grids = _lay_grids(order, types, stability, rules, spacing)
        parts, meshes, left = load_solids(order)
        poses = _poses_of_sizes(parts, meshes, grids, stability == STANDS)
        plan = _Packer(parts, poses, container_unit, seed, trial).pack(limit, seconds)
        return replace(plan, left=(*plan.left, *left))

    if isinstance(parts, Fill):
        if exactly:
            compile_kernels()  # before the time of the search begins
        return most_copies(order, run, seconds)
    if not exactly or not wants_kits(order):
        return run(order, seconds, False)
    # If parts are left over, pack fewer kits, so that more of them are complete.
    plan = run(order, seconds / 2, False)
    try:
        first = whole_kits(order, plan, run, seconds / 4)
        return plan if first is None else run(order, seconds / 4, False, first)
    except KeyboardInterrupt:
        return replace(plan, interrupted=True)


def _lay_grids(
    order: Sequence[Part],
    types: Sequence[ContainerType],
    stability: str,
    rules: Constraints,
    cell: float | None,
) -> list[Container]:
    """Return the containers with their cells for parts of any shape."""
    for part in order:
        for name in options(Stacking):
            if name in part.handling and name != "like":  # `like` alone does not constrain anything
                raise ParameterError(
                    f"{part.label}: {name} applies only to orders of boxes, with stability "
                    f"none, com_hull, com_hull_strict, com_hull_10 or com_hull_20"
                )
    # Boxes with stated sides come first; meshes of boxes may have any sides.
    boxes = [part.exact_sides for part in order if part.sides is not None]
    boxes = boxes or [part.exact_sides for part in order if part.is_box]
    spacing = cell
    if spacing is None:
        own = types[0].constraints(rules)
        gaps = own.walls, own.clearance or 0.0
        spacing = choose_cell([kind.room for kind in types], boxes, order, gaps)
    task: dict[str, Any] = {"stability": stability}
    if stability == STANDS:
        task = {"stability": LADDER[-1], "contact_tol": _TOLERANCE * spacing}
    grids = [lay_grid(kind, spacing, kind.constraints(rules), **task) for kind in types]
    for grid in grids:
        try:
            check_rule(grid.params.stability, grid.params)
        except ParameterError as error:
            raise ParameterError(f"{error}; or stability={STANDS!r}") from error
    return grids


def _pack_boxes(
    packer: BoxPacker, unit: str, seconds: float, trial: bool, first: Sequence[int] | None
) -> Plan:
    """Pack an order of boxes; with ``first``, this many of each kind before all others."""
    order = packer.order
    if not any(packer.fits(kind) for kind in range(len(order.parts))):
        room = [length * order.unit for length in order.rooms[-1].inner]
        raise none_fits(order.parts, room, unit, BoxReasons(packer, _LEAST_SECONDS).of)
    if first is None:
        packer.pack(seconds)
    else:
        packer.pack_first(first, seconds)
    reasons = BoxReasons(packer, max(_LEAST_SECONDS, 0.0 if packer.interrupted else seconds))
    number = sum(part.quantity for part in order.parts)
    return Plan(
        containers=tuple(packing_of_boxes(order, filled, number) for filled in packer.filled),
        left=left_over(order.parts, packer.left, None if trial else reasons.of),
        unit=unit,
        tried=packer.tried,
        seconds=packer.seconds,
        bound=packer.bound,
        value_bound=packer.value_bound,
        cost=packer.cost,
        least=packer.sets.least_number(),
        least_cost=None if packer.cost is None else packer.sets.least_cost(packer.cost),
        interrupted=packer.interrupted,
    )


def load_solids(order: Sequence[Part]) -> tuple[list[Part], list[Mesh], list[LeftOver]]:
    """Return the parts of an order, their solids, and the parts that are too small for a solid."""
    parts, meshes, left = [], [], []
    for part in order:
        try:
            meshes.append(part.load())
        except TooSmallError as error:
            left.append(LeftOver(part.label, part.quantity, TOO_SMALL))
            if len(left) == len(order):
                raise
            _LOGGER.warning("left out: %s", error)
        else:
            parts.append(part)
    return parts, meshes, left


class _Packer:
    """The state of :func:`pack`: the remaining and the packed parts; a trial finds no reasons."""

    def __init__(
        self, parts: Sequence[Part], poses: Sequence[Poses], unit: str, seed: int, trial: bool
    ) -> None:
        self.parts, self.poses, self.unit = parts, poses, unit
        self.seed, self._trial = seed, trial
        self.left = [part.quantity for part in parts]
        self.packed: list[Packing] = []
        self.filled: list[tuple[Poses, State]] = []
        self.tried, self._taken, self._stopped = 0, 0.0, False

    def pack(self, limit: int, seconds: float) -> Plan:
        """Fill containers until all parts are packed, no part fits, or the limit is reached."""
        try:
            self._fill(limit, seconds)
        except KeyboardInterrupt:  # during a first construction, or after a search
            if not self.packed:
                raise
            self._stopped = True
        # The reasons may take as long as the search, and at least some seconds.
        spare = max(_LEAST_SECONDS, 0.0 if self._stopped else seconds)
        reasons = Reasons(self.poses, self.filled, self.left, spare)
        left = left_over(self.parts, self.left, None if self._trial else reasons.of)
        return Plan(
            tuple(self.packed), left, self.unit, self.tried, self._taken, interrupted=self._stopped
        )

    def _fill(self, limit: int, seconds: float) -> None:
        searches, start = self._searches(), clock()
        while searches and any(self._waiting()):
            share = _TRIAL * (start + seconds - clock()) / limit / len(searches)
            for search in searches if len(searches) > 1 else ():
                self._improve(search.improve, clock() + share)
            search = _choice(searches, sum(self._waiting()))
            if not search.best.packed:
                break
            more = self._containers_to_come(search, limit - len(self.packed))
            now = clock()
            if not self._trial or len(search.best.packed) < sum(self._waiting()):
                self._improve(search.improve, now + (start + seconds - now) / more)
            self._taken = clock() - start
            self._improve(search.complete, clock() + max(_LEAST_SECONDS, seconds))
            with finished_first():
                self._take(search)
            searches = self._searches() if len(self.packed) < limit else []

    def _improve(self, improve: Callable[[float], None], deadline: float) -> None:
        """Improve a packing until a deadline, unless the user has ended the search."""
        try:
            if not self._stopped:
                improve(deadline)
        except KeyboardInterrupt:  # the best packing so far is the result
            self._stopped = True

    def _waiting(self) -> list[int]:
        """Return how many of each part are left that some container may take."""
        packable = torch.stack([poses.count for poses in self.poses]).amax(0) > 0
        return [n * of for n, of in zip(self.left, packable.tolist(), strict=True)]

    def _searches(self) -> list[OrderSearch]:
        """Return a search for each type with another container available."""
        used = Counter(id(poses) for poses, _ in self.filled)
        return [
            OrderSearch(poses, self.left, self.seed)
            for poses in self.poses
            if used[id(poses)] < (poses.container.type.number or math.inf)
        ]

    def _containers_to_come(self, search: OrderSearch, limit: int) -> int:
        """Estimate how many containers are still filled, this one included."""
        volume = search.poses.volume
        packed = sum(n * v for n, v in zip(search.packed(), volume.tolist(), strict=True))
        rest = sum(n * v for n, v in zip(self._waiting(), volume.tolist(), strict=True))
        return max(1, min(limit, math.ceil(rest / packed)))

    def _take(self, search: OrderSearch) -> None:
        self.tried += search.tried
        self.filled.append((search.poses, search.best.states[-1]))
        state = {key: value[0] for key, value in search.state().items()}
        poses = search.poses
        packing = read_state(state, poses.catalogue, poses.params)
        origins = [poses.origin(item.item_id) for item in packing.items]
        solids = [None if part.sides is not None else part.load() for part in self.parts]
        items = tuple(
            replace(item, item_id=part, orientation=pose, mesh=solids[part])
            for item, (part, pose) in zip(packing.items, origins, strict=True)
        )
        packing = replace(
            packing,
            items=items,
            num_items=sum(self.left),
            instance={},
            stability=poses.least_strict(item.item_id for item in items),
            name=poses.container.type.name,
            container_unit=poses.container.type.unit,
            container=poses.container.size,
            constraints=poses.container.constraints.to_json(),
        )
        self.packed.append(settle(packing))
        for part, count in enumerate(search.packed()):
            self.left[part] -= count


def _choice(searches: Sequence[OrderSearch], left: int) -> OrderSearch:
    """Return the smallest container that takes all that is left, or the one that takes most."""
    for search in searches:
        if len(search.best.packed) == left:
            return search
    return max(searches, key=lambda search: search.volume)


def _poses_of_sizes(
    parts: Sequence[Part], meshes: Sequence[Mesh], grids: Sequence[Container], stands: bool
) -> list[Poses]:
    """Build the poses for each container into which at least one pose fits."""
    poses, failures = [], []
    for grid in grids:
        try:
            poses.append(build_poses(parts, meshes, grid, stands=stands))
        except CatalogueError as error:
            failures.append(error)
    if not poses:
        raise failures[-1]
    return poses
