"""Masked double dueling DQN: the whole algorithm.

The sources are: Mnih et al., Nature 2015; double Q-learning, van Hasselt et al., AAAI 2016;
dueling, Wang et al., ICML 2016; n-step targets, Sutton, Machine Learning 1988. The loss equals
TorchRL's ``DQNLoss`` (a test compares them) but is faster: ``network.value_of`` computes Q(s, a)
and the target's Q(s', a') without scoring the other actions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional

from agents.algorithms.base import Learner
from agents.algorithms.optimization import follow
from agents.algorithms.settings import Exploration, OffPolicy, Optimization
from agents.networks import ScoreMaps
from agents.objectives.transitions import mean_loss, n_step_target
from agents.options import option_groups
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.policies.sampling import best
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class DQN(Learner):
    """DQN: a policy, trained by one gradient step per update.

    Args:
        env: Determines the shapes.
        network: Builds the Q network from the environment: a TensorDict module that writes
            ``action_value [*batch, A]``, with a method ``value_of(tensordict, action)`` for one
            action per row, ``[B]``. None means :attr:`own_network`.
        double: Whether the online network chooses the next action.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        optimization: ``lr``, its schedule, and Adam's other options.
        exploration: Schedule of epsilon.
    """

    action_modes: tuple[str, ...] = ("placement", "candidate")
    network_role = "action values"
    parts = ("policy", "target", "optimizer")
    own_network: ClassVar[type[Any]] = ScoreMaps
    """The default network."""

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], Any] | None = None,
        double: bool = True,
        learning: OffPolicy = OffPolicy(target_rate=0.01),
        optimization: Optimization = Optimization(),
        exploration: Exploration = Exploration(),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        self.target_rate, self.double = learning.target_rate, double
        self.network = (network or self.own_network)(env)
        if type(self).loss is DQN.loss and not hasattr(self.network, "value_of"):
            raise ParameterError(
                f"{type(self.network).__name__} needs a method value_of(tensordict, action) that "
                "returns the value of one action per row, [B]"
            )
        self.policy = self.policy_of(env, exploration.schedule)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.parameters = list(self.network.parameters())
        self.target_parameters = list(self.target.parameters())
        self.optimizer = optimization.adam(self.parameters)
        self.to(env.device)

    def policy_of(self, env: PackingEnv, epsilon: EpsilonSchedule) -> PolicyWrapper:
        """Build the policy of the network."""
        return PolicyWrapper(self.network, epsilon=epsilon)

    def loss(self, batch: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Return smooth L1 losses ``[B]`` of the n-step TD errors, and the values ``[B]``.

        Args:
            batch: Transitions. The root holds the state and ``action``; ``next`` holds the state
                after ``steps_to_next_obs`` decisions, their discounted ``reward``, and
                ``terminated``. ``legal_mask`` says which next actions are legal; without it,
                ``action_mask`` does. The method sets ``td_error [B]``, the absolute errors.
        """
        # 1. Choose the next action among the legal ones; the target network evaluates it.
        following = batch.get("next").clone(False)
        following.set("action_mask", following.get("legal_mask", following.get("action_mask")))
        with torch.no_grad():
            scorer = self.network if self.double else self.target
            scores = scorer(following.clone(False)).get("action_value")
            chosen = best(scores, following.get("action_mask"))
            target = n_step_target(batch, self.target.value_of(following, chosen), self.gamma)
        # 2. Compute the values of the actions taken, and compare.
        value = self.network.value_of(batch, batch.get("action"))
        batch.set("td_error", (value.detach() - target).abs())
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one gradient step on a batch of transitions."""
        losses, value = self.loss(batch)
        loss = mean_loss(losses, batch.get("priority_weight", None))
        step = self.optimizer.step(loss)
        follow(self.target_parameters, self.parameters, self.target_rate, step["skipped"])
        return {"loss": loss.detach(), "q": value.detach().mean(), **step}

    def copy_to_targets(self) -> None:
        """Make the target network equal to the online one."""
        follow(self.target_parameters, self.parameters, 1.0)
