"""Actor-critic networks for the modes whose action is one index (``placement``, ``candidate``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from torch import Tensor, nn

from agents.networks.encoders.candidates import CandidateEncoder
from agents.networks.encoders.maps import COARSE, StateValue, ground_cells
from agents.networks.precision import check_mode, in_bf16, runs_in_bf16
from agents.networks.readouts.values import start_small
from agents.networks.score_maps import ScoreMaps
from packing_env.envs import PackingEnv

_FIRST_LOGITS = 0.05  # almost uniform: a policy explores at first


class DiscreteActorCritic(nn.Module, ABC):
    """Scores of a policy's choices, and the value of the state.

    Networks read observations only: masking illegal choices is the policy's task. The value depends
    on the state alone, not on the choice of any head.

    Args:
        env: Sets the shapes.
        precision: ``"fp32"``, ``"bf16"`` for the network, or ``"auto"``: bf16 where the device
            computes in it. Outputs are scored in float32 either way.

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
        """Return the logits of the head that follows those in ``chosen``."""

    @abstractmethod
    def value(self, encoding: Any) -> Float[Tensor, " B"]:
        """Return V of the state."""


def run(network: DiscreteActorCritic, part: Callable[..., Any], *inputs: Any) -> Any:
    """Run a part of the network in the network's own precision."""
    device = next(network.parameters()).device
    with in_bf16(network, device=device, enabled=network.autocast):
        return part(*inputs)


class PlacementActorCritic(DiscreteActorCritic):
    """A logit for every placement by :class:`ScoreMaps`; the value from how items still fit.

    Args:
        env: Sets the shapes; its action mode must be ``placement``.
        channels: See :class:`ScoreMaps`, as ``depth``, ``fold``, ``context`` and ``ground``.
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
        fold: int | None = 4,
        width: int = 64,
        context: bool = False,
        ground: int = COARSE,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        self.actor = ScoreMaps(
            env,
            channels=channels,
            depth=depth,
            fold=fold,
            dueling=False,
            context=context,
            precision=precision,
        )
        self.critic = StateValue(width, ground_cells(env.params.grid, ground))
        self.in_keys = [key for key in self.actor.in_keys if key != "action_mask"]
        self.to(env.device)

    def encode(self, observed: TensorDictBase) -> TensorDictBase:
        """Return the observations: the actor and the critic share no layer."""
        return observed

    def scores(self, encoding: TensorDictBase, chosen: Tensor) -> Tensor:
        """Return the logits of all placements, ``[B, L * R * Xs * Ys]``."""
        return self.actor(encoding.select(*self.actor.in_keys)).get("action_value")

    def value(self, encoding: TensorDictBase) -> Tensor:
        """Return V of the state, ``[B]``."""
        return self.critic(*(encoding.get(key) for key in self.in_keys))


class CandidateActorCritic(DiscreteActorCritic):
    """A transformer over the candidates (:class:`CandidateEncoder`), and a pointer into them.

    The container's token points at a candidate (Vinyals et al., NeurIPS 2015).

    Args:
        env: Sets the shapes; its action mode must be ``candidate``.
        width: See :class:`CandidateEncoder`, as ``attention_heads``, ``depth``, ``room`` and
            ``ground``.
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
        room: bool = False,
        ground: int = COARSE,
        precision: str = "auto",
    ) -> None:
        super().__init__(env, precision)
        names = ("heightmap", "candidates", "item_features")
        self.in_keys = [("observation", name) for name in names]
        self.encoder = CandidateEncoder(
            env, width, attention_heads, depth, room=room, ground=ground
        )
        self.query = nn.Linear(width, width)
        self.own = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for last in (self.query, self.own):
            start_small(last.weight, last.bias, std=_FIRST_LOGITS)
        self.to(env.device)

    def encode(self, observed: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Return the container's token ``[B, D]`` and the candidates' ``[B, K, D]``."""
        return self.encoder(*(observed.get(key) for key in self.in_keys))

    def scores(self, encoding: tuple[Tensor, Tensor], chosen: Tensor) -> Tensor:
        """Return the logits of the candidates, ``[B, K]``."""
        context, tokens = encoding
        match = torch.einsum("bd,bkd->bk", self.query(context), tokens)
        return match / tokens.shape[-1] ** 0.5 + self.own(tokens).squeeze(-1)

    def value(self, encoding: tuple[Tensor, Tensor]) -> Tensor:
        """Return V of the state, ``[B]``."""
        return self.out(encoding[0]).squeeze(-1)
