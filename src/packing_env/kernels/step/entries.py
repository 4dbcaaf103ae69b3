"""Entries that the compiled step reads and writes, by name; each list in one fixed order.

`State`, `Catalogue`, ... are the tuples of arrays that compiled code reads by these names, and
their ``_fields`` are the names. Axes are those of `packing_env.types`, and ``A = Xs * Ys`` are the
placements of one orientation.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

from torch import Tensor

Tensors = Sequence[Tensor]
"""Entries of one of the tuples below, in its order."""

State = namedtuple(
    "State",
    "heightmap item_id num_items queue packed items_packed placement placement_z placement_support"
    " volume stable_items support_sum illegal_actions overflow step terminated truncated seed row"
    " episode legal",
)
"""Entries of the state that a decision or a reset changes or reads; see `packing_env.types`. Where
``legal`` is ``[B, 0]``, every action in range is legal: it is from a list of legal placements."""

Items = namedtuple(
    "Items",
    "top bottom size peak com cuboid volume orientation_mask item_features remaining"
    " orientation_features drop_height on_floor",
)
"""Tables by catalogue row: the catalogue itself, what is observed of each item, and which
orientations may stand on the floor. ``orientation_features [M, R F]`` has one line per item,
``remaining [N + 1]`` is the feature of that name by the number
of items left. On whole cells ``drop_height [256]`` is the observed rest height by the height in
cells plus 1, where 0 stands for an illegal placement; on heightmaps it is not read."""

Observations = namedtuple(
    "Observations",
    "heightmap item_id item_features orientation_features top bottom drop_height mask terminated"
    " truncated done metrics heights",
)
"""Observations, masks, flags and metrics of the state. Unrequested observations are empty.
``mask [B, L R Xs Ys]`` is True where a placement is legal, and with ``ends_mask`` all True in
terminated rows. ``heights [B, X, Y]`` are those of the state in metres.
``metrics [K, B]`` float32 are first those of `core.metrics.NAMES`; the rest is not written."""

Outcome = namedtuple("Outcome", "legal live before after")
"""``[B]`` bool whether the action was legal and whether the row was unfinished; the metrics before
and after the decision, ``[NUM_METRICS, B]`` float64 in the order of ``core.metrics.NAMES``."""

Ahead = namedtuple("Ahead", "plane bottom peak com size")
"""The orientations of the visible items, ``P = L * R``: the row of the lower surface in the table
of all, ``[B, P]`` int64, negative where there is no item; these surfaces ``[B, P, U, V]``, +inf
where there is no item, or empty if no rule reads them; highest points ``[B, P]``; centres of mass
and windows ``[B, P, 2]``."""

Counts = namedtuple(
    "Counts",
    "height across along visible rule metric_rule stride step_limit illegal_ends remaining"
    " sequential ends_mask metrics",
)
"""Cells of the container's height and of the items' window (2); the visible items ``L``; stability
rules by their index in `MAP_RULES`; cells between placements; decisions per episode; whether an
illegal action ends the episode; the index of the item feature ``remaining``; whether row i takes
the pool's instances i, i + B, i + 2 B, ... instead of random ones; whether the mask becomes all
True in terminated rows; the observed metrics ``K``."""

Lengths = namedtuple("Lengths", "cell cell_area base height lid tolerance")
"""Metres and m^2: a cell's side and area, the floor's area, the container's height, the highest
legal top, and the gap that a supporting cell may have."""

FUSED_TERMS = ("objective", "utilization", "item", "height", "void", "illegal")
"""Reward terms of `core.rewards` that the fused step computes."""

MASK = Observations._fields.index("mask")
"""Index of the observation that is never empty."""
