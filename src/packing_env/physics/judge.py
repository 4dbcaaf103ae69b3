"""The simulation of a packed container, and the report on items that moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from packing_env.physics.settings import PhysicsSettings
from packing_env.physics.world import TIMESTEP, World
from packing_env.plan import Packing, PlacedItem, PlanError, quaternion

_STEPS = 10
"""Number of time steps between two checks of the items."""
_FALLEN = 0.5
"""An item has fallen if its centre of mass has sunk by more than this share of the item's height.
"""
_OF_PLANS = ("quaternion", "top", "bottom", "z_grid", "gap", "contacts", "balanced")
"""Keys of a plan that describe the placement of an item, in addition to its pose."""


@dataclass(frozen=True)
class Motion:
    """The motion of one item from its pose in the plan to its pose at the end.

    Attributes:
        order: Index in the order of packing.
        name: Name of the item.
        shift: Displacement of its centre of mass, metres of the plan.
        degrees: Angle of the rotation from the pose in the plan to the pose at the end.
        tilt: Angle between the item's vertical axis and its vertical axis in the plan, degrees.
        moved: True if it has moved by more than the settings allow.
        toppled: True if it has tilted by more than the settings allow.
        fallen: True if its centre of mass has sunk by more than half of the item's height, or has
            left the container.
    """

    order: int
    name: str
    shift: float
    degrees: float
    tilt: float
    moved: bool
    toppled: bool
    fallen: bool


@dataclass(frozen=True)
class PhysicsReport:
    """The result of a simulation.

    Attributes:
        settings: Settings of the simulation.
        items: Motions of the items that were placed, in the order of packing.
        first_failure: In sequential order, the item whose placement made some item move; the items
            after it are not placed. Otherwise ``None``.
        utilization: Utilization of the plan.
        utilization_kept: Sequential order: utilization of the items before ``first_failure``.
            Released order: utilization of the items that have not moved.
        seconds: Simulated time.
        parts_error: Largest error of the volume of convex parts, as a share of the volume.
        settled: The container with the placed items, in the poses in which they came to rest.
    """

    settings: PhysicsSettings
    items: tuple[Motion, ...]
    first_failure: int | None
    utilization: float
    utilization_kept: float
    seconds: float
    parts_error: float
    settled: Packing

    @property
    def stands(self) -> bool:
        """True if no item has moved."""
        return not any(item.moved for item in self.items)

    def count(self, what: str) -> int:
        """Return how many items are ``"moved"``, ``"toppled"`` or ``"fallen"``."""
        return sum(getattr(item, what) for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "stands": self.stands,
            "collapsed": not self.stands,
            "placed": len(self.items),
            **{what: self.count(what) for what in ("moved", "toppled", "fallen")},
            "first_failure": self.first_failure,
            "utilization": self.utilization,
            "utilization_kept": self.utilization_kept,
            "seconds": self.seconds,
            "parts_error": self.parts_error,
            "settings": asdict(self.settings),
            "items": [
                {
                    **asdict(motion),
                    "rotation": item.rotation.tolist(),
                    "quaternion": quaternion(item.rotation).tolist(),
                    "translation": item.translation.tolist(),
                }
                for motion, item in zip(self.items, self.settled.items, strict=True)
            ],
        }


def simulate(packing: Packing, settings: PhysicsSettings, plan: Path = Path()) -> PhysicsReport:
    """Simulate a packed container; the same plan and settings give the same report.

    Args:
        packing: The container.
        settings: Settings of the simulation.
        plan: File of the plan; mesh files are searched next to it.

    Raises:
        MissingPackageError: MuJoCo is not installed, or a mesh needs CoACD, which is not installed.
        PlanError: The solid of an item cannot be read, the simulation diverged, or the packing is a
            nest, whose parts do not stand.
    """
    if packing.geometry == "solids":
        raise PlanError(f"{plan}: parts of a nest do not stand; check it without the simulation")
    world = World(packing, settings, plan)
    trial = _Trial(world, packing)
    failed = None
    if settings.order == "sequential":
        failed = trial.sequential()
    else:
        trial.released()
    motions = tuple(trial.motions())
    volumes = np.array([item.volume for item in packing.items])
    if settings.order == "released":
        volume_kept = volumes[[not motion.moved for motion in motions]].sum()
    else:
        volume_kept = volumes[:failed].sum()
    return PhysicsReport(
        settings=settings,
        items=motions,
        first_failure=failed,
        utilization=packing.utilization,
        utilization_kept=float(volume_kept / np.prod(packing.container)),
        seconds=float(world.data.time),
        parts_error=world.parts_error,
        settled=replace(packing, items=tuple(trial.settled())),
    )


class Pile:
    """A simulated container that is filled item by item, and refuses items that would not stand.

    Args:
        packing: The container, with all items that may be placed. Their poses do not matter.
        settings: Settings of the simulation; the order is always sequential.
        trials: How many times an item must stand, each time with another random velocity.

    Raises:
        MissingPackageError: MuJoCo is not installed, or a mesh needs CoACD, which is not installed.
        PlanError: The solid of an item cannot be read.
    """

    def __init__(self, packing: Packing, settings: PhysicsSettings, trials: int = 1) -> None:
        self._world = World(packing, settings, Path())
        self._trial, self._trials = _Trial(self._world, packing), trials

    @property
    def state(self) -> np.ndarray:
        """A copy of all poses and velocities."""
        return self._world.state

    def place(self, item: PlacedItem, keep: bool = True) -> bool:
        """Place an item if it stands and moves no other item; return whether it does.

        ``item.order`` is its index in the packing, ``rotation`` and ``translation`` are its pose.
        Without ``keep``, the item is taken out again in any case.
        """
        world, before = self._world, self.state
        world.start[item.order] = world.pose_of(item)
        stands = all(self._stands(item.order, before) for _ in range(self._trials))
        if not (stands and keep):
            world.take_out(item.order, before)
        return stands

    def _stands(self, order: int, before: np.ndarray) -> bool:
        """Place an item in a state without it; return whether no item moves."""
        self._world.take_out(order, before)
        try:
            return not self._trial.place(order)
        except PlanError:  # the simulation diverged
            return False


class _Trial:
    """A run of a simulated world, with its measurements relative to the plan."""

    def __init__(self, world: World, packing: Packing) -> None:
        self.world, self.packing = world, packing
        self.settings = world.settings
        self.random = np.random.default_rng(self.settings.seed)
        self.limit = self.settings.moved_cells * packing.cell
        self.turns = np.array([item.rotation for item in packing.items]).reshape(-1, 3, 3)
        pairs = zip(world.solids, self.turns, strict=True)
        self.heights = np.array([np.ptp(solid.vertices @ turn[2]) for solid, turn in pairs])

    def sequential(self) -> int | None:
        """Place one item after another; return the first item whose placement made an item move."""
        count = len(self.packing.items)
        for order in range(count):
            if self.place(order):
                self._settle(self.settings.final_time)
                return order
        return count - 1 if self._settle(self.settings.final_time, early=False) else None

    def place(self, order: int) -> bool:
        """Place an item and let it settle; return whether an item has moved."""
        self.world.place([order], self.random)
        self.world.lower(order)
        return self._settle(self.settings.item_time)

    def released(self) -> None:
        """Place all items at once."""
        self.world.place(range(len(self.packing.items)), self.random)
        self._settle(self.settings.final_time, early=False)

    def _settle(self, most: float, early: bool = True) -> bool:
        """Run for a time (with ``early``: until all items rest); return whether an item has moved.

        Items that had moved before do not count, and neither do items that swing back.
        """
        quiet, before = 0.0, self._moved()
        for _ in range(round(most / TIMESTEP / _STEPS)):
            self.world.run(_STEPS)
            slow = self.world.speeds[self.world.placed].max(initial=0.0)
            quiet = quiet + _STEPS * TIMESTEP if slow < self.settings.settle_speed else 0.0
            if early and quiet >= self.settings.settle_time:
                break
        return bool((self._moved() & ~before).any())

    # ------------------------------------------------------------------ measurements

    def _shifts(self) -> np.ndarray:
        shifts = self.world.poses[:, :3] - self.world.start[:, :3]
        return np.asarray(np.linalg.norm(shifts, axis=1) / self.world.scale)

    def _degrees(self) -> np.ndarray:
        both = np.abs((self.world.poses[:, 3:] * self.world.start[:, 3:]).sum(1))
        return np.degrees(2.0 * np.arccos(np.clip(both, 0.0, 1.0)))

    def _moved(self) -> np.ndarray:
        far = (self._shifts() > self.limit) | (self._degrees() > self.settings.moved_degrees)
        return np.asarray(far & self.world.placed)

    def motions(self) -> Iterable[Motion]:
        """Yield the motions of the items that were placed."""
        shifts, degrees, moved = self._shifts(), self._degrees(), self._moved()
        centres = self.world.poses[:, :3] / self.world.scale
        sunk = self.world.start[:, 2] / self.world.scale - centres[:, 2]
        outside = (centres[:, :2] < 0) | (centres[:, :2] > self.packing.container[:2])
        fallen = (sunk > _FALLEN * self.heights) | outside.any(1)
        for item in self.packing.items[: int(self.world.placed.sum())]:
            i = item.order
            # Vertical component of the axis that was vertical in the plan.
            upright = float((self.world.turns[i] @ self.turns[i].T)[2, 2])
            tilt = float(np.degrees(np.arccos(np.clip(upright, -1.0, 1.0))))
            yield Motion(
                order=i,
                name=item.name,
                shift=float(shifts[i]),
                degrees=float(degrees[i]),
                tilt=tilt,
                moved=bool(moved[i]),
                toppled=tilt > self.settings.moved_degrees,
                fallen=bool(fallen[i]),
            )

    def settled(self) -> Iterable[Any]:
        """Yield the placed items in the poses in which they came to rest."""
        for item in self.packing.items[: int(self.world.placed.sum())]:
            i = item.order
            turn = self.world.turns[i].copy()
            move = self.world.poses[i, :3] / self.world.scale - turn @ self.world.centres[i]
            low = float((self.world.solids[i].vertices @ turn[2]).min() + move[2])
            unknown: dict[str, Any] = dict.fromkeys(_OF_PLANS)
            yield replace(item, rotation=turn, translation=move, z=low, **unknown)
