"""A score for every placement: one fully convolutional network, shared by all orientations."""

from __future__ import annotations

import logging

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.networks")
_SCALARS = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES)
_SHARED = 3  # heightmap, x, y
_COARSE = 8


class ScoreMaps(TensorDictModuleBase):
    """Action values of the ``placement`` mode: a value map per item and orientation.

    Each orientation of each visible item is an image on the action lattice: its rest heights (1
    where illegal), with the container's heightmap and the coordinates, which are the same for all
    and are convolved once. The item's and the orientation's features shift the channels. The images
    are folded ``fold x fold`` into channels (Shi et al., CVPR 2016), so that the convolutions run
    on a coarse grid and see far, and the answer is unfolded to the lattice. A linear term per cell,
    whose weights depend on the features, carries what folding blurs.

    Dueling (Wang et al., ICML 2016) per map: ``Q(s, m, p) = V(s, m) + A(s, m, p) - mean over the
    legal placements of map m of A``. So the value of one action needs one map only
    (:meth:`value_of`): at 24 orientations that is what makes an update cheap.

    Reads ``observation`` (``heightmap``, ``drop_height``, ``item_features``,
    ``orientation_features``) and ``action_mask``; writes ``action_value [*batch, A]`` float32.

    Args:
        env: Sets the shapes; its action mode must be ``placement``.
        channels: Width of the convolutions.
        depth: Number of residual 3 x 3 convolutions after the stem.
        fold: Lattice cells per coarse cell and axis.
        dueling: Whether to add a value per map and centre the advantages.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions (values are float32 either way), or
            ``"auto"``: bf16 where the device computes in it.
    """

    def __init__(
        self,
        env: PackingEnv,
        *,
        channels: int = 32,
        depth: int = 1,
        fold: int = 4,
        dueling: bool = True,
        precision: str = "auto",
    ) -> None:
        super().__init__()
        if env.params.action_mode != "placement":
            raise ParameterError(
                f"ScoreMaps scores placements; action_mode={env.params.action_mode!r} needs "
                f"another network (or set env.action_mode=placement)"
            )
        if precision not in ("fp32", "bf16", "auto"):
            raise ParameterError(f"precision={precision!r} is unknown; choose fp32, bf16 or auto")
        self.in_keys = [
            ("observation", "heightmap"),
            ("observation", "drop_height"),
            ("observation", "item_features"),
            ("observation", "orientation_features"),
            "action_mask",
        ]
        self.out_keys = ["action_value"]
        self.stride = env.params.grid_step
        self.autocast = precision == "bf16" or (precision == "auto" and _computes_bf16(env.device))
        if precision == "auto":
            _LOGGER.info("score maps on %s: %s", env.device, "bf16" if self.autocast else "fp32")
        xs, ys = env.params.lattice
        grid = torch.stack(
            (
                torch.linspace(0, 1, xs)[:, None].expand(xs, ys),
                torch.linspace(0, 1, ys)[None, :].expand(xs, ys),
            )
        )
        self.register_buffer("grid", grid, persistent=False)
        self.fold = fold
        pixels = fold * fold
        self.own_stem = nn.Conv2d(pixels, channels, 3, padding=1)
        self.shared_stem = nn.Conv2d(pixels * _SHARED, channels, 3, padding=1, bias=False)
        self.scalar_stem = nn.Linear(_SCALARS, channels)
        self.blocks = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth)
        )
        self.head = nn.Conv2d(channels, pixels, 1)
        self.cell_weights = nn.Sequential(
            nn.Linear(_SCALARS, channels), nn.ReLU(), nn.Linear(channels, _SHARED + 1)
        )
        self.value = _MapValue() if dueling else None
        for last in (self.head, self.cell_weights[-1]):
            nn.init.normal_(last.weight, std=1e-2)
            nn.init.zeros_(last.bias)
        self.to(env.device)
        self.to(memory_format=torch.channels_last)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``action_value``."""
        seen = [tensordict.get(key) for key in self.in_keys]
        batch = seen[0].shape[:-2]
        value = self.action_value(*(entry.flatten(0, len(batch) - 1) for entry in seen))
        return tensordict.set("action_value", value.unflatten(0, batch))

    def value_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """The value of one action per row: ``action_value`` gathered, from one map per row."""
        heightmap, drop_height, item, orientation, mask = (
            tensordict.get(key) for key in self.in_keys
        )
        _, _, turns, xs, ys = drop_height.shape
        plane, place = action // (xs * ys), action % (xs * ys)
        slot, turn = plane // turns, plane % turns
        rows = torch.arange(len(action), device=action.device)
        value = self.action_value(
            heightmap,
            drop_height[rows, slot, turn][:, None, None],
            item[rows, slot][:, None],
            orientation[rows, slot, turn][:, None, None],
            mask.view_as(drop_height)[rows, slot, turn].flatten(1),
        )
        return value.gather(1, place[:, None]).squeeze(1)

    def action_value(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B L R Xs Ys"],
        item: Float[Tensor, "B S F"],
        orientation: Float[Tensor, "B S R G"],
        mask: Bool[Tensor, "B A"],
    ) -> Float[Tensor, "B A"]:
        """The values of all placements on the given maps."""
        rows, items, turns, xs, ys = drop_height.shape
        legal = mask.view(rows, items * turns, xs * ys)
        scalars = torch.cat(
            (item[:, :items, None].expand(-1, -1, turns, -1), orientation[:, :items]), -1
        ).flatten(1, 2)
        ground = functional.max_pool2d(heightmap, self.stride, self.stride, ceil_mode=True)
        shared = torch.cat((ground[:, None], self.grid.expand(rows, 2, xs, ys)), 1)
        rest = drop_height.flatten(1, 2)
        with torch.autocast(heightmap.device.type, torch.bfloat16, enabled=self.autocast):
            detail = self.detail(shared, rest, scalars)
        weights = self.cell_weights(scalars)
        level = torch.addcmul(detail.float(), weights[..., :1], rest.flatten(2))
        advantage = torch.baddbmm(level, weights[..., 1:], shared.flatten(2))
        if self.value is None:
            return advantage.flatten(1)
        share = legal.to(advantage.dtype)
        centre = torch.linalg.vecdot(advantage, share) / share.sum(2).clamp(min=1)
        fit = torch.stack((rest.amin((2, 3)), rest.mean((2, 3)), share.mean(2)), -1)
        value = self.value(heightmap, torch.cat((scalars, fit), -1))
        return (advantage + (value - centre)[..., None]).flatten(1)

    def detail(
        self,
        shared: Float[Tensor, "B C Xs Ys"],
        rest: Float[Tensor, "B P Xs Ys"],
        scalars: Float[Tensor, "B P F"],
    ) -> Float[Tensor, "B P XsYs"]:
        """The convolutional part of the score maps."""
        rows, planes, xs, ys = rest.shape
        hidden = self.own_stem(self._folded(rest.flatten(0, 1)[:, None]))
        shift = self.shared_stem(self._folded(shared))[:, None]
        shift = shift + self.scalar_stem(scalars)[..., None, None]
        hidden = functional.relu(hidden + shift.flatten(0, 1))
        for block in self.blocks:
            hidden = hidden + functional.relu(block(hidden))
        maps = functional.pixel_shuffle(self.head(hidden), self.fold)[:, 0, :xs, :ys]
        return maps.reshape(rows, planes, xs * ys)

    def _folded(self, images: Float[Tensor, "N C Xs Ys"]) -> Float[Tensor, "N Cf Xf Yf"]:
        """Neighbours as channels; sides are padded with 1 (an illegal rest height)."""
        images = images.to(torch.bfloat16) if self.autocast else images
        xs, ys = images.shape[-2:]
        padded = functional.pad(images, (0, -ys % self.fold, 0, -xs % self.fold), value=1.0)
        folded = functional.pixel_unshuffle(padded, self.fold)
        return folded.contiguous(memory_format=torch.channels_last)


def _computes_bf16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32 on this device, not emulated."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported()


class _MapValue(nn.Module):
    """V of the container and one item in one orientation.

    The last three features say how well the item still fits: its lowest and its mean rest height
    (1 where illegal), and the share of legal placements.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.ground = nn.Linear(_COARSE * _COARSE, width)
        self.features = nn.Linear(_SCALARS + 3, width, bias=False)
        self.out = nn.Linear(width, 1)

    def forward(
        self, heightmap: Float[Tensor, "B X Y"], features: Float[Tensor, "B P F"]
    ) -> Float[Tensor, "B P"]:
        coarse = functional.adaptive_avg_pool2d(heightmap[:, None], _COARSE).flatten(1)
        hidden = self.ground(coarse)[:, None] + self.features(features)
        return self.out(functional.relu(hidden)).squeeze(-1)
