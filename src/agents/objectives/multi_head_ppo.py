"""Clipped PPO for actions of one or several heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from agents.options import option_groups
from agents.process_group import add_up, processes

CLIPS = ("joint", "heads")


@dataclass(frozen=True)
class Surrogate:
    """The clipped objective, see :class:`MultiHeadPPOLoss`.

    Attributes:
        clip_epsilon: Half-width of the interval of the probability ratio.
        clip: ``"joint"`` ratio of all heads, or that of each of the ``"heads"``.
        clip_value: Half-width of the interval about the old value in which the value loss follows
            the new one; None does not clip.
        entropy_coeff: Weight of the normalised entropy.
        critic_coeff: Weight of the value loss, half the mean squared error.
        normalize_advantage: Whether to centre and scale the advantages of a minibatch.
    """

    clip_epsilon: float = 0.2
    clip: str = "joint"
    clip_value: float | None = None
    entropy_coeff: float = 0.01
    critic_coeff: float = 0.5
    normalize_advantage: bool = True

    def __post_init__(self) -> None:
        if self.clip not in CLIPS:
            raise ValueError(f"clip={self.clip!r} is unknown; choose one of {', '.join(CLIPS)}")


class Scores(NamedTuple):
    """Scores that the current policy gives to actions taken earlier.

    Attributes:
        log_prob: Log-probability of each head's choice, given those before it; exactly 0 where it
            had no choice.
        entropy: Entropy of each head, over that of the uniform choice.
        free: True for heads that had a choice.
        value: V of the state.
    """

    log_prob: Float[Tensor, "B H"]
    entropy: Float[Tensor, "B H"]
    free: Bool[Tensor, "B H"]
    value: Float[Tensor, " B"]


class Scorer(Protocol):
    """A policy that can score given actions, besides being an ``nn.Module``."""

    in_keys: list[NestedKey]
    """Entries that :meth:`evaluate` reads."""

    def evaluate(self, tensordict: TensorDictBase, action: Tensor) -> Scores:
        """Return the scores of ``action`` in the states of ``tensordict``."""


class MultiHeadPPOLoss(LossModule):
    """Clipped surrogate objective, entropy bonus and value loss (Schulman et al., 2017).

    The log-probability of an action is the sum over its heads, each conditioned on the heads before
    it; a head with one legal option adds exactly 0, and no gradient. ``clip="joint"`` clips the
    ratio of the whole action, as the paper does; ``clip="heads"`` clips each head's own ratio and
    sums the surrogates, so that a step of one head does not use up the trust region of all. With
    one head both equal the objective of TorchRL's ``ClipPPOLoss`` (a test compares them), which is
    not used because in eager mode it reads on the host whether the entropy is finite.

    The entropy is normalised head by head (to that of a uniform choice among the legal options) and
    averaged over the heads that have a choice, so that one coefficient fits all sizes. V depends on
    the state alone, not on the heads.

    Reads the observations and masks that the policy reads, and under the names of ``set_keys``:
    ``action``, ``action_log_prob [B, H]`` and ``state_value [B, 1]`` as they were when the action
    was taken, ``advantage [B, 1]``, ``value_target [B, 1]``. Writes ``loss_objective``,
    ``loss_entropy`` and ``loss_critic``, whose sum is minimised, and for the log ``entropy``,
    ``kl_approx`` (its estimator k3: Schulman, "Approximating KL divergence", 2020),
    ``clip_fraction`` and ``explained_variance``. Reads nothing back to the host.

    Args:
        policy: Scores the actions.
        surrogate: Clipping and weights; a keyword for each.
    """

    @dataclass
    class _AcceptedKeys:
        action: NestedKey = "action"
        sample_log_prob: NestedKey = "action_log_prob"
        value: NestedKey = "state_value"
        advantage: NestedKey = "advantage"
        value_target: NestedKey = "value_target"

    tensor_keys: _AcceptedKeys
    out_keys = (
        "loss_objective",
        "loss_entropy",
        "loss_critic",
        "entropy",
        "kl_approx",
        "clip_fraction",
        "explained_variance",
    )

    @option_groups(surrogate=Surrogate())
    def __init__(self, policy: Scorer, *, surrogate: Surrogate) -> None:
        super().__init__()
        self.policy, self.surrogate = policy, surrogate

    @property
    def functional(self) -> bool:
        """False: the loss holds the policy itself, no copy of its parameters."""
        return False

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """Ignore the keys: advantages come with the batch, there is no estimator."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that the policy reads, and those of the rollout."""
        return [*self.policy.in_keys, *vars(self.tensor_keys).values()]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the losses and metrics, scalars over the batch ``[B]``."""
        keys = self.tensor_keys
        advantage = tensordict.get(keys.advantage).squeeze(-1)
        if self.surrogate.normalize_advantage:  # first: processes wait least after a step
            advantage = normalized(advantage)
        scores = self.policy.evaluate(tensordict, tensordict.get(keys.action))
        change = scores.log_prob - tensordict.get(keys.sample_log_prob)
        joint = change.sum(-1, keepdim=True)
        gain, clipped = self._surrogate(
            change if self.surrogate.clip == "heads" else joint, advantage
        )
        heads = scores.free.sum(-1).clamp(min=1)
        entropy = ((scores.entropy * scores.free).sum(-1) / heads).mean()
        target = tensordict.get(keys.value_target).squeeze(-1)
        old = tensordict.get(keys.value).squeeze(-1)
        value_loss = self._value_loss(scores.value, old, target)
        with torch.no_grad():
            kl = (joint.exp() - 1 - joint).mean()
            left = variance(target - scores.value)
            explained = 1 - left / variance(target).clamp(min=1e-12)
        return TensorDict(
            {
                "loss_objective": -gain,
                "loss_entropy": -self.surrogate.entropy_coeff * entropy,
                "loss_critic": self.surrogate.critic_coeff * value_loss,
                "entropy": entropy.detach(),
                "kl_approx": kl,
                "clip_fraction": clipped,
                "explained_variance": explained,
            }
        )

    def _surrogate(self, change: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """Return Eq. 7 of the paper, summed over ``change``'s columns, and the clipped share."""
        width, ratio = self.surrogate.clip_epsilon, change.exp()
        limited = ratio.clamp(1 - width, 1 + width)
        gain = torch.minimum(ratio * advantage[:, None], limited * advantage[:, None])
        clipped = (ratio.detach() != limited.detach()).any(-1).to(gain.dtype).mean()
        return gain.sum(-1).mean(), clipped

    def _value_loss(self, value: Tensor, old: Tensor, target: Tensor) -> Tensor:
        """Return half the mean squared error; with clipping, the larger of both values' errors."""
        error = (value - target).square()
        if (width := self.surrogate.clip_value) is not None:
            near = old + (value - old).clamp(-width, width)
            error = torch.maximum(error, (near - target).square())
        return 0.5 * error.mean()


def normalized(values: Tensor) -> Tensor:
    """Return values with mean 0 and variance 1 over the batches of all processes."""
    exact = values.double()
    moments = torch.stack((exact.mean(), exact.square().mean()))
    mean, square = add_up(moments) / processes()
    spread = (square - mean.square()).clamp(min=1e-12).sqrt()
    return ((exact - mean) / spread).to(values.dtype)


def variance(values: Tensor) -> Tensor:
    """Return the biased variance; ``torch.var`` over all entries of a CPU tensor reads it back."""
    return (values - values.mean()).square().mean()
