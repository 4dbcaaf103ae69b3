"""Published protocols, played by this program: ``packing validate``.

Each :class:`Protocol` is one cell of a published table: the setting, the heuristic, what the paper
prints, and the window within which our mean must lie. Windows are three standard errors at the
protocol's number of instances plus 0.6 points for details that the papers leave open; none was
moved after looking. A protocol without a window is reported beside the others and judges nothing.

The published program of Zhao et al. (ICLR 2022) lets the lower corner range over where the
*unrotated* item fits, in its heightmap minimization, its deepest-bottom-left and its random policy,
and other papers ran that program: ``candidate_range="pct"`` reproduces it, and the value without it
is printed beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from agents import heuristics
from agents.evaluate import LINE, Estimate, Evaluation, evaluate, paired_difference
from packing_env import make_env

GOPT = "Xiong et al., RA-L 2024, Table I"
PCT = "Zhao et al., ICLR 2022, Table 3"
PCT_RUN = "that program, run by us (N = 80, 150)"
AAAI = "Zhao et al., AAAI 2021, Table 2"
RULES = ("area_corners_code", "center_hull", "com_hull", "none")
"""The order in which V5 expects the utilization to rise (the middle pair is only reported)."""


@dataclass(frozen=True)
class Window:
    """Acceptance: ``|ours - centre| <= half_width``."""

    centre: float
    half_width: float

    def holds(self, value: float) -> bool:
        """Whether a value lies inside."""
        return abs(value - self.centre) <= self.half_width

    def __str__(self) -> str:
        return f"{self.centre:g}±{self.half_width:g}"


@dataclass(frozen=True)
class Protocol:
    """One published cell.

    Attributes:
        name: V1, V2, ...
        setting: In words.
        task: Preset.
        options: Overrides of the preset.
        heuristic: In ``agents.heuristics``.
        instances: N.
        published: What the source prints, by measure (shares of 1, items).
        source: Paper and table.
        windows: By measure: ``utilization``, ``items``, ``spread`` (standard deviation of the
            utilization over instances).
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


@dataclass(frozen=True)
class Result:
    """What we measured on one protocol and seed.

    Attributes:
        protocol: What was played.
        seed: Of the instances.
        utilization: Mean and half-width of the 95 % interval, shares of 1.
        items: Likewise.
        spread: Standard deviation of the utilization over instances.
        overflow: Proposals dropped for lack of capacity, summed over all episodes.
        seconds: Wall time.
    """

    protocol: Protocol
    seed: int
    utilization: Estimate
    items: Estimate
    spread: float
    overflow: int
    seconds: float

    def value(self, measure: str) -> float:
        """The measured value that a window judges."""
        return self.spread if measure == "spread" else getattr(self, measure).mean

    @property
    def passed(self) -> bool | None:
        """Whether every window holds; None where there is none."""
        if not self.protocol.windows:
            return None
        held = [window.holds(self.value(name)) for name, window in self.protocol.windows.items()]
        return all(held) and self.overflow == 0

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        found = asdict(self)
        found["passed"] = self.passed
        return found


@dataclass(frozen=True)
class Ordering:
    """V5: paired differences between stability rules on the same instances.

    Attributes:
        seed: Of the instances.
        instances: N.
        lower: Rule that should pack less.
        higher: Rule that should pack more.
        difference: ``higher - lower`` in utilization, 95 % interval.
        judged: Whether it decides.
    """

    seed: int
    instances: int
    lower: str
    higher: str
    difference: Estimate
    judged: bool

    @property
    def passed(self) -> bool | None:
        """Whether the interval lies above 0."""
        if not self.judged:
            return None
        return self.difference.mean - self.difference.half_width > 0

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {**asdict(self), "passed": self.passed}


# ---------------------------------------------------------------------- the protocols

SPACES = {"num_spaces": 192}
S2: dict[str, Any] = {"candidate_fallback": False}
"""Six orientations, no stability rule: as the preset has it."""
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
"""Two orientations, stacking tree, heights out of five."""
LOOSE = {"candidate_generator": "split_space_drops"}
"""The first published program does not ask whether the item fits into the space it is put into."""


def _window(utilization: float, half: float, items: float, item_half: float) -> dict[str, Window]:
    return {"utilization": Window(utilization, half), "items": Window(items, item_half)}


