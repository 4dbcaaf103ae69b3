"""Implicit quantile networks, whole.

Dabney et al., "Implicit quantile networks for distributional reinforcement learning", ICML 2018,
with double selection (van Hasselt et al., AAAI 2016) and n-step targets (Sutton, Machine Learning
1988). Actions are chosen by the mean of their returns, or of the worst share of them (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import SoftUpdate

from agents.algorithms.base import Learner
from agents.algorithms.settings import Exploration, Optimization, Quantiles, Returns
from agents.networks import ScoreMaps
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import ActionNetwork
from agents.objectives import IQNLoss
from agents.options import option_groups
from agents.policies.policy_wrapper import PolicyWrapper
from packing_env.envs import PackingEnv


class IQN(Learner):
    """IQN: a policy, and one gradient step at a time.

    A replay that keeps no risk levels per row bootstraps at level 1.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds the network from the environment and a readout (``readout=``).
        batch_size: Transitions per update.
        target_rate: Share of the online network that enters the target network per update.
        double: Choose the next action with the online network.
        num_samples: Levels at which an action is judged, K.
        returns: ``gamma`` and ``n_steps``.
        quantiles: Levels of the regression, and ``risk``, the CVaR level that actions are chosen
            at.
        optimization: ``lr``, its schedule, and Adam's other options.
        exploration: Schedule of epsilon.
    """

    action_modes = ("placement", "candidate")
    network_role = "action values"
    parts = ("policy", "objective", "optimizer")

    @option_groups(
        returns=Returns(),
        quantiles=Quantiles(),
        optimization=Optimization(adam_eps=1.5e-4),
        exploration=Exploration(),
    )
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., ActionNetwork] = ScoreMaps,
        batch_size: int = 64,
        target_rate: float = 0.02,
        double: bool = True,
        num_samples: int = 32,
        returns: Returns,
        quantiles: Quantiles,
        optimization: Optimization,
        exploration: Exploration,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = returns.gamma, returns.n_steps, batch_size
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
            gamma=returns.gamma,
            double=double,
            num_taus=quantiles.num_taus,
            num_target_taus=quantiles.num_target_taus,
            kappa=quantiles.kappa,
            level_key=self.network.readout.level_key,
        )
        self.targets = SoftUpdate(self.objective, tau=target_rate)
        self.optimizer = optimization.adam(self.network.parameters())
        self.to(env.device)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one gradient step on a batch of transitions.

        Returns:
            Scalars on the device; nothing is read back.
        """
        found = self.objective(batch)
        step = self.optimizer.step(found.get("loss"))
        self.targets.step()
        return {"loss": found.get("loss").detach(), "q": found.get("q"), **step}

    def copy_to_targets(self) -> None:
        """Make the target network equal to the online one."""
        self.targets = SoftUpdate(self.objective, eps=self.targets.eps)  # copies as it is made
