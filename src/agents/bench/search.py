"""Speed of packing as low as possible: search without maps, and maps of all placements."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import torch

from agents.bench.base import Benchmark, Job, LeftOut, Row, Rows, Session, at_least, check_choices
from agents.bench.measure.timing import TooLongError, percentiles
from agents.config import build
from packing_env.core.lowest import ORDERS, Found, LowestPlacement
from packing_env.plan import LowestPacker
from packing_env.types import State


@dataclass(kw_only=True)
class Search(Benchmark):
    """Speed of whole episodes with every item at its lowest legal placement, without observations.

    A decision consists of the choice (``choose_ms``: the search, or the maps and the choice among
    them) and of carrying it out, metrics and rewards included. Rates are of both together.
    ``measured`` and ``judged`` are placements per decision: those whose rest height was computed,
    and those to which the stability rule was applied.

    Args:
        rules: Stability rules.
        orders: Names in :data:`packing_env.core.lowest.ORDERS`.
        episodes: Number of episodes, each in all containers of the environment at once.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "decisions_per_second": "decisions/s",
        "decisions_per_cpu_second": "per CPU s",
        "choose_ms": "choose ms",
        "p95_ms": "p95 ms",
        "measured": "heights",
        "judged": "judged",
        "times_maps": "x maps",
        "same_placements": "same",
    }
    rules: Sequence[str]
    orders: Sequence[str]
    episodes: int

    def __post_init__(self) -> None:
        check_choices("bench.orders", self.orders, ORDERS)
        self.episodes = at_least(1, "episodes", self.episodes)

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per rule and order."""
        made = []
        for rule, order in product(self.rules, self.orders):
            case = {"preset": session.config.env.task, "rule": rule, "order": order}
            work = partial(self._rows, session, case)
            made.append(Job(case, work, f"rule {rule}, order {order}"))
        return made

    def _rows(self, session: Session, case: dict[str, Any]) -> Rows:
        """Measure the maps, then the search, which is compared with them."""
        config = session.variant(env__stability=case["rule"])
        env = build.build_env(config, draw="sequential")
        starts = []
        for _ in range(self.episodes):
            env.reset()
            starts.append(dict(env.get_state().items()))
        case = case | {"rows": env.batch_size.numel()}
        case["orientations"] = env.catalogue.num_orientations
        spent: dict[str, float] = {}
        packed: dict[str, list[State]] = {}
        for method in ("maps", "search"):
            here = case | {"method": method}
            maps = method == "maps"
            lowest = _Watched(env.catalogue.tensors(), env.params, case["order"], full_maps=maps)
            lowest.forget()
            if method == "search" and not lowest.searches:
                needs = "the search needs numba, a CPU and a stability rule that it supports"
                yield LeftOut(here, needs)
                continue
            work = partial(_pack, starts, LowestPacker(lowest))
            try:
                timing = session.clock.measure(work)
            except TooLongError as error:
                yield LeftOut(here, str(error))
                continue
            lowest.forget()
            packed[method] = work()
            decisions = sum(int(state["step"].sum()) for state in packed[method])
            spent[method] = timing.seconds(session.clock.device.type)
            values = timing.values() | {
                "decisions": decisions,
                "items_packed": sum(int(s["items_packed"].sum()) for s in packed[method]),
                "decisions_per_second": decisions / statistics.median(timing.wall),
                "decisions_per_cpu_second": decisions / timing.seconds(),
                **lowest.values(decisions),
            }
            if method == "search" and "maps" in spent:
                values["times_maps"] = spent["maps"] / spent["search"]
                values["same_placements"] = all(
                    torch.equal(a[key], b[key])  # bit for bit
                    for a, b in zip(*packed.values(), strict=True)
                    for key in ("items_packed", "placement", "placement_z", "heightmap")
                )
            yield Row(here, values)


class _Watched(LowestPlacement):
    """Search that times its choices and counts the placements it visits."""

    def forget(self) -> None:
        """Start with no counts and times."""
        self._milliseconds: list[float] = []
        self._measured = self._judged = 0

    def find(self, state: State, count: int = 1) -> Found:
        """Find placements and time it, also in the last call of an episode, which finds none."""
        clock = time.thread_time if torch.get_num_threads() == 1 else time.process_time
        start = clock()
        found = super().find(state, count)
        self._milliseconds.append(1e3 * (clock() - start))
        self._measured += int(found.measured.sum())
        self._judged += int(found.judged.sum())
        return found

    def values(self, decisions: int) -> dict[str, float]:
        """Return times per choice and counts per decision."""
        return {
            "choose_ms": statistics.fmean(self._milliseconds),
            **percentiles(self._milliseconds),
            "measured": self._measured / decisions,
            "judged": self._judged / decisions,
        }


def _pack(starts: Sequence[State], packer: LowestPacker) -> list[State]:
    """Return the final states of the episodes."""
    return [packer(state) for state in starts]
