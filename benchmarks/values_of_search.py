"""Values learned from search: does an agent pack more if its values are fitted to play-outs?

    python benchmarks/values_of_search.py gather FOLDER --base RUN --seconds 1080 --seed 0
    python benchmarks/values_of_search.py fit FOLDER --base RUN [--instances 2048] [--save FOLDER]

`gather` plays episodes with the base. In some states it simulates the placements with the best
values, and a few others. All placements of a state have the same futures. In each future the base
makes one more decision, and its value estimates the rest. The mean returns are labels of all
compared afterstates, not only of the chosen one (Veness et al., "Bootstrapping from game tree
search", NeurIPS 2009). An error that all labels of a state share does not change a decision, so
`fit` gives ten times as much weight to the differences within a state. Several processes may
gather, with different seeds. A tenth of the states is held out of the fit. The new values and the
base then play the same held-out sequences, greedily. `pretrained/irregular_com_hull` was made in
this way from the first run of `afterstates.py learn_com_hull`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pretrained import export_policy
from provenance import provenance, write_json
from torch import Tensor, nn

from agents import load_policy
from agents.networks.afterstate_net import AfterstateValue
from agents.search import Lookahead
from agents.training import checkpoint
from agents.training.evaluate import evaluate, paired_difference
from packing_env import PackingEnv, make_env
from packing_env.core.transition import is_done

BEST, OTHERS, FUTURES, DEPTH = 10, 2, 4, 2
"""Numbers of best placements, other placements, futures, and decisions in each future."""
ROWS, CANDIDATES, EVERY = 16, 32, 3
"""Parallel episodes, candidates of the base in play-outs, mean steps between labelled states."""
CONSIDERED = 128
"""Number of candidates, of which the best are labelled."""
AMONG, EXPLORED = 4, 0.15
"""To see more states, a share `EXPLORED` of the decisions is uniform among the `AMONG` best
placements."""
MIX, STATES = 0.1, 32
"""Weight of the errors that a state's placements share; number of states in a minibatch."""


@dataclass(frozen=True)
class Labels:
    """Afterstates with labels, state after state.

    Attributes:
        features: ``[N, F]`` of the maps, as the value's network takes them.
        context: ``[N, C]`` further inputs.
        target: ``[N]`` mean return of the play-outs after the placement, times the policy's scale.
        half: ``[N]`` mean return of the even futures minus the mean of all futures.
        base: ``[N]`` value of the base.
        count: ``[S]`` number of afterstates of each state.
    """

    features: Tensor
    context: Tensor
    target: Tensor
    half: Tensor
    base: Tensor
    count: Tensor

    @classmethod
    def load(cls, folder: Path) -> Labels:
        """Read all files of a folder."""
        parts = [torch.load(file, weights_only=True) for file in sorted(folder.glob("*.pt"))]
        if not parts:
            raise SystemExit(f"{folder}: no labels there; gather some first")
        return cls(**{key: torch.cat([part[key] for part in parts]) for key in parts[0]})


