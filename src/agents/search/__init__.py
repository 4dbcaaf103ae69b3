"""Search on top of any policy: placements are tried on copies of the state.

:class:`Lookahead` compares the proposals of a heuristic, a value or a network by play-outs with
redrawn items; ``agent=search agent.base=...`` builds it with :func:`build`. :class:`Beam` plans the
known items; ``agent=beam agent.base=...`` builds it with :func:`build_beam`.
"""

from agents.search.beam import Beam
from agents.search.build import build, build_beam
from agents.search.lookahead import Budget, Lookahead
from agents.search.simulator import Simulator

__all__ = ["Beam", "Budget", "Lookahead", "Simulator", "build", "build_beam"]
