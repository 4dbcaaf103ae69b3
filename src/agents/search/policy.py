"""`SearchPolicy`: the base of policies that simulate placements on copies of the state."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Int
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents import heuristics
from agents.heuristics.base import OwnState
from agents.search.scorers import Scorer, scorer_of
from agents.search.simulator import Simulator
from agents.training.loading import load_policy
from packing_env import PackingEnv
from packing_env.core.transition import is_done
from packing_env.types import ParameterError, State

Base = str | Callable[[PackingEnv], TensorDictModuleBase]
"""The policy on which a search is based.

This is a name in :data:`agents.heuristics.HEURISTICS`, a value of ``checkpoint=`` (a run, a folder,
or ``pretrained/NAME``), or a function that builds the policy for an environment of the same task.
"""


def build_base(base: Base, env: PackingEnv) -> TensorDictModuleBase:
    """Build the base policy for an environment.

    Raises:
        ParameterError: There is no such heuristic or run.
    """
    if not isinstance(base, str):
        return base(env).eval()
    if base in heuristics.HEURISTICS:
        return heuristics.build(base, env).eval()
    if os.sep not in base and not Path(base).exists():
        raise ParameterError(
            f"base={base!r} is neither a run nor a heuristic; choose one of "
            f"{', '.join(sorted(heuristics.HEURISTICS))}, a run's folder, or pretrained/NAME"
        )
    return load_policy(base, env).eval()


class SearchPolicy(TensorDictModuleBase, ABC):
    """A policy that improves the decisions of a base policy by simulations.

    The policy acts only in the environment for which it was built. It reads the state of that
    environment without random streams, pool and hidden items
    (:meth:`packing_env.PackingEnv.get_known_state`). The search reads from the device.

    Args:
        env: The environment, with ``action_mode="placement"`` or ``"candidate"``.
        simulator: Simulates decisions in this environment.
        base: The base policy.
        num_candidates: Number of candidates from which a value of afterstates chooses in
            simulations; None means all candidates from which it proposes.

    Raises:
        ParameterError: Another action mode, or the base has no candidates although
            ``num_candidates`` needs them.
    """

    def __init__(
        self,
        env: PackingEnv,
        simulator: Simulator,
        base: Base,
        num_candidates: int | None,
    ) -> None:
        super().__init__()
        if env.params.action_mode not in ("placement", "candidate"):
            raise ParameterError(
                "search supports action_mode='placement' and 'candidate', not "
                f"{env.params.action_mode!r}"
            )
        self.simulator = simulator
        self.base = build_base(base, simulator.env)
        self.scorer: Scorer = scorer_of(self.base, simulator.env, num_candidates)
        simulator.observe_only(self.scorer.in_keys)
        self._known_state = OwnState(env.get_known_state)
        self._batch = env.batch_size
        self._base = base
        self.in_keys = list(self.scorer.in_keys)
        self.out_keys = ["action"]

    @torch.no_grad()
    @set_exploration_type(ExplorationType.DETERMINISTIC)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the best action of every row; finished rows get action 0."""
        if tensordict.batch_size != self._batch:
            raise ParameterError(
                f"search acts only in its own environment of {list(self._batch)} rows, not on "
                f"{list(tensordict.batch_size)}; bound_to(env) builds it for another"
            )
        state = self._known_state()
        root = tensordict.select(*self.in_keys).reshape(-1)
        live = (~is_done(state)).nonzero().squeeze(1)  # a read from the device, once per decision
        action = torch.zeros(root.shape, dtype=torch.int64, device=live.device)
        if len(live):
            state = {key: value[live] for key, value in state.items()}
            action[live] = self.choose(state, root[live].to_tensordict())
        return tensordict.set("action", action.view(self._batch))

    @abstractmethod
    def choose(self, state: State, root: TensorDict) -> Int[Tensor, " B"]:
        """Return the action of each row, given its state and its observations."""
