"""States without what can be computed again, and the transform between the two forms."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, UInt8
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.transforms import Transform

from packing_env import PackingEnv, kernels
from packing_env.core import observation
from packing_env.types import ParameterError

STORED = ("heightmap", "item_id", "item_features", "candidates")
"""Observations that a compact state keeps as they are."""

REBUILT = ("orientation_features", "top", "bottom", "drop_height")
"""Observations that are dropped, and computed again from the heightmap and the item ids."""

FLAGS = ("done", "terminated", "truncated")
_GATHER_BYTES = 256 * 2**20
"""Rest heights are rebuilt for so many rows at once as gather this much of the catalogue."""


def pack_bits(mask: Bool[Tensor, "*batch A"]) -> UInt8[Tensor, "*batch A8"]:
    """Eight entries to a byte, the first in the lowest bit; the last byte is padded with zeros."""
    padded = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 8)).contiguous()
    words = padded.view(torch.int64)
    # Eight bytes of 0 or 1: the product carries the i-th of them to bit 56 + i, without overlap.
    return ((words * 0x0102040810204080) >> 56).to(torch.uint8)


def byte_table(device: torch.device | str | None = None) -> Int[Tensor, " 256"]:
    """For each byte, its eight bits as the eight bytes of a 64-bit word, lowest first."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return bits.to(torch.uint8).view(torch.int64).squeeze(-1).to(device)


def unpack_bits(
    bits: UInt8[Tensor, "*batch A8"], size: int, table: Int[Tensor, " 256"]
) -> Bool[Tensor, "*batch A"]:
    """The first ``size`` entries that :func:`pack_bits` packed; ``table``: :func:`byte_table`."""
    return table[bits.int()].view(torch.bool)[..., :size]


