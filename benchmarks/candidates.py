"""Loss of value by the choice of candidates: the first K of `Afterstates`, or all placements.

    python benchmarks/candidates.py [--base pretrained/irregular_com_hull] [--sequences 128]
        [--candidates 16 24 32 48 64 96 128 192 256]

An item that is not a cuboid has a thousand or more legal placements, of which
:class:`packing_env.Afterstates` proposes some. A value-based policy plays held-out sequences and
takes the best of all legal placements. In each state, the best value among the first K candidates
is compared with the best value of all placements. Then the policy plays the same sequences with its
own candidates.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from provenance import provenance, write_json
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents import load_policy
from agents.estimate import Estimate
from packing_env import Afterstates, make_env
from packing_env.kernels.afterstates.eager import Lattice, build

MOST, CHUNK = 4096, 512
"""Number of candidates that are listed; number of placements that are evaluated at once."""


class Judge:
    """Evaluates the placements in the states of a policy's episodes."""

    def __init__(self, base: str, task: str, sequences: int) -> None:
        self.env = make_env(task, sequences, seed=0, split="test", draw="sequential")
        self.policy: Any = load_policy(base, self.env).eval()
        self.own: Afterstates = self.policy.afterstates
        self.listed = self.own.limited_to(MOST)

    def values(self, root: TensorDictBase) -> Tensor:
        """Return reward and value of every placement ``[B, A]``, -inf where it is not legal."""
        heightmap, item, offered, mask, packed = (root.get(key) for key in self.policy.in_keys)
        values = torch.full(mask.shape, -torch.inf)
        for row in (mask.any(1) & ~root["done"].squeeze(-1)).nonzero().squeeze(1).tolist():
            part = slice(row, row + 1)
            which = item[part].clamp(min=0)
            lattice = Lattice(
                self.own.heights(heightmap[part]).long(),
                (offered[part] * self.own.units).round().long(),
                mask[part].view(offered[part].shape),
                which,
                self.own.size[which],
                self.env.params.grid_step,
            )
            for places in mask[row].nonzero().T.split(CHUNK, 1):
                maps = build(lattice, places, self.own.top)[0].to(torch.int16)
                slot = self.own.slots(places, offered[part])
                context = self.policy.outlook.waiting(item[part], packed[part].squeeze(-1), slot)
                reward = self.policy.outlook.rewards(item[part]).gather(1, slot)
                values[row, places[0]] = reward[0] + self.policy.value(maps, context[0])
        return values

    def first(self, root: TensorDictBase, afterstates: Afterstates, value: Tensor) -> Tensor:
        """Return the values of candidates ``[B, K]`` in their order, -inf after the last."""
        heightmap, item, offered, mask, _ = (root.get(key) for key in self.policy.in_keys)
        candidate = afterstates.compute(heightmap, item, offered, mask)[0]
        return torch.where(candidate < 0, -torch.inf, value.gather(1, candidate.clamp(min=0)))

    @torch.no_grad()
    @set_exploration_type(ExplorationType.DETERMINISTIC)
    def play(self, counts: list[int] | None) -> tuple[Tensor, dict[str, Any]]:
        """Play each sequence once; return utilizations, and the loss for each number of candidates.

        Without ``counts`` the policy plays with its own candidates.
        """
        root, lost, states = self.env.reset(), torch.zeros(len(counts or [])), [0, 0, 0]
        while not root["done"].all():
            if counts is None:
                action = self.policy(root.clone())["action"]
            else:
                value = self.values(root)
                live = value.isfinite().any(1)
                best = self.first(root, self.listed, value)[live]
                gap = value[live].amax(1, keepdim=True) - best.cummax(1).values
                lost += gap[:, [count - 1 for count in counts]].sum(0)
                numbers = (len(best), int(value.isfinite().sum()), int(best.isfinite().sum()))
                states = [a + b for a, b in zip(states, numbers, strict=True)]
                action = value.argmax(1)
            root = self.env.step_mdp(self.env.step(root.set("action", action)))
        per_state = (lost / max(1, states[0]) / self.policy.scale).tolist()
        report = {
            "states": states[0],
            "legal": states[1] / max(1, states[0]),
            "candidates": states[2] / max(1, states[0]),
            "lost": dict(zip(map(str, counts or []), per_state, strict=True)),
        }
        return root["metrics", "utilization"].flatten().double(), report


def main() -> None:
    """Measure, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="pretrained/irregular_com_hull")
    parser.add_argument("--task", default="irregular_com_hull")
    parser.add_argument("--sequences", type=int, default=128)
    counts = [16, 24, 32, 48, 64, 96, 128, 192, 256]
    parser.add_argument("--candidates", type=int, nargs="+", default=counts)
    parser.add_argument("--out", default="benchmarks/results/candidates.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    judge = Judge(args.base, args.task, args.sequences)
    every, report = judge.play(args.candidates)
    own, _ = judge.play(None)
    result = provenance() | {
        "base": args.base,
        "sequences": args.sequences,
        "num_candidates": judge.own.num_candidates,
        **report,
        "utilization": vars(Estimate.of(own)),
        "utilization_of_all": vars(Estimate.of(every)),
        "all_minus_own": vars(Estimate.of(every - own)),
    }
    write_json(args.out, result)
    print({key: result[key] for key in ("states", "legal", "candidates", "lost", "all_minus_own")})


if __name__ == "__main__":
    main()
