"""A score for every placement, by one fully convolutional network that all orientations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.maps import (
    GROUND,
    coarse,
    coordinates,
    fits,
    folded,
    ground_cells,
    legal_mean,
    per_orientation,
    with_point_terms,
)
from agents.networks.precision import check_mode, runs_in_bf16
from agents.networks.readouts.values import ActionNetwork, ValueReadout, scaled
from agents.options import option_groups
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.kernels import placement_planes
from packing_env.types import ParameterError
from packing_env.values import Count, Whole

_SCALARS = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES)
_SIZE = len(ITEM_FEATURES) + ORIENTATION_FEATURES.index("size_x")
_PEAK = len(ITEM_FEATURES) + ORIENTATION_FEATURES.index("peak")
_SHARED = 3  # heightmap, x, y
_OWN = 3  # rest height, height after the placement, gap below it
_VALUE_WIDTH = 64
_FINE = 16  # largest side, in points, of a lattice that needs no folding


@dataclass(frozen=True)
class MapSize:
    """Sizes and inputs of :class:`ScoreMaps`.

    Attributes:
        channels: Width of the convolutions.
        depth: Number of residual 3 x 3 convolutions after the stem.
        fold: Lattice cells per coarse cell along each axis. None means 1 on lattices of at most 16
            points a side, else 4.
        ground: Cells along each side of the heightmap for the value; larger maps are pooled to this
            size.
    """

    channels: Count = 32
    depth: Whole = 4
    fold: Count | None = None
    ground: Count = GROUND


@dataclass(frozen=True)
class Planes:
    """Maps to score: P maps per row, one per item and orientation.

    Attributes:
        heightmap: Heights divided by H.
        rest: Rest heights divided by H; 1 if illegal.
        scalars: Features of item and orientation.
        legal: True if a placement is legal.
    """

    heightmap: Float[Tensor, "B X Y"]
    rest: Float[Tensor, "B P Xs Ys"]
    scalars: Float[Tensor, "B P F"]
    legal: Bool[Tensor, "B P XsYs"]


def all_planes(observed: Sequence[Tensor]) -> Planes:
    """Return the maps of all items and orientations, from the inputs of :class:`ScoreMaps`."""
    heightmap, drop_height, item, orientation, mask = observed
    items, orientations = drop_height.shape[1:3]
    return Planes(
        heightmap,
        drop_height.flatten(1, 2),
        per_orientation(item, orientation, items).flatten(1, 2),
        mask.view(len(mask), items * orientations, -1),
    )


class ScoreMaps(ActionNetwork):
    """Values of all placements (``placement`` mode): a map of scores per item and orientation.

    Each orientation of each visible item is an image on the action lattice. It holds the rest
    heights (1 where illegal), the container's heightmap and the coordinates. The heightmap and the
    coordinates are the same in all images and are convolved once. The features of item and
    orientation shift the channels. The images are folded ``fold x fold`` into channels (Shi et al.,
    CVPR 2016). So the convolutions run on a coarse grid with a wide receptive field, and the output
    is unfolded to the lattice. A linear term per cell, whose weights depend on the features,
    restores details that folding blurs.

    Each image has two more planes: the height after the placement, and the gap below it
    (:func:`packing_env.kernels.placement_planes`). Halfway through the convolutions, all cells of a
    map get the mean and the maximum of each channel (a global token: Wu, "Accelerating self-play
    learning in Go", 2019, section 4.1).

    Dueling (Wang et al., ICML 2016) is per map: ``Q(s, m, p) = V(s, m) + A(s, m, p) - mean over the
    legal placements of map m of A``. So the value of one action needs only one map
    (:meth:`value_of`), which makes an update cheap with 24 orientations.

    Reads ``observation`` (``heightmap``, ``drop_height``, ``item_features``,
    ``orientation_features``) and ``action_mask``; writes ``action_value [*batch, A]`` float32.

    Args:
        env: Determines the shapes; its action mode must be ``placement``.
        readout: Meaning of a map's outputs: one value per placement, or a distribution.
        size: See :class:`MapSize`; each field is a keyword.
        dueling: Whether to add a value per map and centre the advantages.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions, or ``"auto"`` (bf16 if the device
            supports it natively).
    """

    action_modes = ("placement",)
    grid: Tensor

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        readout: Callable[[int], ValueReadout] = ValueReadout,
        size: MapSize = MapSize(),
        dueling: bool = True,
        precision: str = "auto",
    ) -> None:
        check_mode(self, env)
        names = ("heightmap", "drop_height", "item_features", "orientation_features")
        keys = [*(("observation", name) for name in names), "action_mask"]
        channels, fold = size.channels, size.fold
        super().__init__(keys, readout, 2 * channels + _VALUE_WIDTH)
        self.stride = env.params.grid_step
        self.autocast = runs_in_bf16(precision, env.device)
        self.register_buffer("grid", coordinates(env.params.lattice), persistent=False)
        if fold is None:
            fold = 1 if max(env.params.lattice) <= _FINE else 4
        self.fold = fold
        self.gains = (channels, channels, _VALUE_WIDTH)
        pixels, out = fold * fold, self.readout
        self.own_stem = nn.Conv2d(_OWN * pixels, channels, 3, padding=1)
        self.shared_stem = nn.Conv2d(pixels * _SHARED, channels, 3, padding=1, bias=False)
        self.scalar_stem = nn.Linear(_SCALARS, channels)
        self.blocks = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(size.depth)
        )
        self.token = nn.Linear(2 * channels, channels)
        self.map_scores = out.linear(channels, pixels * out.num_scores, small=True)
        self.cell_hidden = out.linear(_SCALARS, channels)
        self.cell_weights = out.linear(channels, out.num_scores * (_SHARED + _OWN), small=True)
        if not (dueling or out.is_additive):
            raise ParameterError(
                "network.dueling=false leaves a mixture's distributions fixed; set "
                "agent.mixture=null, or network.dueling=true"
            )
        cells = ground_cells(env.params.grid, size.ground)
        self.value = _MapValue(out, cells) if dueling else None
        self.to(env.device)
        self.to(memory_format=torch.channels_last)

    def streams(
        self, observed: Sequence[Tensor], gain: Float[Tensor, "B 1 D"] | None
    ) -> tuple[Float[Tensor, "B P V"], Float[Tensor, "B P S XsYs"]]:
        """Return values and scores of all maps."""
        return self.judge(all_planes(observed), gain)

    def streams_of(
        self,
        observed: Sequence[Tensor],
        action: Int[Tensor, " B"],
        gain: Float[Tensor, "B N D"] | None,
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B N S 1"]]:
        """Return values and scores of one placement per row, computed from its map alone."""
        heightmap, drop_height, item, orientation, mask = observed
        _, items, orientations, xs, ys = drop_height.shape
        plane, place = action // (xs * ys), action % (xs * ys)
        rows = torch.arange(len(action), device=action.device)
        of_orientation = orientation[:, :items].flatten(1, 2)[rows, plane]
        planes = Planes(
            heightmap,
            drop_height.flatten(1, 2)[rows, plane][:, None],
            torch.cat((item[rows, plane // orientations], of_orientation), -1)[:, None],
            mask.view(len(mask), items * orientations, -1)[rows, plane][:, None],
        )
        value, score = self.judge(planes, gain)
        place = place.view(-1, 1, 1, 1).expand(*score.shape[:3], 1)
        return value, score.gather(3, place)

    def judge(
        self, planes: Planes, gain: Float[Tensor, "B N D"] | None
    ) -> tuple[Float[Tensor, "B P V"], Float[Tensor, "B P S XsYs"]]:
        """Return values and scores of the given maps.

        P is N if there is one map per row and N gains, or if there are N maps and one gain.
        """
        # 1. Scores: convolutions, and the linear term of each point.
        gains = (None, None, None) if gain is None else gain.split(self.gains, -1)
        heights = planes.heightmap
        ground, own = self.ground(heights), self.images(planes)
        with torch.autocast(heights.device.type, torch.bfloat16, enabled=self.autocast):
            detail = self.detail(ground, own, planes.scalars, gains[0])
        hidden = scaled(functional.relu(self.cell_hidden(planes.scalars)), gains[1])
        weights = self.cell_weights(hidden).unflatten(-1, (-1, _SHARED + _OWN))
        shared = torch.cat((ground, self.grid.expand(len(ground), *self.grid.shape)), 1)
        score = with_point_terms(detail.float(), own.flatten(3), shared.flatten(2), weights)
        if self.value is None:
            return score.new_zeros(self.readout.num_values), score
        # 2. Dueling: the value of each map, and its scores centred over the legal placements.
        legal = planes.legal.to(score.dtype)
        centre = legal_mean(score, legal[:, :, None])
        features = torch.cat((planes.scalars, fits(planes.rest.flatten(2), legal)), -1)
        value = self.value(heights, features, gains[2])
        if self.readout.is_additive:  # the same result in fewer passes over the placements
            return value - centre, score
        return value, score - centre[..., None]

    def ground(self, heightmap: Float[Tensor, "B X Y"]) -> Float[Tensor, "B 1 Xs Ys"]:
        """Return the highest cell from each point of the lattice up to the next point."""
        ground = heightmap[:, None]
        if self.stride == 1:
            return ground
        return functional.max_pool2d(ground, self.stride, self.stride, ceil_mode=True)

    def images(self, planes: Planes) -> Float[Tensor, "B P C Xs Ys"]:
        """Return the images of each map: rest heights and the two other planes."""
        size, peak = planes.scalars[..., _SIZE : _SIZE + 2], planes.scalars[..., _PEAK]
        return placement_planes(planes.heightmap, planes.rest, size, peak, self.stride)

    def detail(
        self,
        ground: Float[Tensor, "B 1 Xs Ys"],
        own: Float[Tensor, "B P C Xs Ys"],
        scalars: Float[Tensor, "B P F"],
        gain: Float[Tensor, "B N C"] | None,
    ) -> Float[Tensor, "B P S XsYs"]:
        """Return the convolutional part of the scores."""
        # 1. The stem. The coordinates' part is the same in all rows, so it is computed once.
        xs, ys = own.shape[-2:]
        hidden = self.own_stem(self._folded(own.flatten(0, 1)))
        of_ground, of_grid = self.shared_stem.weight.tensor_split((self.fold**2,), 1)
        shift = functional.conv2d(self._folded(ground), of_ground, padding=1)
        shift = shift + functional.conv2d(self._folded(self.grid[None]), of_grid, padding=1)
        shift = shift[:, None] + self.scalar_stem(scalars)[..., None, None]
        hidden = hidden.add_(shift.flatten(0, 1)).relu_()  # in place: no gradient needs the inputs
        # 2. Residual convolutions, with the token halfway.
        for number, block in enumerate(self.blocks):
            if number == len(self.blocks) // 2:
                token = torch.cat((hidden.mean((2, 3)), hidden.amax((2, 3))), 1)
                hidden = hidden + self.token(token)[..., None, None]
            hidden = hidden + block(hidden).relu_()
        # 3. Scores, unfolded to the lattice.
        if gain is not None:
            images = hidden.unflatten(0, own.shape[:2])
            hidden = (images * gain[..., None, None]).flatten(0, 1)
        maps = self.map_scores(hidden.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if self.fold > 1:
            maps = functional.pixel_shuffle(maps, self.fold)[..., :xs, :ys]
        return maps.unflatten(0, (len(ground), -1)).flatten(3)

    def _folded(self, images: Float[Tensor, "N C Xs Ys"]) -> Float[Tensor, "N Cf Xf Yf"]:
        """Fold neighbours into channels, in the convolutions' dtype and memory format."""
        dtype = torch.bfloat16 if self.autocast else images.dtype
        return folded(images, self.fold).to(dtype, memory_format=torch.channels_last)


class _MapValue(nn.Module):
    """Value V of the container and one item in one orientation.

    The last three features are :data:`~agents.networks.encoders.maps.FIT_FEATURES`.
    """

    def __init__(self, readout: ValueReadout, cells: tuple[int, int]) -> None:
        super().__init__()
        self.cells = cells
        self.ground = readout.linear(cells[0] * cells[1], _VALUE_WIDTH)
        self.features = readout.linear(_SCALARS + 3, _VALUE_WIDTH, bias=False)
        self.out = readout.linear(_VALUE_WIDTH, readout.num_values)

    def forward(
        self,
        heightmap: Float[Tensor, "B X Y"],
        features: Float[Tensor, "B P F"],
        gain: Float[Tensor, "B N D"] | None = None,
    ) -> Float[Tensor, "B P V"]:
        container = self.ground(coarse(heightmap, self.cells))
        hidden = functional.relu(container[:, None] + self.features(features))
        return self.out(scaled(hidden, gain))
