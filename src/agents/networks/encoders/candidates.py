"""Encoder of a list of candidates: tokens that attend to each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.maps import GROUND, coarse, ground_cells
from packing_env.core import candidates
from packing_env.core.observation import ITEM_FEATURES
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError
from packing_env.values import Count, Whole

THERE = -1
"""Column of the feature ``there``: the last one."""
TERRAIN = ("under", "gap", "around")
"""Features that :func:`terrain` computes for each candidate."""
ROOM = ("free_x", "free_y", "headroom")
"""Features that :func:`room` computes for each candidate."""
_LEVEL = 1e-5
"""Heights that differ by less than this (divided by H) count as equal."""


@dataclass(frozen=True)
class CandidateSize:
    """Sizes and inputs of a :class:`CandidateEncoder`.

    Attributes:
        width: Width of a token; a multiple of ``attention_heads``.
        attention_heads: Heads of each attention.
        depth: Blocks of attention.
        ground: Cells along each side of the heightmap in the container's token; larger maps are
            pooled to this size.
    """

    width: Count = 64
    attention_heads: Count = 4
    depth: Whole = 1
    ground: Count = GROUND


class CandidateEncoder(nn.Module):
    """A transformer over the candidates and the container.

    Each candidate is a token made from its features, the terrain around it (:func:`terrain`) and
    the free space at its corner (:func:`room`). One more token describes the items and the
    container, pooled to a few heights. The tokens attend to each other (Vaswani et al., NeurIPS
    2017; pre-norm). So the encoding of a candidate depends on the other candidates, but not on
    their order. No token attends to empty entries of the list. All tokens can attend to the
    container's token, so an empty list gives no NaN.
    """

    def __init__(self, env: PackingEnv, size: CandidateSize) -> None:
        super().__init__()
        width = size.width
        self.cells = ground_cells(env.params.grid, size.ground)
        context = self.cells[0] * self.cells[1] + env.params.num_slots * len(ITEM_FEATURES)
        self.container = nn.Linear(context, width)
        listed = len(candidates.feature_names(env.params))
        features = listed + len(TERRAIN) + len(ROOM)
        self.candidate = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.blocks = nn.ModuleList(
            AttentionBlock(width, size.attention_heads) for _ in range(size.depth)
        )
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        heightmap: Float[Tensor, "B X Y"],
        listed: Float[Tensor, "B K F"],
        item: Float[Tensor, "B S G"],
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B K D"]]:
        """Return the container's token and the candidates' tokens."""
        context = torch.cat((coarse(heightmap, self.cells), item.flatten(1)), -1)
        context = self.container(context)
        features = [listed, terrain(heightmap, listed), room(heightmap, listed)]
        tokens = self.candidate(torch.cat(features, -1))
        tokens = torch.cat((context[:, None], tokens), 1)
        there = functional.pad(listed[..., THERE] > 0, (1, 0), value=True)
        for block in self.blocks:
            tokens = block(tokens, there)
        tokens = self.norm(tokens)
        return tokens[:, 0], tokens[:, 1:]


class AttentionBlock(nn.Module):
    """Attention, and a perceptron per token, both residual (pre-norm)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ParameterError(f"width={width} must be a multiple of attention_heads={heads}")
        self.heads = heads
        self.norms = nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.inner = nn.Linear(width, 3 * width)
        self.outer = nn.Linear(width, width)
        self.own = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Tensor, there: Tensor) -> Tensor:
        """Update ``tokens [B, K, D]``; only tokens that are ``there [B, K]`` are attended to."""
        parts = self.inner(self.norms[0](tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=there[:, None, None]
        )
        tokens = tokens + self.outer(attended.transpose(1, 2).flatten(2))
        return tokens + self.own(self.norms[1](tokens))


def terrain(
    heightmap: Float[Tensor, "B X Y"], listed: Float[Tensor, "B K F"]
) -> Float[Tensor, "B K 3"]:
    """Return heights under and around each candidate, divided by H; zeros for empty entries.

    ``under``: mean height below the item's window. ``gap``: the candidate's rest height minus that
    mean. ``around``: mean height of the cells next to the window. Walls count as height H, so that
    corners stand out.
    """
    # 1. Running sums of the heightmap, framed by walls.
    across, along = heightmap.shape[1:]
    walled = functional.pad(heightmap.double(), (1, 1, 1, 1), value=1.0)
    sums = functional.pad(walled.cumsum(1).cumsum(2), (1, 0, 1, 0))
    # 2. Cells of each candidate's window, from its coordinates relative to the container's sides.
    column = candidates.columns(listed.double())
    x, y = column["x"] * across, column["y"] * along
    x0, y0 = (x + 1e-4).floor().long() + 1, (y + 1e-4).floor().long() + 1
    x1 = (x + column["size_x"] * across - 1e-4).ceil().long() + 1
    y1 = (y + column["size_y"] * along - 1e-4).ceil().long() + 1
    x1, y1 = x1.clamp(max=across + 1).maximum(x0 + 1), y1.clamp(max=along + 1).maximum(y0 + 1)
    # 3. Means over the window, and over its frame of one cell.
    inside, cells = _rectangle(sums, x0, y0, x1, y1)
    wider, more = _rectangle(sums, x0 - 1, y0 - 1, x1 + 1, y1 + 1)
    under = inside / cells
    around = (wider - inside) / (more - cells)
    heights = torch.stack((under, column["z"] - under, around), -1)
    return torch.where(listed[..., THERE, None] > 0, heights, 0.0).float()


def room(
    heightmap: Float[Tensor, "B X Y"], listed: Float[Tensor, "B K F"]
) -> Float[Tensor, "B K 3"]:
    """Return the free space beyond the lower corner of each candidate; zeros for empty entries.

    ``free_x``, ``free_y``: length along x and y from the lower corner to the first cell above the
    candidate's rest height, divided by the container's side. ``headroom``: the free height above
    its rest height, divided by H. Together with the corner, these lengths span an empty maximal
    space (Xiong et al., RA-L 2024).
    """
    column = candidates.columns(listed)
    z, rows = column["z"], torch.arange(len(listed), device=listed.device)[:, None]
    free = []
    for maps, along, across in ((heightmap.mT, "x", "y"), (heightmap, "y", "x")):
        cells = maps.shape[1:]
        line = (column[across] * cells[0] + 1e-4).long().clamp(max=cells[0] - 1)
        start = (column[along] * cells[1] + 1e-4).floor()
        place = torch.arange(cells[1], device=listed.device)
        blocked = (maps[rows, line] > z[..., None] + _LEVEL) & (place >= start[..., None])
        end = torch.where(blocked, place, cells[1]).amin(-1)
        free.append((end - start) / cells[1])
    spaces = torch.stack((*free, 1 - z), -1)
    return torch.where(listed[..., THERE, None] > 0, spaces, 0.0)


def _rectangle(
    sums: Float[Tensor, "B Xp Yp"], x0: Tensor, y0: Tensor, x1: Tensor, y1: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sum over the cells ``x0 <= x < x1, y0 <= y < y1``, and their number."""
    flat, width = sums.flatten(1), sums.shape[2]

    def corner(x: Tensor, y: Tensor) -> Tensor:
        return flat.gather(1, x * width + y)

    total = corner(x1, y1) - corner(x0, y1) - corner(x1, y0) + corner(x0, y0)
    return total, ((x1 - x0) * (y1 - y0)).double()
