"""The protocols of ``packing validate``: cells of papers' tables, as settings of this program.

Each :class:`Protocol` is one cell of a published table: the setting, the heuristic, the printed
value, and the window for our mean. The half-width of a window is three standard errors at the
protocol's number of instances, plus 0.6 points for details that the papers do not state. No window
was changed after the first measurement. A protocol without a window is only reported.

Three policies of the published program of Zhao et al. (ICLR 2022) try only the lower corners at
which the *unrotated* item fits: heightmap minimization, deepest-bottom-left and random. Other
papers used that program. ``candidate_range="pct"`` reproduces this restriction; the value without
it is reported too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GOPT = "Xiong et al., RA-L 2024, Table I"
PCT = "Zhao et al., ICLR 2022, Table 3"
PCT_RUN = "the program of Zhao et al., ICLR 2022, run by us (N = 80, 150)"
AAAI = "Zhao et al., AAAI 2021, Table 2"


@dataclass(frozen=True)
class Window:
    """Acceptance window: ``|ours - centre| <= half_width``."""

    centre: float
    half_width: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies inside the window."""
        return abs(value - self.centre) <= self.half_width


@dataclass(frozen=True)
class Protocol:
    """One published cell.

    Attributes:
        name: V1, V2, ...
        setting: Description of the setting.
        task: Preset.
        options: Overrides of the preset.
        heuristic: Name in ``agents.heuristics``.
        instances: Number of instances, N.
        published: The published values by measure (shares of 1, items).
        source: Paper and table.
        windows: The windows by measure: ``utilization``, ``items`` and ``spread``, the standard
            deviation of the utilization over instances.
    """

    name: str
    setting: str
    task: str
    options: Mapping[str, Any]
    heuristic: str
    instances: int
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    windows: Mapping[str, Window] = field(default_factory=dict)


SPACES = {"num_spaces": 64}
S2: dict[str, Any] = {"candidate_fallback": False, "num_spaces": 96, "num_candidates": 256}
"""Six orientations, no stability rule: as in the preset."""
S1: dict[str, Any] = {
    **S2,
    "orientations": "yaw",
    "stability": "stacking_tree",
    "stability_metric": "none",
    "generator": {
        "name": "continuous_cuboids",
        "low": 0.1,
        "high": 0.5,
        "heights": [0.1, 0.2, 0.3, 0.4, 0.5],
    },
}
"""Two orientations, the stacking tree, heights from five values."""
LOOSE = {"candidate_generator": "split_space_drops"}
"""The published OnlineBPH does not check whether the item fits into the space."""


def _windows(**bounds: tuple[float, float]) -> dict[str, Window]:
    return {measure: Window(*bound) for measure, bound in bounds.items()}


def _continuous(
    name: str, setting: Mapping[str, Any], heuristic: str, cell: tuple[float, float], half: float
) -> Protocol:
    """Build a cell of PCT's Table 3; ``cell`` is the printed utilization and number of items."""
    utilization, items = cell
    judged = {"items": (items, 0.8)} if name == "V3a" else {}
    return Protocol(
        name,
        "continuous S2" if name == "V3a" else "continuous S1, stacking tree",
        "cuboid_continuous",
        {**setting, **(LOOSE if heuristic == "online_bph" else {})},
        heuristic,
        300,
        {"utilization": utilization, "items": items},
        PCT,
        _windows(utilization=(utilization, half), **judged),
    )


PROTOCOLS: tuple[Protocol, ...] = (
    Protocol(
        "V1",
        "RS-125, 2 yaws, centre hull, corners as published",
        "cuboid_online",
        {"candidate_range": "pct"},
        "heightmap_minimization",
        500,
        {"utilization": 0.565, "items": 22.1, "spread": 0.105},
        GOPT,
        _windows(utilization=(0.563, 0.020), items=(22.3, 0.8), spread=(0.105, 0.015)),
    ),
    Protocol("V1", "the same, all corners", "cuboid_online", {}, "heightmap_minimization", 500),
    Protocol(
        "V2",
        "RS-125, 2 yaws, centre hull",
        "cuboid_online",
        SPACES,
        "online_bph",
        1000,
        {"utilization": 0.516, "items": 20.5, "spread": 0.142},
        GOPT,
        _windows(utilization=(0.518, 0.015), items=(20.6, 0.6), spread=(0.14, 0.012)),
    ),
    _continuous("V3a", S2, "lsah", (0.587, 22.8), 0.017),
    _continuous("V3a", S2, "online_bph", (0.461, 18.1), 0.016),
    _continuous("V3a", S2, "br", (0.453, 17.8), 0.016),
    _continuous("V3b", S1, "lsah", (0.483, 18.7), 0.022),
    _continuous("V3b", S1, "online_bph", (0.439, 17.2), 0.022),
    _continuous("V3b", S1, "br", (0.409, 16.1), 0.022),
)


def random_protocols() -> tuple[Protocol, ...]:
    """Return V6: uniformly random legal placements in discrete S1 and S2."""
    discrete = {
        "geometry": "boxes",
        "action_mode": "candidate",
        "candidate_generator": "all_placements",
        "candidate_range": "pct",
        "candidate_fallback": False,
        "stability_metric": "none",
        "observation": ("heightmap", "item_id", "item_features", "boxes"),
    }
    s1 = {"orientations": "yaw", "stability": "stacking_tree", "num_candidates": 200}
    s2 = {"orientations": "cuboid", "stability": "none", "num_candidates": 600}
    settings = (
        ("discrete S1, stacking tree", s1, {"utilization": 0.370, "items": 15.4}),
        ("discrete S2", s2, {"utilization": 0.390, "items": 16.0}),
    )
    return tuple(
        Protocol("V6", words, "cuboid_online", discrete | own, "random_legal", 200, cell, PCT_RUN)
        for words, own, cell in settings
    )


def more_protocols() -> tuple[Protocol, ...]:
    """Return the protocols of ``--full``: other heuristics on RS-125, and V4 (AAAI 2021)."""
    others = (
        "deepest_bottom_left", "lsah", "br", "best_fit", "first_fit", "random_legal",
    )  # fmt: skip
    more = [
        Protocol("RS", "RS-125, 2 yaws, centre hull", "cuboid_online", SPACES, name, 1000)
        for name in others
    ]
    sources = (
        ("RS", {"name": "uniform_cuboids"}, {"br": 0.349, "online_bph": 0.354}),
        ("CUT-1", {"name": "guillotine", "variant": "cut1"}, {"br": 0.412, "online_bph": 0.519}),
        ("CUT-2", {"name": "guillotine", "variant": "cut2"}, {"br": 0.408, "online_bph": 0.492}),
    )
    for words, source, cells in sources:
        setting = f"{words}, sides 2 to 5, one orientation, corners by the code"
        options = SPACES | {
            "generator": {**source, "low": 2, "high": 5},
            "orientations": "none",
            "stability": "area_corners_code",
        }
        for heuristic, cell in cells.items():
            published = {"utilization": cell}
            more.append(
                Protocol("V4", setting, "cuboid_online", options, heuristic, 2000, published, AAAI)
            )
    return tuple(more)


def protocols(full: bool = False) -> tuple[Protocol, ...]:
    """Return all protocols."""
    return (*PROTOCOLS, *random_protocols(), *(more_protocols() if full else ()))
