"""Action modes: the meaning of an agent's action; the state is the same in all modes.

A mode decodes the entries that the agent writes into a
:class:`packing_env.core.orientation.Placement`. It also provides the masks of legal actions, and
may add observations. To add a mode, subclass :class:`ActionMode` and put it into :data:`MODES`.
"""

from __future__ import annotations

from packing_env.core.actions.base import ActionMode, LatticeMode, Outlook
from packing_env.core.actions.candidate import CandidateMode
from packing_env.core.actions.continuous import ContinuousMode
from packing_env.core.actions.hierarchical import MANAGER, MANAGER_MASK, WORKER, HierarchicalMode
from packing_env.core.actions.multi_head import MultiHeadMode
from packing_env.core.actions.placement import PlacementMode
from packing_env.core.actions.spaces import Box, Flags, Index, Indices, Key, Space
from packing_env.values import check_choice

__all__ = [
    "MANAGER",
    "MANAGER_MASK",
    "MODES",
    "WORKER",
    "ActionMode",
    "Box",
    "CandidateMode",
    "ContinuousMode",
    "Flags",
    "HierarchicalMode",
    "Index",
    "Indices",
    "Key",
    "LatticeMode",
    "MultiHeadMode",
    "Outlook",
    "PlacementMode",
    "Space",
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
    """Return the action mode of that name."""
    return MODES[check_choice("action_mode", name, MODES)]
