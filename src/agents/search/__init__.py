"""Search on top of any policy: try placements on copies of the state, with hidden items redrawn.

:class:`Lookahead` compares the proposals of a heuristic, of a value or of a network by play-outs;
``agent=search agent.base=...`` builds it with :func:`build`; :func:`trained` loads a policy.
"""

from agents.search.build import build, trained
from agents.search.lookahead import Budget, Lookahead
from agents.search.simulator import Simulator

__all__ = ["Budget", "Lookahead", "Simulator", "build", "trained"]