def _continuous(
    name: str, setting: Mapping[str, Any], heuristic: str, cell: tuple[float, float], half: float
) -> Protocol:
    """A cell of PCT's Table 3; ``cell`` is the printed utilization and number of items."""
    utilization, items = cell
    windows = {"utilization": Window(utilization, half)}
    if name == "V3a":
        windows["items"] = Window(items, 0.8)
    return Protocol(
        name,
        "continuous S2" if name == "V3a" else "continuous S1, stacking tree",
        "cuboid_continuous",
        {**setting, **(LOOSE if heuristic == "online_bph" else {})},
        heuristic,
        300,
        {"utilization": utilization, "items": items},
        PCT,
        windows,
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
        _window(0.563, 0.020, 22.3, 0.8) | {"spread": Window(0.105, 0.015)},
    ),
    Protocol(
        "V1",
        "the same, all corners",
        "cuboid_online",
        {},
        "heightmap_minimization",
        500,
    ),
    Protocol(
        "V2",
        "RS-125, 2 yaws, centre hull",
        "cuboid_online",
        SPACES,
        "online_bph",
        1000,
        {"utilization": 0.516, "items": 20.5, "spread": 0.142},
        GOPT,
        _window(0.518, 0.015, 20.6, 0.6) | {"spread": Window(0.14, 0.012)},
    ),
    _continuous("V3a", S2, "lsah", (0.587, 22.8), 0.017),
    _continuous("V3a", S2, "online_bph", (0.461, 18.1), 0.016),
    _continuous("V3a", S2, "br", (0.453, 17.8), 0.016),
    _continuous("V3b", S1, "lsah", (0.483, 18.7), 0.022),
    _continuous("V3b", S1, "online_bph", (0.439, 17.2), 0.022),
    _continuous("V3b", S1, "br", (0.409, 16.1), 0.022),
)


def ordering_protocol(rule: str) -> Protocol:
    """V5 under one rule: OnlineBPH on RS-125."""
    return Protocol(
        "V5", f"RS-125, 2 yaws, {rule}", "cuboid_online", {**SPACES, "stability": rule},
        "online_bph", 2000,
    )  # fmt: skip


def random_protocols() -> tuple[Protocol, ...]:
    """V6: uniformly random feasible placements, discrete S1 and S2."""
    discrete = {
        "geometry": "boxes",
        "action_mode": "candidate",
        "candidate_generator": "all_placements",
        "candidate_range": "pct",
        "candidate_fallback": False,
        "observation": ("heightmap", "item_id", "item_features", "boxes"),
    }
    settings = (
        ("discrete S1, stacking tree", "yaw", "stacking_tree", 200, 0.370, 15.4),
        ("discrete S2", "cuboid", "none", 600, 0.390, 16.0),
    )
    return tuple(
        Protocol(
            "V6",
            words,
            "cuboid_online",
            discrete
            | {
                "orientations": poses,
                "stability": rule,
                "stability_metric": "none",
                "num_candidates": count,
            },
            "random_legal",
            200,
            {"utilization": utilization, "items": items},
            PCT_RUN,
        )
        for words, poses, rule, count, utilization, items in settings
    )


def more_protocols() -> tuple[Protocol, ...]:
    """``--full``: the other heuristics on RS-125, and the sequences of AAAI 2021 (V4)."""
    others = ("deepest_bottom_left", "lsah", "br", "macs", "best_fit", "first_fit", "random_legal")
    rs = [
        Protocol("RS", "RS-125, 2 yaws, centre hull", "cuboid_online", SPACES, name, 1000)
        for name in others
    ]
    sources: tuple[tuple[str, dict[str, Any], float, float], ...] = (
        ("RS", {"name": "uniform_cuboids", "low": 2, "high": 5}, 0.349, 0.354),
        ("CUT-1", {"name": "guillotine", "variant": "cut1", "low": 2, "high": 5}, 0.412, 0.519),
        ("CUT-2", {"name": "guillotine", "variant": "cut2", "low": 2, "high": 5}, 0.408, 0.492),
    )
    cut = [
        Protocol(
            "V4",
            f"{words}, sides 2 to 5, one orientation, corners by the code",
            "cuboid_online",
            SPACES
            | {"generator": source, "orientations": "none", "stability": "area_corners_code"},
            heuristic,
            2000,
            {"utilization": published},
            AAAI,
        )
        for words, source, br, bph in sources
        for heuristic, published in (("br", br), ("online_bph", bph))
    ]
    return (*rs, *cut)


