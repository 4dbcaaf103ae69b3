"""The specification: one container, NumPy, plain loops.

This program defines the truth; every kernel and the batched core are tested against it. It is
written to be read, it is never optimised, and it shares no code with what it checks. Heights are
float32, because rest heights, masks and ``done`` must agree bit for bit; sums are float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

FLOAT = np.float32


@dataclass
class Item:
    """One item: per orientation its maps; ``None`` marks a padding orientation.

    Attributes:
        top: ``[U, V]`` float32 per orientation, -inf outside the footprint, metres.
        bottom: ``[U, V]`` float32 per orientation, +inf outside the footprint, metres.
        com: Centre of mass ``(x, y)`` per orientation, in 1/64 cell from the window's corner.
        volume: m^3.
        extent: Bounding box in orientation 0, metres.
    """

    top: list[np.ndarray | None]
    bottom: list[np.ndarray | None]
    com: list[tuple[int, int]]
    volume: float
    extent: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass
class Rules:
    """The task's constants (metres)."""

    height: float
    cell: float
    grid_step: int = 1
    num_visible: int = 1
    stability: str = "com_hull"
    stability_metric: str = "com_hull"
    contact_tol: float = 0.0
    illegal_action: str = "terminate"
    max_steps: int = 10**9
    reward: dict[str, float] = field(default_factory=lambda: {"utilization": 1.0})


def drop_height(heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int) -> np.float32:
    """Rest height at lower corner ``(x, y)``; +inf if a footprint cell leaves the container.

    ``max over (u, v) of heightmap[x+u, y+v] - bottom[u, v]``. Huang et al., RA-L 2023, Eq. 1.
    """
    z = FLOAT(-np.inf)
    for u, v in np.argwhere(np.isfinite(bottom)):
        if not (0 <= x + u < heightmap.shape[0] and 0 <= y + v < heightmap.shape[1]):
            return FLOAT(np.inf)
        z = max(z, FLOAT(heightmap[x + u, y + v] - bottom[u, v]))
    return z if np.isfinite(z) else FLOAT(np.inf)


def supporting_cells(
    heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int, z: np.float32, contact_tol: float
) -> list[tuple[int, int]]:
    """Footprint cells whose gap is at most ``contact_tol``: float32 ``H - bottom >= z - tol``."""
    level = FLOAT(z - FLOAT(contact_tol))
    return [
        (int(u), int(v))
        for u, v in np.argwhere(np.isfinite(bottom))
        if FLOAT(heightmap[x + u, y + v] - bottom[u, v]) >= level
    ]


def com_hull(cells: list[tuple[int, int]], com: tuple[int, int]) -> bool:
    """Whether the centre of mass lies in the hull of the supporting squares; boundary stable.

    A vertical line through the centre of mass must meet the hull on both sides of it: with
    ``slope = dy / |dx|`` of each corner seen from the centre, the steepest corners left and right
    span the chord above it (sum >= 0), the flattest the chord below it (sum <= 0).
    """
    left, right = [], []
    for u, v in cells:
        for corner_u, corner_v in ((u, v), (u + 1, v), (u, v + 1), (u + 1, v + 1)):
            dx, dy = 64 * corner_u - com[0], 64 * corner_v - com[1]
            slope = float(dy) / abs(dx) if dx else 2.0**20 * dy
            if dx <= 0:
                left.append(slope)
            if dx >= 0:
                right.append(slope)
    if not left or not right:
        return False
    return max(left) + max(right) >= 0 and min(left) + min(right) <= 0


def is_stable(rule: str, cells: list[tuple[int, int]], com: tuple[int, int]) -> bool:
    """One placement under a named rule."""
    if rule == "none":
        return True
    if rule == "com_hull":
        return com_hull(cells, com)
    raise ValueError(f"the reference has no stability rule {rule!r}")


