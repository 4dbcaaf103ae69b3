"""Compact states, which omit entries that can be recomputed, and the transform that makes them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, UInt8
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.transforms import Transform

from packing_env import PackingEnv, kernels
from packing_env.core import observation
from packing_env.core.actions import MANAGER_MASK
from packing_env.core.candidates import Scene
from packing_env.types import ParameterError

STORED = (
    "heightmap", "heights", "item_id", "item_features", "candidates", "boxes", "cut_surface",
)  # fmt: skip
"""Observations that a compact state keeps unchanged."""

REBUILT = ("orientation_features", "top", "bottom", "drop_height")
"""Observations that are dropped and later recomputed from the heightmap and the item ids."""

FLAGS = ("done", "terminated", "truncated")
_JOINT = "legal_bits"
"""Key of the legality of every placement, packed into bits."""
_GATHER_BYTES = 256 * 2**20
"""Rest heights are recomputed in blocks of rows; a block gathers at most this much of the
catalogue.
"""


def pack_bits(mask: Bool[Tensor, "*batch A"]) -> UInt8[Tensor, "*batch A8"]:
    """Pack eight entries into a byte, the first in the lowest bit; padding bits are zero."""
    padded = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 8)).contiguous()
    words = padded.view(torch.int64)
    # Eight bytes of 0 or 1: the multiplication moves the i-th byte to bit 56 + i, without overlap.
    return ((words * 0x0102040810204080) >> 56).to(torch.uint8)


def byte_table(device: torch.device | str | None = None) -> Int[Tensor, " 256"]:
    """Return the eight bits of each byte as the bytes of a 64-bit word, lowest first."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return bits.to(torch.uint8).view(torch.int64).squeeze(-1).to(device)


def unpack_bits(
    bits: UInt8[Tensor, "*batch A8"], size: int, table: Int[Tensor, " 256"]
) -> Bool[Tensor, "*batch A"]:
    """Unpack the first ``size`` entries of :func:`pack_bits`; ``table`` is :func:`byte_table`."""
    return table[bits.int()].view(torch.bool)[..., :size]


class MaskPlace(NamedTuple):
    """Keys of a mask in compact states and in samples.

    Attributes:
        bits: Key of its bits in a compact state.
        legal: Key of the legal mask that accompanies it in a sample.
        size: Number of entries of the mask.
    """

    bits: NestedKey
    legal: NestedKey
    size: int


def _mask_places(env: PackingEnv, keeps_legal: bool) -> dict[NestedKey, MaskPlace]:
    """Return the keys of each mask; a mask that equals the joint legality is not stored twice."""
    places = {}
    for key, space in env.mode.mask_spaces.items():
        above = key[:-1] if isinstance(key, tuple) else ()
        joint = keeps_legal and env.mode.mask_is_joint and key == "action_mask"
        bits, legal = ((*above, name) if above else name for name in ("mask_bits", "legal_mask"))
        places[key] = MaskPlace(_JOINT if joint else bits, legal, space.size)
    return places


def maps_read(policy: TensorDictModuleBase, env: PackingEnv) -> tuple[str, ...]:
    """Return the names in :data:`REBUILT` that the environment emits and a policy reads.

    A policy that reads ``"observation"`` as a whole reads all of them.
    """
    emitted = set(env.observation_spec["observation"].keys())
    keys = {key if isinstance(key, tuple) else (key,) for key in policy.in_keys}
    read = emitted if ("observation",) in keys else {key[-1] for key in keys}
    return tuple(name for name in REBUILT if name in read & emitted)


def further_keys(policy: TensorDictModuleBase, env: PackingEnv) -> tuple[NestedKey, ...]:
    """Return the keys of a state that a policy reads in addition to observations and masks."""
    written = set(env.observation_spec.keys(True, True)) - set(env.mode.mask_keys)
    return tuple(k for k in policy.in_keys if k in written and k[0] != "observation")


