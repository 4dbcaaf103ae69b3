"""`Simulator`: copies of an environment's state that are played on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDict
from torch import Tensor

from packing_env import PackingEnv
from packing_env.core import observation
from packing_env.engine import Observations, Step
from packing_env.types import Instances, State


@dataclass(frozen=True)
class Played:
    """Copies after a decision.

    Attributes:
        state: Their state.
        root: Their observations, as a policy reads them.
        reward: ``[R]`` of the decision.
        done: ``[R]`` whose episode has ended.
    """

    state: State
    root: TensorDict
    reward: Float[Tensor, " R"]
    done: Bool[Tensor, " R"]

    def select(self, rows: Int[Tensor, " S"]) -> Played:
        """Return some of the copies."""
        state = {key: value[rows] for key, value in self.state.items()}
        return Played(state, self.root[rows], self.reward[rows], self.done[rows])


class Simulator:
    """Plays copies of the states of one environment; it knows neither its streams nor its pool.

    Args:
        env: Sets task, items and device; nothing of its state or its instances is kept.

    Attributes:
        env: An environment for policies to be built for; it has the task and the items, and one
            made-up instance. It is not stepped.
    """

    def __init__(self, env: PackingEnv) -> None:
        self._made_for = env
        self.env = self._build(env.params.observation)

    def _build(self, observed: tuple[str, ...]) -> PackingEnv:
        source = self._made_for
        params = source.params.evolve(observation=observed)
        items = torch.zeros(1, params.num_items, dtype=torch.int64)
        pool = Instances(items, torch.tensor([params.num_items]))
        return PackingEnv(params, source.catalogue, pool, device=source.device)

    def observe_only(self, keys: list[str | tuple[str, ...]]) -> None:
        """Observe from now on just what a policy reads, by its ``in_keys``."""
        names = {key[1] for key in keys if isinstance(key, tuple) and key[0] == "observation"}
        offered = self.env.params.observation
        kept = tuple(name for name in offered if names & set(observation.entries([name])))
        self.env = self._build(kept)

    def advance(self, state: State, action: Int[Tensor, " R"] | Mapping[str, Tensor]) -> Played:
        """Carry out one decision in every copy; the given tensors may be overwritten."""
        actions = {"action": action} if isinstance(action, Tensor) else action
        step: Step = self.env.engine.advance(state, actions, reset=False)
        return Played(
            step.state,
            self.view(step.observations),
            step.reward,
            step.observations.flags["done"],
        )

    def view(self, observations: Observations) -> TensorDict:
        """Return observations as the environment emits them."""
        entries = {
            "observation": dict(observations.entries),
            "metrics": dict(observations.metrics),
            **observations.masks,
        }
        return TensorDict(entries, [len(observations.flags["done"])])
