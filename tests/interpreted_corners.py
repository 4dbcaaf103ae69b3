"""Complete loads with interpreted kernels, and judge every block in every way.

Run with NUMBA_DISABLE_JIT=1 by `test_loading.py`. What a corner refuses must not be allowed, and a
block must be judged equally against the boxes near its space and against all boxes.
"""

from __future__ import annotations

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np

from packing_env.kernels.loading import (
    blocks_numba,
    corners_numba,
    rules_numba,
    spaces_numba,
    tables_numba,
)
from packing_env.kernels.loading import numba as loads
from packing_env.plan.loading.problem import BoxType, LoadRules, Problem
from packing_env.plan.loading.search import Search

RULES = {
    "hull": LoadRules("com_hull"),
    "support": LoadRules(support=0.7, gap=1),
    "load": LoadRules("com_hull", max_load=True, no_stacking=True, weight_limit=40_000),
    "rear": LoadRules("com_hull", door="rear", lifo=True),
    "side": LoadRules(support=1.0, door="side", fragile="top"),
    "pallet": LoadRules("com_hull", overhang=(3, 3)),
    "cut": LoadRules("com_hull", cuts=((0, True, 12, 2, True, 12),)),
    "balance": LoadRules("com_hull", balance=0.1, walls=1),
}


def random_boxes(number: int) -> list[BoxType]:
    draw = random.Random(number)
    types = []
    for _ in range(number):
        sides = [draw.randint(4, 14) for _ in range(3)]
        types.append(
            BoxType(
                sorted(set(permutations(sides))),
                count=2,
                weight=math.prod(sides),
                max_load=draw.randint(0, 3000),
                stackable=draw.random() < 0.8,
                fragile=draw.random() < 0.3,
                group=draw.randint(0, 2),
            )
        )
    return types


class Judge:
    """Stands in for three kernels, and compares their answers with a judgement by all boxes."""

    def __init__(self, problem: Any, low: np.ndarray) -> None:
        self.problem, self.low = problem, low
        self.compared = 0
        self.may_stand, self.observe, self.is_allowed = (
            loads.may_stand,
            loads.observe,
            loads.is_allowed,
        )

    def observe_corner(self, space: Any, corner: int, rules: Any, pile: Any) -> bool:
        may = self.observe(space, corner, rules, pile)
        for block in self.problem.room.order if not may else ():
            sides = self.problem.blocks.sides[block]
            if loads._fits(sides, space):
                assert loads.enter_corner(self.problem, sides, space, corner, self.low)
                assert not self.by_all(block, pile)
                self.compared += 1
        return bool(may)

    def judge_limits(self, block: int, problem: Any, pile: Any) -> bool:
        may = self.may_stand(block, problem, pile)
        if not may:
            assert not self.by_all(block, pile)
            self.compared += 1
        return bool(may)

    def judge_block(self, block: int, low: Any, problem: Any, pile: Any) -> bool:
        allowed = self.is_allowed(block, low, problem, pile)
        assert allowed == self.by_all(block, pile)
        return bool(allowed)

    def by_all(self, block: int, pile: Any) -> bool:
        """Judge a block against all boxes of the load."""
        near, number = pile.near.copy(), pile.num_near.copy()
        pile.num_near[0] = pile.size[0]
        pile.near[: pile.size[0]] = np.arange(pile.size[0])
        allowed = self.is_allowed(block, self.low, self.problem, pile)
        pile.near[:], pile.num_near[:] = near, number
        return bool(allowed)


def new_memory(search: Search) -> tuple[Any, Any, Any]:
    """Return the memory of a search as arrays, which interpreted kernels read."""
    scratch, *tables = search._new_memory(1)
    pile, cutting = (type(table)(*map(np.asarray, table)) for table in tables)
    return scratch, pile, cutting


def complete(rules: LoadRules, types: list[BoxType]) -> int:
    """Complete one load; return the number of refusals in corners."""
    with ThreadPoolExecutor(1) as pool:
        search = Search(Problem((60, 40, 30), types, rules), pool, 1, math.inf)
    problem: Any = search._loading
    scratch, pile, _ = memory = new_memory(search)
    scratch.spaces[0] = 0, 0, 0, *problem.room.container, 1
    scratch.left[:], scratch.active[:] = search._counts, problem.room.order
    judge = Judge(problem, scratch.low)
    loads.may_stand, loads.observe, loads.is_allowed = (
        judge.judge_limits,
        judge.observe_corner,
        judge.judge_block,
    )
    loads.refill(pile, problem, scratch.placed, 0)
    number, _ = loads._complete(
        problem,
        (scratch.active, len(problem.room.order)),
        (scratch.spaces, 1),
        (scratch.placed, 0),
        scratch.left,
        memory,
        np.zeros(1, np.int8),
    )
    assert number > 20
    loads.may_stand, loads.observe, loads.is_allowed = (
        judge.may_stand,
        judge.observe,
        judge.is_allowed,
    )
    return judge.compared


def join_below_an_overhang() -> None:
    """Of two joined boxes, the one in the corner ends before a pre-placed box that overhangs."""
    types = [BoxType([(50, 49, 50)], 1), BoxType([(50, 50, 50)], 1)]
    before = (50, 90, 0, 100, 100, 50), (50, 89, 50, 100, 100, 60)
    tables_numba.table_of = blocks_numba.as_blocks = lambda given: given
    with ThreadPoolExecutor(1) as pool:
        search = Search(
            Problem((100, 100, 100), types, LoadRules("com_hull", before=before)), pool, 1, math.inf
        )
        search._join()
    problem: Any = search._loading
    scratch, pile, _ = new_memory(search)
    rules_numba.enter_before(pile, problem)
    space, low = np.array([0, 0, 0, 100, 90, 100, 1]), scratch.low
    # Both boxes are beside each other in one block. Alone, each box meets the overhanging box.
    beside = problem.blocks.sides.tolist().index([100, 50, 50])
    assert corners_numba.observe(space, 0b011, problem.rules, pile)
    allowed = []
    for block in (0, 1, beside):
        assert spaces_numba.enter_corner(problem, problem.blocks.sides[block], space, 0b011, low)
        may = corners_numba.may_stand(block, problem, pile)
        allowed.append((bool(may), bool(loads.is_allowed(block, low, problem, pile))))
    assert allowed == [(False, False), (False, False), (True, True)]


if __name__ == "__main__":
    join_below_an_overhang()
    boxes = random_boxes(32)
    print(json.dumps({name: complete(rules, boxes) for name, rules in RULES.items()}))
