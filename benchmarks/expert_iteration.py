"""Expert iteration on values of afterstates: is it useful to learn from the decisions of search?

    python benchmarks/expert_iteration.py [--minutes 10] [--playouts 32] [--instances 1000]

Training continues twice from `pretrained/cuboid_online`, with the same learning rate and the same
CPU time of this process: once with the agent's own decisions, once with the decisions of a search
that uses the agent's current values. The targets are the lambda-returns of the episodes, so they
are higher if search plays better (Anthony et al., "Thinking fast and slow with deep learning and
tree search", NeurIPS 2017). Then all three agents play the same held-out streams, greedily.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from provenance import provenance, write_json
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from agents import load_policy
from agents.config.build import build_agent, build_env, build_held_out, build_replay
from agents.config.compose import compose
from agents.search import Budget, Lookahead
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv

START = "pretrained/cuboid_online"


class Taught(TensorDictModuleBase):
    """The agent's policy with its decisions replaced by those of a search that uses its values."""

    def __init__(self, policy: Any, env: PackingEnv, playouts: int) -> None:
        super().__init__()

        def base(inner: PackingEnv) -> TensorDictModuleBase:
            copy: Any = load_policy(START, inner)
            copy.value = policy.value  # one network: the search uses the values being learned
            return copy

        self.policy = policy
        self.search = Lookahead(env, base, budget=Budget(playouts))
        self.in_keys, self.out_keys = policy.in_keys, policy.out_keys

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the search's actions; ``state_value`` is the policy's."""
        action = self.search(tensordict.copy()).get("action")
        chosen = self.policy(tensordict)
        return chosen.set("action", action).set("explored", torch.zeros_like(chosen["explored"]))


def learn(args: argparse.Namespace, playouts: int) -> tuple[Evaluation, dict[str, Any]]:
    """Continue training for a time; return the evaluation of the policy, and the frames."""
    overrides = ["experiment=learn_cuboid_afterstate", f"seed={args.seed}", f"agent.lr={args.lr}"]
    config = compose("train", overrides)
    torch.manual_seed(args.seed)
    env = build_env(config)
    agent: Any = build_agent(config, env)
    agent.policy.load_state_dict(load_policy(START, env).state_dict())
    replay: Any = build_replay(config, env, agent)
    player = Taught(agent.policy, env, playouts) if playouts else agent.policy
    collector = DeviceCollector(env, player)
    frames, start = 0, time.process_time()
    while (spent := time.process_time() - start) < 60.0 * args.minutes:
        replay.extend(collector.step())
        frames += env.batch_size.numel()
        if replay.full:
            agent.update(replay.take())
    held_out = build_held_out(config)
    policy: Any = load_policy(START, held_out)
    policy.load_state_dict(agent.policy.state_dict())
    evaluation = evaluate(held_out, policy, args.instances)
    return evaluation, {"playouts": playouts, "frames": frames, "processor_seconds": spent}


def main() -> None:
    """Compare both ways to continue, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--playouts", type=int, default=32)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/expert_iteration.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    held_out = build_held_out(compose("train", ["experiment=learn_cuboid_afterstate"]))
    before = evaluate(held_out, load_policy(START, held_out), args.instances)
    result: dict[str, Any] = provenance(args)
    result["before"] = {"utilization": vars(before.estimate("utilization"))}
    for name, playouts in (("own decisions", 0), ("decisions of search", args.playouts)):
        found, entry = learn(args, playouts)
        entry["utilization"] = vars(found.estimate("utilization"))
        entry["minus_before"] = vars(paired_difference(found, before))
        result[name] = entry
        write_json(args.out, result)
        print(name, entry, flush=True)


if __name__ == "__main__":
    main()
