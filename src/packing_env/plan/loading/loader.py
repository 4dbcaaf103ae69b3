"""Container loading of known boxes in any order, by a beam search over blocks of boxes.

Blocks of equal or matching boxes fill the maximal empty cuboids of the container from its corners.
A greedy completion judges each step of a beam, and the width of the beam doubles until the time is
over (Araya and Riff, Computers & Operations Research 2014; rank of blocks: Araya, Guerrero and
Nunez, European Journal of Operational Research 2017).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from packing_env.core import feasibility, transition
from packing_env.core.orientation import Placement
from packing_env.plan.loading.places import fill_places
from packing_env.plan.loading.problem import (
    BoxType,
    LoadedBox,
    LoadRules,
    Problem,
    Sides,
    check_problem,
)
from packing_env.plan.loading.search import WIDEST, Search, compile_kernels
from packing_env.plan.packing import Packing, read_row, read_state
from packing_env.types import ParameterError, State, check_integer, check_number

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv

_LOGGER = logging.getLogger("packing_env.plan.loading")


def load_boxes(
    container: Sides,
    types: Sequence[BoxType],
    *,
    seconds: float = 30.0,
    width: int | None = None,
    threads: int | None = None,
    rules: LoadRules | None = None,
) -> list[LoadedBox]:
    """Return a load of large volume, in an order in which each box can be moved to its place.

    Every box stands on the floor or on another box; ``rules`` add conditions. Lengths are whole
    numbers of any unit. A first load is always completed; the following search improves it. Ctrl-C
    ends the search, and the best load so far is returned. ``KeyboardInterrupt`` is raised if there
    is no load yet, or while boxes are lowered.

    Args:
        container: Its sides.
        types: The boxes. Counts may exceed the number that fits.
        seconds: Time after which the best load so far is returned. Compilation (once per machine)
            does not count.
        width: Largest width of the beam, a power of two up to 4096; None widens the beam until the
            time is over. A search that ends at its largest width gives the same load on every
            machine.
        threads: Number of threads of the compiled search; None uses torch's number.
        rules: Additional rules for every box of the load.

    Raises:
        ParameterError: A side or count is not positive, more than 10 million boxes may fit, or
            numba is missing.
    """
    loader = Loader(container, types, rules=rules, threads=threads)
    check_number("seconds", seconds, above=0.0)
    if loader.is_empty:
        _LOGGER.warning("the load is empty: no box fits into container=%s", tuple(container))
        return []
    Loader.compile()
    boxes = loader.run(seconds, width)
    if loader.interrupted:
        _LOGGER.warning("interrupted: the load is the best so far")
    return boxes


class Loader:
    """A single search for a load.

    Attributes:
        is_empty: True if no box fits into the container.
        interrupted: True if Ctrl-C ended the search.
        tried: Number of compared loads.
        progress: Called at every better load with the filled share of the container.
        bound: Volume that no load exceeds; valid once :meth:`run` has begun.

    Args:
        container: See :func:`load_boxes`, also for the other arguments.
        types: See above.
        rules: See above.
        threads: See above.

    Raises:
        ParameterError: See :func:`load_boxes`.
    """

    def __init__(
        self,
        container: Sides,
        types: Sequence[BoxType],
        *,
        rules: LoadRules | None = None,
        threads: int | None = None,
    ) -> None:
        check_problem(container, types)
        self._threads = torch.get_num_threads() if threads is None else threads
        check_integer("threads", self._threads, 1)
        self._problem = Problem(container, types, rules)
        self.is_empty = not self._problem.orientations
        self.interrupted, self.tried = False, 0
        self.progress: Callable[[float], None] | None = None
        self.bound = 0.0

    @staticmethod
    def compile() -> None:
        """Compile the kernels (once per machine), so that no search waits for the compiler."""
        compile_kernels()

    def run(self, seconds: float, width: int | None = None) -> list[LoadedBox]:
        """Search, and return the boxes in the order of packing; always complete the first load.

        Raises:
            KeyboardInterrupt: There is no load yet.
        """
        if width is not None and check_integer("width", width, 1, WIDEST).bit_count() != 1:
            raise ParameterError(f"width={width} must be a power of two")
        with ThreadPoolExecutor(self._threads) as pool:
            search = Search(self._problem, pool, self._threads, seconds)
            search.progress = self.progress
            self.bound = self._problem.whole * float(math.prod(self._problem.unit))
            try:
                search.run(width or WIDEST)
            except KeyboardInterrupt:
                if search.best < 0:
                    raise
                self.interrupted = True
            self.tried = search.tried
            boxes = search.boxes()
            return self._problem.loaded(fill_places(self._problem, boxes))


def load_container(
    env: PackingEnv,
    row: int = 0,
    *,
    seconds: float = 30.0,
    width: int | None = None,
    threads: int | None = None,
) -> Packing:
    """Plan a row's container by :func:`load_boxes`, with all items known and in any order.

    Args:
        env: An environment of ``geometry="boxes"`` and ``stability="none"`` that has been reset;
            its state is not changed.
        row: See :func:`packing_env.plan.packing_of`.
        seconds: See :func:`load_boxes`, also for ``width`` and ``threads``.
        width: See above.
        threads: See above.

    Raises:
        ParameterError: The task has another geometry or rule, or numba is missing.
        PlanError: There is no such row.
    """
    params = env.params
    if params.geometry != "boxes" or params.stability != "none":
        raise ParameterError(
            "load_container supports geometry='boxes' and stability='none', not "
            f"{params.geometry!r} and {params.stability!r}"
        )

    # 1. Group the boxes of the instance by catalogue row.
    positions: dict[int, list[int]] = {}
    whole = read_row(env, row)
    for position, item in enumerate(whole["item_id"][: int(whole["num_items"])].tolist()):
        positions.setdefault(item, []).append(position)
    length, breadth = (round(side / params.pitch) for side in params.container[:2])
    container: Sides = (length, breadth, params.height_units)
    cuboids, real = env.catalogue.tensors()["cuboid"], env.catalogue.tensors()["orientation_mask"]
    indices = {item: real[item].nonzero().flatten().tolist() for item in positions}
    types = [
        BoxType([(x, y, z) for x, y, z in cuboids[item, indices[item]].tolist()], len(places))
        for item, places in positions.items()
    ]
    loaded = load_boxes(container, types, seconds=seconds, width=width, threads=threads)

    # 2. Play the loaded boxes in packing order, then the left-over boxes, as an episode.
    items = list(positions)
    boxes = [(indices[items[box.kind]][box.orientation], box) for box in loaded]
    order = [positions[items[box.kind]].pop() for box in loaded]
    rest = [place for places in positions.values() for place in places]
    return _carried_out(env, whole, boxes, order + rest)


def _carried_out(
    env: PackingEnv, row: State, boxes: list[tuple[int, LoadedBox]], order: list[int]
) -> Packing:
    """Place the boxes in an empty container by the rules of the environment."""
    params, items = env.params, env.catalogue.tensors()
    instance = {key: row[key][None] for key in ("item_id", "num_items", "seed", "row", "episode")}
    instance["item_id"] = instance["item_id"].clone()
    instance["item_id"][0, : len(order)] = row["item_id"][order]
    state = transition.begin(**instance, params=params)
    for orientation, box in boxes:
        x, y, _ = box.corner
        slot, which, left, front = torch.tensor([[0], [orientation], [x], [y]])
        placement = Placement(slot, which, left, front, torch.ones(1, dtype=torch.bool))
        legal = feasibility.judge(state, placement, items, params)
        if not bool(legal):
            raise RuntimeError(f"{box} is not legal in this environment")
        state, _ = transition.decide(state, placement, legal, items, params)
    return read_state({key: value[0] for key, value in state.items()}, env.catalogue, params)
