"""Named entries that the compiled step reads and writes; each tuple has a fixed order.

`State`, `Items`, ... are named tuples; compiled code reads their entries by these names.
``_fields`` holds the names, and ``kinds`` the dtype and the axes of each entry in compiled code;
numbers have no axes. `packing_env.types` defines the axes; ``A = Xs * Ys`` is the number of
placements of one orientation.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

Tensors = Sequence[Tensor]
"""The values of one of the tuples below, in its order."""


def declare_entries(name: str, entries: str) -> Any:
    """Return a named tuple type; each line of ``entries`` is ``name dtype axis axis ...``."""
    lines = [line.split() for line in entries.strip().splitlines()]
    make: Any = collections.namedtuple  # the name is not a literal
    declared = make(name, [line[0] for line in lines])
    declared.kinds = tuple((dtype, tuple(axes)) for _, dtype, *axes in lines)
    return declared


def shape_of(axes: Sequence[str], sizes: Mapping[str, int]) -> list[int]:
    """Return the lengths of axes: numbers, names of ``sizes``, or sums of both, as in ``N+1``."""
    terms = [axis.split("+") for axis in axes]
    return [sum(sizes[term] if term in sizes else int(term) for term in each) for each in terms]


State = declare_entries(
    "State",
    """
    heightmap          float32  B X Y
    item_id            int64    B N
    num_items          int64    B
    queue              int64    B S
    packed             bool     B N
    items_packed       int64    B
    placement          int64    B N 4
    placement_z        float32  B N
    placement_support  float32  B N
    volume             float64  B
    stable_items       int64    B
    support_sum        float64  B
    illegal_actions    int64    B
    overflow           int64    B
    step               int64    B
    terminated         bool     B
    truncated          bool     B
    seed               int64    B
    row                int64    B
    episode            int64    B
    legal              bool     B LRA
    """,
)
"""Entries of the state that a decision or a reset reads or changes; see `packing_env.types`. If
``legal`` is ``[B, 0]``, every action in range is legal, because it comes from a list of legal
placements.
"""

Items = declare_entries(
    "Items",
    """
    top                   float32  M R U V
    bottom                float32  M R U V
    size                  int64    M R 2
    peak                  float32  M R
    com                   int64    M R 2
    cuboid                int32    M R sides
    volume                float64  M
    orientation_mask      bool     M R
    item_features         float32  M F
    remaining             float32  N+1
    orientation_features  float32  M RF
    drop_height           float32  levels
    on_floor              bool     M R
    """,
)
"""Tables by catalogue row: the catalogue, the observations of each item, and which orientations are
legal on the floor. ``orientation_features`` has one line per item. ``remaining`` is the feature of
that name, by the number of items left. On whole cells, ``drop_height [256]`` is the observed rest
height, by the height in cells plus 1; index 0 stands for an illegal placement. On heightmaps it is
not read.
"""

Pool = declare_entries(
    "Pool",
    """
    item_id    int64  P N
    num_items  int64  P
    """,
)
"""The instances."""

Observations = declare_entries(
    "Observations",
    """
    heightmap             float32  B XY
    item_id               int64    B S
    item_features         float32  B S F
    orientation_features  float32  B S RF
    top                   float32  B S RUV
    bottom                float32  B S RUV
    drop_height           float32  B LR A
    mask                  bool     B LR A
    terminated            bool     B
    truncated             bool     B
    done                  bool     B
    metrics               float32  K B
    heights               float32  B XY
    """,
)
"""Observations, masks, flags and metrics of the state. Unrequested observations are empty. ``mask``
is True where a placement is legal; with ``ends_mask`` it is all True in terminated rows.
``heights`` are the heights of the state in metres. ``metrics`` begins with `core.metrics.NAMES`;
the other metrics are not written.
"""

Outcome = declare_entries(
    "Outcome",
    """
    legal   bool     B
    live    bool     B
    before  float64  metrics B
    after   float64  metrics B
    """,
)
"""Whether the action was legal, whether the row was unfinished, and the metrics before and after
the decision, in the order of ``core.metrics.NAMES``.
"""

Ahead = declare_entries(
    "Ahead",
    """
    plane   int64    B L R
    peak    float32  B L R
    com     int64    B L 2R
    size    int64    B L 2R
    """,
)
"""The orientations of the visible items: the index of the lower surface (negative without an item);
the highest point; the centre of mass; the window. The tensors have one axis for items and
orientations together.
"""

Counts = declare_entries(
    "Counts",
    """
    height        int64
    across        int64
    along         int64
    visible       int64
    rule          int64
    metric_rule   int64
    stride        int64
    step_limit    int64
    illegal_ends  int64
    remaining     int64
    sequential    int64
    ends_mask     int64
    metrics       int64
    """,
)
"""Integer constants of a task.

- ``height``: cells of the container's height; ``across``, ``along``: cells of the items' window
  along x and y;
- ``visible``: number of visible items; ``remaining``: index of the item feature of this name;
- ``rule``, ``metric_rule``: indices of the two stability rules in `MAP_RULES`;
- ``stride``: cells between placements; ``step_limit``: decisions per episode;
- ``illegal_ends``: whether an illegal action ends the episode;
- ``sequential``: whether row i takes the pool's instances i, i + B, i + 2 B, ..., not random ones;
- ``ends_mask``: whether the mask becomes all True in terminated rows;
- ``metrics``: number of observed metrics.
"""

Lengths = declare_entries(
    "Lengths",
    """
    cell       float64
    cell_area  float64
    base       float64
    height     float64
    lid        float64
    tolerance  float64
    """,
)
"""Metres and m^2, in this order: a cell's side and area, the floor's area, the container's height,
the highest legal top, and the largest distance at which a cell supports.
"""

FUSED_TERMS = ("objective", "utilization", "item", "height", "illegal")
"""Reward terms of `core.rewards` that the fused step computes."""

MASK = Observations._fields.index("mask")
"""Index of an observation that is always requested."""
