"""A value of heightmaps (what can still be packed), from features of footprints and from cells.

For each of a few footprints, the features describe how low, how firmly and in how many places an
item of that size would rest (:func:`packing_env.kernels.map_features`). The k-th footprint is a
quantile of the items' footprints, so it has the same meaning for other items. The features do not
depend on the directions of x and y. The cells do, so they are turned and mirrored in training.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from copy import copy
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int16, Shaped
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.precision import check_mode
from packing_env import Afterstates, PackingEnv, kernels
from packing_env.kernels.features import FIXED
from packing_env.types import ParameterError
from packing_env.values import Count

_MOST_WINDOWS = 28
"""Cuboids with at most this many different footprints get a window for each of them."""
TYPICAL, _SIDES = "typical", 6
"""Value of ``footprints`` that means pairs of typical sides, and the number of these sides."""
_LEVELS, _FEW_LEVELS = 5, 3
"""Numbers of typical heights of cuboids and of other items."""
_FLAT, _LOOSE = 1.5, 0.5
"""Mean gaps, in cells, below an item that is not a cuboid. Up to the first gap, the item lies flat;
up to the second, it fits the ground.
"""
_BINS = 10
_MOST_CELLS = 32
"""Largest side of a map in cells; larger maps are reduced."""
_RAW_CELLS = 144
"""The network sees every cell of maps up to this size, and the parts of larger maps."""
_PARTS = 8
_LOGARITHM = 0.25


class Windows(NamedTuple):
    """Sizes and heights that define the features of a map; they refer to the reduced map.

    Attributes:
        sizes: Sides of the windows, the longer one first.
        levels: For each typical height of items, the highest rest height at which they still fit.
        bins: Heights; for each of them, the cells that are not higher are counted.
        parts: Number of parts of the map in x and y whose heights the network sees.
        tolerance: Difference of height up to which a corner supports.
        shift: See :func:`packing_env.kernels.map_features`.
        spaces: See :func:`packing_env.kernels.map_features`.
        block: See :class:`packing_env.Afterstates`. The network sees one cell of each block. Cells
            that do not fill a block are never covered.
        reduce: Cells of the map per cell of the reduced map, along one side (after ``block``).
    """

    sizes: list[tuple[int, int]]
    levels: list[int]
    bins: list[int]
    parts: tuple[int, int]
    tolerance: int
    shift: int
    spaces: tuple[float, float]
    block: int
    reduce: int

    def grid(self, cells: tuple[int, int]) -> tuple[int, int]:
        """Return the cells of the reduced map."""
        x_cells, y_cells = (side // self.block for side in cells)
        return -(-x_cells // self.reduce), -(-y_cells // self.reduce)


def measure_windows(
    env: PackingEnv, scale: Afterstates, footprints: int | str | None = None
) -> Windows:
    """Choose windows and levels for the items of an environment; this reads from the device.

    Args:
        env: The environment.
        scale: Units of its maps.
        footprints: See :class:`AfterstateNet`.
    """
    # 1. Footprints: those of cuboids if they are few, otherwise pairs of typical sides.
    catalogue = env.catalogue.tensors()
    real = catalogue["orientation_mask"]
    sides = catalogue["size"][real]
    block = scale.block
    blocks_x, blocks_y = (cells // block for cells in env.params.grid)
    units, reduce = round(scale.units), _reduction((blocks_x, blocks_y))
    x_cells, y_cells = -(-blocks_x // reduce), -(-blocks_y // reduce)
    sides = sides.double() / (block * reduce * env.params.units_per_cell)
    heights = catalogue["peak"][real].double() / scale.unit
    pairs = torch.stack([sides.amax(1), sides.amin(1)], 1).long().unique(dim=0).tolist()
    cuboids = scale.cuboids and reduce == 1 and len(pairs) <= _MOST_WINDOWS
    if footprints is not None:
        cuboids = footprints != TYPICAL
    if isinstance(footprints, int):
        quantiles = torch.linspace(0, len(pairs) - 1, footprints, dtype=torch.float64)
        pairs = [pairs[int(rank)] for rank in quantiles.round()]
        pairs = [[max(a, 1), max(b, 1)] for a, b in pairs]
    if not cuboids:
        chosen = _typical(sides.flatten(), _SIDES, 0.02).clamp(min=2).tolist()
        pairs = [(a, b) for i, a in enumerate(chosen) for b in chosen[: i + 1]]
    # 2. Windows inside the map, and rest heights at which items of typical heights still fit.
    most = min(x_cells, y_cells)
    sizes = [(min(int(a), most), min(int(b), most)) for a, b in pairs]
    levels = (units - _typical(heights, _LEVELS if cuboids else _FEW_LEVELS, 0.1)).clamp(0, units)
    raw = x_cells * y_cells <= _RAW_CELLS
    parts = (x_cells, y_cells) if raw else (min(_PARTS, x_cells), min(_PARTS, y_cells))
    # 3. Scale heights down until the sums over windows fit into 16 bits.
    areas = [a * b for a, b in sizes] + [-(-x_cells // parts[0]) * -(-y_cells // parts[1])]
    shift = 0
    while max(areas) * (units >> shift) >= 2**15:
        shift += 1
    bins = [round(units * k / _BINS) for k in range(_BINS)]
    # Boxes support each other only where they touch.
    touch = 0.0 if env.params.geometry == "boxes" else env.params.tolerance
    tolerance = round(touch / scale.unit)
    per_cell = units * env.params.cell * block * reduce / env.params.height / 2**shift
    spaces = (0.0, 0.5) if cuboids else (_FLAT * per_cell, _LOOSE * per_cell)
    return Windows(sizes, levels.tolist(), bins, parts, tolerance, shift, spaces, block, reduce)


def _reduction(grid: tuple[int, int]) -> int:
    """Return the cells per reduced cell along a side, preferably a divisor of the side."""
    least = -(-max(grid) // _MOST_CELLS)
    even = (k for k in range(least, 2 * least) if grid[0] % k == grid[1] % k == 0)
    return next(even, least)


def _typical(values: Float[Tensor, " n"], count: int, margin: float) -> Int[Tensor, " count"]:
    shares = torch.linspace(margin, 1 - margin, count, device=values.device, dtype=values.dtype)
    return values.quantile(shares).round().long()


class AfterstateValue(nn.Module):
    """Base of the networks of ``agent=afterstate``: fixed features of maps, learned values."""

    action_modes = ("placement", "candidate")
    role = "afterstate values"

    def forward(
        self,
        maps: Int16[Tensor, "N X Y"],
        context: Float[Tensor, "N C"],
        used: Bool[Tensor, " N"] | None = None,
    ) -> Float[Tensor, " N"]:
        """Return the values of maps, in units of ``Afterstates``; undefined where not ``used``."""
        return self.value(self.features(maps, used), context)

    @property
    def chosen(self) -> dict[str, Any]:
        """Options that the network chose from the items; a run saves them."""
        return {}

    def bound_to(self, env: PackingEnv) -> AfterstateValue:
        """Return a value with the same parameters for an environment with other items."""
        return self

    @abstractmethod
    def features(
        self, maps: Int16[Tensor, "N X Y"], used: Bool[Tensor, " N"] | None = None
    ) -> Shaped[Tensor, "N ..."]:
        """Return the features of maps; undefined where ``used`` is False."""

    @abstractmethod
    def value(
        self,
        features: Shaped[Tensor, "N ..."],
        context: Float[Tensor, "N C"],
        *,
        turn: bool = False,
    ) -> Float[Tensor, " N"]:
        """Return the values of maps from their :meth:`features`.

        Args:
            features: Features of the maps.
            context: Additional inputs, ``[N, C]``.
            turn: Whether to mirror maps, and turn square ones; every symmetry gets an equal share
                of the batch.
        """


class AfterstateNet(AfterstateValue):
    """Value of a heightmap and additional inputs, as a multilayer perceptron on features.

    ``prior`` times the share of free volume is added, so that the untrained policy is sensible.

    Args:
        env: Determines footprints and levels; its action mode must be ``placement`` or
            ``candidate``.
        context: Number of additional inputs per map.
        width: Units of the first layer.
        hidden: Units of the second layer.
        prior: Factor of the share of free volume, in the unit of the values.
        footprints: Number of footprints of boxes, or ``"typical"`` for the pairs of six typical
            sides. None uses all footprints if the items are boxes with at most 28 different
            footprints, otherwise ``"typical"``. A run saves the choice, so its weights can be used
            with other items.
    """

    scale: Tensor
    counts: Tensor
    shares: Tensor
    turns: Tensor

    def __init__(
        self,
        env: PackingEnv,
        context: int = 0,
        *,
        width: Count = 128,
        hidden: Count = 32,
        prior: float = 0.7,
        footprints: int | str | None = None,
    ) -> None:
        super().__init__()
        check_mode(self, env)
        number = isinstance(footprints, int) and footprints > 0
        if not number and footprints not in (None, TYPICAL):
            raise ParameterError(
                f"network.footprints={footprints!r}: give a positive number, {TYPICAL}, or null"
            )
        self.prior, self.footprints = prior, footprints
        for name in ("scale", "counts", "shares", "turns"):
            self.register_buffer(name, torch.zeros(0, device=env.device), persistent=False)
        self._measure(env)
        self.first = nn.Linear(len(self.scale) + context, width)
        self.second = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        self.to(env.device)

    @property
    def chosen(self) -> dict[str, Any]:
        """Options that the network chose from the items; a run saves them."""
        return {"footprints": self.footprints}

    def bound_to(self, env: PackingEnv) -> AfterstateNet:
        """Return a value with the same parameters for other items.

        Raises:
            ParameterError: The items need another number of footprints.
        """
        bound = copy(self)
        bound._buffers = dict(self._buffers)
        bound._measure(env)
        if bound.scale.shape != self.scale.shape:
            raise ParameterError(
                f"this value was learned with {len(self.windows.sizes)} footprints, but the items "
                f"have {len(bound.windows.sizes)}; train a value for them"
            )
        return bound

    def value(
        self, features: Float[Tensor, "N F"], context: Float[Tensor, "N C"], *, turn: bool = False
    ) -> Float[Tensor, " N"]:
        """Return the values of maps; ``turn`` turns and mirrors the cells."""
        free = 1.0 - features[:, -len(self.shares) :] @ self.shares
        inputs = self._turned(features) if turn else features
        of_map, of_rest = self.first.weight.split((inputs.shape[1], context.shape[1]), 1)
        # The first layer reads 2 * inputs - 1; scaled weights save a copy of the inputs.
        first = functional.linear(inputs, 2 * of_map, self.first.bias - of_map.sum(1))
        first = first + functional.linear(context, of_rest)
        hidden = torch.relu(self.second(torch.relu(first)))
        return self.last(hidden).squeeze(-1) + self.prior * free

    @torch.no_grad()
    def features(
        self, maps: Int16[Tensor, "N X Y"], used: Bool[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N F"]:
        """Return the features of maps, roughly in [0, 1]; 0 where ``used`` is False."""
        windows = self.windows
        if windows.block > 1:
            across, along = (side // windows.block * windows.block for side in self.grid)
            maps = maps[:, : across : windows.block, : along : windows.block].contiguous()
        if windows.reduce > 1:
            pooled = functional.max_pool2d(maps[:, None].float(), windows.reduce, ceil_mode=True)
            maps = pooled[:, 0].to(torch.int16)
        return kernels.map_features(
            maps,
            windows.sizes,
            windows.levels,
            windows.bins,
            windows.parts,
            height=round(self.units),
            tolerance=windows.tolerance,
            shift=windows.shift,
            spaces=windows.spaces,
            scale=self.scale,
            counts=self.counts,
            used=used,
        )

    def _measure(self, env: PackingEnv) -> None:
        """Set windows and levels for the items of an environment, and each feature's scale."""
        # 1. Windows, levels, and the number of footprints; cuboids have more levels.
        units = Afterstates(env)
        self.units, self.grid = units.units, env.params.grid
        self.windows = measure_windows(env, units, self.footprints)
        if self.footprints is None:
            cuboids = len(self.windows.levels) == _LEVELS
            self.footprints = len(self.windows.sizes) if cuboids else TYPICAL
        cell = env.params.cell * self.windows.block * self.windows.reduce
        self.per_cell = units.units * cell / env.params.height
        grid, parts = self.windows.grid(self.grid), self.windows.parts
        cells = math.prod(grid)
        # 2. Scales of the features, in the kernel's order; counts are used as logarithms.
        height, levels = 1.0 / self.units, len(self.windows.levels)
        scale = [height, 0.25 / cells, 0.5 / cells] + [1.0 / cells] * len(self.windows.bins)
        counts = [False] * len(scale)
        unit = 2**self.windows.shift
        for a, b in self.windows.sizes:
            gap = 0.5 * unit / (a * b * self.per_cell)
            scale += [height, height, height, gap, height, height] + [_LOGARITHM] * (2 * levels)
            counts += [False] * FIXED + [True] * (2 * levels)
        scale += [height] * math.prod(parts)
        # 3. Weights of the map's parts in the free volume, proportional to their areas.
        shares = torch.full((math.prod(parts),), 1.0 / math.prod(parts))
        if parts != grid:
            across, along = (
                torch.bincount(torch.arange(side) * part // side).double()
                for side, part in zip(grid, parts, strict=True)
            )
            area = torch.outer(across, along).flatten()
            scale += (height * unit / area).tolist()
            shares = (area / cells).float()
        device = self.scale.device
        square = self.grid[0] == self.grid[1]
        self.turns = _turns(parts, 1 if parts == grid else 2, square).to(device)
        self.scale, self.shares = torch.tensor(scale, device=device), shares.to(device)
        self.counts = torch.tensor(counts + [False] * (len(scale) - len(counts)), device=device)

    def _turned(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Turn and mirror the cells; rows are in random order and get the symmetries in turn."""
        turns, size = self.turns.shape
        which = torch.arange(len(features), device=features.device) % turns
        cells = features[:, -size:].gather(1, self.turns[which])
        return torch.cat((features[:, :-size], cells), 1)


def _turns(parts: tuple[int, int], maps: int, square: bool) -> Int[Tensor, "turns cells"]:
    """Return the order of the cells in each turned or mirrored image of ``maps`` maps."""
    cells = torch.arange(maps * math.prod(parts)).view(maps, *parts)
    orders = []
    for k in range(8 if square else 4):
        flips = [axis for axis, bit in ((1, 1), (2, 2)) if k & bit]
        flipped = cells.flip(flips)
        orders.append((flipped.transpose(1, 2) if k >= 4 else flipped).flatten())
    return torch.stack(orders)
