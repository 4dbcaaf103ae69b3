"""The preference for placements that are surest to stand: ``surest`` of a task.

A strict stability rule packs little, because an item without a legal placement ends the episode; a
lenient one offers placements that do not stand beside others that do. With ``surest``, of each
visible item, those of its placements that are legal by all else remain that the last of some
stricter rules calls stable; if there is none, those of the rule before it, and so on; if no rule
has any, all. In plain loops: :meth:`packing_env.reference.Episode.surest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core import stability
from packing_env.core.orientation import surfaces
from packing_env.kernels.stability_rules import LADDER
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, ParameterError

Judge = Callable[[str, Tensor], Tensor]
"""From a rule's name, and rest heights ``[B, L, R, Xs, Ys]`` that are +inf where a placement need
not be judged, to the placements that are stable."""


def is_ladder(params: PackingParams) -> bool:
    """Return whether all rules are of the ``LADDER``, and none less strict than ``stability``."""
    rules = (params.stability, *params.surest)
    if not set(rules) <= set(LADDER):
        return False
    return min(map(LADDER.index, rules)) == LADDER.index(params.stability)


def applies(params: PackingParams) -> bool:
    """Return whether a task prefers some placements."""
    return bool(params.surest)


def check_rules(params: PackingParams) -> None:
    """Refuse preferred rules that are unknown, or that the task's geometry cannot evaluate."""
    for name in params.surest:
        stability.check_rule(name, params, "surest")
        if name in PILE_RULES_ON_MAPS:
            raise ParameterError(
                f"surest={list(params.surest)}: {name!r} reads the packed cuboids; use it as "
                "stability, or rules of the ground below an item, such as com_hull_20"
            )


def restrict(
    z: Float[Tensor, "B L R Xs Ys"],
    legal: Bool[Tensor, "B L R Xs Ys"],
    judge: Judge,
    rules: Sequence[str],
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return the placements of each item by the strictest rule that has any, else all.

    Args:
        z: Rest heights.
        legal: Placements that are legal by all else.
        judge: Judges them.
        rules: Names of rules, the least strict first.
    """
    # The strictest rule first. Once a rule leaves an item a placement, no other judges that item.
    preferred = undecided = legal
    for rule in reversed(rules):
        stable = undecided & judge(rule, torch.where(undecided, z, torch.inf))
        settled = stable.flatten(2).any(2)[..., None, None, None]
        preferred = torch.where(settled, stable, preferred)
        undecided = undecided & ~settled
    return preferred


def among(
    z: Float[Tensor, "B L R Xs Ys"],
    legal: Bool[Tensor, "B L R Xs Ys"],
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return :func:`restrict` of the placements of items on a heightmap, by a task's rules."""
    if not applies(params):
        return legal
    bottom, which, size = surfaces(item_id, there, catalogue)
    com, window = (catalogue[key][item_id].flatten(1, 2) for key in ("com", "size"))
    tail = (com, params.tolerance, params.grid_step, window, which, size)

    def judge(rule: str, judged: Tensor) -> Tensor:
        contact = stability.Contact(heightmap, bottom, judged.flatten(1, 2), *tail)
        return stability.judge_maps(rule, contact).view(judged.shape)

    return restrict(z, legal, judge, params.surest)
