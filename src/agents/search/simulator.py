"""`Simulator`: simulates further decisions on copies of an environment's state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDict
from torch import Tensor

from packing_env import PackingEnv
from packing_env.core import observation
from packing_env.engine import Observations, Step
from packing_env.envs.emission import Emission
from packing_env.types import Instances, State


@dataclass(frozen=True)
class Played:
    """Copies of a state after a decision.

    Attributes:
        state: The state of the copies.
        root: The observations of the copies, as a policy reads them.
        reward: ``[R]`` reward of the decision.
        done: ``[R]`` True for copies whose episode has ended.
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
    """Simulator of copies of an environment's states, without random streams and without the pool.

    Args:
        env: Determines task, items and device.
        preview: Number of previewed items in the copies; None means that of ``env``.

    Attributes:
        env: An environment for which policies are built, with one artificial instance. This
            environment is never stepped.
    """

    def __init__(self, env: PackingEnv, preview: int | None = None) -> None:
        self._source = env
        self._preview = env.params.preview if preview is None else preview
        self.env = self._build(env.params.observation)

    def _build(self, observed: tuple[str, ...]) -> PackingEnv:
        params = self._source.params.evolve(observation=observed, preview=self._preview)
        items = torch.zeros(1, params.num_items, dtype=torch.int64)
        pool = Instances(items, torch.tensor([params.num_items]))
        source = self._source
        return PackingEnv(params, source.catalogue, pool, device=source.device, row_offset=0)

    def observe_only(self, keys: list[str | tuple[str, ...]]) -> None:
        """Restrict the observations to those that a policy reads, by its ``in_keys``."""
        names = {key[1] for key in keys if isinstance(key, tuple) and key[0] == "observation"}
        offered = self.env.params.observation
        read = tuple(name for name in offered if names & set(observation.entries([name])))
        self.env = self._build(read)

    def adopt(self, state: State) -> tuple[State, TensorDict]:
        """Return a state of the environment as one of the copies, and its observations."""
        queue = state["queue"][:, : self.env.params.num_slots].contiguous()
        state, observations = self.env.engine.observe({**state, "queue": queue})
        return state, self.view(observations)

    def advance(self, state: State, action: Int[Tensor, " R"]) -> Played:
        """Carry out one decision in every copy; this may overwrite the given tensors."""
        step: Step = self.env.engine.advance(state, {"action": action}, reset=False)
        done = step.observations.flags["done"]
        return Played(step.state, self.view(step.observations), step.reward, done)

    def view(self, observations: Observations) -> TensorDict:
        """Return observations in the form in which the environment returns them."""
        rows = torch.Size([len(observations.flags["done"])])
        return Emission(self.env.mode, rows, self.env.device).packed(observations)
