"""Actor-critic networks for the modes whose action is one index (``placement``, ``candidate``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from torch import Tensor, nn

from agents.networks.encoders.candidates import CandidateEncoder, CandidateSize
from agents.networks.encoders.maps import MapSummary, ground_cells, pooled
from agents.networks.precision import check_mode, runs_in_bf16
from agents.networks.readouts.values import start_small
from agents.networks.score_maps import MapSize, ScoreMaps
from agents.options import option_groups
from packing_env.envs import PackingEnv
from packing_env.values import Count

_FIRST_LOGITS = 0.05
"""Standard deviation of the last layers' initial weights: small, so that a new policy explores."""


class DiscreteActorCritic(nn.Module, ABC):
    """Base: scores of a policy's choices, and the value of the state.

    The policy masks illegal choices. The value depends on the state alone.

    Args:
        env: Determines the shapes.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"`` (bf16 if the device supports it natively).
            Policies convert the outputs to float32.

    Attributes:
        in_keys: The observations that :meth:`encode` reads.
    """

    action_modes: tuple[str, ...] = ()
    role = "actor and critic"
    in_keys: list[Any]

    def __init__(self, env: PackingEnv, precision: str) -> None:
        super().__init__()
        check_mode(self, env)
        self.autocast = runs_in_bf16(precision, env.device)

    @abstractmethod
    def encode(self, observed: TensorDictBase) -> Any:
        """Return the encoding of observations ``[B]`` that all heads and the value share."""

    @abstractmethod
    def scores(self, encoding: Any, chosen: Int[Tensor, "B h"]) -> Float[Tensor, "B A"]:
        """Return the logits of the next head, given the choices of the h heads before it."""

    @abstractmethod
    def value(self, encoding: Any) -> Float[Tensor, " B"]:
        """Return V of the state."""


def run(network: DiscreteActorCritic, part: Callable[..., Any], *inputs: Any) -> Any:
    """Run a part of the network in the network's own precision."""
    device = next(network.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=network.autocast):
        return part(*inputs)


class PlacementActorCritic(DiscreteActorCritic):
    """A logit per placement from :class:`ScoreMaps`, and a value from how well items still fit.

    Args:
        env: Determines the shapes; its action mode must be ``placement``.
        size: See :class:`~agents.networks.score_maps.MapSize`; each field is a keyword.
        width: Width of the value's layers.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"``.
    """

    action_modes = ("placement",)

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        size: MapSize = MapSize(channels=16),
        width: Count = 64,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        self.actor = ScoreMaps(env, size=size, dueling=False, precision=precision)
        maps = MapSummary(width, ground_cells(env.params.grid, size.ground))
        out = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.critic = nn.ModuleDict({"maps": maps, "out": out})
        self.in_keys = [key for key in self.actor.in_keys if key != "action_mask"]
        self.to(env.device)

    def encode(self, observed: TensorDictBase) -> TensorDictBase:
        """Return the observations themselves; the actor and the critic share no layer."""
        return observed

    def scores(self, encoding: TensorDictBase, chosen: Tensor) -> Tensor:
        """Return the logits of all placements, ``[B, L * R * Xs * Ys]``."""
        return self.actor(encoding.select(*self.actor.in_keys)).get("action_value")

    def value(self, encoding: TensorDictBase) -> Tensor:
        """Return V of the state, ``[B]``."""
        hidden = self.critic["maps"](*(encoding.get(key) for key in self.in_keys))
        return self.critic["out"](pooled(hidden.flatten(1, 2), 1)).squeeze(-1)


class CandidateActorCritic(DiscreteActorCritic):
    """A transformer over the candidates (:class:`CandidateEncoder`), and a pointer into them.

    The container's token points at a candidate (Vinyals et al., NeurIPS 2015).

    Args:
        env: Determines the shapes; its action mode must be ``candidate``.
        size: See :class:`~agents.networks.encoders.candidates.CandidateSize`; each field is a
            keyword.
        precision: ``"fp32"``, ``"bf16"`` or ``"auto"``.
    """

    action_modes = ("candidate",)

    @option_groups
    def __init__(
        self, env: PackingEnv, *, size: CandidateSize = CandidateSize(), precision: str = "auto"
    ) -> None:
        super().__init__(env, precision)
        names, width = ("heightmap", "candidates", "item_features"), size.width
        self.in_keys = [("observation", name) for name in names]
        self.encoder = CandidateEncoder(env, size)
        self.query = nn.Linear(width, width)
        self.own = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in (self.query, self.own):
            start_small(last.weight, last.bias, std=_FIRST_LOGITS)
        self.to(env.device)

    def encode(self, observed: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Return the container's token ``[B, D]`` and the candidates' tokens ``[B, K, D]``."""
        heightmap, listed, item = (observed.get(key) for key in self.in_keys)
        return self.encoder(heightmap, listed, item)

    def scores(self, encoding: tuple[Tensor, Tensor], chosen: Tensor) -> Tensor:
        """Return the logits of the candidates, ``[B, K]``."""
        context, tokens = encoding
        match = torch.einsum("bd,bkd->bk", self.query(context), tokens)
        return match / tokens.shape[-1] ** 0.5 + self.own(tokens).squeeze(-1)

    def value(self, encoding: tuple[Tensor, Tensor]) -> Tensor:
        """Return V of the state, ``[B]``."""
        return self.out(encoding[0]).squeeze(-1)
