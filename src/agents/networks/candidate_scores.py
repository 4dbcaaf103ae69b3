"""A score for every candidate, by attention over the list that the environment proposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from agents.networks.encoders.candidates import THERE, CandidateEncoder, CandidateSize
from agents.networks.precision import check_mode, runs_in_bf16
from agents.networks.readouts.values import ActionNetwork, ValueReadout, scaled
from agents.options import option_groups
from packing_env.envs import PackingEnv


class CandidateScores(ActionNetwork):
    """Values of the candidates (``candidate`` mode), by attention over their list.

    Dueling (Wang et al., ICML 2016): V comes from the container's token of
    :class:`CandidateEncoder`. A is linear in each candidate's hidden features, which are centred
    over the existing candidates.

    Reads ``observation`` (``heightmap``, ``candidates``, ``item_features``); writes
    ``action_value [*batch, K]`` float32.

    Args:
        env: Determines the shapes; its action mode must be ``candidate``.
        readout: Meaning of a candidate's outputs: one value, or a distribution.
        size: See :class:`CandidateSize`; each field is a keyword.
        precision: ``"fp32"``, ``"bf16"`` for the transformer, or ``"auto"`` (bf16 if the device
            supports it natively).
    """

    action_modes = ("candidate",)

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        readout: Callable[[int], ValueReadout] = ValueReadout,
        size: CandidateSize = CandidateSize(),
        precision: str = "auto",
    ) -> None:
        check_mode(self, env)
        names, width = ("heightmap", "candidates", "item_features"), size.width
        super().__init__([("observation", name) for name in names], readout, 2 * width)
        self.autocast = runs_in_bf16(precision, env.device)
        self.encoder = CandidateEncoder(env, size)
        out = self.readout
        self.value_hidden = out.linear(width, width)
        self.value = out.linear(width, out.num_values)
        self.score_hidden = out.linear(width, width)
        self.score = out.linear(width, out.num_scores, bias=False, small=True)
        self.to(env.device)

    def streams(
        self, observed: Sequence[Tensor], gain: Float[Tensor, "B 1 D"] | None
    ) -> tuple[Float[Tensor, "B 1 V"], Float[Tensor, "B 1 S K"]]:
        """Return values and scores of all candidates, which form one group."""
        pooled, hidden = self._encode(observed)
        value, score = self._read_out(pooled, hidden, gain)
        return value, score.transpose(1, 2)[:, None]

    def streams_of(
        self,
        observed: Sequence[Tensor],
        action: Int[Tensor, " B"],
        gain: Float[Tensor, "B N D"] | None,
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B N S 1"]]:
        """Return values and scores of one candidate per row."""
        pooled, hidden = self._encode(observed)
        place = action.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        value, score = self._read_out(pooled, hidden.gather(1, place), gain)
        return value, score[..., None]

    def _encode(
        self, observed: Sequence[Tensor]
    ) -> tuple[Float[Tensor, "B 1 D"], Float[Tensor, "B K D"]]:
        """Return hidden features of the container and of each candidate, centred; float32."""
        heightmap, listed, item = observed
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
        gains = (None, None) if gain is None else gain.chunk(2, -1)
        return self.value(scaled(pooled, gains[0])), self.score(scaled(hidden, gains[1]))