class Gatherer:
    """Plays episodes of the base and labels afterstates on the way."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.env = make_env(args.task, ROWS, seed=1000 + args.seed, pool_size=16384)
        self.policy: Any = load_policy(args.base, self.env).eval()
        self.policy.afterstates = self.policy.afterstates.limited_to(CONSIDERED)

        def base(env: PackingEnv) -> Any:
            return load_policy(args.base, env)

        self.search = Lookahead(
            self.env, base, breadth=BEST, depth=DEPTH, num_candidates=CANDIDATES, seed=args.seed
        )
        self.random = torch.Generator().manual_seed(args.seed)
        self.found: dict[str, list[Tensor]] = {name: [] for name in Labels.__annotations__}
        self.root = self.env.reset()

    @torch.no_grad()
    def step(self) -> None:
        """Label the states in some steps, then take one decision in every row."""
        policy = self.policy
        flat = self.root.select(*policy.in_keys)
        height, item, offered, mask, packed = (flat.get(key) for key in policy.in_keys)
        candidate, maps, _ = policy.afterstates.compute(height, item, offered, mask)
        slot = policy.afterstates.slots(candidate.clamp(min=0), offered)
        context = policy.outlook.waiting(item, packed.squeeze(-1), slot)
        there = candidate >= 0
        reward = policy.outlook.rewards(item).gather(1, slot)
        features = policy.value.features(maps.flatten(0, 1), there.flatten())
        value = policy.value.value(features, context.flatten(0, 1)).view(candidate.shape)
        rank = torch.where(there, reward + value, -torch.inf)
        if torch.rand((), generator=self.random) < 1 / EVERY:
            inputs = features.view(*candidate.shape, -1), context, value
            self._label(candidate, rank, reward, inputs)
        choice = self._explore(rank)
        action = candidate.gather(1, choice[:, None]).squeeze(1).clamp(min=0)
        _, self.root = self.env.step_and_maybe_reset(self.root.set("action", action))

    def _label(
        self, candidate: Tensor, rank: Tensor, reward: Tensor, inputs: tuple[Tensor, ...]
    ) -> None:
        """Play on from the placements of every unfinished row that has several legal ones."""
        state = self.env.get_known_state()
        there = candidate >= 0
        rows = (~is_done(state) & (there.sum(1) > 1)).nonzero().squeeze(1)
        if not len(rows):
            return
        best = rank[rows].topk(BEST, 1).indices
        other = torch.rand(len(rows), candidate.shape[1], generator=self.random)
        other = torch.where(there[rows], other, -1.0).scatter(1, best, -2.0)
        chosen = torch.cat((best, other.topk(OTHERS, 1).indices), 1)
        real = there[rows].gather(1, chosen)
        action = torch.where(real, candidate[rows].gather(1, chosen), -1)
        known = {key: entry[rows] for key, entry in state.items()}
        played = self.search.play_outs(known, action, FUTURES).float() * self.policy.scale
        target = played.mean(2)
        features, context, value = (entry[rows] for entry in inputs)

        def picked(entry: Tensor) -> Tensor:
            where = chosen.view(*chosen.shape, *(1,) * (entry.dim() - 2))
            return entry.gather(1, where.expand(*chosen.shape, *entry.shape[2:]))[real]

        entries = {
            "features": picked(features).half(),
            "context": picked(context),
            "target": target[real] - picked(reward[rows]),
            "half": (played[..., ::2].mean(2) - target)[real],
            "base": picked(value),
            "count": real.sum(1),
        }
        for name, entry in entries.items():
            self.found[name].append(entry)

    def _explore(self, rank: Tensor) -> Tensor:
        """Return the best candidate of each row, or one of the best few."""
        few = rank.topk(AMONG, 1)
        other = torch.randint(0, AMONG, (len(rank), 1), generator=self.random)
        explored = torch.rand(len(rank), generator=self.random) < EXPLORED
        explored &= few.values.gather(1, other).squeeze(1) > -torch.inf
        return torch.where(explored, few.indices.gather(1, other).squeeze(1), rank.argmax(1))

    def save(self, file: Path) -> int:
        """Write what was gathered; return the number of states."""
        torch.save({name: torch.cat(parts) for name, parts in self.found.items()}, file)
        return sum(len(entry) for entry in self.found["count"])


def gather(args: argparse.Namespace) -> None:
    """Label afterstates for some time."""
    args.folder.mkdir(parents=True, exist_ok=True)
    gatherer, start, steps = Gatherer(args), time.monotonic(), 0
    file = args.folder / f"labels-{args.seed}.pt"
    while time.monotonic() - start < args.seconds:
        gatherer.step()
        steps += 1
        if steps % 400 == 0:
            print(f"{gatherer.save(file)} states, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{gatherer.save(file)} states in {file}")


class Fit:
    """Fits a value to labels."""

    def __init__(self, labels: Labels, value: AfterstateValue) -> None:
        self.labels, self.value = labels, value
        count, most = labels.count, int(labels.count.max())
        first = count.cumsum(0) - count
        self.real = torch.arange(most) < count[:, None]
        self.index = torch.where(self.real, first[:, None] + torch.arange(most), 0)
        order = torch.randperm(len(count))
        self.held_out, self.learned = order.split((len(count) // 10, len(count) - len(count) // 10))

    def errors(self, states: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return errors ``[S, K]``, and errors minus the mean of their state; 0 if missing."""
        real = self.real[states].float()
        error = (values - self.labels.target[self.index[states]]) * real
        mean = error.sum(1, keepdim=True) / real.sum(1, keepdim=True)
        return error, (error - mean) * real

    def values(self, states: Tensor, turn: bool) -> Tensor:
        """Return the values of the afterstates of states."""
        rows = self.index[states].flatten()
        order = torch.randperm(len(rows)) if turn else torch.arange(len(rows))
        inputs = self.labels.features[rows[order]].float(), self.labels.context[rows[order]]
        return self.value.value(*inputs, turn=turn)[order.argsort()].view(len(states), -1)

    @torch.no_grad()
    def within(self) -> float:
        """Return the mean squared error within states that were held out."""
        total = sum(
            self.errors(part, self.values(part, False))[1].square().sum().item()
            for part in self.held_out.split(512)
        )
        return total / int(self.labels.count[self.held_out].sum())

    def run(self, epochs: int, lr: float) -> None:
        """Minimise the squared errors within states and, with less weight, all squared errors."""
        optimizer = torch.optim.Adam(self.value.parameters(), lr)
        steps = epochs * -(-len(self.learned) // STATES)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.02 ** (k / steps))
        for _ in range(epochs):
            for part in self.learned[torch.randperm(len(self.learned))].split(STATES):
                error, within = self.errors(part, self.values(part, True))
                squares = within.square().sum() + MIX * error.square().sum()
                optimizer.zero_grad()
                (squares / self.real[part].sum()).backward()
                nn.utils.clip_grad_norm_(self.value.parameters(), 1.0)
                optimizer.step()
                schedule.step()


def variances(labels: Labels) -> dict[str, float]:
    """Return the variance of label minus base within states, and the part of it that is not noise.

    The noise of the two halves of the futures is independent. So the mean product of their
    differences from the base contains no noise.
    """
    state = torch.arange(len(labels.count)).repeat_interleave(labels.count)

    def within(entry: Tensor) -> Tensor:
        sums = torch.zeros(len(labels.count)).index_add_(0, state, entry)
        return entry - (sums / labels.count)[state]

    error = within(labels.target - labels.base)
    half = within(labels.half)
    known = ((error + half) * (error - half)).mean()
    return {"within_states": error.square().mean().item(), "known_to_search": known.item()}


def fit(args: argparse.Namespace) -> None:
    """Fit the labels, play held-out sequences, write the JSON."""
    torch.manual_seed(args.seed)
    labels = Labels.load(args.folder)
    env = make_env(args.task, 128, seed=0, split="test", draw="sequential")
    policy: Any = load_policy(args.base, env)
    fitting = Fit(labels, policy.value)
    result: dict[str, Any] = provenance() | {
        "task": args.task,
        "base": args.base,
        "epochs": args.epochs,
        "lr": args.lr,
        "seed": args.seed,
        "states": len(labels.count),
        "afterstates": len(labels.target),
        "variance": variances(labels),
        "error_before": fitting.within(),
    }
    start = time.process_time()
    fitting.run(args.epochs, args.lr)
    result |= {"seconds_of_fit": time.process_time() - start, "error_after": fitting.within()}
    print({key: result[key] for key in ("variance", "error_before", "error_after")}, flush=True)
    before = evaluate(env, load_policy(args.base, env), args.instances)
    after = evaluate(env, policy, args.instances)
    result["utilization_before"] = vars(before.estimate("utilization"))
    result["utilization"] = vars(after.estimate("utilization"))
    result["difference"] = vars(paired_difference(after, before))
    if args.save:
        save(args, policy, result["states"])
        wider = evaluate(env, load_policy(str(args.save), env), args.instances)
        result["num_candidates"] = args.candidates
        result["utilization_of_more_candidates"] = vars(wider.estimate("utilization"))
        result["difference_of_more_candidates"] = vars(paired_difference(wider, before))
    write_json(args.out, result)
    print({key: value for key, value in result.items() if "utilization" in key})


def save(args: argparse.Namespace, policy: Any, states: int) -> None:
    """Write the learned policy, which evaluates ``args.candidates`` placements per decision."""
    export_policy(args.base, args.save, [f"agent.num_candidates={args.candidates}"])
    meta = {**checkpoint.load(args.save).meta, "states_of_search": states}
    checkpoint.write(args.save, {"agent": {"policy": policy.state_dict()}}, meta)


def main() -> None:
    """Gather labels, or fit them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=["gather", "fit"])
    parser.add_argument("folder", type=Path, help="folder of the labels")
    parser.add_argument("--task", default="irregular_com_hull")
    parser.add_argument("--base", required=True, help="a run, a checkpoint or pretrained/NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--instances", type=int, default=2048)
    parser.add_argument("--save", type=Path, help="folder of the learned policy")
    parser.add_argument(
        "--candidates", type=int, default=256, help="candidates per decision of the saved policy"
    )
    parser.add_argument("--out", default="benchmarks/results/values_of_search.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"gather": gather, "fit": fit}[args.work](args)


if __name__ == "__main__":
    main()
