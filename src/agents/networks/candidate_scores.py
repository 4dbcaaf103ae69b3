"""A score for every candidate: attention over the list that the environment proposes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from agents.networks.encoders.candidates import THERE, CandidateEncoder
from agents.networks.encoders.maps import COARSE
from agents.networks.precision import check_mode, runs_in_bf16
from agents.networks.readouts.values import ActionNetwork, ValueReadout, scaled
from packing_env.envs import PackingEnv


class CandidateScores(ActionNetwork):
    """Values of the candidates (``candidate`` mode), by attention over their list.

    The value of a candidate depends on the container, the items and the other candidates, but not
    on their order: see :class:`CandidateEncoder`.

    Dueling (Wang et al., ICML 2016): V from the container's token, A from each candidate's hidden
    features, which are centred over the existing candidates: A is linear in them.

    Reads ``observation`` (``heightmap``, ``candidates``, ``item_features``); writes
    ``action_value [*batch, K]`` float32.

    Args:
        env: Sets the shapes; its action mode must be ``candidate``.
        readout: Meaning of a candidate's outputs: one value, or a distribution.
        width: See :class:`CandidateEncoder`, as ``attention_heads``, ``depth``, ``room`` and
            ``ground``.
        precision: ``"fp32"``, ``"bf16"`` for the transformer (values are float32 either way), or
            ``"auto"``: bf16 where the device computes in it.
    """

    action_modes = ("candidate",)

    def __init__(
        self,
        env: PackingEnv,
        *,
        readout: Callable[[int], ValueReadout] = ValueReadout,
        width: int = 64,
        attention_heads: int = 4,
        depth: int = 1,
        room: bool = False,
        ground: int = COARSE,
        precision: str = "auto",
    ) -> None:
        check_mode(self, env)
        names = ("heightmap", "candidates", "item_features")
        super().__init__([("observation", name) for name in names], readout, 2 * width)
        self.autocast = runs_in_bf16(precision, env.device)
        self.encoder = CandidateEncoder(
            env, width, attention_heads, depth, room=room, ground=ground
        )
        out = self.readout
        self.value_hidden = out.linear(width, width)
        self.value = out.linear(width, out.num_values)
        self.score_hidden = out.linear(width, width)
        self.score = out.linear(width, out.num_scores, bias=False, small=True)
        self.to(env.device)

    def streams(
        self, *observed: Tensor, gain: Float[Tensor, "B 1 D"] | None
    ) -> tuple[Float[Tensor, "B 1 V"], Float[Tensor, "B 1 S K"]]:
        """Return values and scores of all candidates, which are one group."""
        pooled, hidden = self.encode(*observed)
        value, score = self._read_out(pooled, hidden, gain)
        return value, score.transpose(1, 2)[:, None]

    def streams_of(
        self, *observed: Tensor, action: Int[Tensor, " B"], gain: Float[Tensor, "B N D"] | None
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B N S 1"]]:
        """Return values and scores of one candidate per row."""
        pooled, hidden = self.encode(*observed)
        place = action.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        value, score = self._read_out(pooled, hidden.gather(1, place), gain)
        return value, score[..., None]

    def encode(
        self,
        heightmap: Float[Tensor, "B X Y"],
        listed: Float[Tensor, "B K F"],
        item: Float[Tensor, "B S G"],
    ) -> tuple[Float[Tensor, "B 1 D"], Float[Tensor, "B K D"]]:
        """Return hidden features of the container and of each candidate, centred; float32."""
        with torch.autocast(heightmap.device.type, torch.bfloat16, enabled=self.autocast):
            context, tokens = self.encoder(heightmap, listed, item)
            pooled = functional.relu(self.value_hidden(context))[:, None].float()
            hidden = functional.relu(self.score_hidden(tokens)).float()
        share = (listed[..., THERE, None] > 0).to(hidden.dtype)
        centre = (hidden * share).sum(1, keepdim=True) / share.sum(1, keepdim=True).clamp(min=1)
        return pooled, hidden - centre

    def _read_out(
        self, pooled: Tensor, hidden: Tensor, gain: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Apply the last layers of the two streams to hidden features times their gains."""
        gains = (None, None) if gain is None else gain.chunk(2, -1)
        return self.value(scaled(pooled, gains[0])), self.score(scaled(hidden, gains[1]))
