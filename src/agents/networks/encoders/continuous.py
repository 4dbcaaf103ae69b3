"""Encoder of the container and of all placements, for the ``continuous`` mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.maps import (
    FIT_FEATURES,
    GROUND,
    coarse,
    fits,
    folded,
    ground_cells,
    per_orientation,
)
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.envs.checks import check_observed
from packing_env.values import Count

NUM_FEATURES = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES) + len(FIT_FEATURES)
"""Number of features of an item in an orientation."""
_THERE = ORIENTATION_FEATURES.index("there")
_IMAGES = 5  # ground, lowest rest height, share of legal orientations, x, y


def tent(
    at: Float[Tensor, "*batch"], size: int, reach: float = 1.0
) -> Float[Tensor, "*batch {size}"]:
    """Return weights of ``size`` cells around a coordinate in [-1, 1]; they sum to 1.

    The centre of cell i is ``(2 i + 1) / size - 1``. With ``reach`` 1 this is linear interpolation
    between the two nearest centres. With a larger reach, the gradient with respect to the
    coordinate covers cells further away.
    """
    cells = torch.arange(size, device=at.device, dtype=at.dtype)
    place = ((at[..., None] + 1) * size - 1) / 2
    weight = (1 - (cells - place.clamp(0, size - 1)).abs() / reach).clamp(min=0)
    return weight / weight.sum(-1, keepdim=True)


def centres(size: int) -> Float[Tensor, " {size}"]:
    """Return the coordinates in [-1, 1] of the centres of ``size`` cells."""
    return (2 * torch.arange(size) + 1) / size - 1


@dataclass(frozen=True)
class EncoderSize:
    """Sizes of an encoder and of the layers after it.

    Attributes:
        channels: Width of the convolutions.
        width: Width of the summary and of the hidden layers.
        fold: Lattice cells per coarse cell along each axis; the convolutions run on coarse cells.
        ground: Cells along each side of the heightmap in the summary; larger maps are pooled to
            this size.
    """

    channels: Count = 32
    width: Count = 128
    fold: Count = 4
    ground: Count = GROUND


@dataclass(frozen=True)
class View:
    """Encoding of a batch of states; P = L R planes, one per item and orientation.

    Attributes:
        cells: Features of the coarse cells.
        ground: Height of the ground divided by H.
        rest: Rest heights divided by H; 1 if illegal.
        legal: 1 if a placement is legal.
        features: Features of item and orientation, and features of how well they still fit.
        summary: Features of the whole state; W = 0 if the encoder makes no summary.
    """

    cells: Float[Tensor, "B C Xf Yf"]
    ground: Float[Tensor, "B 1 Xs Ys"]
    rest: Float[Tensor, "B P Xs Ys"]
    legal: Float[Tensor, "B P Xs Ys"]
    features: Float[Tensor, "B P F"]
    summary: Float[Tensor, "B W"]


class Encoder(nn.Module):
    """A small convolutional encoder of the container, with pooled features of the items.

    The images are folded ``fold x fold`` into channels (Shi et al., CVPR 2016), so the convolutions
    run on a coarse grid with a wide receptive field. The output also contains the fine maps.

    Reads ``heightmap``, ``item_features``, ``orientation_features`` and ``drop_height``.

    Args:
        env: Determines the shapes.
        size: Sizes of the layers.
        autocast: Whether the convolutions run in bfloat16.
        summary: Whether to make a summary of the state.
    """

    x: Tensor
    y: Tensor

    def __init__(
        self, env: PackingEnv, size: EncoderSize, *, autocast: bool, summary: bool = True
    ) -> None:
        super().__init__()
        channels, width = size.channels, size.width
        names = ("heightmap", "item_features", "orientation_features", "drop_height")
        check_observed(env, names, "the network")
        self.in_keys = [("observation", name) for name in names]
        self.step, self.fold, self.autocast = env.params.grid_step, size.fold, autocast
        self.num_items = env.params.num_visible
        xs, ys = env.params.lattice
        self.register_buffer("x", centres(xs)[:, None].repeat(1, ys), persistent=False)
        self.register_buffer("y", centres(ys)[None, :].repeat(xs, 1), persistent=False)
        self.stem = nn.Conv2d(_IMAGES * size.fold * size.fold, channels, 3, padding=1)
        self.block = nn.Conv2d(channels, channels, 3, padding=1)
        self.summarizes = summary
        if summary:
            self.cells = ground_cells(env.params.grid, size.ground)
            self.ground = nn.Linear(self.cells[0] * self.cells[1] + channels, width)
            self.items = nn.Linear(2 * NUM_FEATURES, width, bias=False)

    def forward(self, observed: Sequence[Tensor]) -> View:
        """Encode the observations of ``in_keys``, ``[B, ...]``."""
        heightmap, item, orientation, drop_height = observed
        # 1. Maps.
        ground = functional.max_pool2d(heightmap[:, None], self.step, self.step, ceil_mode=True)
        rest = drop_height.flatten(1, 2)
        legal = (rest < 1).to(rest.dtype)
        cells = self._convolve(ground, rest, legal)
        # 2. Features of each item in each orientation.
        per_plane = per_orientation(item, orientation, self.num_items)
        fit = fits(rest.flatten(2), legal.flatten(2))
        features = torch.cat((per_plane.flatten(1, 2), fit), -1)
        if not self.summarizes:
            return View(cells, ground, rest, legal, features, features.new_empty(len(features), 0))
        # 3. The summary of the existing orientations, the ground and the cells.
        there = orientation[:, : self.num_items, :, _THERE].flatten(1)[..., None]
        existing = features * there
        pooled = torch.cat((existing.sum(1) / there.sum(1).clamp(min=1), existing.amax(1)), -1)
        pooled_ground = torch.cat((coarse(heightmap, self.cells), cells.mean((2, 3))), -1)
        hidden = self.ground(pooled_ground) + self.items(pooled)
        return View(cells, ground, rest, legal, features, functional.relu(hidden))

    def _convolve(self, ground: Tensor, rest: Tensor, legal: Tensor) -> Tensor:
        grid = torch.stack((self.x, self.y)).expand(len(ground), -1, -1, -1)
        lowest, share = rest.amin(1, keepdim=True), legal.mean(1, keepdim=True)
        images = torch.cat((ground, lowest, share, grid), 1)
        images = folded(images, self.fold)
        with torch.autocast(ground.device.type, torch.bfloat16, enabled=self.autocast):
            hidden = functional.relu(self.stem(images))
            return (hidden + functional.relu(self.block(hidden))).float()
