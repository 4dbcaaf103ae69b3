"""The worker's network: a value for every placement of the item that the manager chose."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.item_views import thumbnails
from agents.networks.readout import begin_small
from agents.networks.unet import UNet
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv

_POINT = 4
"""Rest height, ground, x, y: what the linear term per point sees."""
_FIT = 3
"""Lowest and mean rest height and share of legal placements: how the item still fits."""
_COARSE = 8


class WorkerNetwork(TensorDictModuleBase):
    """A value for every placement of the item that the manager chose.

    All its orientations are images of one batch, on the action lattice: rest heights (1 where
    illegal), where nothing is legal, the coordinates, and the container's heightmap, whose cells
    between two points of the lattice are channels (space to depth; ``fold`` folds the lattice
    itself likewise, and unfolds the answer; Shi et al., CVPR 2016). A U-Net scores them
    (:class:`agents.networks.unet.UNet`), modulated by the item: its features, and the top and
    bottom of this orientation as a thumbnail. A linear term per point, whose weights depend on the
    item, carries rest height, ground and coordinates past the U-Net; it is what is learned first.

    Dueling (Wang et al., ICML 2016) per image: a value of the container and the item so turned,
    from a coarse heightmap and from how the item still fits, and scores centred over the legal
    placements. An orientation's values depend on no other's, so the value of one placement needs
    one image (:meth:`value_of`).

    Reads ``observation`` (``heights``, ``item_id``, ``item_features``), ``("manager", "action")``
    and what :class:`packing_env.WorkerMaps` wrote; writes ``("worker", "action_value")
    [*batch, R * Xs * Ys]`` float32. Illegal placements are for the caller to mask.

    Args:
        env: Sets the shapes and brings the items.
        width: Channels of the U-Net's first level.
        fold: Points of the lattice per pixel and axis.
        condition: Length of what modulates the U-Net.
        thumbnail: Pixels of a thumbnail along either axis, at most.
        autocast: Whether the U-Net runs in bfloat16.
    """

    def __init__(
        self,
        env: PackingEnv,
        *,
        width: int,
        fold: int,
        condition: int,
        thumbnail: int,
        autocast: bool,
    ) -> None:
        super().__init__()
        self.in_keys = [
            ("observation", "heights"),
            ("observation", "item_id"),
            ("observation", "item_features"),
            ("manager", "action"),
            ("worker", "drop_height"),
            ("worker", "orientation_features"),
        ]
        self.out_keys = [("worker", "action_value")]
        self.height, self.stride = env.params.height, env.params.grid_step
        self.fold, self.autocast = fold, autocast
        pictures = thumbnails(env.catalogue.tensors(), env.params, thumbnail)
        self.register_buffer("pictures", pictures, persistent=False)
        places = (torch.linspace(0, 1, size) for size in env.params.lattice)
        grid = torch.stack(torch.meshgrid(*places, indexing="ij"))
        self.register_buffer("grid", grid.to(env.device), persistent=False)
        told = pictures.shape[-1] + len(ITEM_FEATURES) + len(ORIENTATION_FEATURES)
        self.condition = nn.Sequential(nn.Linear(told, condition), nn.ReLU())
        pixels = fold * fold
        channels = pixels * (self.stride * self.stride + 4)
        self.unet = UNet(channels, pixels, width=width, condition=condition)
        self.point_weights = nn.Linear(condition, _POINT)
        for layer in (self.unet.out, self.point_weights):
            begin_small(layer.weight, layer.bias)
        self.value = nn.Sequential(
            nn.Linear(_COARSE * _COARSE + told + _FIT, condition),
            nn.ReLU(),
            nn.Linear(condition, 1),
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the values."""
        seen = [tensordict.get(key) for key in self.in_keys]
        batch = seen[3].shape
        flat = (entry.flatten(0, len(batch) - 1) for entry in seen)
        heights, item_id, features, slot, drop_height, turned = flat
        told = self._told(item_id, features, slot, turned)
        value = self.action_value(heights / self.height, drop_height, told)
        return tensordict.set(self.out_keys[0], value.flatten(1).unflatten(0, batch))

    def value_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """The value of one placement per row: ``action_value`` gathered, from one image per row."""
        heights, item_id, features, slot, drop_height, turned = (
            tensordict.get(key) for key in self.in_keys
        )
        places = drop_height[0, 0].numel()
        turn = torch.div(action, places, rounding_mode="floor")
        rows = torch.arange(len(action), device=action.device)
        told = self._told(item_id, features, slot, turned)[rows, turn]
        images = drop_height[rows, turn]
        value = self.action_value(heights / self.height, images[:, None], told[:, None])
        return value.flatten(1).gather(1, (action % places)[:, None]).squeeze(1)

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B R Xs Ys"],
        told: Float[Tensor, "B R F"],
    ) -> Float[Tensor, "B R Xs Ys"]:
        """The values of the placements on the given maps."""
        rows, turns, xs, ys = drop_height.shape
        x, y = heightmap.shape[1:]
        sides = (0, ys * self.stride - y, 0, xs * self.stride - x)
        cells = functional.pixel_unshuffle(
            functional.pad(heightmap, sides, value=1.0)[:, None], self.stride
        )
        shared = torch.cat((cells.amax(1, keepdim=True), self.grid.expand(rows, 2, xs, ys)), 1)
        condition = self.condition(told)
        scores = self._detail(drop_height, torch.cat((cells, shared[:, 1:]), 1), condition)
        weights = self.point_weights(condition)
        scores = torch.addcmul(scores, weights[..., :1], drop_height.flatten(2))
        scores = torch.baddbmm(scores, weights[..., 1:], shared.flatten(2))
        share = (drop_height < 1).flatten(2).to(scores.dtype)
        centre = torch.linalg.vecdot(scores, share) / share.sum(2).clamp(min=1)
        fit = (drop_height.amin((2, 3)), drop_height.mean((2, 3)), share.mean(2))
        coarse = functional.adaptive_avg_pool2d(heightmap[:, None], _COARSE).flatten(1)
        coarse = coarse[:, None].expand(-1, turns, -1)
        value = self.value(torch.cat((coarse, told, torch.stack(fit, -1)), -1))
        return (scores + (value - centre[..., None])).view_as(drop_height)

    def _detail(
        self,
        drop_height: Float[Tensor, "B R Xs Ys"],
        shared: Float[Tensor, "B C Xs Ys"],
        condition: Float[Tensor, "B R F"],
    ) -> Float[Tensor, "B R XsYs"]:
        """What the U-Net makes of the images; their sides are padded with 1, as illegal."""
        turns, xs, ys = drop_height.shape[1:]
        own = torch.stack((drop_height, (drop_height >= 1).to(drop_height.dtype)), 2)
        shared = shared[:, None].expand(-1, turns, -1, -1, -1)
        images = torch.cat((own, shared), 2).flatten(0, 1)
        images = functional.pad(images, (0, -ys % self.fold, 0, -xs % self.fold), value=1.0)
        images = functional.pixel_unshuffle(images, self.fold)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast):
            images = images.contiguous(memory_format=torch.channels_last)
            scores = self.unet(images, condition.flatten(0, 1)).float()
        scores = functional.pixel_shuffle(scores, self.fold)[:, 0, :xs, :ys]
        return scores.flatten(1).unflatten(0, (-1, turns))

    def _told(
        self,
        item_id: Int[Tensor, "B S"],
        features: Float[Tensor, "B S F"],
        slot: Int[Tensor, " B"],
        turned: Float[Tensor, "B R G"],
    ) -> Float[Tensor, "B R FGP"]:
        """What is known of the chosen item, per orientation."""
        rows = torch.arange(len(slot), device=slot.device)
        pictures = self.pictures[item_id[rows, slot].clamp(min=0)]
        item = features[rows, slot][:, None].expand(-1, turned.shape[1], -1)
        return torch.cat((pictures, item, turned), -1)
