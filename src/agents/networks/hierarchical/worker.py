"""The worker's network: a value for every placement of the item that the manager chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.item_views import lattice_maps, thumbnails
from agents.networks.encoders.maps import (
    COARSE,
    FIT_FEATURES,
    coarse,
    coordinates,
    fits,
    folded,
    legal_mean,
    with_point_terms,
)
from agents.networks.encoders.unet import UNet
from agents.networks.readouts.values import flattened, start_small
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.values import Count, Whole

_POINT = 4
"""Inputs of the linear term per point: rest height, ground, x, y."""
_BLOCK_PIXELS = 2**21
"""Number of pixels that are evaluated at once."""


@dataclass(frozen=True)
class WorkerSize:
    """Sizes of the worker's network.

    Attributes:
        worker_width: Channels of the U-Net's first level.
        fold: Points of the action lattice per pixel and axis.
        condition: Length of the vector that modulates the U-Net.
        thumbnail: Largest number of pixels of an orientation's thumbnail along either axis. With 0,
            the images contain the whole top and bottom as channels instead.
    """

    worker_width: Count = 8
    fold: Count = 2
    condition: Count = 32
    thumbnail: Whole = 4


class WorkerNetwork(TensorDictModuleBase):
    """A value for every placement of the item that the manager chose.

    Each orientation of the item is an image on the action lattice, and all of them form one batch.
    The channels are the rest heights (1 where illegal), illegality, the coordinates, and the
    container's heightmap. The heightmap's cells between two points of the lattice are channels
    (space to depth; Shi et al., CVPR 2016). ``fold`` folds the lattice in the same way, and the
    output is unfolded. A U-Net (:class:`agents.networks.encoders.unet.UNet`) scores the images. It
    is modulated by the item's features and a thumbnail of the orientation's top and bottom. With
    ``thumbnail=0`` the image holds all cells of top and bottom in its middle instead
    (:func:`agents.networks.encoders.item_views.lattice_maps`). A linear term per point, whose
    weights depend on the item, adds rest height, ground and coordinates directly to the scores.

    Dueling (Wang et al., ICML 2016) is per image. The value of container, item and orientation is
    computed from a coarse heightmap and from how well the item still fits. The scores are centred
    over the legal placements. So the value of one placement needs only one image
    (:meth:`value_of`).

    Reads ``observation`` (``heights``, ``item_id``, ``item_features``), ``("manager", "action")``
    and the entries of :class:`packing_env.WorkerMaps`; writes ``("worker", "action_value")
    [*batch, R * Xs * Ys]`` float32. The caller masks illegal placements.

    Args:
        env: Determines the shapes and provides the items.
        size: Sizes of the layers.
        autocast: Whether the U-Net runs in bfloat16.
    """

    pictures: Tensor
    grid: Tensor

    def __init__(self, env: PackingEnv, size: WorkerSize, *, autocast: bool) -> None:
        super().__init__()
        names = ("heights", "item_id", "item_features")
        self.in_keys = [("observation", name) for name in names] + [("manager", "action")]
        self.in_keys += [("worker", name) for name in ("drop_height", "orientation_features")]
        self.out_keys = [("worker", "action_value")]
        self.height, self.stride = env.params.height, env.params.grid_step
        self.fold, self.autocast = size.fold, autocast
        maps = env.catalogue.tensors()
        self.window: torch.Size | None = None  # shape of whole maps, if the images hold them
        if size.thumbnail:
            pictures = thumbnails(maps, env.params, size.thumbnail)
        else:
            pictures = lattice_maps(maps, env.params)
            self.window, pictures = pictures.shape[2:], pictures.flatten(2)
        self.register_buffer("pictures", pictures, persistent=False)
        self.register_buffer("grid", coordinates(env.params.lattice), persistent=False)
        features = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES)
        features += pictures.shape[-1] if self.window is None else 0
        self.condition = nn.Sequential(nn.Linear(features, size.condition), nn.ReLU())
        pixels = size.fold * size.fold
        maps_of_cells = 1 if self.window is None else 3
        channels = pixels * (maps_of_cells * self.stride * self.stride + 4)
        self.unet = UNet(channels, pixels, width=size.worker_width, condition=size.condition)
        self.point_weights = nn.Linear(size.condition, _POINT)
        for layer in (self.unet.out, self.point_weights):
            start_small(layer.weight, layer.bias)
        self.value = nn.Sequential(
            nn.Linear(COARSE * COARSE + features + len(FIT_FEATURES), size.condition),
            nn.ReLU(),
            nn.Linear(size.condition, 1),
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        batch, observed = flattened(tensordict, self.in_keys)
        images, places = observed[4].shape[1], observed[4].shape[2:].numel()
        rows = max(1, _BLOCK_PIXELS * self.fold * self.fold // (images * places))
        split = [entry.split(rows) for entry in observed]
        value = torch.cat([self._values(block).flatten(1) for block in zip(*split, strict=True)])
        return tensordict.set(self.out_keys[0], value.unflatten(0, batch))

    def value_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return the value of one placement per row, computed from one image per row."""
        observed = [tensordict.get(key) for key in self.in_keys]
        places = observed[4][0, 0].numel()
        orientation = torch.div(action, places, rounding_mode="floor")
        value = self._values(observed, orientation[:, None])
        return value.flatten(1).gather(1, (action % places)[:, None]).squeeze(1)

    def _values(
        self, observed: Sequence[Tensor], chosen: Int[Tensor, "B O"] | None = None
    ) -> Float[Tensor, "B O Xs Ys"]:
        """Return the values of all orientations of the chosen item, or of the ``chosen`` ones."""
        heights, item_id, item, slot, drop_height, orientation = observed
        rows = torch.arange(len(slot), device=slot.device)
        picked = item_id.gather(1, slot[:, None]).clamp(min=0)
        if chosen is None:
            pictures = self.pictures[picked.squeeze(1)]
        else:
            pictures = self.pictures[picked, chosen]
            drop_height = drop_height[rows[:, None], chosen]
            orientation = orientation[rows[:, None], chosen]
        of_item = item[rows, slot][:, None].expand(-1, orientation.shape[1], -1)
        features = [of_item, orientation]
        if self.window is None:  # the pictures are thumbnails
            features.insert(0, pictures)
        return self.action_value(
            heights / self.height, drop_height, torch.cat(features, -1), pictures
        )

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B R Xs Ys"],
        features: Float[Tensor, "B R F"],
        pictures: Tensor,
    ) -> Float[Tensor, "B R Xs Ys"]:
        """Return the values of the placements on the given maps."""
        # 1. The ground: every cell between two points of the lattice is a channel.
        rows, orientations, xs, ys = drop_height.shape
        x, y = heightmap.shape[1:]
        sides = (0, ys * self.stride - y, 0, xs * self.stride - x)
        cells = functional.pixel_unshuffle(
            functional.pad(heightmap, sides, value=1.0)[:, None], self.stride
        )
        shared = torch.cat((cells.amax(1, keepdim=True), self.grid.expand(rows, 2, xs, ys)), 1)
        # 2. Scores of the U-Net, and the linear term of each point.
        condition = self.condition(features)
        ground = torch.cat((cells, shared[:, 1:]), 1)
        scores = self._detail(drop_height, ground, condition, pictures)
        weights, rest = self.point_weights(condition)[:, :, None], drop_height.flatten(2)
        scores = with_point_terms(
            scores[:, :, None], rest[:, :, None], shared.flatten(2), weights
        ).squeeze(2)
        # 3. Dueling per orientation.
        legal = (rest < 1).to(scores.dtype)
        ground = coarse(heightmap)[:, None].expand(-1, orientations, -1)
        value = self.value(torch.cat((ground, features, fits(rest, legal)), -1))
        return (scores + (value - legal_mean(scores, legal)[..., None])).view_as(drop_height)

    def _detail(
        self,
        drop_height: Float[Tensor, "B R Xs Ys"],
        shared: Float[Tensor, "B C Xs Ys"],
        condition: Float[Tensor, "B R F"],
        pictures: Tensor,
    ) -> Float[Tensor, "B R XsYs"]:
        orientations, xs, ys = drop_height.shape[1:]
        own = torch.stack((drop_height, (drop_height >= 1).to(drop_height.dtype)), 2)
        parts = [own, shared[:, None].expand(-1, orientations, -1, -1, -1)]
        if self.window is not None:
            across, along = self.window[1:]
            left, above = (xs - across) // 2, (ys - along) // 2
            sides = (above, ys - along - above, left, xs - across - left)
            parts.append(functional.pad(pictures.unflatten(2, self.window).float(), sides))
        images = torch.cat(parts, 2).flatten(0, 1)
        images = folded(images, self.fold)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast):
            images = images.contiguous(memory_format=torch.channels_last)
            scores = self.unet(images, condition.flatten(0, 1)).float()
        scores = functional.pixel_shuffle(scores, self.fold)[:, 0, :xs, :ys]
        return scores.flatten(1).unflatten(0, (-1, orientations))
