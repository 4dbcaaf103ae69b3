"""Action modes: what an action of the agent means, over the same state.

A mode owns the specs and masks of what the agent writes, under whatever keys, turns it into a
:class:`packing_env.core.orientation.Placement`, and may add observations. To add a mode, subclass
:class:`ActionMode` and put it into :data:`MODES`.
"""

from __future__ import annotations

from packing_env.envs.action_modes.base import ActionMode, LatticeMode
from packing_env.envs.action_modes.candidate import CandidateMode
from packing_env.envs.action_modes.continuous import ContinuousMode
from packing_env.envs.action_modes.hierarchical import (
    MANAGER,
    MANAGER_MASK,
    WORKER,
    HierarchicalMode,
)
from packing_env.envs.action_modes.multi_head import MultiHeadMode
from packing_env.envs.action_modes.placement import PlacementMode
from packing_env.types import ParameterError

__all__ = [
    "MANAGER",
    "MANAGER_MASK",
    "MODES",
    "WORKER",
    "ActionMode",
    "CandidateMode",
    "ContinuousMode",
    "HierarchicalMode",
    "LatticeMode",
    "MultiHeadMode",
    "PlacementMode",
    "get_mode",
]

MODES: dict[str, type[ActionMode]] = {
    "placement": PlacementMode,
    "candidate": CandidateMode,
    "multi_head": MultiHeadMode,
    "hierarchical": HierarchicalMode,
    "continuous": ContinuousMode,
}


def get_mode(name: str) -> type[ActionMode]:
    """The action mode of that name."""
    if name not in MODES:
        raise ParameterError(f"action_mode={name!r} is unknown; choose one of {sorted(MODES)}")
    return MODES[name]
