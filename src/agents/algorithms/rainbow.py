"""Rainbow, whole.

Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", AAAI 2018:
categorical return distributions (Bellemare et al., ICML 2017), double (van Hasselt et al., AAAI
2016), dueling (Wang et al., ICML 2016), n-step targets (Sutton, Machine Learning 1988), noisy
layers instead of random actions (Fortunato et al., ICLR 2018), and prioritized replay (Schaul et
al., ICLR 2016), which is the replay's part: this agent reports the error of each transition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import SoftUpdate

from agents.algorithms.base import Learner
from agents.algorithms.settings import Exploration, Optimization, Returns
from agents.networks import ScoreMaps
from agents.networks.readouts.noisy import reset_noise
from agents.networks.readouts.values import ActionNetwork, CategoricalReadout
from agents.objectives import C51Loss
from agents.options import option_groups
from agents.policies.policy_wrapper import PolicyWrapper
from packing_env.envs import PackingEnv


class NoisyPolicy(PolicyWrapper):
    """A policy of expected returns that explores by new network noise for every batch.

    All rows of a batch share one draw of the noise, as the transitions of an update do.
    """

    def action_values(self, tensordict: TensorDictBase) -> Tensor:
        """Return the expected returns ``[*batch, A]``, float32."""
        if self._exploring():
            reset_noise(self.network)
        return super().action_values(tensordict)


@dataclass(frozen=True)
class Distribution:
    """Return distributions on fixed atoms, and the noise of the layers that produce them.

    Attributes:
        v_min: Lowest return on the support; it must not exceed what an episode can give, since
            lower returns count as this one.
        v_max: Highest return on the support; higher ones count as this one.
        num_atoms: Atoms from ``v_min`` to ``v_max``.
        mixture: Distributions that the placements of a map mix, see :class:`CategoricalReadout`;
            None: every action has a distribution of its own.
        noisy: Whether noisy layers explore.
        sigma: Initial scale of their noise.
    """

    v_min: float = -1.0
    v_max: float = 1.5
    num_atoms: int = 51
    mixture: int | None = 4
    noisy: bool = True
    sigma: float = 0.5


class Rainbow(Learner):
    """Rainbow: a policy, and one gradient step at a time.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds the network from the environment and a readout (``readout=``).
        batch_size: Transitions per update.
        target_rate: Share of the online network that enters the target network per update.
        double: Choose the next action with the online network.
        returns: ``gamma`` and ``n_steps``.
        distribution: Atoms and noise.
        optimization: ``lr``, its schedule, and Adam's other options.
        exploration: Schedule of epsilon, besides the noise.
    """

    action_modes = ("placement", "candidate")
    network_role = "action values"
    parts = ("policy", "objective", "optimizer")

    @option_groups(
        returns=Returns(),
        distribution=Distribution(),
        optimization=Optimization(adam_eps=1.5e-4),
        exploration=Exploration(epsilon_start=0.0, epsilon_end=0.0, epsilon_frames=0),
    )
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., ActionNetwork] = ScoreMaps,
        batch_size: int = 64,
        target_rate: float = 0.02,
        double: bool = True,
        returns: Returns,
        distribution: Distribution,
        optimization: Optimization,
        exploration: Exploration,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = returns.gamma, returns.n_steps, batch_size
        self.network = network(env, readout=partial(CategoricalReadout, **asdict(distribution)))
        self.policy = NoisyPolicy(self.network, epsilon=exploration.schedule)
        self.objective = C51Loss(self.network, gamma=returns.gamma, double=double)
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
