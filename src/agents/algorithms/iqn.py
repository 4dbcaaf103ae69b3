"""Implicit quantile networks: the whole algorithm.

Dabney et al., "Implicit quantile networks for distributional reinforcement learning", ICML 2018,
with double selection (van Hasselt et al., AAAI 2016) and n-step targets (Sutton, Machine Learning
1988). Actions are chosen by the mean of their returns, or by the mean of the worst share of their
returns (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agents.algorithms.base import ReturnsLearner
from agents.algorithms.optimization import GatedUpdate
from agents.algorithms.settings import Exploration, OffPolicy, Optimization, Quantiles
from agents.networks import ScoreMaps
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import ActionNetwork
from agents.objectives import IQNLoss
from agents.options import option_groups
from agents.policies.policy_wrapper import PolicyWrapper
from packing_env.envs import PackingEnv
from packing_env.values import Count


class IQN(ReturnsLearner):
    """IQN: a policy, trained by one gradient step per update.

    If the replay does not store the risk level of each row, targets are computed at risk level 1,
    the mean.

    Args:
        env: Determines the shapes.
        network: Function that builds the network from the environment and a readout (``readout=``).
        double: Whether the online network chooses the next action.
        num_samples: Number of quantile levels at which an action is evaluated, K.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        quantiles: Quantile levels of the regression, and ``risk``, the CVaR level at which actions
            are chosen.
        optimization: ``lr``, its schedule, and Adam's other options.
        exploration: Schedule of epsilon.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., ActionNetwork] = ScoreMaps,
        double: bool = True,
        num_samples: Count = 32,
        learning: OffPolicy = OffPolicy(),
        quantiles: Quantiles = Quantiles(),
        optimization: Optimization = Optimization(),
        exploration: Exploration = Exploration(),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        readout = partial(
            QuantileReadout,
            num_cosines=quantiles.num_cosines,
            num_samples=num_samples,
            risk=quantiles.risk,
        )
        self.network = network(env, readout=readout)
        self.policy = PolicyWrapper(self.network, epsilon=exploration.schedule)
        self.objective = IQNLoss(
            self.network,
            gamma=learning.gamma,
            double=double,
            regression=quantiles,
            level_key=self.network.readout.level_key,
        )
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        self.optimizer = optimization.adam(self.network.parameters())
        self.to(env.device)
