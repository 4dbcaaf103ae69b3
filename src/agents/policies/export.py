"""Export of a policy as a program of torch's own operations, which runs without this package."""

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
    """Export the policy's greedy decision for every row of an environment by ``torch.export``.

    The program takes a mapping of tensors, named like the entries that the policy reads
    (``observation/heightmap``, ``action_mask``, ...), and returns a mapping of actions. The number
    of rows is fixed: export with ``num_envs=1`` for one container at a time. A program saved by
    ``torch.export.save`` needs only torch to run::

        decide = torch.export.load("policy.pt2").module()
        action = decide({"observation/heightmap": ..., "action_mask": ...})["action"]

    Args:
        policy: Policy of an agent; the program holds copies of its current weights.
        env: An environment of the policy's task.

    Raises:
        ParameterError: The policy reads the environment itself, as some heuristics do.
    """
    if not policy.in_keys:
        raise ParameterError(
            f"{type(policy).__name__} reads the state of its environment, not its observations, "
            "so it cannot be exported"
        )
    fake = env.fake_tensordict().exclude("next")
    inputs = {name_of(key): torch.zeros_like(fake.get(key)) for key in policy.in_keys}
    decision = _Decision(copy.deepcopy(policy).eval(), env.batch_size, list(env.action_keys))
    with (
        torch.no_grad(),
        set_exploration_type(ExplorationType.DETERMINISTIC),
        _torch_kernels(env.device),
    ):
        decision(inputs)  # fills caches with real tensors; those of the export hold no values
        return torch.export.export(decision, (inputs,), strict=False)


def name_of(key: NestedKey) -> str:
    """Return the name of an entry in the mappings of exported programs."""
    return key if isinstance(key, str) else "/".join(key)


class _Decision(nn.Module):
    def __init__(
        self, policy: TensorDictModuleBase, batch_size: torch.Size, actions: Sequence[NestedKey]
    ) -> None:
        super().__init__()
        self.policy, self.batch_size, self.actions = policy, batch_size, actions

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the policy's actions for the entries ``inputs``."""
        entries = {key: inputs[name_of(key)] for key in self.policy.in_keys}
        written = self.policy(TensorDict(entries, self.batch_size))
        return {name_of(key): written.get(key) for key in self.actions}


@contextmanager
def _torch_kernels(device: torch.device) -> Iterator[None]:
    """Run kernels as torch operations inside the context; other backends cannot be exported."""
    before = kernels.backend_for(device.type)
    kernels.set_backend("eager")
    try:
        yield
    finally:
        kernels.set_backend(None)
        if kernels.backend_for(device.type) != before:
            kernels.set_backend(before)
