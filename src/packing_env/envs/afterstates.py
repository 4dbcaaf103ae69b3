"""`Afterstates`: candidate placements of the visible items, and the heightmap after each."""

from __future__ import annotations

import math
from copy import copy

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import kernels
from packing_env.core.candidates import FEATURES
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.types import PackingParams, ParameterError, check_integer

_UNITS_PER_CELL = 16
"""Resolution of the heights of meshes; cuboids of whole cells have whole heights."""
_MAX_ITEMS = 4
"""Visible items that are proposed, where an item has many orientations and places."""
_MOST_UNITS = 2**14 - 1
_OFFERED = {"placement": "drop_height", "candidate": "candidates"}
"""The observation of what may be placed, by action mode."""


class Afterstates(TensorDictModuleBase):
    """Module that proposes placements and computes the heightmaps that they lead to.

    It serves ``action_mode="placement"``, and ``"candidate"`` where all items are cuboids. Any
    leading axes, no host read. Of placements it is one operation on the device,
    :func:`packing_env.kernels.afterstates`: for cuboids of whole cells the candidates are all legal
    placements, first those that touch something in x and in y, low ones first; for other items
    those that to one side in x and one in y are blocked: a place further the item would rest
    higher or not be legal. Those come first that leave little space below, end low and lie near
    walls, and before all the choice of the heuristic ``deepest_bottom_left``. Only the first
    ``max_items`` visible items that can be placed are proposed. Candidates beyond
    ``num_candidates`` are dropped and counted. In mode ``"candidate"`` they are the environment's,
    in its order, and in geometry ``"boxes"`` every cell that a cuboid reaches into is as high as
    its top.

    Reads ``("observation", "heightmap")``, ``("observation", "item_id")``, ``("observation",
    "drop_height")`` or ``("observation", "candidates")``, and ``"action_mask"``. Writes:

    | entry | shape | meaning |
    |---|---|---|
    | ``candidate`` | ``[*batch, K]`` int64 | values of ``action``; -1 after the last |
    | ``afterstate`` | ``[*batch, K, X, Y]`` int16 | heights after it, in units of ``unit`` metres |
    | ``dropped`` | ``[*batch]`` int64 | candidates that exceeded K |

    Args:
        env: The environment; its task and items are kept.
        num_candidates: ``K`` in mode ``"placement"``; None for 48 per visible item of cuboids, 64
            of others.
        max_items: Items that are proposed in mode ``"placement"``; None for all visible cuboids,
            and for four items of other kinds.

    Attributes:
        unit: Metres per unit of height.
        units: The container's height in units.
        cuboids: Whether all items are cuboids of whole cells.
        num_actions: Values of ``action``.
    """

    top: Tensor
    size: Tensor

    def __init__(
        self, env: PackingEnv, num_candidates: int | None = None, max_items: int | None = None
    ) -> None:
        super().__init__()
        self.params: PackingParams = env.params
        catalogue = env.catalogue.tensors()
        cuboids = catalogue["cuboid"].shape[2] == 3
        _check(self.params, cuboids)
        cell, height = self.params.cell, self.params.height
        layers = height / cell
        whole = abs(layers - round(layers)) < 1e-6 and self.params.units_per_cell == 1
        self.cuboids = cuboids and whole and self.params.has_whole_levels
        per_cell = 1.0 if self.cuboids else min(_UNITS_PER_CELL, _MOST_UNITS / layers)
        if self.params.geometry == "boxes":
            per_cell = min(self.params.units_per_cell, _MOST_UNITS / layers)
        self.unit = cell / per_cell
        self.units = height / self.unit
        self.num_actions = env.mode.num_actions
        default = (48 if self.cuboids else 64) * min(self.params.num_visible, 4)
        if self.params.action_mode == "candidate":
            default = self.num_actions
        self.num_candidates = self._check_count(
            default if num_candidates is None else num_candidates
        )
        most = self.params.num_visible if self.cuboids else _MAX_ITEMS
        most = most if max_items is None else check_integer("max_items", max_items, 1)
        self.max_items = min(most, self.params.num_visible)
        finite = torch.isfinite(catalogue["top"])
        top = (
            torch.where(finite, kernels.divide(catalogue["top"], self.unit), -1.0)
            .round()
            .to(torch.int16)
        )
        self.register_buffer("top", top, persistent=False)
        self.register_buffer("size", catalogue["size"], persistent=False)
        offered = _OFFERED[self.params.action_mode]
        names = ("heightmap", "item_id", offered)
        self.in_keys = [("observation", name) for name in names] + ["action_mask"]
        self.out_keys = ["candidate", "afterstate", "dropped"]

    def limited_to(self, num_candidates: int) -> Afterstates:
        """Return a module for the same environment that proposes the first ``num_candidates``."""
        made = copy(self)
        made.num_candidates = self._check_count(num_candidates)
        return made

    def _check_count(self, num_candidates: int) -> int:
        """Return a number of candidates; raise on one that the action mode does not have."""
        check_integer("num_candidates", num_candidates, 1)
        if self.params.action_mode == "candidate" and num_candidates != self.num_actions:
            raise ParameterError(
                f"num_candidates={num_candidates} is the environment's in action_mode="
                f"'candidate', {self.num_actions}; set env.num_candidates"
            )
        return num_candidates

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write candidates and afterstates."""
        batch = tensordict.get("action_mask").shape[:-1]
        given = (tensordict.get(key) for key in self.in_keys)
        found = self.compute(*(entry.reshape(-1, *entry.shape[len(batch) :]) for entry in given))
        for key, value in zip(self.out_keys, found, strict=True):
            tensordict.set(key, value.reshape(*batch, *value.shape[1:]))
        return tensordict

    def compute(
        self, heightmap: Tensor, item_id: Tensor, offered: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entries of observations ``[B, ...]``, in the order of ``out_keys``.

        The arguments are the entries of ``in_keys``.
        """
        if self.params.action_mode == "candidate":
            return self._of_candidates(heightmap, offered, mask)
        item_id = item_id[:, : self.params.num_visible].contiguous()
        if self.max_items == self.params.num_visible:
            return self._of_placements(heightmap, offered, mask, item_id)
        each = mask.unflatten(1, (self.params.num_visible, -1))
        slots = torch.arange(self.params.num_visible, device=mask.device)
        order = torch.where(each.any(2) & (item_id >= 0), slots, slots + len(slots))
        first = order.topk(self.max_items, dim=1, largest=False, sorted=True).values % len(slots)
        rows = torch.arange(len(mask), device=mask.device)[:, None]
        offered, chosen = offered[rows, first], each[rows, first].flatten(1)
        found = self._of_placements(heightmap, offered, chosen, item_id[rows, first])
        candidate, count = found[0], each.shape[2]
        slot = first.gather(1, candidate.clamp(min=0) // count)
        return torch.where(candidate < 0, -1, slot * count + candidate % count), *found[1:]

    def _of_placements(
        self, heightmap: Tensor, offered: Tensor, mask: Tensor, item_id: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what :meth:`compute` does, for the placements of all given items."""
        return kernels.afterstates(
            heightmap,
            offered,
            mask,
            item_id,
            self.top,
            self.size,
            num=self.num_candidates,
            stride=self.params.grid_step,
            units=self.units,
            cells=self.params.height / self.params.cell,
            edges=self.cuboids,
        )

    def _of_candidates(
        self, heightmap: Tensor, offered: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what :meth:`compute` does, for the environment's candidates."""
        part = dict(zip(FEATURES, offered.unbind(-1), strict=True))
        step = self.params.units_per_cell
        inside = []
        for axis, cells in zip("xy", self.params.grid, strict=True):
            low, side = (
                (part[name] * (cells * step)).round()[..., None] for name in (axis, f"size_{axis}")
            )
            edge = torch.arange(cells, device=mask.device) * step
            inside.append((edge < low + side) & (edge + step > low))
        top = ((part["z"] + part["peak"]) * self.units).round().to(torch.int16)
        raised = torch.where(
            inside[0][..., :, None] & inside[1][..., None, :], top[..., None, None], 0
        )
        places = torch.arange(mask.shape[-1], device=mask.device)
        maps = torch.maximum(self.heights(heightmap)[:, None], raised)
        return torch.where(mask, places, -1), maps, torch.zeros_like(mask[:, 0], dtype=torch.int64)

    def slots(self, action: Tensor, offered: Tensor) -> Tensor:
        """Return the visible item of actions ``[B, K]``, given the third entry of ``in_keys``."""
        if self.params.action_mode == "candidate":
            slot = offered[..., FEATURES.index("slot")] * self.params.num_visible
            return slot.round().long().gather(1, action)
        return action // (self.num_actions // self.params.num_visible)

    def heights(self, heightmap: Tensor) -> Tensor:
        """Return the observation ``heightmap``, in [0, 1], as int16 units."""
        return (heightmap * self.units).round().to(torch.int16)


def _check(params: PackingParams, cuboids: bool) -> None:
    if params.action_mode not in _OFFERED:
        raise ParameterError(
            f"Afterstates serves action_mode='placement' and 'candidate', not "
            f"{params.action_mode!r}"
        )
    needed = ["heightmap", "item_id", *(["drop_height"] * (params.action_mode == "placement"))]
    missing = [name for name in needed if name not in params.observation]
    if missing:
        raise ParameterError(
            f"Afterstates reads {missing}; add them to observation={params.observation}"
        )
    if params.height / params.cell > _MOST_UNITS:
        raise ParameterError(
            f"the container is {math.ceil(params.height / params.cell)} cells high; "
            f"Afterstates takes up to {_MOST_UNITS}: use a larger cell"
        )
    if params.action_mode == "candidate" and not cuboids:
        raise ParameterError(
            "Afterstates of action_mode='candidate' are those of cuboids; use "
            "action_mode='placement' for other items"
        )
