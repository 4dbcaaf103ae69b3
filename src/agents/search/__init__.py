"""Search on top of any policy: placements are tried on copies of the state.

:class:`Lookahead` compares the proposals of a heuristic, a value or a network by play-outs with
redrawn items; ``agent=search agent.base=...`` builds it with :func:`build`. :class:`Beam` plans the
known items; ``agent=beam agent.base=...`` builds it with :func:`build_beam`. :class:`Finalists`
simulates placements in MuJoCo before it plays them; ``agent=finalists`` builds it with
:func:`build_finalists`.
"""

from agents.search.beam import Beam
from agents.search.build import build, build_beam, build_finalists
from agents.search.finalists import Finalists
from agents.search.lookahead import Budget, Lookahead
from agents.search.simulator import Simulator

__all__ = [
    "Beam",
    "Budget",
    "Finalists",
    "Lookahead",
    "Simulator",
    "build",
    "build_beam",
    "build_finalists",
]
