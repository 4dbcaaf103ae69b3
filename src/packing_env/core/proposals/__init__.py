"""Candidate generators: functions that propose placements.

Each generator is a function of a :class:`packing_env.core.candidates.Scene`.
:mod:`packing_env.reference.proposals` specifies it in plain loops. ``z`` is the rest height of a
placement. "Lowest first" means ordered by ``z``, with ties ordered by the index of the placement.

| name | proposes |
|---|---|
| ``all_placements`` | every place of the lattice |
| ``closest`` | in each orientation, low placements that touch much (voxels) |
| ``corner_points`` | placements that can slide neither to smaller x nor to smaller y (Martello et |
| | al. 2000), lowest first |
| ``level_set_vertices`` | at corners of the regions of equal rest height, lowest first |
| | (IR-BPP, Zhao et al. 2023) |
| ``split_spaces`` | at lower corners of the empty maximal spaces in the state that the item fits |
| | into (PCT, Zhao et al. 2022) |
| ``split_space_drops`` | at lower corners of all spaces, lowest first (OnlineBPH, Ha et al. 2017) |

Geometry ``"boxes"`` has no map of all placements. With boxes use one of the ``split_`` generators
or, on small lattices, ``all_placements``. Geometry ``"voxels"`` supports ``closest`` and
``lowest_z``; no other geometry supports ``closest``.
"""

from __future__ import annotations

from packing_env.core import candidates
from packing_env.core.proposals.closest import closest
from packing_env.core.proposals.lattice import all_placements, corner_points, level_set_vertices
from packing_env.core.proposals.split import split_space_drops, split_spaces
from packing_env.types import PackingParams, ParameterError

__all__ = [
    "all_placements",
    "closest",
    "corner_points",
    "level_set_vertices",
    "split_space_drops",
    "split_spaces",
]

for _name in __all__:
    candidates.register(_name, globals()[_name])


def check(params: PackingParams) -> None:
    """Raise ParameterError if a generator of this folder cannot be used in the task's geometry."""
    name, layered = params.candidate_generator, params.geometry == "voxels"
    if params.action_mode == "candidate" and name in __all__ and (name == "closest") != layered:
        others = "closest or lowest_z" if layered else "another generator, or geometry='voxels'"
        raise ParameterError(
            f"candidate_generator={name!r} does not support geometry={params.geometry!r}; "
            f"use {others}"
        )
