"""The networks of a manager, which chooses an item, and a worker, which places it.

Huang et al., "Planning Irregular Object Packing via Hierarchical Reinforcement Learning", RA-L
2023: a residual encoder of container and items with a head of three layers, and a U-Net that
outputs a score per placement.
"""

from __future__ import annotations

import torch
from torch import nn

from agents.networks.hierarchical.manager import ManagerNetwork, ManagerSize
from agents.networks.hierarchical.worker import WorkerNetwork, WorkerSize
from agents.networks.precision import check_mode, runs_in_bf16
from agents.options import option_groups
from packing_env.envs import PackingEnv
from packing_env.envs.checks import check_observed


class HierarchicalNetworks(nn.Module):
    """The manager's and the worker's network, by default small enough for a CPU.

    ``conf/network/hrl_paper.yaml`` holds the sizes of Huang et al., RA-L 2023, as far as the paper
    states them: 18-layer residual encoders, and a U-Net with fourteen 3 x 3 convolutions and base
    width 32.

    Args:
        env: Determines the shapes and provides the items; its action mode must be ``hierarchical``.
        manager: Sizes of the manager's network.
        worker: Sizes of the worker's network.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions, or ``"auto"`` (bf16 if the device
            supports it natively).
    """

    action_modes = ("hierarchical",)
    role = "manager and worker"

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        manager: ManagerSize = ManagerSize(),
        worker: WorkerSize = WorkerSize(),
        precision: str = "auto",
    ) -> None:
        super().__init__()
        check_mode(self, env)
        check_observed(env, ("item_id", "item_features"), "the network")
        autocast = runs_in_bf16(precision, env.device)
        self.manager = ManagerNetwork(env, manager, autocast=autocast)
        self.worker = WorkerNetwork(env, worker, autocast=autocast)
        self.to(env.device)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in the stub
