"""Arrays of `packing_env.kernels.loading`, and what ``halt`` holds; they need no compiler.

Compiled functions receive the arrays of a named tuple as one address, see
`packing_env.kernels.compiled.tables`: functions of many arrays would take long to compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from packing_env.kernels.step.entries import declare_entries

HURRY = 1
"""A load is completed with the first block that fits each space, without a comparison."""
STOP = 2
"""A kernel returns at once."""


TOP, REAR, SIDE = 0, 1, 2
"""Doors: boxes come in from above, along -x from the far wall, or along -y from the far wall."""


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

- ``types`` are those of the boxes in ascending order, then -1; ``amounts`` the boxes of each;
- ``volume`` is that of the boxes; ``worth`` is ``volume * (number of boxes)^-0.2``.
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
    weight        int64    T
    max_load      int64    T
    stackable     bool     T
    fragile       bool     T
    layers        int64    T
    on_like       bool     T
    like          int64    T
    """,
)
"""Rules that placed boxes satisfy beside having room; of T types, G grids, M blocks.

- ``active``: 0: nothing, and all else is unused;
- ``by_box``: 1 if boxes count singly: a rule looks at what rests on a box;
- ``below``: 1 if a rule looks at all that is below a box, not only at what it rests on;
- ``sides`` of a box of each grid, the gap included; ``repeats`` of the box in each grid;
- ``parts``: the two blocks and the axis of each joined block;
- ``gap``: clearance along x and y, which the sides include;
- ``corners``: bits of the axes at whose far side of a space blocks may be placed;
- ``door``: ``TOP``, ``REAR`` or ``SIDE``;
- ``support``: share of a base that must be supported;
- ``hull``: 1 if the centre must be over the hull of the contacts;
- ``fine``: steps per unit, in which margins are rounded up: 64, or 2 where lengths are long;
- ``margin``: percent of the base's sides by which it must be inside; -1: the edge is enough;
- ``off``: how far the centre of mass of a load may be off the middle along x and y; negative: any;
- ``mass`` of each block, milligrams; ``moment`` of it about its lower corner along x and y;
- ``slide``: 1 if a whole load may be moved over the floor, to be in balance or on the deck;
- ``deck``: 1 if only what is in the pile supports a box at 0: there is no floor beside it;
- ``floor``: rectangle ``(x0, y0, x1, y1)`` in which a whole load may be moved;
- ``cuts``: edges that are cut off: axis, its far wall or -1 for the near one, and what the plane
  takes of it, for both walls that meet there;
- ``weight_limit`` of a load, milligrams;
- ``loads``: 1 if ``max_load`` holds; ``no_stacking``: 1 if ``stackable`` holds;
- ``fragile_top``: 1 if only fragile boxes may rest on fragile ones;
- ``ordered``: 1 if ``order`` has rows;
- ``order``: boxes of a smaller number must be able to come in first and to go out last;
- ``weight`` of a box, milligrams; ``max_load``: milligrams that it bears;
- ``layers``: levels of a stack that begins with the box;
- ``on_like``: True if a box may only rest on its like and on the floor;
- ``like``: equal numbers are alike.
"""

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
    size      int64  1
    total     int64  1
    contacts  int64  C 5
    points    int64  4C 2
    hull      int64  8C 2
    parts     int64  W 4
    box       int64  6
    corner    int64  3
    """,
)
"""Contents of a container, for :data:`Rules`: N entries, cuboids without gaps.

- ``boxes``: lower and upper corner; ``kind``: type, or -1 if it was there before;
- ``weights``, milligrams; ``borne``: milligrams that rest on it, directly or through others;
- ``first``: where its supports begin in ``on``, the entries that it rests on;
- ``depth``: zeros;
- ``size``: number of entries; ``total``: weight of the boxes;
- ``contacts`` of the box that is judged: entry, x0, y0, x1, y1;
- ``points``: corners of contacts; ``hull``: those of their hull;
- ``parts``: blocks that wait to be taken apart, and their lower corners;
- ``box``, ``corner``: in use by one function at a time.
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
    """,
)
"""The container, and which blocks may be placed.

- ``container``: its sides; ``before``: cuboids that are in it from the start;
- ``order``: blocks that may be placed, of descending worth;
- ``useful``: longest sum of boxes' sides, by axis and by length in steps of ``2^shift``;
- ``least``: shortest side of a box by axis.
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
"""Memory to complete one load in: a copy of it, and what is known of one step.

- ``active``, ``rest``: blocks of whose boxes enough are left, before and after the first step;
- ``near``: the number of blocks that touch each face of a space, and which;
- ``low``: corner of a block; ``one``, ``rank``: the best block; ``value``: ranks of the best ones.
"""

Cutting = declare_entries(
    "Cutting",
    """
    fresh    int64  F 7
    waiting  int64  W 4
    grid     int64  6
    """,
)
"""Memory to cut spaces in: new spaces, parts of a block that wait to be cut out, a cuboid."""


class Problem(NamedTuple):
    """A container, rules, and what may be placed in it: the tuples above, or tables of them."""

    blocks: Any
    rules: Any
    room: Any
