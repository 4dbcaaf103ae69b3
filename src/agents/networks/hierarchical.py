"""Networks of a manager, which picks an item, and a worker, which places it.

Huang et al., "Planning Irregular Object Packing via Hierarchical Reinforcement Learning", RA-L
2023: a residual encoder of container and items with a head of three layers, and a U-Net whose
answer is a score per placement.
"""

from __future__ import annotations

import torch
from torch import nn

from agents.networks.manager import ManagerNetwork
from agents.networks.score_maps import runs_in_bf16
from agents.networks.worker import WorkerNetwork
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class HierarchicalNetworks(nn.Module):
    """Both networks; as they stand, of the paper's size.

    The encoders are 18-layer residual networks, the worker's U-Net has 14 3 x 3 convolutions and
    base width 32 (Huang et al., RA-L 2023, who leave the rest open).

    Args:
        env: Sets the shapes and brings the items; its action mode must be ``hierarchical``.
        features: Length of the manager's embeddings.
        encoder_width: Channels of its encoders' first stage.
        encoder_stages: Their stages.
        encoder_blocks: Blocks per stage.
        hidden: Width of its head.
        view_size: Pixels of an item's view along either axis, at most.
        worker_width: Channels of the U-Net's first level.
        fold: Points of the action lattice per pixel and axis.
        condition: Length of what modulates the U-Net.
        thumbnail: Pixels of an orientation's thumbnail along either axis, at most.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions (values are float32 either way), or
            ``"auto"``: bf16 where the device computes in it.
    """

    action_modes = ("hierarchical",)
    role = "manager and worker"

    def __init__(
        self,
        env: PackingEnv,
        *,
        features: int = 512,
        encoder_width: int = 64,
        encoder_stages: int = 4,
        encoder_blocks: int = 2,
        hidden: int = 256,
        view_size: int = 64,
        worker_width: int = 32,
        fold: int = 1,
        condition: int = 128,
        thumbnail: int = 8,
        precision: str = "auto",
    ) -> None:
        super().__init__()
        if env.params.action_mode not in self.action_modes:
            raise ParameterError(
                f"HierarchicalNetworks act in action_mode='hierarchical', not "
                f"{env.params.action_mode!r}"
            )
        missing = {"item_id", "item_features"} - set(env.params.observation)
        if missing:
            raise ParameterError(
                f"HierarchicalNetworks read {sorted(missing)}; add them to "
                f"observation={env.params.observation}"
            )
        autocast = runs_in_bf16(precision, env.device)
        self.manager = ManagerNetwork(
            env,
            features=features,
            width=encoder_width,
            stages=encoder_stages,
            blocks=encoder_blocks,
            hidden=hidden,
            view_size=view_size,
            autocast=autocast,
        )
        self.worker = WorkerNetwork(
            env,
            width=worker_width,
            fold=fold,
            condition=condition,
            thumbnail=thumbnail,
            autocast=autocast,
        )
        self.to(env.device)
        self.to(memory_format=torch.channels_last)
