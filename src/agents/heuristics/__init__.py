"""Placement heuristics, batched, with the same interface as learned policies: ``build(name, env)``.

:mod:`agents.heuristics.registry` describes them all.
"""

from agents.heuristics.base import ITEM_ORDERS, Heuristic
from agents.heuristics.registry import HEURISTICS, build
from agents.heuristics.scored import CandidateHeuristic, PlacementHeuristic
from agents.heuristics.spaces import SPACE_HEURISTICS, SpaceHeuristic
from packing_env.core.scores import Placements, Score

__all__ = [
    "HEURISTICS",
    "ITEM_ORDERS",
    "SPACE_HEURISTICS",
    "CandidateHeuristic",
    "Heuristic",
    "PlacementHeuristic",
    "Placements",
    "Score",
    "SpaceHeuristic",
    "build",
]
