"""Variants of the fused step on items of any shape, for `triton_kernels.py`."""

from __future__ import annotations

from collections.abc import Iterator

from triton_code import Variant
from triton_step import row_types

from packing_env.kernels.stability_rules import NAMES
from packing_env.kernels.step import heights_triton as heights
from packing_env.kernels.step import triton as step
from packing_env.kernels.step.entries import Counts, Lengths
from packing_env.kernels.step.maps_triton import WARPS
from packing_env.kernels.step.window_triton import window_of

_BETWEEN = heights.Between("*i1", "*i1", "*fp64", "*i64", "*i64", "*fp32", "*i64", "*i1")
_SHAPES = (
    ("irregular", "com_hull", (32, 32), 1, 24, (20, 20), 1),
    ("irregular_paper", "none", (200, 200), 20, 24, (70, 90), 4),
    ("center_hull", "center_hull", (40, 30), 2, 8, (130, 17), 3),
    ("area_corners_code", "area_corners_code", (50, 50), 1, 2, (9, 300), 2),
)
"""Name, rule, cells, visible items, orientations, cells of the window, lattice step."""


def variants() -> Iterator[Variant]:
    """Yield the kernels of presets, and of other rules and windows."""
    base = {**row_types(), "between": _BETWEEN, "under": "*fp64", "numbers": "*fp64"}
    base |= dict.fromkeys(("lid", "tolerance", "height"), "fp32")
    base |= {"heightmap": "*fp32", "areas": "*i32", "z": "*fp32", "stable": "*u8", "count": "*i32"}
    base |= {"mask": "*i1", "begun_mask": "*i1", "drop_height": "*fp32", "shown": "*i64"}
    base |= {"begun_drop_height": "*fp32", "tops": "*fp32", "bottoms": "*fp32"}
    for name, rule, cells, visible, orientations, window, stride in _SHAPES:
        numbers = (60, 5, 5, visible, NAMES.index(rule), NAMES.index("com_hull"), stride)
        counts = Counts(*numbers, step_limit=150, illegal_ends=1, remaining=5, sequential=0,
                        ends_mask=1, metrics=11)  # fmt: skip
        sizes = step.Sizes(1, orientations, 50, visible, *cells, 7, 4 * orientations)
        lengths = Lengths(0.01, 1e-4, 0.1, 0.3, 0.3, 0.01)
        constants = step.constants_of(counts, lengths, sizes, ("utilization", "height"))
        chosen = {key: constants[key] for key in ("TASK", "GRID")}
        shape = window_of(window)
        judged = {**chosen, "RULE": constants["RULE"], "FORMULA": constants["FORMULA"]}
        absent = (
            {} if constants["RULE"] and constants["RULE"].percents[0] < 100 else {"count": None}
        )
        yield Variant(heights.decide_kernel, {**constants, "WINDOW": shape}, base, name, WARPS)
        yield Variant(heights.judge_kernel, {**judged, **absent, "WINDOW": shape}, base, name)
        yield Variant(heights.finish_kernel, chosen, base, name, WARPS)
        maps = {"TASK": constants["TASK"], "WINDOW": shape}
        types = {**base, **dict.fromkeys(("seen", "start"), heights.Maps("*fp32", "*fp32"))}
        yield Variant(heights.item_maps_kernel, maps, types, name, WARPS)
