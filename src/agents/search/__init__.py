"""Search on top of any policy: placements are tried on copies of the state with redrawn items.

:class:`Lookahead` compares the proposals of a heuristic, a value or a network by play-outs.
``agent=search agent.base=...`` builds it with :func:`build`.
"""

from agents.search.build import build
from agents.search.lookahead import Budget, Lookahead
from agents.search.simulator import Simulator

__all__ = ["Budget", "Lookahead", "Simulator", "build"]
