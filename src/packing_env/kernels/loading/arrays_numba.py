"""Arrays of `packing_env.kernels.loading`, without a compiler.

Compiled functions receive the arrays of a named tuple as one address
(`packing_env.kernels.compiled.tables`), because functions of many arrays would take long to
compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from packing_env.kernels.step.entries import declare_entries

TOP, REAR, SIDE = 0, 1, 2
"""Doors: boxes come in from above, along -x from the far wall, or along -y from the far wall."""
UNLIMITED = 2**62
"""A weight, length, area or number of levels that is never reached."""
LEAST, MOST, AREA, WEIGHT = 0, 2, 4, 5
"""Entries of ``Pile.limits``; the first two stand for two entries, along x and y."""

Blocks = declare_entries(
    "Blocks",
    """
    sides    int64    M 3
    types    int32    M K
    amounts  int32    M K
    volume   float64  M
    worth    float64  M
    """,
)
"""M blocks of boxes of T types.

- ``types``: types of the boxes in ascending order, then -1; ``amounts``: number of boxes of each;
- ``volume``: volume of the boxes; ``worth``: ``volume * (number of boxes)^-0.2``.
"""

Rules = declare_entries(
    "Rules",
    """
    active        int64
    by_box        int64
    below         int64
    sides         int64    G 3
    repeats       int64    G 3
    parts         int32    M 3
    gap           int64    2
    corners       int64
    door          int64
    support       float64
    hull          int64
    fine          int64
    margin        int64
    off           float64  2
    mass          float64  M
    moment        float64  M 2
    slide         int64
    deck          int64
    floor         int64    4
    cuts          int64    C 6
    weight_limit  int64
    loads         int64
    no_stacking   int64
    fragile_top   int64
    ordered       int64
    order         int64    K T
    stages        int64
    stage         int64    T
    weight        int64    T
    max_load      int64    T
    stackable     bool     T
    fragile       bool     T
    layers        int64    T
    on_like       bool     T
    like          int64    T
    """,
)
"""Rules for placed boxes, in addition to geometry, for T types, G grids and M blocks.

- ``active``: 0 if there are no rules; all other entries are unused then;
- ``by_box``: 1 if each box is an entry, because a rule depends on the boxes that rest on a box;
- ``below``: 1 if a rule depends on all boxes below a box, not only on its contacts;
- ``sides``: sides of the box of each grid, including the gap; ``repeats``: its repetitions;
- ``parts``: the two blocks and the axis of each joined block;
- ``gap``: clearance along x and y that the sides include;
- ``corners``: bits of the axes along which blocks may be placed at the far side of a space;
- ``door``: ``TOP``, ``REAR`` or ``SIDE``;
- ``support``: share of a base that must be supported;
- ``hull``: 1 if the centre of a box must be over the hull of its contacts;
- ``fine``: steps per unit to which margins are rounded up: 64, or 2 if lengths are long;
- ``margin``: percent of the base's sides by which the centre must be inside; -1 allows the edge;
- ``off``: largest distance of a load's centre of mass from the middle along x and y; negative: any;
- ``mass``: mass of each block, milligrams; ``moment``: its moment about its lower corner along x,
  y;
- ``slide``: 1 if a whole load may be moved over the floor, to balance it or to reach the deck;
- ``deck``: 1 if there is no floor, so only entries of the pile support a box at 0;
- ``floor``: rectangle ``(x0, y0, x1, y1)`` in which a whole load may be moved;
- ``cuts``: cut edges: for both walls the axis, the far wall (-1 for the near wall), and the length
  that the plane cuts off;
