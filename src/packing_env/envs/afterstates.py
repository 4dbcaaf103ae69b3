"""`Afterstates`: candidate placements of the visible items, and the heightmap after each."""

from __future__ import annotations

import math

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import kernels
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.types import PackingParams, ParameterError, check_integer

_UNITS_PER_CELL = 16
"""Resolution of the heights of meshes; cuboids of whole cells have whole heights."""
_MOST_UNITS = 2**14 - 1
_NEEDED = ("heightmap", "item_id", "drop_height")


class Afterstates(TensorDictModuleBase):
    """Module that proposes placements and computes the heightmaps that they lead to.

    It serves ``action_mode="placement"``. Any leading axes, no host read: one operation on the
    device, :func:`packing_env.kernels.afterstates`. For cuboids of whole cells the candidates are
    all legal placements, first those that touch something in x and in y, low ones first; for other
    items the best placements of each item in each orientation by six scores. The choice of the
    heuristic ``deepest_bottom_left`` is among the latter. Candidates beyond ``num_candidates`` are
    dropped and counted.

    Reads ``("observation", "heightmap")``, ``("observation", "drop_height")``, ``("observation",
    "item_id")`` and ``"action_mask"``. Writes:

    | entry | shape | meaning |
    |---|---|---|
    | ``candidate`` | ``[*batch, K]`` int64 | values of ``action``; -1 after the last |
    | ``afterstate`` | ``[*batch, K, X, Y]`` int16 | heights after it, in units of ``unit`` metres |
    | ``dropped`` | ``[*batch]`` int64 | candidates that exceeded K |

    Args:
        env: The environment; its task and items are kept.
        num_candidates: ``K``; None for 48 per visible item of cuboids, 64 of others.

    Attributes:
        unit: Metres per unit of height.
        units: The container's height in units.
        cuboids: Whether all items are cuboids of whole cells.
        num_actions: Values of ``action``.
    """

    top: Tensor
    size: Tensor

    def __init__(self, env: PackingEnv, num_candidates: int | None = None) -> None:
        super().__init__()
        self.params: PackingParams = env.params
        _check(self.params)
        catalogue = env.catalogue.tensors()
        cell, height = self.params.cell, self.params.height
        layers = height / cell
        self.cuboids = catalogue["cuboid"].shape[2] == 3 and abs(layers - round(layers)) < 1e-6
        per_cell = 1.0 if self.cuboids else min(_UNITS_PER_CELL, _MOST_UNITS / layers)
        self.unit = cell / per_cell
        self.units = height / self.unit
        default = (48 if self.cuboids else 64) * min(self.params.num_visible, 4)
        self.num_candidates = check_integer(
            "num_candidates", default if num_candidates is None else num_candidates, 1
        )
        self.num_actions = env.mode.num_actions
        finite = torch.isfinite(catalogue["top"])
        top = (
            torch.where(finite, kernels.divide(catalogue["top"], self.unit), -1.0)
            .round()
            .to(torch.int16)
        )
        self.register_buffer("top", top, persistent=False)
        self.register_buffer("size", catalogue["size"], persistent=False)
        self.in_keys = [("observation", name) for name in _NEEDED] + ["action_mask"]
        self.out_keys = ["candidate", "afterstate", "dropped"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write candidates and afterstates."""
        heightmap, item_id, rest, mask = (tensordict.get(key) for key in self.in_keys)
        batch = mask.shape[:-1]
        found = self.compute(
            heightmap.reshape(-1, *heightmap.shape[-2:]),
            item_id.reshape(-1, item_id.shape[-1]),
            rest.reshape(-1, *rest.shape[-4:]),
            mask.reshape(-1, mask.shape[-1]),
        )
        for key, value in zip(self.out_keys, found, strict=True):
            tensordict.set(key, value.reshape(*batch, *value.shape[1:]))
        return tensordict

    def compute(
        self, heightmap: Tensor, item_id: Tensor, rest: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entries of observations ``[B, ...]``, in the order of ``out_keys``."""
        return kernels.afterstates(
            heightmap,
            rest,
            mask,
            item_id[:, : self.params.num_visible].contiguous(),
            self.top,
            self.size,
            num=self.num_candidates,
            stride=self.params.grid_step,
            units=self.units,
            cells=self.params.height / self.params.cell,
            edges=self.cuboids,
        )

    def heights(self, heightmap: Tensor) -> Tensor:
        """Return the observation ``heightmap``, in [0, 1], as int16 units."""
        return (heightmap * self.units).round().to(torch.int16)


def _check(params: PackingParams) -> None:
    """Raise unless the task's observations suffice."""
    if params.action_mode != "placement" or params.geometry != "maps":
        raise ParameterError(
            f"Afterstates serves action_mode='placement' in geometry='maps', not "
            f"action_mode={params.action_mode!r} in geometry={params.geometry!r}"
        )
    missing = [name for name in _NEEDED if name not in params.observation]
    if missing:
        raise ParameterError(
            f"Afterstates reads {missing}; add them to observation={params.observation}"
        )
    if params.height / params.cell > _MOST_UNITS:
        raise ParameterError(
            f"the container is {math.ceil(params.height / params.cell)} cells high; "
            f"Afterstates takes up to {_MOST_UNITS}: use a larger cell"
        )
