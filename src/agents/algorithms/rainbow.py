"""Rainbow: the whole algorithm, except its loss, :class:`agents.objectives.C51Loss`.

Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", AAAI 2018:
categorical return distributions (Bellemare et al., ICML 2017), double (van Hasselt et al., AAAI
2016), dueling (Wang et al., ICML 2016), n-step targets (Sutton, Machine Learning 1988), noisy
layers instead of random actions (Fortunato et al., ICLR 2018), and prioritized replay (Schaul et
al., ICLR 2016). The agent reports the error of each transition to the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import ReturnsLearner
from agents.algorithms.optimization import GatedUpdate
from agents.algorithms.settings import Exploration, OffPolicy, Optimization
from agents.networks import ScoreMaps
from agents.networks.readouts.noisy import noise_per_row
from agents.networks.readouts.values import ActionNetwork, CategoricalReadout, Distribution
from agents.objectives import C51Loss
from agents.options import option_groups
from agents.policies.policy_wrapper import PolicyWrapper
from packing_env.envs import PackingEnv


class NoisyPolicy(PolicyWrapper):
    """A policy that explores by the network's noise; each row has its own, except in an update."""

    def action_values(self, tensordict: TensorDictBase) -> Tensor:
        """Return the expected returns ``[*batch, A]``, float32."""
        with noise_per_row(self.network, tensordict.batch_size.numel()):
            return super().action_values(tensordict)


class Rainbow(ReturnsLearner):
    """Rainbow: a policy, trained by one gradient step per update.

    Args:
        env: Determines the shapes.
        network: Builds the network from the environment and a readout (``readout=``).
        double: Whether the online network chooses the next action.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        distribution: Atoms and noise; :meth:`Distribution.fitted` chooses those that are not set.
        optimization: ``lr``, its schedule, and Adam's other options.
        exploration: Schedule of epsilon, in addition to the noise.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., ActionNetwork] = ScoreMaps,
        double: bool = True,
        learning: OffPolicy = OffPolicy(),
        distribution: Distribution = Distribution(v_min=None, v_max=None, mixture="auto"),
        optimization: Optimization = Optimization(),
        exploration: Exploration = Exploration(
            epsilon_start=0.0, epsilon_end=0.0, epsilon_frames=0
        ),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        distribution = distribution.fitted(env)
        self.network = network(env, readout=partial(CategoricalReadout, distribution=distribution))
        self.policy = NoisyPolicy(self.network, epsilon=exploration.schedule)
        self.objective = C51Loss(self.network, gamma=learning.gamma, double=double)
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        self.optimizer = optimization.adam(self.network.parameters())
        self.to(env.device)
