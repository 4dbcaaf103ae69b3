"""Groups of constructor options that several algorithms share.

Users set the fields by flat names (``agent.lr=1e-3``); see :mod:`agents.options`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from torch import nn

from agents.algorithms.optimization import GatedAdam
from agents.networks.readouts.quantile import Risk
from agents.objectives.iqn import QuantileRegression
from agents.policies.continuous import NoiseSchedule
from agents.policies.policy_wrapper import EpsilonSchedule, schedule_share
from packing_env.values import Count, NonNegative, Positive, Share, Whole


@dataclass(frozen=True)
class OffPolicy:
    """Learning from a replay: n-step returns, and the size of an update.

    Attributes:
        gamma: Discount per decision.
        n_steps: Number of rewards that are summed before bootstrapping; the replay sums them.
        batch_size: Transitions per update.
        target_rate: Weight of the online networks in the target networks, per update.
    """

    gamma: Share = 0.99
    n_steps: Count = 3
    batch_size: Count = 64
    target_rate: Share = 0.02


@dataclass(frozen=True)
class OnPolicy:
    """Learning from a rollout.

    Attributes:
        epochs: Passes over a rollout.
        batch_size: Samples per gradient step; the sizes of the minibatches of a pass differ by at
            most one.
    """

    epochs: Count = 4
    batch_size: Count = 256


@dataclass(frozen=True)
class Optimization:
    """Adam with a linear schedule of the learning rate.

    Attributes:
        lr: Learning rate at the start.
        lr_end: Learning rate after ``lr_frames`` frames, reached linearly.
        lr_frames: Length of this schedule in frames; None keeps ``lr``.
        max_grad_norm: Gradients are scaled down to this norm.
        adam_eps: Constant that is added to the root of Adam's second moment.
    """

    lr: Positive = 1e-3
    lr_end: Positive = 1e-4
    lr_frames: Whole | None = None
    max_grad_norm: Positive = 10.0
    adam_eps: Positive = 1e-8

    def adam(self, parameters: Iterable[nn.Parameter]) -> GatedAdam:
        """Build the optimizer of some parameters."""
        return GatedAdam(
            parameters,
            lr=self.lr,
            schedule=None if self.lr_frames is None else self.lr_after,
            max_grad_norm=self.max_grad_norm,
            eps=self.adam_eps,
        )

    def lr_after(self, frames: int) -> float:
        """Return the learning rate after this many frames."""
        return self.lr + schedule_share(frames, self.lr_frames or 0) * (self.lr_end - self.lr)


@dataclass(frozen=True)
class ActorCriticOptimization:
    """Adam for a critic and an actor, with one linear schedule for both learning rates.

    Attributes:
        lr: Learning rate of the critic.
        actor_lr: Learning rate of the actor.
        lr_end: Factor of both learning rates after ``lr_frames`` frames, reached linearly.
        lr_frames: Length of this schedule in frames; None keeps both rates.
        max_grad_norm: Gradients are scaled down to this norm.
    """

    lr: Positive = 1e-3
    actor_lr: NonNegative = 3e-4
    lr_end: Positive = 0.1
    lr_frames: Whole | None = None
    max_grad_norm: Positive = 10.0

    def adam(self, parameters: Iterable[nn.Parameter], lr: float) -> GatedAdam:
        """Build the optimizer of some parameters, with the initial rate ``lr``."""
        schedule = None if self.lr_frames is None else partial(self.lr_after, lr)
        return GatedAdam(parameters, lr=lr, schedule=schedule, max_grad_norm=self.max_grad_norm)

    def lr_after(self, lr: float, frames: int) -> float:
        """Return the learning rate after this many frames, if it starts at ``lr``."""
        return (1 + schedule_share(frames, self.lr_frames or 0) * (self.lr_end - 1)) * lr


@dataclass(frozen=True)
class Exploration:
    """Exploration by uniform random actions: any legal one or, in mode ``continuous``, any point.

    Attributes:
        epsilon_start: Share of random actions at frame 0.
        epsilon_end: Share of random actions after ``epsilon_frames`` frames.
        epsilon_frames: Length of the linear schedule in frames.
    """

    epsilon_start: Share = 1.0
    epsilon_end: Share = 0.02
    epsilon_frames: Whole = 10_000

    @property
    def schedule(self) -> EpsilonSchedule:
        """The schedule that a policy follows."""
        return EpsilonSchedule(self.epsilon_start, self.epsilon_end, self.epsilon_frames)


@dataclass(frozen=True)
class ActionNoise:
    """Gaussian noise on the actions of a deterministic actor.

    Attributes:
        noise_start: Standard deviation at frame 0, in the action's units.
        noise_end: Standard deviation after ``noise_frames`` frames.
        noise_frames: Length of the linear schedule in frames.
    """

    noise_start: NonNegative = 0.3
    noise_end: NonNegative = 0.1
    noise_frames: Whole = 20_000

    @property
    def schedule(self) -> NoiseSchedule:
        """The schedule that a policy follows."""
        return NoiseSchedule(self.noise_start, self.noise_end, self.noise_frames)


@dataclass(frozen=True)
class Quantiles(QuantileRegression):
    """Quantile regression of returns, and the risk level at which actions are chosen.

    Attributes:
        num_cosines: Number of cosines in the embedding of a level.
        risk: CVaR level, see :class:`agents.networks.readouts.quantile.QuantileReadout`.
            ``"support"`` uses the support ratio of the items packed so far: with a lower ratio, the
            worst returns count more.
    """

    num_cosines: Count = 64
    risk: Risk = None
