"""Masked proximal policy optimisation: the whole algorithm.

The sources are: Schulman et al., "Proximal policy optimization algorithms", 2017; advantages,
Schulman et al., ICLR 2016; masks, Huang and Ontanon, FLAIRS 2022. An action that is one index
(``placement``, ``candidate``) has one head; an action of mode ``multi_head`` has several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.algorithms.base import Learner
from agents.algorithms.optimization import minibatches
from agents.algorithms.settings import OnPolicy, Optimization
from agents.networks.actor_critic import DiscreteActorCritic, PlacementActorCritic, run
from agents.networks.readouts.noisy import explores
from agents.objectives.gae import generalised_advantage
from agents.objectives.multi_head_ppo import MultiHeadPPOLoss, Scores, Surrogate
from agents.options import option_groups
from agents.policies.heads import Heads, action_heads
from agents.policies.sampling import (
    at,
    best,
    check_scores,
    draw,
    masked_log_softmax,
    normalised_entropy,
)
from agents.replay.compact import RebuildMaps, maps_read
from packing_env.envs import PackingEnv
from packing_env.values import Positive, Share


class ActorCriticPolicy(TensorDictModuleBase):
    """A policy that draws the heads of an action one after another, each among its legal options.

    Batches may have any leading axes; every element has its own draws. The policy follows TorchRL's
    ``set_exploration_type``: RANDOM draws; MODE, MEAN and DETERMINISTIC choose the most probable
    option of each head. If no type is set, the policy draws in training mode. Probabilities and
    values are float32, even if the network runs in bfloat16. Nothing is copied to the host.

    Writes the action, ``action_log_prob [*batch, H]`` (one column per head), and
    ``state_value [*batch, 1]``.
    """

    def __init__(self, network: DiscreteActorCritic, heads: Heads) -> None:
        super().__init__()
        self.network = network
        self.heads = heads
        self.in_keys = [*network.in_keys, "action_mask"]
        self.out_keys = ["action", "action_log_prob", "state_value"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action, its log-probabilities and the value of the state."""
        flat = tensordict.select(*self.in_keys).reshape(-1)
        chosen, scores, value = self._decide(flat)
        batch = tensordict.batch_size
        tensordict.set("action", self.heads.join(chosen).unflatten(0, batch))
        tensordict.set("action_log_prob", torch.stack(scores, -1).unflatten(0, batch))
        return tensordict.set("state_value", value.unflatten(0, batch)[..., None])

    def _decide(self, flat: TensorDictBase) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return the choices ``[B, H]``, their log-probabilities, each ``[B]``, and V ``[B]``."""
        mask, scores = flat.get("action_mask"), []
        encoding = self._encode(flat)
        chosen = torch.empty(len(flat), 0, dtype=torch.int64, device=mask.device)
        for _ in self.heads.sizes:
            legal = self.heads.next_mask(mask, chosen)
            logits = run(self.network, self.network.scores, encoding, chosen)
            check_scores(self.network, logits, legal)
            index, log_prob = self._choose(logits, legal)
            scores.append(log_prob)
            chosen = torch.cat((chosen, index[:, None]), 1)
        return chosen, scores, run(self.network, self.network.value, encoding).float()

    def evaluate(self, tensordict: TensorDictBase, action: Tensor) -> Scores:
        """Return the scores of actions ``[B, ...]`` in the states ``[B]``, with gradients."""
        chosen, mask = self.heads.split(action), tensordict.get("action_mask")
        encoding = self._encode(tensordict)
        scores, entropies, free = [], [], []
        for head in range(len(self.heads.sizes)):
            legal = self.heads.next_mask(mask, chosen[:, :head])
            logits = run(self.network, self.network.scores, encoding, chosen[:, :head])
            log_prob = masked_log_softmax(logits, legal)
            scores.append(at(log_prob, chosen[:, head]))
            entropies.append(normalised_entropy(log_prob, legal))
            free.append(legal.sum(-1) > 1)
        value = run(self.network, self.network.value, encoding).float()
        log_prob, entropy, had_choice = (torch.stack(p, -1) for p in (scores, entropies, free))
        return Scores(log_prob, entropy, had_choice, value)

    def value(self, tensordict: TensorDictBase) -> Tensor:
        """Return V of the states, ``[B]``; no mask is needed."""
        return run(self.network, self.network.value, self._encode(tensordict)).float()

    def _encode(self, observed: TensorDictBase) -> Any:
        return run(self.network, self.network.encode, observed)

    def _choose(self, logits: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
        """Return one index per row and its log-probability."""
        log_prob = masked_log_softmax(logits, legal)
        if explores(self):
            uniform = torch.rand(logits.shape[0], dtype=torch.float64, device=logits.device)
            index = draw(log_prob, legal, uniform)
        else:
            index = best(log_prob, legal)
        return index, at(log_prob, index)


@dataclass(frozen=True)
class Advantage:
    """Generalised advantage estimation.

    Attributes:
        gamma: Discount per decision.
        lam: Decay of the advantage estimator per decision.
    """

    gamma: Share = 0.99
    lam: Share = 0.95


class PPO(Learner):
    """PPO: a policy, trained by one update per rollout.

    An update passes ``epochs`` times through the rollout in random minibatches, whose compact
    states are first expanded to whole observations. Once a minibatch's KL divergence from the
    acting policy exceeds ``target_kl``, the remaining steps are computed but not taken, because
    stopping the loop would need a copy to the host. Steps that are not finite are skipped in the
    same way; an update with such a step counts as skipped, and three skipped updates in a row stop
    training.

    Args:
        env: Determines the shapes, and recomputes the maps of items.
        network: Builds the actor and critic from the environment.
        learning: ``epochs`` and ``batch_size``.
        target_kl: Divergence from the acting policy at which an update ends; None means no limit.
        advantage: ``gamma`` and ``lam``.
        surrogate: Clipping and weights of the loss.
        optimization: ``lr``, its schedule, and Adam's other options.
    """

    action_modes = ("placement", "candidate", "multi_head")
    network_role = "actor and critic"
    parts = ("policy", "optimizer", "skipped_in_a_row")
    on_policy = True

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], DiscreteActorCritic] = PlacementActorCritic,
        target_kl: Positive | None = 0.02,
        learning: OnPolicy = OnPolicy(),
        advantage: Advantage = Advantage(),
        surrogate: Surrogate = Surrogate(),
        optimization: Optimization = Optimization(max_grad_norm=0.5, adam_eps=1e-5),
    ) -> None:
        self.gamma, self.lam = advantage.gamma, advantage.lam
        self.epochs, self.batch_size = learning.epochs, learning.batch_size
        self.target_kl = torch.inf if target_kl is None else target_kl
        self.policy = ActorCriticPolicy(network(env), action_heads(env))
        self.loss = MultiHeadPPOLoss(self.policy, surrogate=surrogate)
        self.maps = RebuildMaps(env, maps_read(self.policy, env))
        self.step_limit = env.params.step_limit
        self.optimizer = optimization.adam(self.policy.parameters())
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64)
        self.to(env.device)

    def update(self, rollout: TensorDictBase) -> dict[str, Tensor]:
        """Run all epochs over a rollout ``[B, T]``, in the compact form of ``Rollout``.

        Returns:
            Means over the steps taken, on the device; nothing is copied to the host.
        """
        flat = self._with_targets(rollout).reshape(-1)
        going = torch.ones((), dtype=torch.bool, device=flat.device)
        sums: dict[str, Tensor] = {}
        for rows in minibatches(len(flat), self.batch_size, self.epochs, flat.device):
            scores = self.loss(self._whole(flat[rows]))
            kl = scores.get("kl_approx").detach().clone()
            loss = scores.get("loss_objective") + scores.get("loss_entropy")
            loss = loss + scores.get("loss_critic")
            # Either all processes continue, or none does. A KL of NaN does not end the update; the
            # optimizer skips a step that is not finite.
            scalars = self.optimizer.step(loss, where=going, below=(kl, self.target_kl))
            # Sum the report over the steps taken.
            taken = going & (scalars["skipped"] == 0)
            scalars |= {"loss": loss.detach(), **scores.detach().to_dict(), "steps": taken.float()}
            for name, value in scalars.items():
                added = value if name in ("skipped", "steps") else torch.where(taken, value, 0.0)
                sums[name] = sums[name] + added if name in sums else added
        return self._report(sums, flat)

    @torch.no_grad()
    def _with_targets(self, rollout: TensorDictBase) -> TensorDictBase:
        """Replace ``next`` in the rollout by ``advantage`` and ``value_target [B, T, 1]``."""
        following = rollout.get("next")
        value = rollout.get("state_value").squeeze(-1)
        reward, done, terminated = (
            following.get(key).squeeze(-1) for key in ("reward", "done", "terminated")
        )
        next_value = self._next_values(following, value)
        advantage = generalised_advantage(
            reward, value, next_value, done, terminated, gamma=self.gamma, lam=self.lam
        )
        out = rollout.exclude("next")
        out.set("value_target", (advantage + value)[..., None])
        return out.set("advantage", advantage[..., None])

    def _next_values(self, following: TensorDictBase, value: Tensor) -> Tensor:
        """Return V of the state that each step reached, before the row is reset, ``[B, T]``.

        V is the next column of ``value``, except for truncated steps and for the last column. A row
        is truncated at most once in ``step_limit`` decisions. So the number of states to evaluate
        is fixed, and no shape depends on the data.
        """
        rows, length = value.shape
        count = min(length, -(-length // self.step_limit) + 1)
        truncated = following.get("truncated") & ~following.get("terminated")
        # 1. Select the steps whose V is not in the next column: the last one, then truncated ones.
        urgency = truncated.squeeze(-1).float()
        urgency[:, -1].fill_(2.0)  # an assignment would copy the number to the device
        places = urgency.topk(count, dim=1).indices
        # 2. Evaluate the states that these steps reached.
        states = following[torch.arange(rows, device=value.device)[:, None], places]
        known = self.policy.value(self._whole(states.reshape(-1))).view(rows, count)
        return torch.cat((value[:, 1:], value[:, -1:]), 1).scatter(1, places, known)

    def _whole(self, compact: TensorDictBase) -> TensorDictBase:
        return compact.exclude("observation").update(self.maps.expand(compact))

    def _report(self, sums: dict[str, Tensor], flat: TensorDictBase) -> dict[str, Tensor]:
        """Return means over the steps taken, and whether any was skipped."""
        failed = sums.pop("skipped") > 0
        self.skipped_in_a_row.copy_(torch.where(failed, self.skipped_in_a_row + 1, 0))
        steps, _ = sums.pop("steps"), sums.pop("skipped_in_a_row")
        return {
            **{name: total / steps.clamp(min=1) for name, total in sums.items()},
            "gradient_steps": steps,
            "value": flat.get("state_value").mean(),
            "skipped": failed.float(),
            "skipped_in_a_row": self.skipped_in_a_row.clone(),
        }
