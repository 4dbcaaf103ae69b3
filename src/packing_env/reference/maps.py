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
    """The task's constants (metres).

    ``candidate_range="pct"`` keeps lower corners where the unrotated item would fit, a slip of the
    program of Zhao et al., ICLR 2022, that its published numbers have. With ``whole_cells`` all
    items are cuboids of whole cells: heights are the nearest float32 to a whole number of cells, so
    that they do not depend on what a stack is made of.
    """

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
    candidate_range: str = "container"
    whole_cells: bool = False


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


def nearest_level(height: np.float32, cell: float) -> np.float32:
    """The nearest float32 to the whole number of cells that a height of whole cuboids means."""
    return FLOAT(round(float(height) / cell) * cell)


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


@dataclass
class Touch:
    """What a stability rule may look at: one placement and the ground under its window.

    Attributes:
        cells: Supporting cells of the footprint.
        level: ``[w, h]`` float32 ``heightmap - bottom`` of the item's window, which ends with the
            last row and column of the footprint; -inf outside the footprint, where nothing rests.
        z: Rest height.
        com: Centre of mass, 1/64 cell from the window's corner.
        contact_tol: Metres.
    """

    cells: list[tuple[int, int]]
    level: np.ndarray
    z: np.float32
    com: tuple[int, int]
    contact_tol: float = 0.0

    def area(self) -> int:
        """Cells of the footprint."""
        return int(np.isfinite(self.level).sum())

    def corners(self) -> list[tuple[int, int]]:
        """The four corner cells of the window; a window one cell wide has some of them twice."""
        w, h = self.level.shape
        return [(0, 0), (w - 1, 0), (0, h - 1), (w - 1, h - 1)]


def touch_at(
    heightmap: np.ndarray,
    bottom: np.ndarray,
    x: int,
    y: int,
    z: np.float32,
    com: tuple[int, int] = (0, 0),
    contact_tol: float = 0.0,
) -> Touch:
    """Look at the ground under a placement that leaves the container nowhere."""
    w, h = np.argwhere(np.isfinite(bottom)).max(0) + 1
    level = np.full((w, h), -np.inf, FLOAT)
    for u, v in np.argwhere(np.isfinite(bottom)):
        level[u, v] = FLOAT(heightmap[x + u, y + v] - bottom[u, v])
    cells = supporting_cells(heightmap, bottom, x, y, z, contact_tol)
    return Touch(cells, level, z, com, contact_tol)


def in_hull(points: list[tuple[int, int]], at: tuple[int, int]) -> bool:
    """Whether ``at`` lies in the convex hull of the points, boundary included.

    A vertical line through ``at`` must meet the hull on both sides of it: with ``slope =
    dy / |dx|`` of each point seen from ``at``, the steepest points left and right span the chord
    above it (sum >= 0), the flattest the chord below it (sum <= 0).
    """
    left, right = [], []
    for point_x, point_y in points:
        dx, dy = point_x - at[0], point_y - at[1]
        slope = float(dy) / abs(dx) if dx else 2.0**20 * dy
        if dx <= 0:
            left.append(slope)
        if dx >= 0:
            right.append(slope)
    if not left or not right:
        return False
    return max(left) + max(right) >= 0 and min(left) + min(right) <= 0


def com_hull(cells: list[tuple[int, int]], com: tuple[int, int]) -> bool:
    """Whether the centre of mass lies in the hull of the supporting squares; boundary stable."""
    return in_hull(
        [
            (64 * corner_u, 64 * corner_v)
            for u, v in cells
            for corner_u, corner_v in ((u, v), (u + 1, v), (u, v + 1), (u + 1, v + 1))
        ],
        com,
    )


def center_hull(touch: Touch) -> bool:
    """More than half of the footprint is supported, or the window's centre lies between supports.

    "Between" means in the convex hull of the supporting cells' centres, boundary included; the hull
    may be a segment or a point. Xiong et al., RA-L 2024. (Their program, GOPT, refuses the point.)
    """
    if 2 * len(touch.cells) > touch.area():
        return True
    w, h = touch.level.shape
    centres = [(64 * u + 32, 64 * v + 32) for u, v in touch.cells]
    return in_hull(centres, (32 * w, 32 * h))


def area_corners(touch: Touch) -> bool:
    """Enough of the footprint is supported, and the fewer corners are, the more it must be.

    More than 60 % and all four corners, or more than 80 % and three, or more than 95 %.
    Zhao et al., AAAI 2021, as the paper prints it.
    """
    count, area = len(touch.cells), touch.area()
    corners = sum(corner in touch.cells for corner in touch.corners())
    return (
        (100 * count > 60 * area and corners == 4)
        or (100 * count > 80 * area and corners >= 3)
        or 100 * count > 95 * area
    )


def area_corners_code(touch: Touch) -> bool:
    """Three corners or four must stand at the height of the highest of them, before all else.

    Then more than 95 % of the footprint is supported; or, if those corners are supported, more
    than 85 % (three corners) or 50 % (four).
    Zhao et al., AAAI 2021, as their program has it (Online-3D-BPP-DRL, ``space.py``,
    ``check_box``). There, heights are integers; here they are level up to the contact tolerance.
    Corners outside the footprint lie infinitely low: a disc has none and passes the first test.
    """
    count, area = len(touch.cells), touch.area()
    levels = [touch.level[corner] for corner in touch.corners()]
    tol = FLOAT(touch.contact_tol)
    highest = max(levels)
    corners = sum(bool(level >= FLOAT(highest - tol)) for level in levels)
    if corners < 3:
        return False
    if 100 * count > 95 * area:
        return True
    if highest < FLOAT(touch.z - tol):
        return False
    return 100 * count > (85 if corners == 3 else 50) * area


def is_stable(rule: str, touch: Touch) -> bool:
    """One placement under a named rule."""
    if rule == "none":
        return True
    if rule == "com_hull":
        return com_hull(touch.cells, touch.com)
    if rule == "center_hull":
        return center_hull(touch)
    if rule == "area_corners":
        return area_corners(touch)
    if rule == "area_corners_code":
        return area_corners_code(touch)
    raise ValueError(f"the reference has no stability rule {rule!r} on maps")


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
        com, tol = item.com[orientation], self.rules.contact_tol
        ground = touch_at(self.heightmap, bottom, x, y, z, com, tol)
        return Placement(
            legal=is_stable(rule, ground) and self.in_range(item, x, y),
            z=z,
            stable=is_stable(self.rules.stability_metric, ground),
            support_ratio=len(ground.cells) / ground.area(),
        )

    def in_range(self, item: Item, x: int, y: int) -> bool:
        """Whether the lower corner may be there: with range "pct", the unrotated item would fit."""
        if self.rules.candidate_range == "container":
            return True
        unrotated = item.bottom[0]
        assert unrotated is not None
        w, h = np.argwhere(np.isfinite(unrotated)).max(0) + 1
        return bool(x <= self.heightmap.shape[0] - w and y <= self.heightmap.shape[1] - h)

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
            if self.rules.whole_cells:
                raised = nearest_level(raised, self.rules.cell)
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
