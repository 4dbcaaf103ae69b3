"""Networks of an actor and a critic for the modes whose action is one index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.candidate_encoder import CandidateEncoder
from agents.networks.score_maps import COARSE, ScoreMaps, coarse, runs_in_bf16
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

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
    role = "actor and critic"
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


def run(network: DiscreteActorCritic, part: Callable[..., Any], *inputs: Any) -> Any:
    """A part of the network, in its own precision; what is done with the result is not."""
    device = next(network.parameters()).device.type
    with torch.autocast(device, torch.bfloat16, enabled=network.autocast):
        return part(*inputs)


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
        channels: int = 16,
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


def pooled(hidden: Tensor, dim: int) -> Tensor:
    """Mean and maximum over an axis, side by side in the last."""
    return torch.cat((hidden.mean(dim), hidden.amax(dim)), -1)


class CandidateActorCritic(DiscreteActorCritic):
    """A transformer over the candidates (:class:`CandidateEncoder`), and a pointer into them.

    The container's token points at a candidate (Vinyals et al., NeurIPS 2015).

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
        self.encoder = CandidateEncoder(env, width, attention_heads, depth)
        self.query = nn.Linear(width, width)
        self.own = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in (self.query, self.own):
            nn.init.normal_(last.weight, std=_FIRST_LOGITS)
            nn.init.zeros_(last.bias)
        self.to(env.device)

    def encode(self, seen: TensorDictBase) -> tuple[Tensor, Tensor]:
        """The container's token ``[B, D]`` and the candidates' ``[B, K, D]``."""
        return self.encoder(*(seen.get(key) for key in self.in_keys))

    def scores(self, encoding: tuple[Tensor, Tensor], chosen: Tensor) -> Tensor:
        """``[B, K]``."""
        context, tokens = encoding
        match = torch.einsum("bd,bkd->bk", self.query(context), tokens)
        return match / tokens.shape[-1] ** 0.5 + self.own(tokens).squeeze(-1)

    def value(self, encoding: tuple[Tensor, Tensor]) -> Tensor:
        """``[B]``."""
        return self.out(encoding[0]).squeeze(-1)
