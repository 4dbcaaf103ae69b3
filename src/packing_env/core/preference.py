"""Preferences: if an item has preferred placements, only these stay legal; otherwise all do.

With a strict stability rule fewer items are packed, because an item without a legal placement ends
the episode. A lenient rule also allows placements that the strict rule refuses. A preference
selects the better placements, if there are any. A preference is an option of
:class:`packing_env.types.PackingParams`, and :data:`PREFERENCES` lists all of them. No other code
in `core` or in the engines names a single preference. :class:`packing_env.reference.Episode`
specifies them in plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core import stability
from packing_env.core.ground import Maps
from packing_env.core.lists import any_from
from packing_env.core.orientation import surfaces
from packing_env.core.stability import Contact
from packing_env.kernels.stability_rules import LADDER, MARGINS, margin
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, ParameterError


@dataclass(frozen=True)
class Preference:
    """A preference of placements.

    Attributes:
        restrict: Function of three arguments: the contact of all placements ``[B, L R, Xs, Ys]``,
            the placements that all other rules allow ``[B, L, R, Xs, Ys]``, and the task. It
            returns the placements that stay legal.
        check: Raises ParameterError if the option's value is impossible.
        by_place: False if the preferred placements on an empty floor are the same at every x and y.
            Only then may one corner represent the whole floor, and only then do compiled steps
            support it.
    """

    restrict: Callable[[Contact, Tensor, PackingParams], Tensor]
    check: Callable[[PackingParams], None]
    by_place: bool = True


# ------------------------------------------------------------------ the preferences


def strictest(
    contact: Contact, legal: Bool[Tensor, "B L R Xs Ys"], rules: Sequence[str]
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return each item's placements by the strictest rule that allows one; all if none does.

    Args:
        contact: The contact of all placements.
        legal: Placements that all other rules allow.
        rules: Names of stability rules, from the least strict to the strictest.
    """
    # Begin with the strictest rule. If a rule allows some placement of an item, no later rule
    # applies to this item.
    preferred = undecided = legal
    for rule in reversed(rules):
        z = torch.where(undecided.flatten(1, 2), contact.z, torch.inf)
        stable = undecided & stability.judge_maps(rule, replace(contact, z=z)).view(legal.shape)
        settled = any_from(stable, 2)[..., None, None, None]
        preferred = torch.where(settled, stable, preferred)
        undecided = undecided & ~settled
    return preferred


def _check_surest(params: PackingParams) -> None:
    for name in params.surest:
        stability.check_rule(name, params, "surest")
        if name in PILE_RULES_ON_MAPS:
            raise ParameterError(
                f"surest={list(params.surest)}: {name!r} reads the packed cuboids, which surest "
                "does not support; use com_hull_20, or set stability to this rule"
            )


PREFERENCES: dict[str, Preference] = {
    "surest": Preference(
        restrict=lambda contact, legal, params: strictest(contact, legal, params.surest),
        check=_check_surest,
        by_place=False,
    ),
}
"""The preferences by the name of their option, in the order in which they are applied."""


# ------------------------------------------------------------------ the preferences of a task


def active(params: PackingParams) -> list[str]:
    """Return the names of the preferences that a task uses."""
    return [name for name in PREFERENCES if getattr(params, name)]


def by_place(params: PackingParams) -> bool:
    """Return whether a preference of the task may depend on the place, even on an empty floor."""
    return any(PREFERENCES[name].by_place for name in active(params))


def check(params: PackingParams) -> None:
    """Raise ParameterError if the task cannot use its preferences."""
    for name in active(params):
        if params.geometry != "maps":
            raise ParameterError(f"{name}={getattr(params, name)} needs geometry='maps'")
        PREFERENCES[name].check(params)


def restrict(
    contact: Contact, legal: Bool[Tensor, "B L R Xs Ys"], params: PackingParams
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return the placements that stay legal under all preferences of a task."""
    for name in active(params):
        legal = PREFERENCES[name].restrict(contact, legal, params)
    return legal


def among(
    maps: Maps,
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Apply :func:`restrict` to the placements of items on a heightmap."""
    if not active(params):
        return maps.legal
    below, z = surfaces(item_id, there, catalogue), maps.z.flatten(1, 2)
    contact = stability.contact_of(below, heightmap, z, item_id, catalogue, params)
    return restrict(contact, maps.legal, params)


# ------------------------------------------------------------------ margins, for engines


def ladder(params: PackingParams) -> tuple[str, ...]:
    """Return the rules of :data:`LADDER` if they alone decide what is stable and preferred.

    The strictest rule comes first. The task's own rule comes last; every other rule implies it. So
    a single search for hulls, with one margin per rule (:func:`tiers`), finds the legal placements
    of an item. The result is empty if the task has other rules or preferences.
    """
    # Each rule of the ladder implies those before it, so the task's own rule must come first.
    rules = (*reversed(params.surest), params.stability)
    if active(params) != ["surest"] or not set(rules) <= set(LADDER):
        return ()
    own_is_mildest = min(map(LADDER.index, rules)) == LADDER.index(params.stability)
    return rules if own_is_mildest else ()


def tiers(size: Int[Tensor, "*rows 2"], rules: Sequence[str]) -> Int[Tensor, "*rows tiers 2"]:
    """Return the margin of each rule of the :data:`LADDER`, in 1/64 cell.

    Args:
        size: Cells of the items' windows.
        rules: The rules that :func:`ladder` returned.
    """
    # The least strict rule has no margin: the centre of mass may be on the boundary of the hull.
    percents = [MARGINS.get(rule) for rule in rules]
    margins = [torch.zeros_like(size) if p is None else margin(size, p) for p in percents]
    return torch.stack(margins, -2)
