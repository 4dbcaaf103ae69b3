"""Values of heightmaps as sums over tables of small patterns (n-tuple networks).

Bledsoe and Browning, 1959, introduced these networks. Lucas, IEEE CIG 2008, and Szubert and
Jaskowski, IEEE CIG 2014, trained them by TD learning in board games. A pattern consists of the
height of one cell, and the clipped differences between it and a few other cells. Equal patterns
share one table entry, at any position.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.afterstate_net import AfterstateValue
from agents.networks.precision import check_mode
from packing_env import Afterstates, PackingEnv

_CLIP = 3
"""Largest difference of height in a pattern."""
_MOST_CELLS = 16
"""Largest side of a map in cells; larger maps are reduced."""
_MOST_LEVELS = 20
"""Heights are quantised to this many levels, or to whole cells if there are fewer."""


class TupleSum(nn.Module):
    """Sum of the table entries of all windows of 2 x 2 cells, lines of 4, and crosses of 5.

    The sum is divided by the square root of the number of windows, so that optimizer steps change
    the value about as much as in a linear layer.

    Args:
        grid: Cells of the map.
        levels: Largest height.
    """

    def __init__(self, grid: tuple[int, int], levels: int) -> None:
        super().__init__()
        span = 2 * _CLIP + 1
        self.sizes = [(levels + 1) * span**others for others in (3, 3, 4)]
        self.table = nn.Parameter(torch.zeros(sum(self.sizes), 1))
        example = self.patterns(torch.zeros(1, *grid, dtype=torch.int32))
        self.scale = 1.0 / math.sqrt(max(1, example.shape[1]))

    def forward(self, levels: Int[Tensor, "N X Y"]) -> Float[Tensor, " N"]:
        """Return the sums of heightmaps in whole levels."""
        total = functional.embedding_bag(self.patterns(levels), self.table, mode="sum")
        return total.squeeze(-1) * self.scale

    def patterns(self, levels: Int[Tensor, "N X Y"]) -> Int[Tensor, "N T"]:
        """Return the entries of all patterns of each map."""
        h = levels.int()
        windows = _entry(h[:, :-1, :-1], [h[:, 1:, :-1], h[:, :-1, 1:], h[:, 1:, 1:]])
        along_x = _entry(h[:, :-3], [h[:, 1:-2], h[:, 2:-1], h[:, 3:]])
        along_y = _entry(h[:, :, :-3], [h[:, :, 1:-2], h[:, :, 2:-1], h[:, :, 3:]])
        sides = [h[:, :-2, 1:-1], h[:, 2:, 1:-1], h[:, 1:-1, :-2], h[:, 1:-1, 2:]]
        crosses = _entry(h[:, 1:-1, 1:-1], sides)
        first, second, _ = self.sizes
        parts = (windows, along_x + first, along_y + first, crosses + first + second)
        return torch.cat([part.flatten(1) for part in parts], 1)


def _entry(cell: Tensor, others: list[Tensor]) -> Tensor:
    place = cell
    for other in others:
        place = place * (2 * _CLIP + 1) + (other - cell).clamp(-_CLIP, _CLIP) + _CLIP
    return place


class TupleTables(AfterstateValue):
    """Value of a heightmap and additional inputs, linear in tables of patterns.

    ``prior`` times the share of free volume is added, as in :class:`agents.networks.AfterstateNet`.

    Args:
        env: Determines map and levels; its action mode must be ``placement`` or ``candidate``.
        context: Number of additional inputs per map; the value is linear in them.
        prior: Factor of the share of free volume, in the unit of the values.
    """

    def __init__(self, env: PackingEnv, context: int = 0, *, prior: float = 0.7) -> None:
        super().__init__()
        check_mode(self, env)
        self.units, self.prior = Afterstates(env).units, prior
        self.reduce = -(-max(env.params.grid) // _MOST_CELLS)
        x_cells, y_cells = (-(-cells // self.reduce) for cells in env.params.grid)
        self.levels = min(round(env.params.height / env.params.cell), _MOST_LEVELS)
        self.tuples = TupleSum((x_cells, y_cells), self.levels)
        self.rest = nn.Linear(context, 1)
        nn.init.zeros_(self.rest.weight)
        nn.init.zeros_(self.rest.bias)
        self.to(env.device)

    def value(
        self, features: Int[Tensor, "N X Y"], context: Float[Tensor, "N C"], *, turn: bool = False
    ) -> Float[Tensor, " N"]:
        """Return the values of maps; ``turn`` mirrors some of them in x, in y or in both."""
        free = 1.0 - features.flatten(1).float().mean(1) / self.levels
        levels = features
        if turn:
            rows = torch.arange(len(levels), device=levels.device)[:, None, None]
            levels = torch.where(rows % 2 == 0, levels, levels.flip(1))
            levels = torch.where(rows // 2 % 2 == 0, levels, levels.flip(2))
        total: Tensor = self.tuples(levels) + self.rest(context).squeeze(-1) + self.prior * free
        return total

    @torch.no_grad()
    def features(
        self, maps: Int16[Tensor, "N X Y"], used: Bool[Tensor, " N"] | None = None
    ) -> Int[Tensor, "N Xr Yr"]:
        """Return the maps, reduced and in whole levels."""
        heights = maps.float()
        if self.reduce > 1:
            heights = functional.max_pool2d(heights[:, None], self.reduce, ceil_mode=True)[:, 0]
        return (heights * (self.levels / self.units)).round().to(torch.int32)
