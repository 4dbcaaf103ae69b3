"""Machine code, bytes and estimated time of the fused step, for `triton_kernels.py`.

The time is estimated for the preset `cuboid_online` from the machine code for sm_90. All code
counts once per row, including the start of an episode, although most rows do not reset. The loops
over the cells under an item have as many iterations as for the longest sides. Three times are
estimated per row and multiprocessor:

- issue: one instruction per cycle and scheduler;
- latency: a row is one warp, and as many warps are resident as the registers allow. Each
  instruction waits four cycles for the previous one. The first instruction that reads a register
  that is still being loaded waits for all loads. Loads in a loop come from the L1 cache, all others
  from memory;
- memory traffic: every byte of a row that is read or written, once.

The estimate is the sum of the three, as if none overlapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from triton_code import Code, Variant

from packing_env.kernels.cuboids.observe_triton import Seen, Tables
from packing_env.kernels.stability_rules import NAMES
from packing_env.kernels.step import triton as step
from packing_env.kernels.step.entries import Counts, Items, Lengths, State

ROWS, TARGET_MS = 65_536, 3.3
MULTIPROCESSORS, SCHEDULERS, CLOCK, BANDWIDTH = 132, 4, 1.98e9, 3.35e12
"""NVIDIA H100 SXM5: boost clock in Hz, bytes per second."""

REGISTERS, RESIDENT = 65_536, 32
"""Registers of a multiprocessor, and largest number of programs that it holds."""

IN_CACHE, IN_MEMORY, DEPENDENT = 35, 800, 4
"""Latency in cycles of a load from the L1 cache, a load from memory, and an instruction."""

SIDE = 5
"""Longest side of an item in `cuboid_online`, cells."""

_TYPES = {
    "*i64": "item_id num_items queue items_packed placement stable_items illegal_actions overflow"
    " step seed row episode com action",
    "*fp64": "volume support_sum reward_sum",
    "*i1": "packed terminated truncated orientation_mask on_floor mask done marked",
    "*i32": "size cuboid",
}
_TYPE = {name: kind for kind, names in _TYPES.items() for name in names.split()}


def row_types() -> dict[str, Any]:
    """Return the types of the kernels' arguments."""

    def each(names: type[Any]) -> Any:
        return names(*(_TYPE.get(name, "*fp32") for name in names._fields))

    return {
        **{name: _TYPE[name] for name in ("reward_sum", "action", "marked")},
        **{"state": each(State), "items": each(Items), "pool": ("*i64", "*i64")},
        **{"tables": Tables("*fp64", "*fp32"), "reward": "*fp32"},
        **dict.fromkeys(("seen", "start"), each(Seen)),
    }


def variants() -> Iterator[Variant]:
    """Yield the step of `cuboid_online`, with other rules, modes and buffers, and the reset."""
    for rule, metric, heads, visible, stride in (
        ("center_hull", "com_hull", 1, 1, 1),
        ("none", "com_hull", 4, 5, 1),
        ("area_corners", "area_corners_code", 1, 1, 2),
    ):
        numbers = (10, SIDE, SIDE, visible, NAMES.index(rule), NAMES.index(metric), stride)
        counts = Counts(*numbers, step_limit=150, illegal_ends=1, remaining=5, sequential=0,
                        ends_mask=1, metrics=11)  # fmt: skip
        sizes = step.Sizes(heads, 2, 150, visible, 10, 10, 7, 8)
        lengths = Lengths(1.0, 1.0, 100.0, 10.0, 10.000001, 0.0)
        constants = step.constants_of(counts, lengths, sizes, ("utilization",))
        said = f"{rule}, {metric}, {visible} visible, stride {stride}"
        yield Variant(step.step_kernel, constants, row_types(), said, step.OPTIONS)
    chosen = {name: constants[name] for name in ("TASK", "GRID")}
    yield Variant(step.reset_kernel, chosen, row_types(), said)


class Loop(NamedTuple):
    """A loop: its first instruction, the first one after it, and the loops directly inside it."""

    first: int
    stop: int
    inside: list[Any]


def loops_of(code: Code) -> list[Loop]:
    """Return the outermost loops, in the order of the code."""
    place = {address: i for i, (address, _) in enumerate(code.instructions)}
    loops = []
    for end, (address, text) in enumerate(code.instructions):
        target = re.search(r"\bBRA\b.*0x([0-9a-f]+)", text)
        if target and int(target[1], 16) < address:
            loops.append((place[int(target[1], 16)], end + 1))
    outermost: list[Loop] = []
    for first, stop in sorted(loops, key=lambda pair: (pair[0], -pair[1])):
        among = outermost
        while among and among[-1].stop >= stop:
            among = among[-1].inside
        among.append(Loop(first, stop, []))
    return outermost


