"""Parameters, instances and the layout of the simulator's state.

Axes, which have the same letters everywhere:

| axis | meaning | axis | meaning |
|---|---|---|---|
| ``B`` | environments (rows) | ``X Y`` | cells of the container |
| ``T`` | time | ``U V`` | cells of an item's window |
| ``N`` | items per episode (capacity) | ``Xs Ys`` | action lattice, ``ceil(X / grid_step)`` |
| ``L`` | visible items that may be picked | ``K`` | candidates |
| ``S`` | visible slots, ``L + preview`` | ``A`` | actions |
| ``R`` | orientations (capacity) | ``M`` | rows of the catalogue |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar

from torch import Tensor

from packing_env.constraints import Constraints
from packing_env.values import MAX_SEED as MAX_SEED
from packing_env.values import MAX_STEPS as MAX_STEPS
from packing_env.values import Count, Length, Option, Whole, check, check_names, options
from packing_env.values import ParameterError as ParameterError
from packing_env.values import check_container as check_container
from packing_env.values import check_integer as check_integer
from packing_env.values import check_number as check_number
from packing_env.values import lid as lid
from packing_env.values import lid_tolerance as lid_tolerance
from packing_env.values import to_float32 as to_float32
from packing_env.values import whole_cells as whole_cells

State = dict[str, Tensor]
"""The simulator's state: a plain mapping of tensors, one row per environment.

| key | shape, dtype | meaning |
|---|---|---|
| ``heightmap`` | ``[B, X, Y]`` float32 | metres above the container's floor |
| ``item_id`` | ``[B, N]`` int64 | catalogue rows of the episode's items, in order |
| ``num_items`` | ``[B]`` int64 | length of the instance, at most N |
| ``queue`` | ``[B, S]`` int64 | positions (0..N-1) of the visible items, in order |
| ``packed`` | ``[B, N]`` bool | by position |
| ``items_packed`` | ``[B]`` int64 | number of packed items |
| ``placement`` | ``[B, N, 4]`` int64 | i-th packed item: position, orientation, x, y (cells) |
| ``placement_z`` | ``[B, N]`` float32 | its rest height, metres |
| ``placement_support`` | ``[B, N]`` float32 | its support ratio |
| ``volume`` | ``[B]`` float64 | packed volume, m^3 |
| ``stable_items`` | ``[B]`` int64 | packed items that ``stability_metric`` calls stable |
| ``support_sum`` | ``[B]`` float64 | sum of support ratios |
| ``reward_sum`` | ``[B, num_terms]`` float64 | weighted reward terms, summed over the episode |
| ``illegal_actions`` | ``[B]`` int64 | illegal actions so far |
| ``step`` | ``[B]`` int64 | decisions taken |
| ``terminated truncated`` | ``[B]`` bool | the row is finished (absorbing) |
| ``legal`` | ``[B, A]`` bool | legal placements; all True in terminated rows (or ``[B, 0]``) |
| ``candidate`` | ``[B, K]`` int64 | legal placements on offer, or -1 (or ``[B, 0]``) |
| ``candidate_z`` | ``[B, K]`` float32 | their rest heights, metres; +inf if empty (or ``[B, 0]``) |
| ``overflow`` | ``[B]`` int64 | proposals and spaces dropped for lack of capacity so far |
| ``boxes`` | ``[B, N, 6]`` int32 | i-th packed cuboid ``(x0 y0 z0 x1 y1 z1)``, pitches; or zeros |
| ``occupied`` | ``[B, X, Y, Z]`` bool | voxels of packed items; only in geometry ``"voxels"`` |
| ``spaces`` | ``[B, E, 6]`` int32 | empty maximal spaces, the same form (``core.cuboids.spaces``) |
| ``task`` | ``[B]`` int64 | fingerprint of the container and items that the row belongs to |
| ``seed row episode`` | ``[B]`` int64 | key and counters of the row's random stream |

Legality is computed once per state. The state keeps it as ``legal``. In mode ``candidate``,
``legal`` is ``[B, 0]`` and the list ``candidate`` takes its place. Some
:mod:`packing_env.core.constraints` add ``owner`` and ``under``.
"""

Catalogue = Mapping[str, Tensor]
"""The part of :class:`packing_env.items.Catalogue` that the core reads: ``catalogue.tensors()``.

