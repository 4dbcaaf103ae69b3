"""The rules of `kernels.stability_rules`, compiled, by their index in `MAP_RULES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from packing_env.kernels import stability_rules as rules
from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.stability_rules import MARGINS, NAMES, RULES

NUM_LIMITS = 3
"""Number of limits that compiled code computes for every rule."""

_RULES = (*RULES.values(), *[RULES["com_hull"]] * len(MARGINS))

_COM_HULL, _NUM_FORMULAS = NAMES.index("com_hull"), len(NAMES)

PERCENTS = np.array(
    [[*rule.percents, *[100] * (NUM_LIMITS - len(rule.percents))] for rule in _RULES], np.int64
)
"""``PERCENTS[rule]``: the rule's shares; missing shares are 100, which no count exceeds."""

COUNTS = np.array([bool(rule.percents) for rule in _RULES])
"""``COUNTS[rule]``: whether the rule compares the count of supporting cells with shares."""

CORNERS = np.array([rule.corners is not None for rule in _RULES])
"""``CORNERS[rule]``: whether the rule counts corners."""

AT_HIGHEST = np.array([rule.corners == "highest" for rule in _RULES])
"""``AT_HIGHEST[rule]``: whether the rule counts corners at the level of the highest corner."""

HULLS = np.array([rule.hull is not None for rule in _RULES])
"""``HULLS[rule]``: whether the rule has a hull."""

CENTRES = np.array([rule.hull == "centres" for rule in _RULES])
"""``CENTRES[rule]``: whether the hull is around the cells' centres and the point is the window's
centre.
"""

MARGIN = np.array([*[-1] * len(RULES), *MARGINS.values()])
"""``MARGIN[rule]``: the rule's margin in percent, negative if it has none."""

limit = jit(rules.limit)
margin = jit(rules.margin)
chords_hold = jit(rules.chords_hold)


@jit
def limits(rule: Any, area: Any) -> Any:
    """Return the rule's shares of an area, rounded down."""
    percents = PERCENTS[rule]
    return limit(area, percents[0]), limit(area, percents[1]), limit(area, percents[2])


def _select(formulas: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """Return a function ``f(rule, support)`` that :func:`judge` calls and inlines."""
    *before, chosen = formulas
    last, formula = len(before), jit(chosen, inline="always")
    if not before:
        return jit(lambda rule, support: formula(support), inline="always")
    others = _select(tuple(before))

    def choose(rule: Any, support: Any) -> Any:
        return formula(support) if rule == last else others(rule, support)

    return jit(choose, inline="always")


_formulas = _select(tuple(rule.formula for rule in RULES.values()))


@jit
def judge(rule: Any, support: Any) -> Any:
    """Return whether the rule calls this placement stable."""
    return _formulas(_COM_HULL if rule >= _NUM_FORMULAS else rule, support)
