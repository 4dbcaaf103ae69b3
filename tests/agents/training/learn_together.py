"""A program that several processes run: what they learn together, beside what one would learn."""

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tests.agents.algorithms.test_every_agent import small_config
from torch import nn

from agents import process_group
from agents.algorithms.optimization import GatedAdam, Gradients
from agents.config.build import build_trainer
from agents.loggers.logging import NullLogger
from agents.process_group import any_of, texts
from agents.replay import DevicePrioritizedSampler
from agents.training.distributed import joined
from agents.training.trainer import Trainer

FAMILIES = {  # and what the gradient of a shard is compared with
    "dqn": ("shards", "whole"),
    "branching": ("shards", "whole"),
    "hierarchical": ("shards", "whole"),
    "ddpg": ("shards", "whole"),
    "sac": ("shards",),  # draws differ from those of one process
    "iqn": ("shards",),
    "rainbow": ("shards",),
    "ac_iqn": ("shards",),
    "ppo": ("whole",),  # advantages are normalised over all processes
    "ppo multi_head": ("whole",),
    "afterstate": ("whole",),  # shards differ in the number of afterstates that are learned
}
QUICK = ("ddpg", "ppo", "afterstate")
"""One agent of each kind.

ddpg has several optimizers; the samples of ppo have equal weight; the shards of afterstate differ
in their number of samples.
"""
ROWS = 4


@contextmanager
def recorded() -> Iterator[list[torch.Tensor]]:
    """Record the gradient of every step."""
    found: list[torch.Tensor] = []
    usual = Gradients.of

    def of(self: Gradients, *given: Any) -> torch.Tensor:
        loss = usual(self, *given)
        found.append(torch.cat([view.flatten() for view in self.views]))
        return loss

    Gradients.of = of
    try:
        yield found
    finally:
        Gradients.of = usual


class Family:
    """An agent, a batch for all processes, and their shards of it."""

    def __init__(self, case: str, size: int) -> None:
        torch.manual_seed(0)
        options = [f"env.num_envs={ROWS * size}"]
        if on_policy := case.split()[0] in ("ppo", "afterstate"):
            options += ["agent.epochs=1"]
        config = small_config(case, *options)
        if on_policy:
            config.agent.batch_size = 10_000
        if "precision" in config.network:
            config.network.precision = "fp32"
        trainer: Trainer = build_trainer(config)
        self.agent: Any = trainer.agent
        if case == "afterstate":  # which maps are turned depends on their places in the batch
            self.agent.policy.value._turned = lambda features: features
        replay: Any = trainer.replay
        for _ in range(4 if on_policy else 6):
            replay.extend(trainer.collector.step())
        self.batch = (replay.take() if on_policy else replay.sample(ROWS * size)).clone()
        self.state = copy.deepcopy(self.agent.state_dict())

    def gradient(self, rows: slice, seed: int) -> torch.Tensor:
        """Return the gradient of the first step of an update on some rows."""
        self.agent.load_state_dict(copy.deepcopy(self.state))
        torch.manual_seed(seed)
        with recorded() as found:
            self.agent.update(self.batch[rows].clone())
        return found[0]


def differences(rank: int, families: dict[str, Family], wanted: Any) -> dict[str, float]:
    """Return the largest relative difference of each family's gradient, by family and kind."""
    found = {}
    rows = slice(ROWS * rank, ROWS * (rank + 1))
    for case, family in families.items():
        gradient = family.gradient(rows, rank)
        for kind, other in wanted[case].items():
            scale = max(1.0, float(other.abs().max()))
            assert float(other.abs().max()) > 0
            found[f"{case}, {kind}"] = float((gradient - other).abs().max()) / scale
    return found


def trained(rank: int, updates: int, case: str, *options: str) -> Trainer:
    """Return a trainer after some updates."""
    config = small_config(case, "trainer.frames=1000000", *options)
    torch.manual_seed(0)
    trainer: Trainer = build_trainer(config, row_offset=ROWS * rank)
    torch.manual_seed(rank)
    while trainer.updates < updates:
        trainer.step()
    trainer._log(NullLogger("."), None, {}, ends=True)
    return trainer


def parameters(trainer: Trainer) -> list[torch.Tensor]:
    """Return the weights of a trainer's policy."""
    return [weight.detach() for weight in trainer.agent.policy.parameters()]


def gate(rank: int) -> dict[str, Any]:
    """Return weights after four steps, the third of which is broken in one process."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    optimizer = GatedAdam(layer.parameters(), lr=0.1)
    data = torch.arange(24.0).view(2, 4, 3)[rank]
    for step in range(4):
        factor = torch.nan if step == 2 and rank == 1 else 1.0
        optimizer.step(layer(data).square().mean() * factor)
    agreed = [*any_of(rank == 1, False), *texts("x" * rank)]
    return {"weight": layer.weight.data, "skipped": optimizer.skipped, "agreed": agreed}


def stopped(rank: int) -> dict[str, Any]:
    """Return the weights of PPO, and the gradient steps of an update that its KL limit ends."""
    trainer = trained(rank, 8, "ppo", "agent.lr=0.05", "agent.target_kl=0.02")
    return {"weights": parameters(trainer), "steps": trainer.last["gradient_steps"]}


def weights(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the chances of a draw from a shard of priorities, and the weights of it."""
    sampler = DevicePrioritizedSampler(8, alpha=1.0, beta=0.5, eps=1e-9)
    sampler.mark_update(torch.arange(8))
    priority = torch.arange(1.0, 9.0) * (rank + 1) ** 2 + rank
    sampler.update_priority(torch.arange(8), priority)
    index, weight = sampler.draw(16)
    return (priority / priority.sum())[index], weight


def gradients(size: int, cases: tuple[str, ...]) -> Callable[[int], Any]:
    """Compute what gradients are compared with; return their comparison."""
    families = {case: Family(case, size) for case in cases}
    wanted: dict[str, dict[str, torch.Tensor]] = {}
    for case, family in families.items():  # before the processes join: each on its own
        rows = [slice(ROWS * rank, ROWS * (rank + 1)) for rank in range(size)]
        wanted[case] = {}
        if "shards" in FAMILIES[case]:
            shards = [family.gradient(part, rank) for rank, part in enumerate(rows)]
            wanted[case]["shards"] = torch.stack(shards).mean(0)
        if "whole" in FAMILIES[case]:
            wanted[case]["whole"] = family.gradient(slice(None), 0)
    return lambda rank: differences(rank, families, wanted)


def main(what: str, folder: str) -> None:
    """Run the quick or the full comparison in every process, and save each process's results."""
    compared = gradients(int(os.environ["WORLD_SIZE"]), QUICK if what == "quick" else (*FAMILIES,))
    work: dict[str, Callable[[int], Any]] = {"gradients": compared}
    if what == "quick":
        work |= {"gate": gate, "stopped": stopped, "weights": weights}
    with joined("cpu", timeout=200):
        rank = process_group.rank()
        found = {name: together(rank) for name, together in work.items()}
        torch.save(found, f"{folder}/rank{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