class RebuildMaps(Transform):
    """Transform between whole and compact states, for a replay buffer.

    ``inv`` (when writing) drops :data:`REBUILT` and packs the masks into bits; ``forward`` (when
    sampling) recomputes the dropped entries with the environment's own functions. Any leading axes
    are allowed. Everything is restored bit for bit, except ``drop_height``. ``drop_height`` is
    computed from ``heightmap * H``, which differs from the environment's heights in metres by one
    rounding error. So it is restored to within 3e-7. If the environment has the observation
    ``heights`` (mode ``hierarchical``), it is stored, and ``drop_height`` is exact too.

    For every mask, samples also hold ``("next", ..., "legal_mask")``. It equals the mask except in
    terminated rows. There the environment's mask is all True, but ``legal_mask`` holds what the
    rules allow (and is all True only if they allow nothing).

    A mode's report about a decision (``executed_action``) is at the root of a sample, like the
    action, because ``next`` may be the state after several decisions.

    Args:
        env: Environment of the states.
        rebuild: Names in :data:`REBUILT` to recompute; None for all that the environment emits.
        keep: Additional entries of a state to store unchanged, such as a risk level.
    """

    _table: Tensor

    def __init__(
        self,
        env: PackingEnv,
        rebuild: tuple[str, ...] | None = None,
        keep: tuple[NestedKey, ...] = (),
    ) -> None:
        super().__init__()
        self.kept = tuple(keep)
        # 1. Check that everything that is dropped can be rebuilt.
        emitted = set(env.observation_spec["observation"].keys())
        dropped = emitted & set(REBUILT)
        if dropped and not ({"heightmap", "heights"} & emitted and "item_id" in emitted):
            raise ParameterError(
                f"replay rebuilds {sorted(dropped)} from heightmap and item_id; "
                f"add these two to observation={env.params.observation}"
            )
        if isinstance(rebuild, str):
            raise ParameterError(
                f"replay.rebuild={rebuild!r} must be a list of names or null (all of them); a "
                "configuration may also say read (those that the agent's policy reads)"
            )
        unknown = set(rebuild or ()) - dropped
        if unknown:
            raise ParameterError(
                f"replay.rebuild={list(rebuild or ())}: the environment does not have "
                f"{sorted(unknown)}; it has {sorted(dropped)}. Use replay.rebuild=read for those "
                "that the agent reads"
            )
        # 2. Divide the observations into those that are stored and those that are rebuilt.
        self.params = env.params
        self.mode = env.mode
        self.catalogue = env.catalogue.tensors()
        self.action_keys = list(env.action_keys)
        self.reported = tuple(env.mode.report_keys)
        self.exact = "heights" in emitted
        self.emits_heightmap = "heightmap" in emitted
        self.stored = tuple(
            name for name in STORED if name in emitted - ({"heightmap"} if self.exact else set())
        )
        self.rebuilt = tuple(
            name for name in REBUILT if name in dropped and (rebuild is None or name in rebuild)
        )
        self.keeps_legal = "drop_height" in emitted
        self.masks = _mask_places(env, self.keeps_legal)
        self.register_buffer("_table", byte_table(env.device), persistent=False)
        self.lattice_shape = (
            env.params.num_visible,
            self.catalogue["peak"].shape[1],
            *env.params.lattice,
        )

    # ------------------------------------------------------------------ writing

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the compact form of a transition; TorchRL's ``inv`` and ``extend`` call this."""
        out = self._compress(tensordict)
        for key in self.action_keys:
            out.set(key, tensordict.get(key))
        following = tensordict.get("next")
        for key in self.reported:  # this action's report, not that of a window's last action
            out.set(key, following.get(key))
        out.set("next", self._compress(following).set("reward", following.get("reward")))
        return out

    def _compress(self, whole: TensorDictBase) -> TensorDict:
        whole_observation = whole.get("observation")
        out = TensorDict({}, whole.batch_size, device=whole.device)
        out.set("observation", whole_observation.select(*self.stored))
        if self.keeps_legal:
            legal = whole_observation.get("drop_height") < 1
            out.set(_JOINT, pack_bits(legal.flatten(whole.dim())))
        legality = self.mode.legality(dict(whole_observation.items()))
        for key, place in self.masks.items():
            if place.bits != _JOINT:
                mask = legality[key] if key in legality else whole.get(key)
                out.set(place.bits, pack_bits(mask))
        return out.update(whole.select(*FLAGS, *self.kept))

    # ------------------------------------------------------------------ sampling

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the complete form of transitions that :meth:`inv` compressed."""
        packed = (place.bits for place in self.masks.values())
        out = tensordict.exclude("observation", "next", _JOINT, *packed)
        out.update(self.expand(tensordict))
        following = tensordict.get("next")
        expanded = self.expand(following, legal_mask=True)
        return out.set("next", expanded.update(following.select("reward", *FLAGS)))

    def expand(self, compact: TensorDictBase, legal_mask: bool = False) -> TensorDict:
        """Return observations and masks of compact states."""
        # 1. Unpack the legality: of the whole lattice, and for each mask.
        batch = compact.batch_size
        flat = compact.reshape(-1)
        joint = None
        if self.keeps_legal:
            size = torch.Size(self.lattice_shape).numel()
            joint = unpack_bits(flat.get(_JOINT), size, self._table)
        legality = {
            key: joint
            if joint is not None and place.bits == _JOINT
            else unpack_bits(flat.get(place.bits), place.size, self._table)
            for key, place in self.masks.items()
        }
        # 2. Recompute the observations that were dropped.
        observed = dict(flat.get("observation").items())
        observed.update(self._derived(flat, legality))
        observed.update(self._maps(flat, joint))
        entries = TensorDict(observed, flat.batch_size, device=compact.device)
        # 3. Masks of terminated rows are all True, as the environment returns them.
        out = TensorDict({"observation": entries}, flat.batch_size, device=compact.device)
        for key, legal in legality.items():
            out.set(key, legal | flat.get("terminated"))
            if legal_mask:
                out.set(self.masks[key].legal, legal | ~legal.any(-1, keepdim=True))
        return out.update(flat.select(*self.kept)).reshape(batch)

    def _derived(
        self, flat: TensorDictBase, legality: dict[NestedKey, Tensor]
    ) -> dict[str, Tensor]:
        """Return the observations that are computed from ``heights`` and the manager's mask."""
        if not self.exact:
            return {}
        out = {"placeable": legality[MANAGER_MASK]}
        if self.emits_heightmap:
            heights = flat.get(("observation", "heights"))
            out["heightmap"] = observation.over_height(heights, self.params)
        return out

    def _maps(self, flat: TensorDictBase, joint: Tensor | None) -> dict[str, Tensor]:
        """Compute the observations that were dropped, ``[N, ...]``."""
        out: dict[str, Tensor] = {}
        if not self.rebuilt:
            return out
        # Padding (id -1) reads item 0; ``there`` masks it.
        item_id = flat.get(("observation", "item_id"))
        exists = item_id >= 0
        item_id = torch.where(exists, item_id, 0)
        scene = Scene({}, item_id, exists, None, self.catalogue, self.params)
        for name in self.rebuilt:
            if name in ("orientation_features", "top", "bottom"):
                out[name] = observation.OBSERVED[name](scene)
        if "drop_height" in self.rebuilt:
            assert joint is not None  # legality is stored whenever rest heights are observed
            out["drop_height"] = self._drop_height(flat, item_id, joint)
        return out

    def _drop_height(self, flat: TensorDictBase, item_id: Tensor, legal: Tensor) -> Tensor:
        if self.exact:
            heightmap = flat.get(("observation", "heights"))
        else:
            heightmap = flat.get(("observation", "heightmap")) * self.params.height
        # Gather the rows in blocks, because their surfaces may be larger than the states.
        bottom = self.catalogue["bottom"]
        visible = item_id[:, : self.params.num_visible]
        row_bytes = bottom[0].numel() * bottom.element_size() * visible.shape[1]
        rows = max(1, _GATHER_BYTES // row_bytes)
        orientations, stride = bottom.shape[1], self.params.grid_step
        orientation = torch.arange(orientations, device=visible.device)
        which = (visible[..., None] * orientations + orientation).flatten(1)
        surfaces = bottom.flatten(0, 1)
        parts = [
            kernels.drop_height(heights, surfaces, stride, which=chosen)
            for heights, chosen in zip(heightmap.split(rows), which.split(rows), strict=True)
        ]
        # The environment gives illegal placements the rest height H.
        z = parts[0] if len(parts) == 1 else torch.cat(parts)
        z = z.view(-1, *self.lattice_shape).div_(self.params.height)
        return z.masked_fill_(~legal.view_as(z), 1.0)