class RebuildMaps(Transform):
    """Between whole and compact states, for a replay buffer.

    ``inv`` (on the way in) drops :data:`REBUILT` and packs the masks into bits; ``forward`` (on the
    way out) computes them again with the environment's own functions. Any leading axes. ``top``,
    ``bottom``, ``orientation_features`` and every mask come back bit for bit. ``drop_height`` is
    computed from ``heightmap * H``, which is within one rounding of the heights in metres that the
    environment computed it from, and so comes back to 3e-7; which placements are legal, exactly.

    Samples also hold ``("next", "legal_mask")``: like ``action_mask``, but in finished rows, where
    the environment's mask is all True, it still says what the rules allow. A truncated episode
    bootstraps under this mask. It is all True only where nothing is allowed.

    Args:
        env: The environment whose states these are.
        rebuild: Which of the observations in :data:`REBUILT` to compute; None for all that the
            environment emits.
    """

    def __init__(self, env: PackingEnv, rebuild: tuple[str, ...] | None = None) -> None:
        super().__init__()
        emitted = set(env.observation_spec["observation"].keys())
        dropped = emitted & set(REBUILT)
        if dropped and not {"heightmap", "item_id"} <= emitted:
            raise ParameterError(
                f"replay rebuilds {sorted(dropped)} from heightmap and item_id; "
                f"add these two to observation={env.params.observation}"
            )
        unknown = set(rebuild or ()) - dropped
        if unknown:
            raise ParameterError(
                f"replay cannot rebuild {sorted(unknown)}; the environment emits {sorted(dropped)}"
            )
        self.params = env.params
        self.catalogue = env.catalogue.tensors()
        self.num_actions = env.mode.num_actions
        self.action_keys = list(env.action_keys)
        self.stored = tuple(name for name in STORED if name in emitted)
        self.rebuilt = tuple(
            name for name in REBUILT if name in dropped and (rebuild is None or name in rebuild)
        )
        self.keeps_legal = "drop_height" in emitted
        self.mask_is_legal = self.keeps_legal and env.params.action_mode == "placement"
        self.register_buffer("_table", byte_table(env.device), persistent=False)
        self.lattice_shape = (
            env.params.num_visible,
            self.catalogue["peak"].shape[1],
            *env.params.lattice,
        )

    # ------------------------------------------------------------------ in

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The compact form of a transition; TorchRL's ``inv`` and ``extend`` call this."""
        out = self._compress(tensordict)
        for key in self.action_keys:
            out.set(key, tensordict.get(key))
        following = tensordict.get("next")
        out.set("next", self._compress(following).set("reward", following.get("reward")))
        return out

    def _compress(self, whole: TensorDictBase) -> TensorDict:
        """The compact form of a state: its root entries only."""
        seen = whole.get("observation")
        out = TensorDict({}, whole.batch_size, device=whole.device)
        out.set("observation", seen.select(*self.stored))
        if self.keeps_legal:
            legal = seen.get("drop_height") < 1
            out.set("legal_bits", pack_bits(legal.flatten(whole.dim())))
        if not self.mask_is_legal:
            out.set("mask_bits", pack_bits(whole.get("action_mask")))
        return out.update(whole.select(*FLAGS))

    # ------------------------------------------------------------------ out

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The whole form of transitions that :meth:`inv` made compact."""
        out = tensordict.exclude("observation", "legal_bits", "mask_bits", "next")
        out.update(self._expand(tensordict, legal_mask=False))
        following = tensordict.get("next")
        expanded = self._expand(following, legal_mask=True)
        return out.set("next", expanded.update(following.select("reward", *FLAGS)))

    def _expand(self, compact: TensorDictBase, legal_mask: bool) -> TensorDict:
        """Observations and masks of compact states."""
        batch = compact.batch_size
        flat = compact.reshape(-1)
        legal = None
        if self.keeps_legal:
            size = torch.Size(self.lattice_shape).numel()
            legal = unpack_bits(flat.get("legal_bits"), size, self._table)
        seen = dict(flat.get("observation").items())
        seen.update(self._maps(flat, legal))
        entries = TensorDict(seen, flat.batch_size, device=compact.device)
        out = TensorDict({"observation": entries}, flat.batch_size, device=compact.device)
        if self.mask_is_legal:
            mask = legal | flat.get("done")
        else:
            mask = unpack_bits(flat.get("mask_bits"), self.num_actions, self._table)
            legal = seen["candidates"][..., -1] > 0 if "candidates" in seen else mask
        out.set("action_mask", mask)
        if legal_mask:
            out.set("legal_mask", legal | ~legal.any(-1, keepdim=True))
        return out.reshape(batch)

    def _maps(self, flat: TensorDictBase, legal: Tensor | None) -> dict[str, Tensor]:
        """The observations that were dropped, ``[N, ...]``."""
        out: dict[str, Tensor] = {}
        if not self.rebuilt:
            return out
        item_id = flat.get(("observation", "item_id"))
        there = item_id >= 0
        item_id = torch.where(there, item_id, 0)
        arguments = (item_id, there, self.catalogue, self.params)
        if "orientation_features" in self.rebuilt:
            out["orientation_features"] = observation.orientation_features(*arguments)
        if "top" in self.rebuilt or "bottom" in self.rebuilt:
            maps = dict(zip(("top", "bottom"), observation.item_maps(*arguments), strict=True))
            out.update({name: value for name, value in maps.items() if name in self.rebuilt})
        if "drop_height" in self.rebuilt:
            out["drop_height"] = self._drop_height(flat, item_id, legal)
        return out

    def _drop_height(self, flat: TensorDictBase, item_id: Tensor, legal: Tensor) -> Tensor:
        """Rest heights over H, 1 where illegal."""
        heightmap = flat.get(("observation", "heightmap")) * self.params.height
        bottom = self.catalogue["bottom"]
        visible = item_id[:, : self.params.num_visible]
        row_bytes = bottom[0].numel() * bottom.element_size() * visible.shape[1]
        rows = max(1, _GATHER_BYTES // row_bytes)
        parts = [
            kernels.drop_height(heights, bottom[ids].flatten(1, 2), self.params.grid_step)
            for heights, ids in zip(heightmap.split(rows), visible.split(rows), strict=True)
        ]
        z = parts[0] if len(parts) == 1 else torch.cat(parts)
        z = z.view(-1, *self.lattice_shape).div_(self.params.height)
        return z.masked_fill_(~legal.view_as(z), 1.0)
