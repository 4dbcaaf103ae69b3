"""A value of heightmaps: what can still be packed, from the features of footprints and the cells.

The features say for each of a few footprints how low, how firmly and in how many places an item
of that size would rest (:func:`packing_env.kernels.map_features`). They do not depend on the
directions of x and y; the cells do, and are turned and mirrored when the network learns.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.precision import check_mode
from packing_env import Afterstates, PackingEnv, kernels
from packing_env.kernels.features import FIXED

_MOST_WINDOWS = 28
"""Footprints of cuboids, if there are no more kinds."""
_SIDES = 6
"""Sides whose pairs are the windows of other items."""
_LEVELS = 5
_BINS = 10
_MOST_CELLS = 32
"""Larger maps are pooled until no side has more cells."""
_POOLED = 8
"""Cells along the sides of the pooled maps that the network sees of maps of more than 144 cells."""
_RAW_CELLS = 144
_MOST = 1.1
"""Features are cut off here; heights of places that do not exist are."""


class Windows(NamedTuple):
    """Sizes and heights that the features of a map are measured with, on the pooled map.

    Attributes:
        sizes: Sides of the windows, longer first.
        levels: Highest rest heights of items of typical heights.
        bins: Heights that cells are counted below.
        tolerance: Difference of height within which a corner supports.
        shift: See :func:`packing_env.kernels.map_features`.
        pool: Cells of the map along a cell of the pooled map.
    """

    sizes: list[tuple[int, int]]
    levels: list[int]
    bins: list[int]
    tolerance: int
    shift: int
    pool: int


def measure_windows(env: PackingEnv, scale: Afterstates) -> Windows:
    """Choose windows and levels after the items of an environment."""
    catalogue = env.catalogue.tensors()
    real = catalogue["orientation_mask"]
    units = round(scale.units)
    pool = -(-max(env.params.grid) // _MOST_CELLS)
    grid = tuple(-(-cells // pool) for cells in env.params.grid)
    sides = catalogue["size"][real]
    heights = (catalogue["peak"][real] / scale.unit).round().long()
    pairs = torch.stack([sides.amax(1), sides.amin(1)], 1).unique(dim=0)
    if not scale.cuboids or pool > 1 or len(pairs) > _MOST_WINDOWS:
        wanted = torch.linspace(0.02, 0.98, _SIDES, device=sides.device)
        typical = (sides.double().flatten().quantile(wanted.double()) / pool).round().long()
        chosen = sorted({max(2, int(side)) for side in typical.tolist()})
        chosen += [chosen[-1]] * (_SIDES - len(chosen))
        pairs = torch.tensor([(a, b) for i, a in enumerate(chosen) for b in chosen[: i + 1]])
    most = min(grid)
    sizes = [(min(a, most), min(b, most)) for a, b in pairs.tolist()]
    wanted = torch.linspace(0.1, 0.9, _LEVELS, device=heights.device).double()
    levels = (units - heights.double().quantile(wanted)).round().long().clamp(0, units)
    largest = max(a * b for a, b in sizes)
    shift = 0
    while largest * (units >> shift) >= 2**15:
        shift += 1
    bins = [round(units * k / _BINS) for k in range(_BINS)]
    tolerance = round(env.params.tolerance / scale.unit)
    return Windows(sizes, levels.tolist(), bins, tolerance, shift, pool)


class AfterstateNet(nn.Module):
    """Value of a heightmap and of what else is known, as a multilayer perceptron on features.

    The value is the learned part plus ``prior`` times the free volume over the container's, so that
    the first policy is sane.

    Args:
        env: Sets the footprints and levels; its action mode must be ``placement``.
        context: Further inputs per map.
        width: Units of the first layer.
        hidden: Units of the second layer.
        prior: See above, in the unit of the values.
    """

    action_modes = ("placement",)
    sizes: Tensor
    levels: Tensor
    scale: Tensor
    counts: Tensor

    def __init__(
        self,
        env: PackingEnv,
        context: int = 0,
        *,
        width: int = 128,
        hidden: int = 32,
        prior: float = 0.7,
    ) -> None:
        super().__init__()
        check_mode(self, env)
        scale = Afterstates(env)
        windows = measure_windows(env, scale)
        self.units, self.prior = scale.units, prior
        self.per_cell = scale.units * env.params.cell / env.params.height
        self.windows = windows
        self.register_buffer("sizes", torch.tensor(windows.sizes))
        self.register_buffer("levels", torch.tensor(windows.levels))
        for name in ("scale", "counts"):
            self.register_buffer(name, torch.zeros(0), persistent=False)
        self.grid = env.params.grid
        self._set_windows()
        cells = math.prod(self.grid)
        self.raw = cells <= _RAW_CELLS
        seen = cells if self.raw else 2 * _POOLED**2
        self.first = nn.Linear(len(self.scale) + seen + context, width)
        self.second = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        self.to(env.device)

    def forward(
        self, maps: Int16[Tensor, "N X Y"], context: Float[Tensor, "N C"], *, turn: bool = False
    ) -> Float[Tensor, " N"]:
        """Return the values of maps in units of height.

        Args:
            maps: Heights.
            context: Further inputs.
            turn: Turn and mirror the cells of each map at random.
        """
        return self.value(self.features(maps), maps, context, turn=turn)

    def value(
        self, features: Tensor, maps: Tensor, context: Tensor, *, turn: bool = False
    ) -> Float[Tensor, " N"]:
        """Return the values of maps whose :meth:`features` are known."""
        heights = maps.float() * (1.0 / self.units)
        free = 1.0 - heights.mean((1, 2))
        cells = self._turned(heights) if turn else heights
        if not self.raw:
            cells = cells[:, None]
            highest = functional.adaptive_max_pool2d(cells, _POOLED)
            mean = functional.adaptive_avg_pool2d(cells, _POOLED)
            cells = torch.cat((highest, mean), 1)
        inputs = torch.cat((features, 2.0 * cells.flatten(1) - 1.0, context), 1)
        found = torch.relu(self.second(torch.relu(self.first(inputs))))
        return self.last(found).squeeze(-1) + self.prior * free

    @torch.no_grad()
    def features(self, maps: Int16[Tensor, "N X Y"]) -> Float[Tensor, "N F"]:
        """Return the features of maps, scaled to about [-1, 1]."""
        windows = self.windows
        if windows.pool > 1:
            pooled = functional.max_pool2d(maps[:, None].float(), windows.pool, ceil_mode=True)
            maps = pooled[:, 0].to(torch.int16)
        found = kernels.map_features(
            maps,
            windows.sizes,
            windows.levels,
            windows.bins,
            height=round(self.units),
            tolerance=windows.tolerance,
            shift=windows.shift,
        ).float()
        return torch.where(self.counts, found.log1p(), found).mul_(self.scale).clamp_(max=_MOST)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        """Load the parameters, and take the windows that they were learned with."""
        super()._load_from_state_dict(*arguments)
        self._set_windows()

    def _set_windows(self) -> None:
        """Take sizes and levels from the buffers, and the scale of each feature from them."""
        sizes = [(int(a), int(b)) for a, b in self.sizes.tolist()]
        self.windows = self.windows._replace(sizes=sizes, levels=self.levels.tolist())
        cells = math.prod(-(-side // self.windows.pool) for side in self.grid)
        height, count = 1.0 / self.units, 0.25
        whole = [height, 1.0 / (4 * cells), 1.0 / (2 * cells)]
        scale = whole + [1.0 / cells] * len(self.windows.bins)
        counts = [False] * len(scale)
        for a, b in sizes:
            gap = 0.5 * 2**self.windows.shift / (a * b * self.per_cell)
            scale += [height, height, height, gap, height]
            counts += [False] * FIXED
            scale += [count] * (2 * len(self.windows.levels))
            counts += [True] * (2 * len(self.windows.levels))
        self.scale = torch.tensor(scale, device=self.sizes.device)
        self.counts = torch.tensor(counts, device=self.sizes.device)

    def _turned(self, heights: Tensor) -> Tensor:
        """Return the maps in equal shares of all their turns and mirror images.

        The order of a batch is random, so no draw is needed.
        """
        square = self.grid[0] == self.grid[1]
        parts = list(heights.chunk(8 if square else 4))
        for k, part in enumerate(parts):
            flips = [axis for axis, bit in ((1, 1), (2, 2)) if k & bit]
            turned = part.flip(flips) if flips else part
            parts[k] = turned.transpose(1, 2) if k >= 4 else turned
        return torch.cat(parts)
