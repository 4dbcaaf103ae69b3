"""What the laws are tried on: random small tasks, played at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from tests.tiny import stream, tiny_env

from packing_env.envs import PackingEnv


@dataclass(frozen=True)
class Case:
    """A task, its rows, and the seed of the random play."""

    items: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    num_envs: int = 3
    seed: int = 0

    def env(self, num_envs: int | None = None, **shell: Any) -> PackingEnv:
        """Build it; the pool and the catalogue are the same whatever the number of rows."""
        return tiny_env(
            num_envs or self.num_envs, seed=self.seed, items=self.items, shell=shell, **self.params
        )

    @property
    def stream(self) -> torch.Generator:
        return stream(self.seed)


@st.composite
def cases(draw: st.DrawFn, **fixed: Any) -> Case:
    """Any task within the sizes that run in milliseconds; ``fixed`` pins parameters."""
    items = {
        "seed": draw(st.integers(0, 12), label="catalogue"),
        "grid": draw(st.sampled_from([(5, 5), (8, 6), (6, 9)])),
        "height": draw(st.sampled_from([0.05, 0.08])),
        "num_orientations": draw(st.integers(1, 4)),
        "window": draw(st.integers(3, 5)),
    }
    params = {
        "num_items": draw(st.sampled_from([5, 9])),
        "num_visible": draw(st.integers(1, 3)),
        "preview": draw(st.integers(0, 1)),
        "grid_step": draw(st.integers(1, 3)),
        "stability": draw(st.sampled_from(["com_hull", "none"])),
        "contact_tol": draw(st.sampled_from([None, 0.0])),
        "action_mode": draw(st.sampled_from(["placement", "candidate"])),
        "num_candidates": 12,
        "max_steps": draw(st.sampled_from([None, 2])),
        "reward": {"utilization": 1.0},
    }
    num_envs = draw(st.integers(1, 4), label="rows")
    return Case(items, {**params, **fixed}, num_envs, draw(st.integers(0, 999), label="seed"))
