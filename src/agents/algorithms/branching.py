"""Branching double Q-learning for actions of several heads: the whole algorithm.

Tavakoli et al., "Action branching architectures for deep reinforcement learning", AAAI 2018: each
head has its own advantages, all heads share one state value V, and all share one target. The
sources are: double Q-learning, van Hasselt et al., AAAI 2016; n-step targets, Sutton, Machine
Learning 1988. There are three differences from the paper. A head sees the choices of the heads
before it. Options that are no longer legal are masked. Each head passes its whole gradient to the
shared trunk; the paper scales it by 1 / (heads + 1), which Adam would undo.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional

from agents.algorithms.dqn import DQN
from agents.networks.actor_critic import DiscreteActorCritic, run
from agents.networks.encoders.maps import legal_mean
from agents.networks.multi_head import MultiHeadActorCritic
from agents.networks.readouts.noisy import explores
from agents.objectives.transitions import n_step_target
from agents.policies.heads import Heads, action_heads
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper, trailing
from agents.policies.sampling import at, best, check_scores
from packing_env.core.random import choose_uniform
from packing_env.envs import PackingEnv


class Branches(NamedTuple):
    """One action, split into its heads.

    Attributes:
        chosen: The choice of each head.
        value: Q of each choice.
        weight: Weight of each head in a mean over the heads. Heads with more than one legal option
            share the weight equally, the others get 0. If every head has only one option, all get
            equal weight (their values are V).
    """

    chosen: Int[Tensor, "B H"]
    value: Float[Tensor, "B H"]
    weight: Float[Tensor, "B H"]


def judge(
    network: DiscreteActorCritic,
    heads: Heads,
    observed: TensorDictBase,
    mask: Bool[Tensor, "B A"],
    chosen: Int[Tensor, "B H"] | None = None,
) -> Branches:
    """Return the values of the choices ``chosen``; by default, of the best choice of each head.

    ``Q_h = V + A_h - mean over the legal options of A_h``, the paper's aggregation under the mask.
    For a head with a single option, Q is V. Values are float32, even if the network runs in
    bfloat16.
    """
    encoding = run(network, network.encode, observed)
    state = run(network, network.value, encoding).float()
    choices = torch.zeros(len(mask), 0, dtype=torch.int64, device=mask.device)
    # 1. Head by head, because the mask of a head depends on the choices of the heads before it.
    values, has_options = [], []
    for head in range(len(heads.sizes)):
        legal = heads.next_mask(mask, choices)
        score = run(network, network.scores, encoding, choices).float()
        check_scores(network, score, legal)
        choice = best(score, legal) if chosen is None else chosen[:, head]
        values.append(state + at(score, choice) - legal_mean(score, legal.float()))
        has_options.append(legal.sum(-1) > 1)
        choices = torch.cat((choices, choice[:, None]), 1)
    # 2. Heads with a single option get no weight, unless no head has several options.
    weight = torch.stack(has_options, -1)
    weight = (weight | ~weight.any(-1, keepdim=True)).float()
    return Branches(choices, torch.stack(values, -1), weight / weight.sum(-1, keepdim=True))


class BranchingPolicy(PolicyWrapper):
    """Epsilon-greedy policy: greedy actions are chosen head by head, random ones as a whole.

    A random action is uniform over all legal placements. If it were drawn head by head, an item
    with few placements would be as likely as one with many.
    """

    def __init__(
        self, network: DiscreteActorCritic, heads: Heads, epsilon: EpsilonSchedule
    ) -> None:
        super().__init__(network, epsilon=epsilon)
        self.heads = heads
        self.out_keys = [self.action_key]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action ``[*batch, H]``."""
        batch = tensordict.batch_size
        flat = tensordict.select(*self.in_keys).reshape(-1)
        mask = flat.get(self.mask_key)
        chosen = judge(self.network, self.heads, flat, mask).chosen
        if self.explores and explores(self):
            # Each row has its own exploration rate.
            draw = torch.rand(batch, device=mask.device)
            place = torch.rand(batch, device=mask.device, dtype=torch.float64)
            is_random = (draw < trailing(self.epsilon, draw)).reshape(-1, 1)
            rest, heads = choose_uniform(mask, place.flatten()), []
            for size in reversed(self.heads.sizes):  # torch's unravel_index copies the sizes
                heads.append(rest % size)
                rest = rest // size
            chosen = torch.where(is_random, torch.stack(heads[::-1], -1), chosen)
        return tensordict.set(self.action_key, chosen.unflatten(0, batch))


class Branching(DQN):
    """Branching Q-learning: :class:`agents.algorithms.dqn.DQN` with another loss and policy.

    ``network`` builds the network that scores the options of each head and estimates V.
    """

    action_modes = ("multi_head",)
    network_role = "actor and critic"
    own_network = MultiHeadActorCritic

    def policy_of(self, env: PackingEnv, epsilon: EpsilonSchedule) -> BranchingPolicy:
        """Build the policy of the network."""
        self.heads = action_heads(env)
        return BranchingPolicy(self.network, self.heads, epsilon)

    def loss(self, batch: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Return losses ``[B]`` and values ``[B]``, averaged over the heads that had a choice.

        All heads share the paper's mean target, ``y = r + gamma^n * mean over the heads of
        Q_h(s', a'_h)``. The online network chooses a' head by head; the target network evaluates
        it. A head's loss is the smooth L1 loss of ``y - Q_h``.

        Args:
            batch: As in :meth:`agents.algorithms.dqn.DQN.loss`, with ``action [B, H]``. The method
                sets ``td_error [B]``, the sum of the heads' absolute errors.
        """
        # 1. The target that all heads share.
        following = batch.get("next")
        legal = following.get("legal_mask", following.get("action_mask"))
        with torch.no_grad():
            scorer = self.network if self.double else self.target
            chosen = judge(scorer, self.heads, following, legal).chosen
            ahead = judge(self.target, self.heads, following, legal, chosen)
            target = n_step_target(batch, (ahead.value * ahead.weight).sum(-1), self.gamma)
        # 2. Compute the values of the choices taken, and compare.
        mask, action = batch.get("action_mask"), self.heads.split(batch.get("action"))
        branches = judge(self.network, self.heads, batch, mask, action)
        error = branches.value - target[:, None]
        losses = functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")
        batch.set("td_error", (error.detach().abs() * (branches.weight > 0)).sum(-1))
        return (losses * branches.weight).sum(-1), (branches.value * branches.weight).sum(-1)
