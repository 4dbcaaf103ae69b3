"""Placement heuristics, batched, with the interface of a learned policy.

Every heuristic gives each placement a score; the lowest legal score is played. Lengths in scores
count cells, heights too, so that a container of unit cells gives the published integers. ``x`` and
``y`` are the lower corner of the item's window, ``z`` its rest height.

| name | score | source |
|---|---|---|
| ``random_legal`` | a uniformly random legal action | |
| ``first_fit`` | none: the first in the order of ties | Online-3D-BPP-PCT, IR-BPP |
| ``lowest_z`` | ``100 z`` | IR-BPP (MINZ), Zhao et al., TOG 2023 |
| ``deepest_bottom_left`` | ``x + y + 100 z`` | Online-3D-BPP-PCT (DBL) |
| ``heightmap_minimization`` | ``x + y + 100 sum(new heightmap)`` | ibid. (HM); Wang, Hauser 2019 |

**Ties** go to the first placement in the order x, y, item, orientation (in ``candidate`` mode: to
the first candidate). Scores within 1/8 of each other are ties, that is heights within 1/800 of a
cell, so that rounding does not decide.

**Items.** Where several items are visible, ``item_order`` (:data:`ITEM_ORDERS`) picks one, among
those with a legal placement, before placements are scored; ``None`` scores those of all items.

**What they read.** In ``placement`` mode the TensorDict and the catalogue, so that they work in any
TorchRL loop, on stored observations too. In ``candidate`` mode ``heightmap_minimization`` alone
also reads ``env.state["candidate"]``, because the observed candidates do not tell the orientation.
Nothing is read back to the host.

To add a heuristic, write a function from :class:`Placements` to scores and put it into
:data:`HEURISTICS`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import PackingEnv
from packing_env.core import candidates
from packing_env.core import heightmap as hm
from packing_env.core.orientation import Placement, decode_placement
from packing_env.core.random import choose_uniform
from packing_env.types import Catalogue, PackingParams, ParameterError

HEIGHT_WEIGHT = 100.0
"""What a cell of height weighs against a cell of x or y."""

_TIES_PER_UNIT = 8
_SPECTRUM_BYTES = 256 * 2**20
"""So much memory at once for the spectra of the footprints."""


@dataclass(frozen=True)
class Placements:
    """The placements to score, in cells; the axes ``P`` are ``[L, R, Xs, Ys]`` or ``[K]``.

    Attributes:
        x: Lower corner of the window, broadcasts against ``[B, *P]``.
        y: Likewise.
        z: ``[B, *P]`` float64 rest height; any number where the placement is illegal.
        summed_rise: Computes :func:`summed_rise` or :func:`summed_rise_at`, on demand.
    """

    x: Tensor
    y: Tensor
    z: Float[Tensor, "B *P"]  # noqa: UP037
    summed_rise: Callable[[], Tensor] = field(repr=False)


def first_fit(placements: Placements) -> Tensor:
    """The first legal placement in the order of ties."""
    return torch.zeros_like(placements.z)


def lowest_z(placements: Placements) -> Tensor:
    """The lowest rest height."""
    return HEIGHT_WEIGHT * placements.z


def deepest_bottom_left(placements: Placements) -> Tensor:
    """Low, then near the corner: ``x + y + 100 z``."""
    return placements.x + placements.y + HEIGHT_WEIGHT * placements.z


def heightmap_minimization(placements: Placements) -> Tensor:
    """``x + y + 100`` times the sum of the updated heightmap, less its sum before (a constant)."""
    return placements.x + placements.y + HEIGHT_WEIGHT * placements.summed_rise()


Score = Callable[[Placements], Tensor]
HEURISTICS: dict[str, Score | None] = {
    "random_legal": None,
    "first_fit": first_fit,
    "deepest_bottom_left": deepest_bottom_left,
    "lowest_z": lowest_z,
    "heightmap_minimization": heightmap_minimization,
}
"""Score by name; None draws a legal action."""


def arrival(volume: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
    """As the items are queued."""
    return -torch.arange(volume.shape[1], device=volume.device).expand_as(volume).double()


def largest_first(volume: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
    """By the volume of the bounding box."""
    return volume


def random_order(volume: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
    """Each item as likely."""
    return torch.rand_like(volume)


ITEM_ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "arrival": arrival,
    "largest_first": largest_first,
    "random": random_order,
}
"""From the bounding-box volumes of the visible items to their priorities; the highest is taken."""


def summed_rise(
    heights: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    z: Float[Tensor, "B L R Xs Ys"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B L R Xs Ys"]:
    """By how much each placement raises the sum of the heightmap, in cells.

    Over the footprint the new height is ``z + top``, so the rise is ``n z + sum(top)`` less the sum
    of the old heights under it: for all places at once a correlation with the footprint, done by
    Fourier transform. Where a footprint leaves the container the number means nothing.
    """
    spectrum = torch.fft.rfft2(heights)
    batch = torch.arange(item_id.shape[0], device=item_id.device)
    batch = batch[:, None].expand_as(item_id).flatten()
    num_orientations = catalogue["bottom"].shape[1]
    pairs = max(1, _SPECTRUM_BYTES // (16 * spectrum[0].numel() * num_orientations))
    under = []
    for rows, items in zip(batch.split(pairs), item_id.flatten().split(pairs), strict=True):
        footprint = torch.isfinite(catalogue["bottom"][items]).double()
        product = spectrum[rows][:, None] * torch.fft.rfft2(footprint, s=heights.shape[1:]).conj()
        sums = torch.fft.irfft2(product, s=heights.shape[1:])
        under.append(sums[..., :: params.grid_step, :: params.grid_step])
    count, top = _footprint(catalogue["top"][item_id], params.cell)
    rise = count[..., None, None] * z + top[..., None, None]
    return rise - torch.cat(under).view_as(z)


def summed_rise_at(
    heights: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B K"],
    place: Placement,
    z: Float[Tensor, "B K"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B K"]:
    """:func:`summed_rise` of single placements ``[B, K]``."""
    top = catalogue["top"][item_id, place.orientation]
    maps = heights[:, None].expand(*item_id.shape, *heights.shape[1:]).flatten(0, 1)
    window, _ = hm.read_window(maps, place.x.flatten(), place.y.flatten(), tuple(top.shape[2:]))
    under = torch.where(torch.isfinite(top), window.view_as(top), 0.0).sum((-2, -1))
    count, total = _footprint(top, params.cell)
    return count * z + total - under


def _footprint(top: Float[Tensor, "*batch U V"], cell: float) -> tuple[Tensor, Tensor]:
    """Cells of each footprint, and the sum of ``top`` over it in cells."""
    inside = torch.isfinite(top)
    total = torch.where(inside, top.double() / cell, 0.0).sum((-2, -1))
    return inside.sum((-2, -1), dtype=torch.float64), total


def _rounded(score: Tensor, legal: Tensor) -> Tensor:
    """Scores on a grid of ties; +inf where illegal."""
    return torch.where(legal, (score * _TIES_PER_UNIT).round(), torch.inf)


def build(name: str, env: PackingEnv, item_order: str | None = None) -> Heuristic:
    """A heuristic for one environment's task.

    Args:
        name: In :data:`HEURISTICS`.
        env: Sets the task; see the module on what else is read of it.
        item_order: In :data:`ITEM_ORDERS`; None leaves the choice of the item to the score.

    Raises:
        ParameterError: The name is unknown, or the environment lacks what the heuristic reads.
    """
    if name not in HEURISTICS:
        raise ParameterError(f"heuristic={name!r} is unknown; choose one of {sorted(HEURISTICS)}")
    if item_order is not None and item_order not in ITEM_ORDERS:
        raise ParameterError(
            f"item_order={item_order!r} is unknown; choose one of {sorted(ITEM_ORDERS)}, or null"
        )
    modes = {"placement": PlacementHeuristic, "candidate": CandidateHeuristic}
    mode = env.params.action_mode
    if mode not in modes:
        raise ParameterError(
            f"heuristics act in action_mode={' or '.join(sorted(modes))}, not {mode!r}"
        )
    return modes[mode](HEURISTICS[name], env, item_order)


class Heuristic(TensorDictModuleBase):
    """Plays the legal action of the lowest score.

    Args:
        score: In :data:`HEURISTICS`.
        env: The environment.
        item_order: In :data:`ITEM_ORDERS`, or None.
    """

    reads: tuple[str, ...] = ()

    def __init__(self, score: Score | None, env: PackingEnv, item_order: str | None) -> None:
        super().__init__()
        self.score = score
        self.item_order = None if item_order is None else ITEM_ORDERS[item_order]
        self.params: PackingParams = env.params
        self.catalogue: Catalogue = env.catalogue.tensors()
        emitted = set(env.observation_spec["observation"].keys())
        needed = set() if score is None and item_order is None else set(self.reads)
        missing = sorted(needed - emitted)
        if missing:
            raise ParameterError(
                f"heuristics read {missing}; add them to observation={env.params.observation}"
            )
        self.in_keys = [("observation", key) for key in sorted(needed)] + ["action_mask"]
        self.out_keys = ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``action [*batch]``."""
        mask = tensordict.get("action_mask")
        batch_dims = mask.dim() - 1
        seen = {key[1]: tensordict.get(key).flatten(0, batch_dims - 1) for key in self.in_keys[:-1]}
        action = self.choose(seen, mask.flatten(0, batch_dims - 1))
        return tensordict.set("action", action.view(mask.shape[:-1]))

    @abstractmethod
    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """The action of each row."""

    def _draw(self, mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """A uniformly random legal action."""
        return choose_uniform(mask, torch.rand(len(mask), dtype=torch.float64, device=mask.device))

    def _pick_slot(self, item_id: Tensor, offered: Bool[Tensor, "B L"]) -> Int[Tensor, " B"]:
        """The visible item whose turn it is, among those on offer."""
        assert self.item_order is not None
        volume = self.catalogue["extent"][item_id.clamp(min=0)].prod(-1)
        return torch.where(offered, self.item_order(volume), -torch.inf).argmax(1)

    def _cells(self, height: Tensor) -> Tensor:
        """A height over H, in cells."""
        return height.double() * (self.params.height / self.params.cell)


class PlacementHeuristic(Heuristic):
    """In ``placement`` mode: every placement on the lattice is scored."""

    reads = ("heightmap", "item_id", "drop_height")

    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """The action of each row."""
        xs, ys = self.params.lattice
        legal = mask.view(len(mask), self.params.num_visible, -1, xs, ys)
        if self.item_order is None and self.score is None:
            return self._draw(mask)
        item_id = seen["item_id"][:, : self.params.num_visible]
        if self.item_order is None:
            return self._lowest(seen, item_id, seen["drop_height"], legal)
        slot = self._pick_slot(item_id, legal.flatten(2).any(2))
        rows = torch.arange(len(slot), device=slot.device)
        shown = legal[rows, slot][:, None]
        if self.score is None:
            action = self._draw(shown.flatten(1))
        else:
            drop_height = seen["drop_height"][rows, slot][:, None]
            action = self._lowest(seen, item_id.gather(1, slot[:, None]), drop_height, shown)
        return action + slot * (mask.shape[1] // self.params.num_visible)

    def _lowest(
        self, seen: dict[str, Tensor], item_id: Tensor, drop_height: Tensor, legal: Tensor
    ) -> Int[Tensor, " B"]:
        """Action index, within the given items, of the lowest score."""
        assert self.score is not None
        step = self.params.grid_step
        x, y = (
            torch.arange(count, device=legal.device, dtype=torch.float64) * step
            for count in legal.shape[3:]
        )
        z = self._cells(drop_height)
        placements = Placements(
            x[:, None],
            y,
            z,
            lambda: summed_rise(
                self._cells(seen["heightmap"]), item_id.clamp(min=0), z, self.catalogue, self.params
            ),
        )
        score = _rounded(self.score(placements), legal)
        _, num_items, num_orientations, xs, ys = legal.shape
        first = score.permute(0, 3, 4, 1, 2).flatten(1).argmin(1)
        plane = first % (num_items * num_orientations)
        return plane * (xs * ys) + first // (num_items * num_orientations)


class CandidateHeuristic(Heuristic):
    """In ``candidate`` mode: the proposed placements are scored."""

    reads = ("heightmap", "item_id", "candidates")

    def __init__(self, score: Score | None, env: PackingEnv, item_order: str | None) -> None:
        super().__init__(score, env, item_order)
        self._proposed: Callable[[], Tensor] = lambda: env.state["candidate"]

    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """The action of each row."""
        legal = mask
        if self.item_order is not None:
            num_items = self.params.num_visible
            slot = (_column(seen, "slot") * num_items).round().long()
            of_item = slot[..., None] == torch.arange(num_items, device=slot.device)
            offered = (of_item & mask[..., None]).any(1)
            picked = self._pick_slot(seen["item_id"][:, :num_items], offered)
            legal = mask & (slot == picked[:, None])
        if self.score is None:
            return self._draw(legal)
        columns, rows = self.params.grid
        placements = Placements(
            (_column(seen, "x") * columns).round().double(),
            (_column(seen, "y") * rows).round().double(),
            self._cells(_column(seen, "z")),
            lambda: self._summed_rise(seen),
        )
        return _rounded(self.score(placements), legal).argmin(1)

    def _summed_rise(self, seen: dict[str, Tensor]) -> Float[Tensor, "B K"]:
        index = self._proposed().clamp(min=0)
        place = decode_placement(index, self.catalogue["peak"].shape[1], self.params)
        item_id = seen["item_id"].gather(1, place.slot).clamp(min=0)
        heights = self._cells(seen["heightmap"])
        z = self._cells(_column(seen, "z"))
        return summed_rise_at(heights, item_id, place, z, self.catalogue, self.params)


def _column(seen: dict[str, Tensor], name: str) -> Float[Tensor, "B K"]:
    """One feature of the candidates."""
    return seen["candidates"][..., candidates.FEATURES.index(name)]
