"""`Afterstates`: candidate placements of the visible items, and the heightmap after each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import kernels
from packing_env.core import candidates
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.types import PackingParams, ParameterError, check_integer
from packing_env.values import check_choice

_UNITS_PER_CELL = 16
"""Largest number of height units per cell for meshes; cuboids of whole cells need no fractions."""
_MAX_ITEMS = 4
"""Default number of proposed visible items if an item has many orientations and places."""
_MOST_UNITS = 2**14 - 1
_OFFERED = {"placement": "drop_height", "candidate": "candidates"}
"""The observation of the possible placements, by action mode."""


class Afterstates(TensorDictModuleBase):
    """Module that proposes placements and computes the heightmap after each of them.

    In ``action_mode="placement"`` it runs one operation, :func:`packing_env.kernels.afterstates`,
    on the device and without a host read:

    - Cuboids of whole cells: the candidates are all legal placements. Placements that touch
      something in both x and y come first; within each group, low ones come first.
    - Other items: the candidates are legal placements that are blocked in both x and y (moved by
      one lattice point to one side, the item would rest higher or be illegal). The choice of the
      heuristic ``deepest_bottom_left`` comes first, then placements that leave little space below
      the item, have a low top and lie near walls. Only the first ``max_items`` visible items with
      a legal placement are proposed.

    In ``action_mode="candidate"``, which needs cuboids, the candidates are the list of the
    environment, in the same order. In geometry ``"boxes"`` every cell that a cuboid overlaps is
    raised to its top.

    Reads ``("observation", "heightmap")``, ``("observation", "item_id")``, ``("observation",
    "drop_height")`` or ``("observation", "candidates")``, and ``"action_mask"``, with any leading
    axes. Writes:

    | entry | shape | meaning |
    |---|---|---|
    | ``candidate`` | ``[*batch, K]`` int64 | values of ``action``; -1 after the last |
    | ``afterstate`` | ``[*batch, K, X, Y]`` int16 | heights after it, in units of ``unit`` metres |
    | ``dropped`` | ``[*batch]`` int64 | candidates that exceeded K |

    Args:
        env: The environment; its task and items are kept.
        num_candidates: ``K`` in mode ``"placement"``; None means 48 per visible item for cuboids,
            and 64 for other items; at most four visible items count.
        max_items: Number of proposed items in mode ``"placement"``; None means all visible items
            for cuboids, and four for other items.

    Attributes:
        unit: Metres per unit of height.
        units: The container's height in units.
        cuboids: Whether all items are cuboids of whole cells.
        block: Largest number of cells that divides the sides and the positions of all such cuboids,
            and the container's height. The heightmap is constant on squares of this side. 1 for
            other items, and if boxes are pre-placed.
        num_actions: Number of values of ``action``.
        offered_key: Key of the observation that holds the placements on offer.
    """

    top: Tensor
    size: Tensor

    def __init__(
        self, env: PackingEnv, num_candidates: int | None = None, max_items: int | None = None
    ) -> None:
        super().__init__()
        params, catalogue = env.params, env.catalogue.tensors()
        self.params: PackingParams = params
        self.num_actions = env.mode.num_actions
        cuboids = catalogue["cuboid"].shape[2] == 3
        _check(params, cuboids)
        # 1. The unit of heights: blocks for cuboids of whole cells, the pitch for boxes.
        layers = params.height / params.cell
        whole = abs(layers - round(layers)) < 1e-6 and params.units_per_cell == 1
        self.cuboids = cuboids and whole and params.has_whole_levels
        self.block = _block(params, catalogue) if self.cuboids else 1
        per_cell = min(_UNITS_PER_CELL, _MOST_UNITS / layers)
        if self.cuboids:
            per_cell = 1.0 / self.block
        if params.geometry == "boxes":
            per_cell = min(params.units_per_cell, _MOST_UNITS / layers)
        self.unit = params.cell / per_cell
        self.units = params.height / self.unit
        # 2. The numbers of candidates and of items.
        default = (48 if self.cuboids else 64) * min(params.num_visible, 4)
        if params.action_mode == "candidate":
            default = self.num_actions
        self.num_candidates = self._check_count(
            default if num_candidates is None else num_candidates
        )
        most = params.num_visible if self.cuboids else _MAX_ITEMS
        most = most if max_items is None else check_integer("max_items", max_items, 1)
        self.max_items = min(most, params.num_visible)
        # 3. Upper surfaces in these units, -1 outside the footprint.
        top = kernels.divide(catalogue["top"], self.unit)
        top = torch.where(torch.isfinite(catalogue["top"]), top, -1.0).round().to(torch.int16)
        self.register_buffer("top", top, persistent=False)
        self.register_buffer("size", catalogue["size"], persistent=False)
        self.offered_key = ("observation", _OFFERED[params.action_mode])
        maps = [("observation", name) for name in ("heightmap", "item_id")]
        self.in_keys = [*maps, self.offered_key, "action_mask"]
        self.out_keys = ["candidate", "afterstate", "dropped"]

    def limited_to(self, num_candidates: int) -> Afterstates:
        """Return a module for the same environment that proposes the first ``num_candidates``."""
        limited = copy(self)
        limited.num_candidates = self._check_count(num_candidates)
        return limited

    def _check_count(self, num_candidates: int) -> int:
        """Return a number of candidates; raise if the action mode does not have this many."""
        check_integer("num_candidates", num_candidates, 1)
        if self.params.action_mode == "candidate" and num_candidates != self.num_actions:
            raise ParameterError(
                f"num_candidates={num_candidates}, but the environment lists {self.num_actions} "
                "candidates; set env.num_candidates"
            )
        return num_candidates

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write candidates and afterstates."""
        batch = tensordict.get("action_mask").shape[:-1]
        entries = [tensordict.get(key) for key in self.in_keys]
        heightmap, item_id, offered, mask = (
            entry.reshape(-1, *entry.shape[len(batch) :]) for entry in entries
        )
        results = self.compute(heightmap, item_id, offered, mask)
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value.reshape(*batch, *value.shape[1:]))
        return tensordict

    def compute(
        self, heightmap: Tensor, item_id: Tensor, offered: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entries computed from observations ``[B, ...]``, in the order of ``out_keys``.

        The arguments are the entries of ``in_keys``.
        """
        if self.params.action_mode == "candidate":
            return self._of_candidates(heightmap, offered, mask)
        visible = self.params.num_visible
        item_id = item_id[:, :visible].contiguous()
        if self.max_items == visible:
            return self._of_placements(heightmap, offered, mask, item_id)
        # 1. Select the first items that have a legal placement.
        each = mask.unflatten(1, (visible, -1))
        slots = torch.arange(visible, device=mask.device)
        order = torch.where(each.any(2) & (item_id >= 0), slots, slots + visible)
        first = order.topk(self.max_items, dim=1, largest=False, sorted=True).values % visible
        rows = torch.arange(len(mask), device=mask.device)[:, None]
        # 2. Compute their candidates; then convert the item's index in `first` to its slot.
        candidate, afterstate, dropped = self._of_placements(
            heightmap, offered[rows, first], each[rows, first].flatten(1), item_id[rows, first]
        )
        count = each.shape[2]
        slot = first.gather(1, candidate.clamp(min=0) // count)
        candidate = torch.where(candidate < 0, -1, slot * count + candidate % count)
        return candidate, afterstate, dropped

    def _of_placements(
        self, heightmap: Tensor, offered: Tensor, mask: Tensor, item_id: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
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
        feature = candidates.columns(offered)
        step = self.params.units_per_cell
        # 1. The cells along x and along y that each cuboid overlaps.
        inside = []
        for axis, cells in zip("xy", self.params.grid, strict=True):
            low = (feature[axis] * (cells * step)).round()[..., None]
            side = (feature[f"size_{axis}"] * (cells * step)).round()[..., None]
            edge = torch.arange(cells, device=mask.device) * step
            inside.append((edge < low + side) & (edge + step > low))
        base = inside[0][..., :, None] & inside[1][..., None, :]
        # 2. Raise them to the cuboid's top.
        top = ((feature["z"] + feature["peak"]) * self.units).round().to(torch.int16)
        raised = torch.where(base, top[..., None, None], 0)
        maps = torch.maximum(self.heights(heightmap)[:, None], raised)
        places = torch.arange(mask.shape[-1], device=mask.device)
        return torch.where(mask, places, -1), maps, torch.zeros_like(mask[:, 0], dtype=torch.int64)

    def slots(self, action: Tensor, offered: Tensor) -> Tensor:
        """Return the slot of each action's item, ``[B, K]``, from the entry of ``offered_key``."""
        if self.params.action_mode == "candidate":
            slot = candidates.columns(offered)["slot"] * self.params.num_visible
            return slot.round().long().gather(1, action)
        return action // (self.num_actions // self.params.num_visible)

    def heights(self, heightmap: Tensor) -> Tensor:
        """Return the observation ``heightmap``, in [0, 1], as int16 units."""
        return (heightmap * self.units).round().to(torch.int16)


def _block(params: PackingParams, catalogue: Mapping[str, Tensor]) -> int:
    """Return the attribute ``block``; this reads from the device."""
    if params.constraints.preplaced:
        return 1
    lengths = kernels.divide(catalogue["extent"], params.cell).round().long().unique().tolist()
    return math.gcd(params.grid_step, round(params.height / params.cell), *lengths)


def _check(params: PackingParams, cuboids: bool) -> None:
    check_choice("Afterstates: action_mode", params.action_mode, _OFFERED)
    needed = ["heightmap", "item_id", *(["drop_height"] * (params.action_mode == "placement"))]
    missing = [name for name in needed if name not in params.observation]
    if missing:
        raise ParameterError(
            f"Afterstates reads {missing}; add them to observation={params.observation}"
        )
    if params.height / params.cell > _MOST_UNITS:
        raise ParameterError(
            f"the container is {math.ceil(params.height / params.cell)} cells high, but "
            f"Afterstates supports at most {_MOST_UNITS}: use a larger cell"
        )
    if params.action_mode == "candidate" and not cuboids:
        raise ParameterError(
            "Afterstates in action_mode='candidate' supports only cuboids; use "
            "action_mode='placement' for other items"
        )