- ``weight_limit`` of a load, milligrams;
- ``loads``: 1 if ``max_load`` applies; ``no_stacking``: 1 if ``stackable`` applies;
- ``fragile_top``: 1 if only fragile boxes may rest on fragile boxes;
- ``ordered``: 1 if ``order`` has rows;
- ``order``: ranks; boxes of smaller rank must be able to come in first and to go out last;
- ``stages``, ``stage``: the search places the boxes of stage 0 first, up to ``stages - 1``;
- ``weight``: weight of a box, milligrams; ``max_load``: milligrams that a box bears;
- ``layers``: largest number of levels in a stack whose lowest level is the box;
- ``on_like``: True if a box may only rest on the floor and on boxes with an equal ``like``;
- ``like``: a number that boxes of the same name share.
"""


class JoinLimits(NamedTuple):
    """Limits of joined blocks.

    Attributes:
        container: ``[3]`` float64, its sides.
        counts: ``[T]``, boxes of each type.
        fill: Least share of its cuboid that a block fills.
        whole: Whether bases must be supported wholly.
        group: ``[T]`` int64; only boxes of equal numbers are joined.
        bears: ``[T]`` int64; of two equal bases, the block whose boxes bear more is below.
    """

    container: Any
    counts: Any
    fill: float
    whole: bool
    group: Any
    bears: Any


Pile = declare_entries(
    "Pile",
    """
    boxes     int64  N 6
    kind      int32  N
    weights   int64  N
    borne     int64  N
    first     int32  N+1
    on        int32  S
    depth     int32  N
    pending   int32  N
    size      int64  1
    near      int32  N
    num_near  int64  1
    limits    int64  6
    total     int64  1
    contacts  int64  C 5
    parts     int64  W 4
    box       int64  6
    corner    int64  3
    """,
)
"""Contents of a container for :data:`Rules`: N entries, which are cuboids without gaps.

- ``boxes``: lower and upper corner; ``kind``: type, or -1 for cuboids from before the loading;
- ``weights``: milligrams; ``borne``: milligrams that rest on an entry, directly or through others;
- ``first``: index in ``on`` of an entry's first support; ``on``: the entries that carry it;
- ``depth``: memory that is zero between calls; ``pending``: entries that wait for a load;
- ``near``, ``num_near``: entries that a box in the observed space may meet, and their number;
- ``limits``: of a box in the observed corner: shortest and longest sides of its base, largest area
  of the base, and largest weight;
- ``size``: number of entries; ``total``: weight of the boxes;
- ``contacts``: contacts of the judged box: entry, x0, y0, x1, y1;
- ``parts``: blocks that wait to be taken apart, and their lower corners;
- ``box``, ``corner``: memory that one function at a time uses.
"""

Room = declare_entries(
    "Room",
    """
    container  int64  3
    before     int64  B 6
    order      int32  N
    useful     int64  3 L
    shift      int64
    least      int64  3
    lengths    int64  T 3
    """,
)
"""The container, and the blocks that may be placed.

- ``container``: sides; ``before``: cuboids that are in the container from the start;
- ``order``: the blocks that may be placed, by descending worth;
- ``useful``: longest sum of box sides, by axis and by length in steps of ``2^shift``;
- ``least``: shortest side of a box by axis;
- ``lengths``: shortest, middle and longest side of a box of each type; the least of its
  orientations.
"""


Beam = declare_entries(
    "Beam",
    """
    spaces      int64    R S 7
    num_spaces  int64    R
    placed      int64    R P 7
    num_placed  int64    R
    left        int32    R T
    volume      float64  R
    """,
)
"""R loads, see the package."""

Scratch = declare_entries(
    "Scratch",
    """
    spaces   int64    S 7
    placed   int64    P 7
    left     int32    T
    active   int32    N
    rest     int32    N
    near     int32    6 P+1
    low      int64    3
    one      int64    1 4
    rank     float64  1
    value    float64  K
    """,
)
"""Memory to complete one load: a copy of the load, and data of one step.

- ``active``, ``rest``: blocks for which enough boxes are left, before and after the first step;
- ``near``: the number of blocks that touch each face of a space, and their indices;
- ``low``: corner of a block; ``one``, ``rank``: the best block; ``value``: ranks of the best ones.
"""

Cutting = declare_entries(
    "Cutting",
    """
    fresh    int64  F 7
    members  int32  F
    waiting  int64  W 4
    grid     int64  6
    """,
)
"""Memory to cut spaces in.

- ``fresh``: new spaces; ``members``: indices of new spaces at one face of the block;
- ``waiting``: parts of a block that wait to be cut out; ``grid``: a cuboid.
"""


class Problem(NamedTuple):
    """A container with rules and blocks; each field is a tuple of this module, or a table."""

    blocks: Any
    rules: Any
    room: Any
