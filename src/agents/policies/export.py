"""A policy as one program of torch's own operations, for places where this package is not."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from tensordict import NestedKey, TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.export import ExportedProgram
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env import kernels
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


def export_policy(policy: TensorDictModuleBase, env: PackingEnv) -> ExportedProgram:
    """The policy's greedy decision for every row of an environment, as ``torch.export`` writes it.

    The program takes one mapping of tensors, by the names of what the policy observes
    (``observation/heightmap``, ``action_mask``, ...), and returns one of its actions. The number of
    rows is part of it: export with ``num_envs=1`` for one container at a time. What
    ``torch.export.save`` wrote needs torch alone to run::

        decide = torch.export.load("policy.pt2").module()
        action = decide({"observation/heightmap": ..., "action_mask": ...})["action"]

    Args:
        policy: An agent's, as it is now: the program has copies of its weights.
        env: Of its task.

    Raises:
        ParameterError: The policy reads the environment itself, as some heuristics do.
    """
    if not policy.in_keys:
        raise ParameterError(
            f"{type(policy).__name__} reads the state of its environment, not its observations: "
            f"it cannot be exported"
        )
    seen = env.fake_tensordict().exclude("next")
    given = {name_of(key): torch.zeros_like(seen.get(key)) for key in policy.in_keys}
    decision = _Decision(copy.deepcopy(policy).eval(), env.batch_size, list(env.action_keys))
    with (
        torch.no_grad(),
        set_exploration_type(ExplorationType.DETERMINISTIC),
        _torch_kernels(env.device),
    ):
        return torch.export.export(decision, (given,), strict=False)


def name_of(key: NestedKey) -> str:
    """Of an entry, in the mappings of exported programs."""
    return key if isinstance(key, str) else "/".join(key)


class _Decision(nn.Module):
    """The policy as a function from mapping to mapping."""

    def __init__(
        self, policy: TensorDictModuleBase, batch_size: torch.Size, actions: Sequence[NestedKey]
    ) -> None:
        super().__init__()
        self.policy, self.batch_size, self.actions = policy, batch_size, actions

    def forward(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the policy writes where it sees ``given``."""
        seen = {key: given[name_of(key)] for key in self.policy.in_keys}
        written = self.policy(TensorDict(seen, self.batch_size))
        return {name_of(key): written.get(key) for key in self.actions}


@contextmanager
def _torch_kernels(device: torch.device) -> Iterator[None]:
    """Inside, kernels are programs of torch's operations: others would not travel."""
    before = kernels.backend_for(device.type)
    kernels.set_backend("eager")
    try:
        yield
    finally:
        kernels.set_backend(None)
        if kernels.backend_for(device.type) != before:
            kernels.set_backend(before)
