"""Placement heuristics, batched, with the interface of a learned policy: ``build(name, env)``.

:mod:`agents.heuristics.registry` describes them all.
"""

from agents.heuristics.base import ITEM_ORDERS, Heuristic
from agents.heuristics.registry import HEURISTICS, SPACE_HEURISTICS, build
from agents.heuristics.scored import CandidateHeuristic, PlacementHeuristic
from agents.heuristics.spaces import SpaceHeuristic
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
