"""PPO in one file, in the style of CleanRL, with the mask in the distribution.

python examples/15_cleanrl_ppo.py                                  # boxes, 200 actions
python examples/15_cleanrl_ppo.py --env-id Packing-v2              # irregular items, 80 candidates
python examples/15_cleanrl_ppo.py --track                          # curves in Weights & Biases
"""

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

GAMMA, LAMBDA, CLIP, EPOCHS, BATCHES = 1.0, 0.95, 0.2, 4, 4


class Agent(nn.Module):
    """Actor and critic on one vector."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.actor, self.critic = nn.Linear(256, actions), nn.Linear(256, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)

    def forward(self, seen: torch.Tensor, mask: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        hidden = self.body(seen)
        logits = self.actor(hidden).masked_fill(~mask, -1e8)  # an illegal action has probability 0
        return Categorical(logits=logits), self.critic(hidden).squeeze(-1)


def advantages(
    rewards: torch.Tensor, values: torch.Tensor, dones: torch.Tensor, last: torch.Tensor
) -> torch.Tensor:
    """Estimate advantages (GAE); ``dones[t]`` is true if the episode ended with decision t."""
    found, running = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        following = last if t == len(rewards) - 1 else values[t + 1]
        live = 1.0 - dones[t].float()
        running = rewards[t] + live * GAMMA * (following + LAMBDA * running) - values[t]
        found[t] = running
    return found


def main(
    env_id: str = "PackingCuboid-v1",
    num_envs: int = 64,
    steps: int = 32,
    updates: int = 100,
    seed: int = 0,
    log: Callable[[dict[str, float]], None] = lambda values: None,
    seconds: float = float("inf"),
    **overrides: object,
) -> float:
    torch.manual_seed(seed)
    # to_torch=True returns tensors without a copy. Finished rows are reset automatically.
    envs = gym.make_vec(
        f"packing_env:{env_id}",
        num_envs=num_envs,
        observation="flat",
        to_torch=True,
        **overrides,
    )
    inputs = envs.single_observation_space["observation"].shape[0]
    agent = Agent(inputs, int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    seen, _ = envs.reset(seed=seed)
    filled: list[float] = []
    start = time.perf_counter()
    for update in range(updates):
        rows = []
        for _ in range(steps):
            with torch.no_grad():
                policy, value = agent(seen["observation"], seen["action_mask"])
            action = policy.sample()
            kept = seen["observation"], seen["action_mask"], action, policy.log_prob(action), value
            seen, reward, terminated, truncated, info = envs.step(action)
            done = terminated | truncated
            rows.append((*kept, reward, done))
            filled += info["final_info"]["utilization"][done].tolist()
        inputs_, masks, actions, old, values, rewards, dones = map(
            torch.stack, zip(*rows, strict=True)
        )
        with torch.no_grad():
            last = agent(seen["observation"], seen["action_mask"])[1]
        gains = advantages(rewards, values, dones, last)
        learn(agent, optimizer, (inputs_, masks, actions, old, gains, gains + values))
        recent, frames = filled[-200:], (update + 1) * steps * num_envs
        mean, spent = sum(recent) / max(1, len(recent)), time.perf_counter() - start
        print(f"{frames:,} frames, utilization {mean:.3f}")
        log({"frames": frames, "seconds": spent, "utilization": mean})
        if spent > seconds:
            break
    envs.close()
    return mean


def learn(
    agent: Agent, optimizer: torch.optim.Optimizer, rollout: tuple[torch.Tensor, ...]
) -> None:
    """Make the updates of one rollout, with the action masks that the rollout had."""
    flat = [entry.flatten(0, 1) for entry in rollout]
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(flat[0])).chunk(BATCHES):
            seen, mask, action, old, gain, target = (entry[chosen] for entry in flat)
            policy, value = agent(seen, mask)
            ratio = (policy.log_prob(action) - old).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
            loss = (value - target).square().mean() / 2 - surrogate.mean()
            loss = loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env-id", default="PackingCuboid-v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--track", action="store_true", help="log to Weights & Biases")
    options = vars(parser.parse_args())
    chosen: dict[str, object] = {}
    if options["env_id"] != "PackingCuboid-v1":
        chosen["action_mode"] = "candidate"  # "placement" has tens of thousands of actions
    if options.pop("track"):
        import wandb

        run = wandb.init(project="packing", config=options | chosen)
        chosen["log"] = lambda values: run.log(values, step=int(values["frames"]))
    main(**options, **chosen)