# ---------------------------------------------------------------------- running them


def play(protocol: Protocol, seed: int) -> Evaluation:
    """Play the protocol's instances, all at once."""
    rows = protocol.instances
    env = make_env(
        protocol.task,
        num_envs=rows,
        seed=seed,
        pool_size=rows,
        draw="sequential",
        split="test",
        **protocol.options,
    )
    options = {} if protocol.heuristic in heuristics.HEURISTICS else {"fallback": False}
    return evaluate(env, heuristics.build(protocol.heuristic, env, **options), seed=seed)


def measure(protocol: Protocol, seed: int) -> tuple[Result, Evaluation]:
    """Play a protocol and take what its windows judge."""
    start = time.perf_counter()
    played = play(protocol, seed)
    result = Result(
        protocol,
        seed,
        played.estimate("utilization"),
        played.estimate("items_packed"),
        played.metrics["utilization"].std().item(),
        int(played.metrics["overflow"].sum()),
        time.perf_counter() - start,
    )
    return result, played


def run(
    seeds: Sequence[int],
    full: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[list[Result], list[Ordering]]:
    """All protocols for all seeds; ``report`` is told what is being played."""
    results: list[Result] = []
    orderings: list[Ordering] = []
    extra = (*random_protocols(), *(more_protocols() if full else ()))
    for seed in seeds:
        for protocol in (*PROTOCOLS, *extra):
            report(f"{protocol.name} {protocol.heuristic}: {protocol.setting} (seed {seed})")
            results.append(measure(protocol, seed)[0])
        played = {}
        for rule in RULES:
            report(f"V5 online_bph: {rule} (seed {seed})")
            result, played[rule] = measure(ordering_protocol(rule), seed)
            results.append(result)
        orderings += _orderings(seed, played)
    return results, orderings


def _orderings(seed: int, played: Mapping[str, Evaluation]) -> list[Ordering]:
    """Paired differences: corners < both hulls < none; between the hulls only reported."""
    pairs = (
        ("area_corners_code", "center_hull", True),
        ("area_corners_code", "com_hull", True),
        ("center_hull", "none", True),
        ("com_hull", "none", True),
        ("center_hull", "com_hull", False),
    )
    return [
        Ordering(
            seed,
            len(played[low]),
            low,
            high,
            paired_difference(played[high], played[low]),
            judged,
        )
        for low, high, judged in pairs
    ]


def passed(results: Iterable[Result], orderings: Iterable[Ordering]) -> bool:
    """Whether no window was missed."""
    return all(found.passed is not False for found in (*results, *orderings))


# ---------------------------------------------------------------------- showing them


def tables(results: Sequence[Result], orderings: Sequence[Ordering]) -> list[Table]:
    """Ours beside the paper's, and the paired differences of V5; 100 characters wide."""
    cells = Table(box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("", "setting", "policy"):
        cells.add_column(heading)
    for heading in ("seed", "utilization %", "paper", "accept", "items", "paper", "sd %"):
        cells.add_column(heading, justify="right", no_wrap=True)
    cells.add_column("")
    for result in results:
        protocol = result.protocol
        window = protocol.windows.get("utilization")
        cells.add_row(
            protocol.name,
            protocol.setting,
            protocol.heuristic,
            str(result.seed),
            f"{100 * result.utilization.mean:.1f}±{100 * result.utilization.half_width:.1f}",
            _printed(protocol, "utilization", 100),
            f"{100 * window.centre:.1f}±{100 * window.half_width:.1f}" if window else "",
            f"{result.items.mean:.1f}±{result.items.half_width:.1f}",
            _printed(protocol, "items", 1),
            f"{100 * result.spread:.1f}",
            VERDICT[result.passed],
        )
    pairs = Table(box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("V5: paired differences of utilization", "seed", "points", ""):
        pairs.add_column(heading, justify="right" if heading in ("seed", "points") else "left")
    for pair in orderings:
        difference = pair.difference
        pairs.add_row(
            f"{pair.higher} - {pair.lower}",
            str(pair.seed),
            f"{100 * difference.mean:+.2f}±{100 * difference.half_width:.2f}",
            VERDICT[pair.passed],
        )
    return [cells, pairs]


VERDICT = {True: "ok", False: "MISSED", None: ""}


def _printed(protocol: Protocol, measure: str, factor: float) -> str:
    value = protocol.published.get(measure)
    return "" if value is None else f"{factor * value:.1f}"
