"""The worker's network: a value for every placement of the item that the manager chose."""

from __future__ import annotations

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
from agents.networks.readouts.values import start_small
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv

_POINT = 4
"""Inputs of the linear term per point: rest height, ground, x, y."""
_BLOCK_PIXELS = 2**21
"""Pixels of the images that are evaluated at a time."""


@dataclass(frozen=True)
class WorkerSize:
    """Sizes of the worker's network.

    Attributes:
        worker_width: Channels of the U-Net's first level.
        fold: Points of the action lattice per pixel and axis.
        condition: Length of the vector that modulates the U-Net.
        thumbnail: Pixels of an orientation's thumbnail along either axis, at most; 0: its whole
            top and bottom are channels of the images instead.
    """

    worker_width: int = 32
    fold: int = 1
    condition: int = 128
    thumbnail: int = 8


class WorkerNetwork(TensorDictModuleBase):
    """A value for every placement of the item that the manager chose.

    All its orientations are images of one batch, on the action lattice: rest heights (1 where
    illegal), illegality, the coordinates, and the container's heightmap, whose cells between two
    points of the lattice are channels (space to depth; ``fold`` folds the lattice itself in the
    same way, and unfolds the output; Shi et al., CVPR 2016). A U-Net
    (:class:`agents.networks.encoders.unet.UNet`) scores them, modulated by the item: its features,
    and the top and bottom of this orientation as a thumbnail. With ``thumbnail=0`` top and bottom
    are in the image instead, every cell of both, in its middle
    (:func:`agents.networks.encoders.item_views.lattice_maps`). A linear term per point, whose
    weights depend on the item, carries rest height, ground and coordinates past the U-Net; it is
    learned first.

    Dueling (Wang et al., ICML 2016) per image: a value of the container and the item in this
    orientation, from a coarse heightmap and how the item still fits, and scores centred over the
    legal placements. An orientation's values depend on no other's, so the value of one placement
    needs one image (:meth:`value_of`).

    Reads ``observation`` (``heights``, ``item_id``, ``item_features``), ``("manager", "action")``
    and the entries that :class:`packing_env.WorkerMaps` wrote; writes ``("worker", "action_value")
    [*batch, R * Xs * Ys]`` float32. Illegal placements are for the caller to mask.

    Args:
        env: Sets the shapes and provides the items.
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
        observed = [tensordict.get(key) for key in self.in_keys]
        batch = observed[3].shape
        images, places = observed[4].shape[-3], observed[4].shape[-2:].numel()
        rows = max(1, _BLOCK_PIXELS * self.fold * self.fold // (images * places))
        blocks = zip(
            *(entry.flatten(0, len(batch) - 1).split(rows) for entry in observed), strict=True
        )
        value = torch.cat([self._block_value(*block).flatten(1) for block in blocks])
        return tensordict.set(self.out_keys[0], value.unflatten(0, batch))

    def _block_value(
        self,
        heights: Tensor,
        item_id: Tensor,
        item: Tensor,
        slot: Tensor,
        drop_height: Tensor,
        orientation: Tensor,
    ) -> Float[Tensor, "B R Xs Ys"]:
        pictures = self._pictures(item_id, slot)
        features = self._features(item, slot, orientation, pictures)
        return self.action_value(heights / self.height, drop_height, features, pictures)

    def value_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return the value of one placement per row, computed from one image per row."""
        heights, item_id, item, slot, drop_height, orientation = (
            tensordict.get(key) for key in self.in_keys
        )
        places = drop_height[0, 0].numel()
        chosen = torch.div(action, places, rounding_mode="floor")
        rows = torch.arange(len(action), device=action.device)
        pictures = self._pictures(item_id, slot, chosen[:, None])
        features = self._features(item, slot, orientation[rows, chosen][:, None], pictures)
        images = drop_height[rows, chosen][:, None]
        value = self.action_value(heights / self.height, images, features, pictures)
        return value.flatten(1).gather(1, (action % places)[:, None]).squeeze(1)

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B R Xs Ys"],
        features: Float[Tensor, "B R F"],
        pictures: Tensor,
    ) -> Float[Tensor, "B R Xs Ys"]:
        """Return the values of the placements on the given maps."""
        rows, orientations, xs, ys = drop_height.shape
        x, y = heightmap.shape[1:]
        sides = (0, ys * self.stride - y, 0, xs * self.stride - x)
        cells = functional.pixel_unshuffle(
            functional.pad(heightmap, sides, value=1.0)[:, None], self.stride
        )
        shared = torch.cat((cells.amax(1, keepdim=True), self.grid.expand(rows, 2, xs, ys)), 1)
        condition = self.condition(features)
        ground = torch.cat((cells, shared[:, 1:]), 1)
        scores = self._detail(drop_height, ground, condition, pictures)
        weights, rest = self.point_weights(condition)[:, :, None], drop_height.flatten(2)
        scores = with_point_terms(
            scores[:, :, None], rest[:, :, None], shared.flatten(2), weights
        ).squeeze(2)
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

    def _pictures(
        self,
        item_id: Int[Tensor, "B S"],
        slot: Int[Tensor, " B"],
        chosen: Int[Tensor, "B O"] | None = None,
    ) -> Tensor:
        """Return the pictures of the chosen item ``[B, R, ...]``, or of chosen orientations."""
        item = item_id.gather(1, slot[:, None]).clamp(min=0)
        return self.pictures[item.squeeze(1)] if chosen is None else self.pictures[item, chosen]

    def _features(
        self,
        item: Float[Tensor, "B S F"],
        slot: Int[Tensor, " B"],
        orientation: Float[Tensor, "B R G"],
        pictures: Tensor,
    ) -> Float[Tensor, "B R FG"]:
        """Return the features of the chosen item per orientation, with thumbnails if it has any."""
        rows = torch.arange(len(slot), device=slot.device)
        chosen = item[rows, slot][:, None].expand(-1, orientation.shape[1], -1)
        thumbnails = [pictures] if self.window is None else []
        return torch.cat((*thumbnails, chosen, orientation), -1)
