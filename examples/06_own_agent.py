"""Your own heuristic, and your own agent in the training loop of `packing train`.

python examples/06_own_agent.py
"""

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

import packing_env as pe
from agents import heuristics
from agents.heuristics import Placements
from agents.loggers.logging import NullLogger
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.replay import DeviceReplay
from agents.training.evaluate import evaluate, table
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer


def corner_first(placements: Placements) -> torch.Tensor:
    """Score placements; a heuristic plays the legal placement with the lowest score."""
    return placements.x + placements.y + 2 * placements.z


class Values(nn.Module):
    """Q(action) is a weight per action plus a slope times the drop height."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_actions))
        self.slope = nn.Parameter(torch.zeros(()))

    def forward(self, drop_height: torch.Tensor) -> torch.Tensor:
        return self.weight + self.slope * drop_height.flatten(-4)


class LinearAgent:
    """Smallest agent that the training loop accepts. See agents.algorithms.base.Agent.

    To train it from the command line, write FOLDER/agent/linear.yaml with
    `_target_: my_module.LinearAgent`, `_partial_: true`, `gamma: 0.9` and `n_steps: 1`, and add
    --config-dir FOLDER.
    """

    action_modes = ("placement",)  # checked before anything is built

    def __init__(
        self, env: pe.PackingEnv, lr: float = 0.05, gamma: float = 0.9, n_steps: int = 1
    ) -> None:
        self.gamma, self.batch_size = gamma**n_steps, 32
        self.value = Values(env.mode.num_actions).to(env.device)
        network = TensorDictModule(
            self.value, in_keys=[("observation", "drop_height")], out_keys=["action_value"]
        )
        self.policy = PolicyWrapper(network, epsilon=EpsilonSchedule(1.0, 0.1, 1_000))
        self.optimizer = torch.optim.Adam(self.value.parameters(), lr=lr)

    def set_frames(self, frames: int) -> None:
        self.policy.set_frames(frames)

    def update(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        """Take one optimizer step on a replay batch: tensors in, tensors out, no host read."""
        following = batch["next"]
        q = self.value(batch["observation", "drop_height"])
        chosen = q.gather(-1, batch["action"][:, None]).squeeze(-1)
        with torch.no_grad():
            ahead = self.value(following["observation", "drop_height"])
            best = torch.where(following["legal_mask"], ahead, -torch.inf).amax(-1)
            future = torch.where(following["terminated"].squeeze(-1), 0.0, best)
            target = following["reward"].squeeze(-1) + batch["discount"].squeeze(-1) * future
        loss = nn.functional.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    def state_dict(self) -> dict:
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])


def main(frames: int = 2_000, instances: int = 16, **overrides: object) -> dict[str, float]:
    env = pe.make_env("irregular", num_envs=16, **overrides)
    agent = LinearAgent(env)
    replay = DeviceReplay(env, capacity=2_000, gamma=agent.gamma, rebuild=("drop_height",))
    trainer = Trainer(
        agent,
        DeviceCollector(env, agent.policy),
        replay,
        frames=frames,
        warmup=min(256, frames // 2),
        update_every=32,
    )
    trainer.run(NullLogger("."))

    heuristics.HEURISTICS["corner_first"] = corner_first
    held_out = pe.make_env(
        "irregular", num_envs=instances, split="test", draw="sequential", **overrides
    )
    entrants = {"linear": agent.policy} | {
        name: heuristics.build(name, held_out) for name in ("corner_first", "random_legal")
    }
    evaluations = {name: evaluate(held_out, policy) for name, policy in entrants.items()}

    from rich.console import Console

    Console().print(table(evaluations))
    return {name: e.estimate("utilization").mean for name, e in evaluations.items()}


if __name__ == "__main__":
    main()