``top bottom [M,R,U,V]``, ``size [M,R,2]``, ``peak [M,R]``, ``com [M,R,2]``, ``volume [M]``,
``extent [M,3]``, ``orientation_mask [M,R]``, ``cuboid [M,R,3]`` (``[M,R,0]`` if some item is not a
cuboid of whole pitches). Geometry ``"voxels"`` also needs ``voxels [M,R,U,V,W]``. With
``packing_env.items.Handling`` the catalogue also has its entries, ``[M]`` each.
"""

AUTORESETS = ("native", "masked")
PILE_RULES_ON_MAPS = ("equilibrium",)
"""Stability rules that follow the load from box to box, also in geometry ``"maps"``."""
DEFAULT_OBSERVATIONS = (
    "heightmap",
    "item_id",
    "item_features",
    "orientation_features",
    "item_maps",
    "drop_height",
)
OBSERVATIONS = (*DEFAULT_OBSERVATIONS, "boxes", "cut_surface")
_OF_MODES = "action_mode=candidate adds candidates, and hierarchical adds heights and placeable"
NEED_MAPS = ("item_maps", "drop_height")
"""Observations that are available in geometry ``"maps"`` only."""
NOOP_PENALTY = 0.1
"""Default weight of the reward term ``illegal`` if illegal actions are no-ops."""
SLOPE_UNITS = 64
"""The centre of mass is quantised to 1/64 of a cell (see ``kernels.com_hull``)."""


@dataclass(frozen=True)
class PackingParams:
    """The definition of a task without its items: rules, modes and sizes.

    Lengths are metres. Presets are in :mod:`packing_env.tasks`.

    Attributes:
        container: Inner extent ``(X, Y, H)`` of the container.
        cell: Side of a heightmap cell; X and Y are whole multiples of it.
        grid_step: Step of the placement lattice, in cells.
        num_items: ``N``, largest number of items in an episode.
        num_visible: ``L``, number of items that may be chosen now (1: online, k: buffer or offline
            top-k).
        preview: Number of additional items that are observed but may not be picked yet.
        item_order: ``"arrival"``, or ``"volume"`` (largest bounding box first, offline).
        stability: Rule that a legal placement must satisfy.
        stability_metric: Rule by which the metric S is computed.
        surest: Preferred stability rules, from the least strict to the strictest. For each item,
            the strictest rule that at least one legal placement satisfies is applied: only the
            placements that satisfy it stay legal. If no placement satisfies any of these rules, all
            stay legal. Geometry ``"maps"`` only.
        contact_tol: Largest distance at which a cell supports an item; ``None`` means one cell.
        action_mode: Name of an action mode (:mod:`packing_env.core.actions`).
        geometry: ``"maps"``: items are heightmaps on the container's cells. ``"boxes"``: items are
            integer boxes on a lattice of ``unit``, and the heightmap is their raster. ``"voxels"``:
            items are sets of cubes of side ``cell``, and may lie anywhere, as in a powder bed, also
            in cavities and under overhangs; the heightmap holds the tops of the columns. The last
            two need ``action_mode="candidate"``.
        unit: In geometry ``"boxes"``, length of one step, which divides ``cell``; ``None`` means
            ``cell``.
        removable: In geometry ``"voxels"``, a legal placement must leave the item a straight way
            out, along one of the six directions of the axes, past the items that are already there.
            So the items can be taken out in reverse order.
        num_spaces: ``E``, capacity of the list of empty maximal spaces, which some heuristics and
            candidate generators read (0: no list). Cuboids only.
        num_candidates: ``K``, capacity of the candidate list.
        candidate_generator: Name in ``core.candidates.GENERATORS``.
        candidate_fallback: If no proposed placement is legal, put the lowest legal placement of the
            lattice on the list. Without this option such a row is finished. Geometry ``"maps"``
            only.
        candidate_range: ``"container"``, or ``"pct"``, which allows only lower corners at which the
            unrotated item would also fit. This is a mistake in the program of Zhao et al., ICLR
            2022, and their published numbers include it.
        reward: Weight of each reward term (``core.rewards.TERMS``). With
            ``illegal_action="noop"`` the default of ``illegal`` is :data:`NOOP_PENALTY`.
        illegal_action: Effect of an illegal action: it ends the episode (``"terminate"``), has no
            effect (``"noop"``), or is replaced by the nearest legal placement (``"project"``).
        max_steps: Decisions before truncation; ``None`` means N, or 2 N if illegal actions are
            no-ops.
        observation: Names from :data:`OBSERVATIONS`; some action modes add others.
        constraints: :class:`packing_env.constraints.Constraints`, or a mapping of its entries, as
            in ``{"weight_limit": 20.0, "no_stacking": True}``.
    """

    container: Annotated[tuple[float, float, float], Option(read=check_container)]
    cell: Annotated[float, Option(above=0.0, unit="metres", goes_with="resolution")]
    grid_step: Count = 1
    num_items: Count = 24
    num_visible: Count = 1
    preview: Whole = 0
    item_order: Annotated[str, Option(choices=("arrival", "volume"))] = "arrival"
    stability: str = "com_hull"
    stability_metric: str = "com_hull"
    surest: Annotated[
        tuple[str, ...], Option(example="[com_hull_10, com_hull_20]", goes_with="stability")
    ] = ()
    contact_tol: Annotated[float, Option(at_least=0.0, unit="metres")] | None = None
    action_mode: str = "placement"
    geometry: Annotated[str, Option(choices=("maps", "boxes", "voxels"))] = "maps"
    unit: Length | None = None
    removable: bool = True
    num_spaces: Whole = 0
    num_candidates: Count = 80
    candidate_generator: str = "lowest_z"
    candidate_fallback: bool = True
    candidate_range: Annotated[str, Option(choices=("container", "pct"))] = "container"
    reward: Annotated[Mapping[str, float], Option(example="{utilization: 1.0}")] = field(
        default_factory=lambda: {"utilization": 1.0}
    )
    illegal_action: Annotated[str, Option(choices=("terminate", "noop", "project"))] = "terminate"
    max_steps: Count | None = None
    observation: Annotated[tuple[str, ...], Option(choices=OBSERVATIONS, note=_OF_MODES)] = (
        DEFAULT_OBSERVATIONS
    )
    constraints: Annotated[Constraints, Option(read=Constraints.read)] = field(
        default_factory=Constraints
    )
    _penalty_is_default: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        if self.num_visible + self.preview > self.num_items:
            raise ParameterError(
                f"num_visible + preview = {self.num_visible + self.preview} exceeds "
                f"num_items = {self.num_items}; reduce them or use longer episodes"
            )
        if self.grid_step > min(self.grid):
            raise ParameterError(
                f"grid_step={self.grid_step} exceeds the grid {self.grid}; use at most "
                f"{min(self.grid)}"
            )
        self._check_geometry()
        self.constraints.check_task(self.container, self.geometry)
        if self.constraints and self.action_mode == "hierarchical":
            raise ParameterError(
                "action_mode='hierarchical' supports no constraints: its worker sees only heights, "
                f"but constraints={self.constraints.to_json()} read the packed items; use another "
                "action_mode"
            )
        if self.illegal_action == "noop" and "illegal" not in self.reward:
            reward = {**self.reward, "illegal": NOOP_PENALTY}
            object.__setattr__(self, "reward", reward)  # `core.rewards` checks the names
            object.__setattr__(self, "_penalty_is_default", True)

    def _check_geometry(self) -> None:
        if self.geometry != "boxes" and self.unit is not None:
            raise ParameterError(
                f"unit={self.unit} needs geometry='boxes'; in geometry {self.geometry!r} the step "
                "is cell"
            )
        if self.geometry != "voxels" and not self.removable:
            raise ParameterError(
                f"removable=false needs geometry='voxels'; in geometry {self.geometry!r} items "
                "are placed from above"
            )
        if self.geometry == "maps":
            return
        if self.action_mode != "candidate":
            raise ParameterError(
                f"geometry={self.geometry!r} keeps no map of all placements, which action_mode="
                f"{self.action_mode!r} needs; use action_mode='candidate'"
            )
        only_maps = {
            f"grid_step={self.grid_step}": self.grid_step != 1,
            **{f"observation {name!r}": name in self.observation for name in NEED_MAPS},
        }
        if self.geometry == "voxels":
            only_maps |= {
                f"num_spaces={self.num_spaces}": self.num_spaces > 0,
                "observation 'boxes'": "boxes" in self.observation,
                f"candidate_range={self.candidate_range!r}": self.candidate_range != "container",
            }
        for name, wrong in only_maps.items():
            if wrong:
                raise ParameterError(f"{name} needs geometry='maps'; leave it out")
        for name, length in (("cell", self.cell), ("container H", self.height)):
            steps = length / self.pitch
            if not 0.5 < steps < MAX_STEPS or abs(steps - round(steps)) > 1e-6:
                raise ParameterError(
                    f"{name} = {length} m is not a whole multiple of unit = {self.pitch} m (at "
                    f"most {MAX_STEPS} units); change one of them"
                )

    @property
    def grid(self) -> tuple[int, int]:
        """Cells of the container, ``(X, Y)``."""
        x, y, _ = self.container
        return whole_cells(x, self.cell, "X"), whole_cells(y, self.cell, "Y")

    @property
    def lattice(self) -> tuple[int, int]:
        """Size of the action lattice, ``(ceil(X / grid_step), ceil(Y / grid_step))``."""
        x, y, _ = self.pitches
        return -(-x // self.grid_step), -(-y // self.grid_step)

    @property
    def pitch(self) -> float:
        """Step of x and y in metres: ``cell``, or ``unit`` in geometry ``"boxes"``."""
        return self.unit if self.geometry == "boxes" and self.unit is not None else self.cell

    @property
    def units_per_cell(self) -> int:
        """Pitches along the side of a heightmap cell; 1 in geometry ``"maps"``."""
        return round(self.cell / self.pitch)

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Sides of the container in pitches; a height that is not whole is rounded down."""
        x, y = self.grid
        return x * self.units_per_cell, y * self.units_per_cell, self.height_units

    @property
    def layers(self) -> int:
        """Heights at which an item may be placed at one x and y: ``Z`` voxels; 1 if items fall."""
        return self.height_units if self.geometry == "voxels" else 1

    @property
    def height(self) -> float:
        """H, metres."""
        return self.container[2]

    @property
    def height_units(self) -> int:
        """Height H of the container in whole pitches, rounded down."""
        return math.floor(self.height / self.pitch + 1e-6)

    @property
    def starts_of_stacks(self) -> tuple[float, ...]:
        """Heights, modulo the cell, at which stacks of whole-cell cuboids may start; metres."""
        return self.constraints.starts_of_stacks(self.cell)

    @property
    def has_whole_levels(self) -> bool:
        """True if whole-cell cuboids rest at whole numbers of cells, even on pre-placed boxes."""
        return self.starts_of_stacks == (0.0,)

    @property
    def keeps_boxes(self) -> bool:
        """True if the state lists the packed cuboids."""
        listed = self.num_spaces > 0 or "boxes" in self.observation
        return self.geometry == "boxes" or listed or self.judges_piles

    @property
    def judges_piles(self) -> bool:
        """True if a stability rule reads the packed cuboids in geometry ``"maps"``."""
        return not {self.stability, self.stability_metric}.isdisjoint(PILE_RULES_ON_MAPS)

    def check_piles(self, rule: str) -> None:
        """Raise unless a rule about piles on heightmaps can rely on the list of packed cuboids."""
        refusals = {
            "contact_tol": (self.tolerance != 0.0, "contact_tol=0.0"),
            "action_mode": (self.action_mode == "hierarchical", "another action_mode"),
            "constraints.preplaced": (bool(self.constraints.preplaced), "no pre-placed boxes"),
        }
        for key, (refused, remedy) in refusals.items():
            if refused:
                raise ParameterError(
                    f"stability rule {rule!r} reads only the list of packed cuboids, so it does "
                    f"not support this {key}; use {remedy}, or another rule"
                )

    @property
    def lid(self) -> float:
        """Highest legal ``float32(z + peak)``: H plus the tolerance for rounding."""
        return lid(self.height)

    @property
    def tolerance(self) -> float:
        """Contact tolerance in metres, as float32."""
        return to_float32(self.cell if self.contact_tol is None else self.contact_tol)

    @property
    def num_slots(self) -> int:
        """``S``: number of visible items, including the preview."""
        return self.num_visible + self.preview

    @property
    def step_limit(self) -> int:
        """Decisions after which an episode is truncated."""
        if self.max_steps is not None:
            return self.max_steps
        return self.num_items * (2 if self.illegal_action == "noop" else 1)

    @property
    def container_volume(self) -> float:
        """``X * Y * H`` in m^3."""
        return math.prod(self.container)

    def evolve(self, **changes: Any) -> PackingParams:
        """Return a copy with some fields changed; raise on unknown names and list the known names.

        The default penalty for no-ops is removed if illegal actions are no longer no-ops. Some
        options belong to another option, as ``surest`` belongs to ``stability``: if only
        ``stability`` is changed, ``surest`` returns to its default.
        """
        check_names("PackingParams", changes, {f.name for f in fields(self)})
        if self._penalty_is_default:
            chosen = {name: w for name, w in self.reward.items() if name != "illegal"}
            changes.setdefault("reward", chosen)
        for f in fields(PackingParams):
            other = options(PackingParams)[f.name].goes_with
            if other in changes and changes[other] != getattr(self, other):
                changes.setdefault(f.name, f.default)
        return replace(self, **changes)


@dataclass(frozen=True)
class Instances:
    """A pool of instances, made in bulk.

    Attributes:
        item_id: ``[P, N]`` int64 catalogue rows in arrival order; entries past the length are 0.
        num_items: ``[P]`` int64 length of each instance.
    """

    item_id: Tensor
    num_items: Tensor

    def __len__(self) -> int:
        return int(self.item_id.shape[0])
