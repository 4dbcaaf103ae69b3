"""The heuristics by name, and how to build one for an environment.

**By score**, for items of any shape: the legal placement with the lowest score is chosen
(:mod:`packing_env.core.scores` defines the scores, their units and ties).

| name | score |
|---|---|
| ``random_legal`` | a uniformly random legal action |
| ``first_fit`` | none: the first in the order of ties |
| ``lowest_z`` | ``100 z`` |
| ``deepest_bottom_left`` | ``x + y + 100 z`` |
| ``heightmap_minimization`` | ``x + y + 100 sum(new heightmap)`` |

**By the list**, in ``candidate`` mode: ``first_listed`` chooses the first entry, which is the
choice of the task's candidate generator. It has no ``item_order``.

**By empty maximal spaces**, for cuboids, in tasks that keep them (``num_spaces=E``):
``online_bph``, ``lsah``, ``br``, ``best_fit`` of :mod:`agents.heuristics.spaces`.

**Items.** ``item_order`` (:data:`ITEM_ORDERS`) chooses one of the visible items that have a legal
placement, before placements are scored; ``None`` scores the placements of all items.

**Inputs.** In ``placement`` and ``multi_head`` mode, the heuristics by score read the TensorDict
and the catalogue. So they work in any TorchRL loop and on stored observations. In ``candidate``
mode they also read the orientations from ``env.state["candidate"]``. In ``hierarchical`` and
``continuous`` mode, which have no mask of all placements, they read ``env.state``. The heuristics
by spaces read ``env.state`` in all modes. A heuristic that reads the state acts only in the
environment for which it was built. Nothing is copied to the host.

**Actions.** In ``candidate`` mode, heuristics choose among the proposals of the task's generator.
In every other mode they choose among all placements of the lattice, and write the chosen placement
as an action of that mode.

To add a heuristic, write a function from :class:`~packing_env.core.scores.Placements` to scores and
put it into :data:`HEURISTICS`.
"""

from __future__ import annotations

from agents.heuristics.base import ITEM_ORDERS, Heuristic
from agents.heuristics.scored import CandidateHeuristic, FirstListed, PlacementHeuristic
from agents.heuristics.spaces import SPACE_HEURISTICS, SpaceHeuristic
from packing_env import PackingEnv
from packing_env.core import scores
from packing_env.core.actions import CandidateMode, LatticeMode
from packing_env.envs.checks import check_env
from packing_env.types import ParameterError
from packing_env.values import check_choice

HEURISTICS: dict[str, scores.Score | None] = {
    "random_legal": None,
    "first_fit": scores.first_fit,
    "deepest_bottom_left": scores.deepest_bottom_left,
    "lowest_z": scores.lowest_z,
    "heightmap_minimization": scores.heightmap_minimization,
}
"""Score of each heuristic, by name; None draws a random legal action."""
FIRST_LISTED = "first_listed"
"""Name of the heuristic that chooses the first candidate."""


def build(
    name: str,
    env: PackingEnv,
    item_order: str | None = None,
    *,
    fallback: bool = True,
) -> Heuristic:
    """Build a heuristic for one environment's task.

    Args:
        name: Key of :data:`HEURISTICS` or :data:`SPACE_HEURISTICS`, or :data:`FIRST_LISTED`.
        env: The environment.
        item_order: Key of :data:`ITEM_ORDERS`; None leaves the choice of the item to the score.
        fallback: For :data:`SPACE_HEURISTICS`, if no proposal is legal: True chooses the first
            legal action. False writes -1, which ends the episode (with
            ``illegal_action="terminate"``), as in published programs.

    Raises:
        ParameterError: The name is unknown, or the environment does not provide an entry that the
            heuristic reads.
    """
    check_env(env)
    check_choice("heuristic", name, {*HEURISTICS, *SPACE_HEURISTICS, FIRST_LISTED})
    if item_order is not None:
        check_choice("item_order", item_order, ITEM_ORDERS)
    if name == FIRST_LISTED:
        if item_order is not None or not isinstance(env.mode, CandidateMode):
            raise ParameterError(
                f"heuristic={name} needs action_mode='candidate' and item_order=null; the task has "
                f"action_mode={env.params.action_mode!r}, item_order={item_order!r}"
            )
        return FirstListed(env)
    if name in SPACE_HEURISTICS:
        return SpaceHeuristic(name, env, item_order, fallback=fallback)
    if isinstance(env.mode, CandidateMode):
        return CandidateHeuristic(HEURISTICS[name], env, item_order)
    if isinstance(env.mode, LatticeMode):
        return PlacementHeuristic(HEURISTICS[name], env, item_order)
    raise ParameterError(
        "heuristics choose among candidates or among placements of the lattice; "
        f"action_mode={env.params.action_mode!r} offers neither"
    )