class Work(NamedTuple):
    """Work of a warp for a row: instructions, waits for loads in loops, waits for other loads."""

    instructions: int
    in_loops: int
    elsewhere: int


def waits(texts: list[str]) -> int:
    """Count the instructions that read a register whose load is not complete yet."""
    under_way: set[int] = set()
    count = 0
    for text in texts:
        target, _, sources = text.partition(",")
        if under_way & {int(number) for number in re.findall(r"\bR(\d+)\b", sources)}:
            under_way, count = set(), count + 1
        load = re.search(r"\bLDG\.E(?:\.\w+)*? R(\d+)$", target)
        if load:
            words = 2 if ".64" in target else 4 if ".128" in target else 1
            under_way |= set(range(int(load[1]), int(load[1]) + words))
    return count + bool(under_way)


def work_of(code: Code, planes: int) -> Work:
    """Count the work of one row in the worst case; ``planes`` is the number of maps per step.

    A loop around loops over cells runs once per window row, and once more for the lines of a hull.
    The loop around such loops runs once per map. Of two loops over the cells of a window row, the
    first takes four cells at once.
    """
    texts = [text for _, text in code.instructions]

    def own(first: int, stop: int, inside: list[Loop]) -> list[str]:
        held = {i for loop in inside for i in range(loop.first, loop.stop)}
        return [texts[i] for i in range(first, stop) if i not in held]

    def within(loop: Loop, times: int) -> tuple[int, int]:
        own_texts = own(loop.first, loop.stop, loop.inside)
        size, waited = len(own_texts), waits(own_texts)
        for index, inner in enumerate(loop.inside):
            alone = len(loop.inside) == 1
            often = SIDE + 1 if inner.inside else SIDE if alone else (1, 3)[min(index, 1)]
            more = within(inner, often)
            size, waited = size + more[0], waited + more[1]
        return size * times, waited * times

    outermost = loops_of(code)
    straight = own(0, len(texts), outermost)
    instructions, in_loops = len(straight), 0
    for loop in outermost:
        deep = any(inner.inside for inner in loop.inside)
        fills = not loop.inside  # fills a record, 128 numbers at once
        found = within(loop, planes if deep else 2 if fills else SIDE + 1)
        instructions, in_loops = instructions + found[0], in_loops + found[1]
    return Work(instructions, in_loops, waits(straight))


def bytes_of_row(planes: int, cells: int, places: int) -> dict[str, int]:
    """Return the bytes of a row of `cuboid_online` that a step reads and writes."""
    observed = 4 * cells + planes * places * (4 + 1) + 4 * (7 + 8) + 8 + 3
    scalars = 8 * 16 + 2 + 8
    return {
        "read": 4 * cells + scalars + 8 + 8 + 8,
        "written": 2 * (observed + 4 * 11) + 4 * SIDE * SIDE + scalars + 32 + 4 + 4 + 1 + 4,
    }


def estimate(code: Code, planes: int = 2, cells: int = 100, places: int = 100) -> dict[str, Any]:
    """Return the estimated milliseconds of a step of all rows: issue, latency and traffic."""
    work = work_of(code, planes)
    moved = bytes_of_row(planes, cells, places)
    allocated = -(-code.registers // 8) * 8 * 32
    resident = min(RESIDENT, REGISTERS // allocated)
    rows = ROWS / MULTIPROCESSORS
    issue = rows * work.instructions / SCHEDULERS / CLOCK * 1e3
    cycles = work.in_loops * IN_CACHE + work.elsewhere * IN_MEMORY
    cycles += work.instructions * DEPENDENT
    latency = rows / resident * cycles / CLOCK * 1e3
    memory = ROWS * sum(moved.values()) / BANDWIDTH * 1e3
    return {
        "rows": ROWS,
        "work": work._asdict(),
        "bytes": moved,
        "resident_warps": resident,
        "issue_ms": round(issue, 2),
        "latency_ms": round(latency, 2),
        "memory_ms": round(memory, 2),
        "sum_ms": round(issue + latency + memory, 2),
        "target_ms": TARGET_MS,
    }
