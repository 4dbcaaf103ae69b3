"""Search on top of any policy: placements are tried on copies of the state.

:class:`Lookahead` compares the proposals of a heuristic, a value or a network by play-outs with
redrawn items (``agent=search agent.base=...``). :class:`Beam` plans the known items
(``agent=beam``). :class:`Finalists` simulates placements in MuJoCo before it plays them
(``agent=finalists``).
"""

from agents.search.beam import Beam
from agents.search.finalists import Finalists
from agents.search.lookahead import Budget, Lookahead
from agents.search.simulator import Simulator

__all__ = ["Beam", "Budget", "Finalists", "Lookahead", "Simulator"]
