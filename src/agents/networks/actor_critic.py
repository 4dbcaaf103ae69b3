"""Networks of an actor and a critic for the modes whose action is one index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.score_maps import ScoreMaps, runs_in_bf16
from packing_env.core import candidates
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

COARSE = 8
"""Cells along each side of the pooled heightmap that a value is computed from."""
FIT_FEATURES = ("lowest", "mean", "share")
"""How well an item in an orientation still fits, see :func:`fits`."""
_FIRST_LOGITS = 0.05  # near to uniform: a policy explores at first


class DiscreteActorCritic(nn.Module, ABC):
    """Scores of a policy's choices, and the value of the state.

    Networks read observations only: whether something is legal is for the policy to mask. The value
    depends on the state alone, not on what any head chose.

    Args:
        env: Sets the shapes.
        precision: ``"fp32"``, ``"bf16"`` for the network, or ``"auto"``: bf16 where the device
            computes in it. What comes out is scored in float32 either way.

    Attributes:
        in_keys: The observations that :meth:`encode` reads.
    """

    action_modes: tuple[str, ...] = ()
    in_keys: list[Any]

    def __init__(self, env: PackingEnv, precision: str) -> None:
        super().__init__()
        if env.params.action_mode not in self.action_modes:
            raise ParameterError(
                f"{type(self).__name__} acts in action_mode {' or '.join(self.action_modes)}, not "
                f"{env.params.action_mode!r}; choose another network or env.action_mode"
            )
        self.autocast = runs_in_bf16(precision, env.device)

    @abstractmethod
    def encode(self, seen: TensorDictBase) -> Any:
        """What all heads and the value share, of the observations ``[B]``."""

    @abstractmethod
    def scores(self, encoding: Any, chosen: Int[Tensor, "B h"]) -> Float[Tensor, "B A"]:
        """Logits of the head that follows those in ``chosen``."""

    @abstractmethod
    def value(self, encoding: Any) -> Float[Tensor, " B"]:
        """V of the state."""


class PlacementActorCritic(DiscreteActorCritic):
    """A logit for every placement by :class:`ScoreMaps`; the value from what still fits.

    Args:
        env: Sets the shapes; its action mode must be ``placement``.
        channels: Width of the convolutions.
        depth: Number of residual 3 x 3 convolutions after the stem.
        fold: Lattice cells per coarse cell and axis.
        width: Width of the value's layers.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"``.
    """

    action_modes = ("placement",)

    def __init__(
        self,
        env: PackingEnv,
        *,
        channels: int = 32,
        depth: int = 1,
        fold: int = 4,
        width: int = 64,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        self.actor = ScoreMaps(
            env, channels=channels, depth=depth, fold=fold, dueling=False, precision=precision
        )
        self.critic = StateValue(env, width)
        self.in_keys = [key for key in self.actor.in_keys if key != "action_mask"]
        self.to(env.device)

    def encode(self, seen: TensorDictBase) -> TensorDictBase:
        """The observations: the actor and the critic share no layer."""
        return seen

    def scores(self, encoding: TensorDictBase, chosen: Tensor) -> Tensor:
        """``[B, L * R * Xs * Ys]``."""
        return self.actor(encoding.select(*self.actor.in_keys)).get("action_value")

    def value(self, encoding: TensorDictBase) -> Tensor:
        """``[B]``."""
        return self.critic(*(encoding.get(key) for key in self.in_keys))


class StateValue(nn.Module):
    """V of the container and of how well the visible items still fit into it.

    Args:
        env: Sets the shapes.
        width: Width of the hidden layers.
    """

    def __init__(self, env: PackingEnv, width: int) -> None:
        super().__init__()
        self.maps = MapSummary(width)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(
        self, heightmap: Tensor, drop_height: Tensor, item: Tensor, orientation: Tensor
    ) -> Float[Tensor, " B"]:
        """From the observations of those names."""
        hidden = self.maps(heightmap, drop_height, item, orientation)
        return self.out(pooled(hidden.flatten(1, 2), 1)).squeeze(-1)


class MapSummary(nn.Module):
    """Each item in each orientation, without its map: features, fit, and the container.

    Args:
        width: Width of the layers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        features = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES) + len(FIT_FEATURES)
        self.ground = nn.Linear(COARSE * COARSE, width)
        self.features = nn.Linear(features, width, bias=False)
        self.hidden = nn.Linear(width, width)

    def forward(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B L R Xs Ys"],
        item: Float[Tensor, "B S F"],
        orientation: Float[Tensor, "B S R G"],
    ) -> Float[Tensor, "B L R D"]:
        """``D = width`` numbers per item and orientation; zeros where nothing is legal."""
        items, turns = drop_height.shape[1:3]
        fit = fits(drop_height)
        features = torch.cat(
            (
                item[:, :items, None].expand(-1, -1, turns, -1),
                orientation[:, :items],
                fit,
            ),
            -1,
        )
        hidden = self.ground(coarse(heightmap))[:, None, None] + self.features(features)
        return functional.relu(self.hidden(functional.relu(hidden))) * (fit[..., -1:] > 0)


def fits(drop_height: Float[Tensor, "B L R Xs Ys"]) -> Float[Tensor, "B L R 3"]:
    """:data:`FIT_FEATURES`: lowest and mean rest height (1 where illegal), share of legal places.

    An observation of a finished row has no mask that says so, but illegal rest heights are 1.
    """
    places = drop_height.flatten(3)
    return torch.stack((places.amin(3), places.mean(3), (places < 1).float().mean(3)), -1)


def coarse(heightmap: Float[Tensor, "B X Y"]) -> Float[Tensor, "B C"]:
    """The heightmap in :data:`COARSE` x :data:`COARSE` means."""
    return functional.adaptive_avg_pool2d(heightmap[:, None], COARSE).flatten(1)


