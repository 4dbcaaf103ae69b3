"""Clipped PPO for actions of one or several heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from agents.options import option_groups
from agents.process_group import add_up, processes
from packing_env.values import NonNegative, Positive


@dataclass(frozen=True)
class Surrogate:
    """Options of the clipped objective, see :class:`MultiHeadPPOLoss`.

    Attributes:
        clip_epsilon: Half-width of the clipping interval of the probability ratio.
        entropy_coeff: Weight of the normalised entropy.
        critic_coeff: Weight of the value loss, which is half the mean squared error.
        normalize_advantage: Whether to centre and scale the advantages of a minibatch.
    """

    clip_epsilon: Positive = 0.2
    entropy_coeff: NonNegative = 0.01
    critic_coeff: NonNegative = 0.5
    normalize_advantage: bool = True


class Scores(NamedTuple):
    """Scores that the current policy gives to actions taken earlier.

    Attributes:
        log_prob: Log-probability of each head's choice, given the choices before it; exactly 0 for
            a head without a choice.
        entropy: Entropy of each head, divided by that of the uniform choice.
        free: True for heads that had a choice.
        value: V of the state.
    """

    log_prob: Float[Tensor, "B H"]
    entropy: Float[Tensor, "B H"]
    free: Bool[Tensor, "B H"]
    value: Float[Tensor, " B"]


class MultiHeadPPOLoss(LossModule):
    """Clipped surrogate objective, entropy bonus and value loss (Schulman et al., 2017).

    The log-probability of an action is the sum over its heads, each conditioned on the heads before
    it. A head with one legal option adds exactly 0, and no gradient. With one head this is the
    objective of TorchRL's ``ClipPPOLoss`` (a test compares them). In eager mode TorchRL's loss
    copies the entropy to the host, to check that it is finite; this loss does not.

    The entropy of a head is divided by that of a uniform choice among the legal options. These
    ratios are averaged over the heads that have a choice, so that one coefficient suits all sizes.
    V depends on the state alone.

    Reads the policy's inputs and four entries: ``action``, ``action_log_prob [B, H]`` of the acting
    policy, ``advantage [B, 1]`` and ``value_target [B, 1]``. Returns ``loss_objective``,
    ``loss_entropy`` and ``loss_critic``, whose sum is minimised. For the log it also returns
    ``entropy``, ``kl_approx`` (estimator k3: Schulman, "Approximating KL divergence", 2020),
    ``clip_fraction`` and ``explained_variance``. Nothing is copied to the host.

    Args:
        policy: A module with ``in_keys`` and a method ``evaluate(tensordict, action)`` that returns
            the :class:`Scores` of the actions in the states of ``tensordict``.
        surrogate: Clipping and weights; each field is a keyword.
    """

    out_keys = (
        "loss_objective",
        "loss_entropy",
        "loss_critic",
        "entropy",
        "kl_approx",
        "clip_fraction",
        "explained_variance",
    )

    @option_groups
    def __init__(self, policy: Any, *, surrogate: Surrogate = Surrogate()) -> None:
        super().__init__()
        self.policy, self.surrogate = policy, surrogate

    @property
    def functional(self) -> bool:
        """False, because the loss holds the policy itself, not a copy."""
        return False

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that the policy reads, and the entries of the rollout."""
        entries = ("action", "action_log_prob", "advantage", "value_target")
        return [*self.policy.in_keys, *entries]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the losses and metrics, scalars over the batch ``[B]``."""
        options = self.surrogate
        # 1. The clipped surrogate: Eq. 7 of the paper, by the ratio of the whole action.
        advantage = tensordict.get("advantage").squeeze(-1)
        if options.normalize_advantage:  # before the network runs, so that processes wait less
            advantage = normalized(advantage)
        scores = self.policy.evaluate(tensordict, tensordict.get("action"))
        change = (scores.log_prob - tensordict.get("action_log_prob")).sum(-1)
        ratio = change.exp()
        limited = ratio.clamp(1 - options.clip_epsilon, 1 + options.clip_epsilon)
        gain = torch.minimum(ratio * advantage, limited * advantage).mean()
        # 2. The entropy of the heads that have a choice, and the error of the value.
        heads = scores.free.sum(-1).clamp(min=1)
        entropy = ((scores.entropy * scores.free).sum(-1) / heads).mean()
        target = tensordict.get("value_target").squeeze(-1)
        value_loss = 0.5 * (scores.value - target).square().mean()
        # 3. For the log.
        with torch.no_grad():
            kl = (ratio - 1 - change).mean()
            clipped = (ratio != limited).to(gain.dtype).mean()
            left = variance(target - scores.value)
            explained = 1 - left / variance(target).clamp(min=1e-12)
        return TensorDict(
            {
                "loss_objective": -gain,
                "loss_entropy": -options.entropy_coeff * entropy,
                "loss_critic": options.critic_coeff * value_loss,
                "entropy": entropy.detach(),
                "kl_approx": kl,
                "clip_fraction": clipped,
                "explained_variance": explained,
            }
        )


def normalized(values: Tensor) -> Tensor:
    """Return values with mean 0 and variance 1 over the batches of all processes."""
    exact = values.double()
    moments = torch.stack((exact.mean(), exact.square().mean()))
    mean, square = add_up(moments) / processes()
    spread = (square - mean.square()).clamp(min=1e-12).sqrt()
    return ((exact - mean) / spread).to(values.dtype)


def variance(values: Tensor) -> Tensor:
    """Return the biased variance; ``torch.var`` over a whole CPU tensor would read it back."""
    return (values - values.mean()).square().mean()