@dataclass
class Placement:
    """What the reference finds out about one placement."""

    legal: bool
    z: np.float32
    stable: bool = False
    support_ratio: float = 0.0


class Episode:
    """One episode in one container, item by item.

    Args:
        grid: ``(X, Y)`` cells.
        items: The instance, in the order in which items are offered.
        rules: Constants of the task.
    """

    def __init__(self, grid: tuple[int, int], items: list[Item], rules: Rules) -> None:
        self.rules = rules
        self.items = items
        self.heightmap = np.zeros(grid, FLOAT)
        self.queue = list(range(len(items)))
        self.packed: list[int] = []
        self.rest: list[np.float32] = []
        self.stable: list[bool] = []
        self.support: list[float] = []
        self.steps = 0
        self.illegal_actions = 0
        self.terminated = False
        self.truncated = False

    def visible(self) -> list[int]:
        """Positions of the items that may be picked now."""
        return self.queue[: self.rules.num_visible]

    def examine(self, item: Item, orientation: int, x: int, y: int, rule: str) -> Placement:
        """Rest height, legality and support of one placement (cells)."""
        bottom, top = item.bottom[orientation], item.top[orientation]
        if bottom is None or top is None:
            return Placement(False, FLOAT(np.inf))
        z = drop_height(self.heightmap, bottom, x, y)
        if not np.isfinite(z):
            return Placement(False, z)
        peak = FLOAT(top.max())
        if FLOAT(z + peak) > FLOAT(self.rules.height + 1e-6):
            return Placement(False, z)
        cells = supporting_cells(self.heightmap, bottom, x, y, z, self.rules.contact_tol)
        com = item.com[orientation]
        return Placement(
            legal=is_stable(rule, cells, com),
            z=z,
            stable=is_stable(self.rules.stability_metric, cells, com),
            support_ratio=len(cells) / int(np.isfinite(bottom).sum()),
        )

    def check(self, slot: int, orientation: int, x: int, y: int) -> Placement:
        """The placement of the ``slot``-th visible item, on the lattice or not."""
        if not 0 <= slot < len(self.visible()) or x < 0 or y < 0:
            return Placement(False, FLOAT(np.inf))
        item = self.items[self.visible()[slot]]
        if not 0 <= orientation < len(item.bottom):
            return Placement(False, FLOAT(np.inf))
        return self.examine(item, orientation, x, y, self.rules.stability)

    def mask(self, num_orientations: int) -> np.ndarray:
        """``[L, R, Xs, Ys]`` bool: legal placements on the lattice, all True when finished."""
        step = self.rules.grid_step
        xs = range(0, self.heightmap.shape[0], step)
        ys = range(0, self.heightmap.shape[1], step)
        shape = (self.rules.num_visible, num_orientations, len(xs), len(ys))
        if self.done:
            return np.ones(shape, bool)
        mask = np.zeros(shape, bool)
        for slot in range(len(self.visible())):
            for orientation in range(num_orientations):
                for i, x in enumerate(xs):
                    for j, y in enumerate(ys):
                        mask[slot, orientation, i, j] = self.check(slot, orientation, x, y).legal
        return mask

    def any_legal(self, num_orientations: int) -> bool:
        """Whether a visible item can still be placed on the lattice."""
        step = self.rules.grid_step
        return any(
            self.check(slot, orientation, x, y).legal
            for slot in range(len(self.visible()))
            for orientation in range(num_orientations)
            for x in range(0, self.heightmap.shape[0], step)
            for y in range(0, self.heightmap.shape[1], step)
        )

    def nearest(
        self, slot: int, orientation: int, x: int, y: int, num_orientations: int
    ) -> tuple[int, int, int, int]:
        """The legal placement nearest to an illegal one; ties go to the lower index.

        Squared distance on the lattice; another orientation costs more than any distance, another
        item more than that.
        """
        step = self.rules.grid_step
        xs, ys = (-(-size // step) for size in self.heightmap.shape)
        far = xs * xs + ys * ys
        mask = self.mask(num_orientations)
        best, best_cost = (slot, orientation, x, y), 4 * far
        for s, r, i, j in np.argwhere(mask).tolist():
            cost = (i - x // step) ** 2 + (j - y // step) ** 2
            cost += far * (r != orientation) + 2 * far * (s != slot)
            if cost < best_cost:
                best, best_cost = (s, r, i * step, j * step), cost
        return best

    def place(self, slot: int, orientation: int, x: int, y: int, found: Placement) -> None:
        """Raise the heightmap to the placed item's upper surface and take it off the queue."""
        position = self.queue.pop(slot)
        top = self.items[position].top[orientation]
        assert top is not None
        for u, v in np.argwhere(np.isfinite(top)):
            raised = FLOAT(found.z + top[u, v])
            self.heightmap[x + u, y + v] = max(self.heightmap[x + u, y + v], raised)
        self.packed.append(position)
        self.rest.append(found.z)
        self.stable.append(found.stable)
        self.support.append(found.support_ratio)

    def step(self, slot: int, orientation: int, x: int, y: int, num_orientations: int) -> float:
        """Take one decision (x, y in cells) and return the reward."""
        if self.done:
            return 0.0
        before = self.metrics()
        found = self.check(slot, orientation, x, y)
        legal = found.legal
        if not legal and self.rules.illegal_action == "project":
            slot, orientation, x, y = self.nearest(slot, orientation, x, y, num_orientations)
            found = self.check(slot, orientation, x, y)
        self.steps += 1
        self.illegal_actions += not legal
        if found.legal:
            self.place(slot, orientation, x, y, found)
        after = self.metrics()
        stopped = not legal and self.rules.illegal_action == "terminate"
        self.terminated = stopped or not self.queue or not self.any_legal(num_orientations)
        self.truncated = self.steps >= self.rules.max_steps
        return reward(self.rules.reward, before, after, legal)

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    def metrics(self) -> dict[str, float]:
        """Utilization, compactness, pyramidality and the rest, never clipped, 0 when empty."""
        volume = sum(self.items[n].volume for n in self.packed)
        base = self.heightmap.size * self.rules.cell**2
        peak = float(self.heightmap.max())
        under = float(self.heightmap.sum(dtype=np.float64)) * self.rules.cell**2
        count = len(self.packed)
        return {
            "utilization": volume / (base * self.rules.height),
            "compactness": volume / (base * peak) if peak > 0 else 0.0,
            "pyramidality": volume / under if under > 0 else 0.0,
            "stability": sum(self.stable) / count if count else 0.0,
            "support_ratio": sum(self.support) / count if count else 0.0,
            "items_packed": float(count),
            "height_ratio": peak / self.rules.height,
        }


def objective(metrics: dict[str, float]) -> float:
    """``J = 0.75 C + 0.25 P + 0.25 S``. Huang et al., RA-L 2023, section III."""
    return (
        0.75 * metrics["compactness"] + 0.25 * metrics["pyramidality"] + 0.25 * metrics["stability"]
    )


def void(metrics: dict[str, float]) -> float:
    """Space under the heightmap that no item fills, as a share of the container's volume."""
    if metrics["pyramidality"] == 0:
        return 0.0
    return metrics["utilization"] / metrics["pyramidality"] - metrics["utilization"]


def reward(
    weights: dict[str, float], before: dict[str, float], after: dict[str, float], legal: bool
) -> float:
    """Weighted sum of the reward terms of one decision."""
    terms = {
        "objective": objective(after) - objective(before),
        "utilization": after["utilization"] - before["utilization"],
        "item": after["items_packed"] - before["items_packed"],
        "height": before["height_ratio"] - after["height_ratio"],
        "void": void(before) - void(after),
        "illegal": 0.0 if legal else -1.0,
    }
    return sum(weight * terms[name] for name, weight in weights.items())