def pooled(hidden: Tensor, dim: int) -> Tensor:
    """Mean and maximum over an axis, side by side in the last."""
    return torch.cat((hidden.mean(dim), hidden.amax(dim)), -1)


class CandidateActorCritic(DiscreteActorCritic):
    """A transformer over the candidates, and a pointer into them.

    Each candidate is a token of its features and of the terrain about it (:func:`terrain`); one
    more token stands for the container and the items. They attend to each other (Vaswani et al.,
    NeurIPS 2017; pre-norm), and the container's token points at a candidate (Vinyals et al.,
    NeurIPS 2015). It attends to itself too, so that a row without candidates gives no NaN.

    Args:
        env: Sets the shapes; its action mode must be ``candidate``.
        width: Width of a token; a multiple of ``attention_heads``.
        attention_heads: Heads of each attention.
        depth: Blocks of attention.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"``.
    """

    action_modes = ("candidate",)

    def __init__(
        self,
        env: PackingEnv,
        *,
        width: int = 64,
        attention_heads: int = 4,
        depth: int = 1,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        self.in_keys = [
            ("observation", "heightmap"),
            ("observation", "candidates"),
            ("observation", "item_features"),
        ]
        context = COARSE * COARSE + env.params.num_slots * len(ITEM_FEATURES)
        self.container = nn.Linear(context, width)
        self.candidate = nn.Sequential(
            nn.Linear(len(candidates.FEATURES) + len(TERRAIN), width),
            nn.ReLU(),
            nn.Linear(width, width),
        )
        self.blocks = nn.ModuleList(_Block(width, attention_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.own = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in (self.query, self.own):
            nn.init.normal_(last.weight, std=_FIRST_LOGITS)
            nn.init.zeros_(last.bias)
        self.to(env.device)

    def encode(self, seen: TensorDictBase) -> tuple[Tensor, Tensor]:
        """The container's token ``[B, D]`` and the candidates' ``[B, K, D]``."""
        heightmap, listed, item = (seen.get(key) for key in self.in_keys)
        context = self.container(torch.cat((coarse(heightmap), item.flatten(1)), -1))
        tokens = self.candidate(torch.cat((listed, terrain(heightmap, listed)), -1))
        tokens = torch.cat((context[:, None], tokens), 1)
        there = functional.pad(listed[..., -1] > 0, (1, 0), value=True)
        for block in self.blocks:
            tokens = block(tokens, there)
        tokens = self.norm(tokens)
        return tokens[:, 0], tokens[:, 1:]

    def scores(self, encoding: tuple[Tensor, Tensor], chosen: Tensor) -> Tensor:
        """``[B, K]``."""
        context, tokens = encoding
        match = torch.einsum("bd,bkd->bk", self.query(context), tokens)
        return match / tokens.shape[-1] ** 0.5 + self.own(tokens).squeeze(-1)

    def value(self, encoding: tuple[Tensor, Tensor]) -> Tensor:
        """``[B]``."""
        return self.out(encoding[0]).squeeze(-1)


class _Block(nn.Module):
    """Attention and a layer of its own for each token, both residual."""

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
        """``tokens [B, K, D]``, of which those ``there [B, K]`` are attended to."""
        parts = self.inner(self.norms[0](tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=there[:, None, None]
        )
        tokens = tokens + self.outer(seen.transpose(1, 2).flatten(2))
        return tokens + self.own(self.norms[1](tokens))


TERRAIN = ("under", "gap", "around")
"""What :func:`terrain` says of each candidate."""


def terrain(
    heightmap: Float[Tensor, "B X Y"], listed: Float[Tensor, "B K F"]
) -> Float[Tensor, "B K 3"]:
    """The heights that each candidate would meet, over H, by sums over rectangles.

    ``under``: mean height below the item's window; ``gap``: how far it rests above that mean;
    ``around``: mean height of the cells next to the window, where the wall is as high as H, so that
    corners stand out. Zeros where there is no candidate.
    """
    across, along = heightmap.shape[1:]
    walled = functional.pad(heightmap.double(), (1, 1, 1, 1), value=1.0)
    sums = functional.pad(walled.cumsum(1).cumsum(2), (1, 0, 1, 0))
    column = dict(zip(candidates.FEATURES, listed.double().unbind(-1), strict=True))
    x, y = column["x"] * across, column["y"] * along
    x0, y0 = (x + 1e-4).floor().long() + 1, (y + 1e-4).floor().long() + 1
    x1 = (x + column["size_x"] * across - 1e-4).ceil().long() + 1
    y1 = (y + column["size_y"] * along - 1e-4).ceil().long() + 1
    x1, y1 = x1.clamp(max=across + 1).maximum(x0 + 1), y1.clamp(max=along + 1).maximum(y0 + 1)
    inside, cells = _rectangle(sums, x0, y0, x1, y1)
    wider, more = _rectangle(sums, x0 - 1, y0 - 1, x1 + 1, y1 + 1)
    under = inside / cells
    around = (wider - inside) / (more - cells)
    found = torch.stack((under, column["z"] - under, around), -1)
    return torch.where(listed[..., -1:] > 0, found, 0.0).float()


def _rectangle(
    sums: Float[Tensor, "B Xp Yp"], x0: Tensor, y0: Tensor, x1: Tensor, y1: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum over the cells ``x0 <= x < x1, y0 <= y < y1`` of each place, and their number."""
    flat, width = sums.flatten(1), sums.shape[2]

    def corner(x: Tensor, y: Tensor) -> Tensor:
        return flat.gather(1, x * width + y)

    total = corner(x1, y1) - corner(x0, y1) - corner(x1, y0) + corner(x0, y0)
    return total, ((x1 - x0) * (y1 - y0)).double()
