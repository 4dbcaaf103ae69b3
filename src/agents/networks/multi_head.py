"""Actor-critic network of the ``multi_head`` mode: item, orientation, x and y, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.actor_critic import DiscreteActorCritic
from agents.networks.encoders.maps import (
    GROUND,
    MapSummary,
    coordinates,
    ground_cells,
    pooled,
)
from agents.networks.readouts.values import start_small
from packing_env.envs import PackingEnv
from packing_env.values import Count, Whole

_IMAGES = 5  # 1 - rest height, legality, heightmap, x, y


@dataclass
class MapEncoding:
    """Encoding of a state, shared by the heads.

    Attributes:
        hidden: ``[B, L, R, D]``, each item in each orientation.
        drop_height: ``[B, L, R, Xs, Ys]``.
        shared: ``[B, 3, Xs, Ys]``: heightmap on the lattice, x, y.
        image: ``[B, Xs, Ys, C]`` of the chosen item and orientation; the head x computes it, and
            the head y reads it again.
    """

    hidden: Tensor
    drop_height: Tensor
    shared: Tensor
    image: Tensor | None = None


class MultiHeadActorCritic(DiscreteActorCritic):
    """Autoregressive scores for the ``multi_head`` mode, and the value of the state.

    Item and orientation are scored by summaries of their maps (:class:`MapSummary`). Then only the
    map of the chosen pair is convolved, together with the heightmap and the coordinates. The head x
    reads the columns of the result (mean and maximum over y). The head y reads the cells of the
    chosen column. So a decision convolves only one map, instead of one per orientation. The value
    reads the summaries of all pairs.

    Scores are logits in PPO and advantages in branching Q-learning.

    Args:
        env: Determines the shapes; its action mode must be ``multi_head``.
        width: Features per item and orientation.
        channels: Width of the convolutions.
        depth: Number of residual 3 x 3 convolutions after the first.
        ground: Cells along each side of the heightmap in the summaries; larger maps are pooled to
            this size.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"``.
    """

    action_modes = ("multi_head",)
    grid: Tensor

    def __init__(
        self,
        env: PackingEnv,
        *,
        width: Count = 64,
        channels: Count = 16,
        depth: Whole = 1,
        ground: Count = GROUND,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        names = ("heightmap", "drop_height", "item_features", "orientation_features")
        self.in_keys = [("observation", name) for name in names]
        self.stride = env.params.grid_step
        self.register_buffer("grid", coordinates(env.params.lattice), persistent=False)
        self.summary = MapSummary(width, ground_cells(env.params.grid, ground))
        self.item = nn.Linear(2 * width, 1)
        self.orientation = nn.Linear(width, 1)
        self.stem = nn.Conv2d(_IMAGES, channels, 3, padding=1)
        self.shift = nn.Linear(width, channels)
        self.blocks = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth)
        )
        self.x = nn.Linear(2 * (channels + _IMAGES), 1)
        self.y = nn.Linear(channels + _IMAGES, 1)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in (self.item, self.orientation, self.x, self.y):
            start_small(last.weight, last.bias)
        self.to(env.device)

    def encode(self, observed: TensorDictBase) -> MapEncoding:
        """Encode observations ``[B]``."""
        heightmap, drop_height, item, orientation = (observed.get(key) for key in self.in_keys)
        ground = functional.max_pool2d(heightmap, self.stride, self.stride, ceil_mode=True)
        grid = self.grid.expand(len(ground), -1, -1, -1)
        return MapEncoding(
            self.summary(heightmap, drop_height, item, orientation),
            drop_height,
            torch.cat((ground[:, None], grid), 1),
        )

    def scores(self, encoding: MapEncoding, chosen: Tensor) -> Tensor:
        """Return the next head's logits: ``[B, L]``, ``[B, R]``, ``[B, Xs]`` or ``[B, Ys]``."""
        head = chosen.shape[1]
        if head == 0:
            return self.item(pooled(encoding.hidden, 2)).squeeze(-1)
        if head == 1:
            return self.orientation(_pick(encoding.hidden, chosen)).squeeze(-1)
        if head == 2:
            encoding.image = self._image(encoding, chosen)
            return self.x(pooled(encoding.image, 2)).squeeze(-1)
        assert encoding.image is not None
        return self.y(_pick(encoding.image, chosen[:, 2:])).squeeze(-1)

    def value(self, encoding: MapEncoding) -> Tensor:
        """Return V of the state, ``[B]``."""
        return self.out(pooled(encoding.hidden.flatten(1, 2), 1)).squeeze(-1)

    def _image(self, encoding: MapEncoding, chosen: Tensor) -> Tensor:
        """Return ``[B, Xs, Ys, C]`` of the chosen item and orientation; 0 where illegal."""
        rest = _pick(encoding.drop_height, chosen)[:, None]
        legal = rest < 1
        inputs = torch.cat((1 - rest, legal.to(rest.dtype), encoding.shared), 1)
        shift = self.shift(_pick(encoding.hidden, chosen))
        hidden = functional.relu(self.stem(inputs) + shift[..., None, None])
        for block in self.blocks:
            hidden = hidden + functional.relu(block(hidden))
        return (torch.cat((hidden, inputs), 1) * legal).permute(0, 2, 3, 1)


def _pick(values: Tensor, chosen: Tensor) -> Tensor:
    """Index the axes of ``values [B, a, b, ...]`` after the batch by ``chosen [B, h]``."""
    rows = torch.arange(len(chosen), device=chosen.device)
    return values[(rows, *chosen.unbind(1))]
