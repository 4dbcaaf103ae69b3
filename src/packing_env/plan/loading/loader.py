"""Container loading of known boxes in any order, by a beam search over blocks of boxes.

Blocks of equal or matching boxes fill the maximal empty cuboids of the container from its corners.
A greedy completion judges each step of a beam, and the width of the beam doubles until the time is
over (Araya and Riff, Computers & Operations Research 2014; rank of blocks: Araya, Guerrero and
Nunez, European Journal of Operational Research 2017).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

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
from packing_env.types import ParameterError, check_integer, check_number

_LOGGER = logging.getLogger("packing_env.plan.loading")
_PLACES = 0.1
"""Time to find places for left-over boxes after a search, as a share of the time of the search."""


def load_boxes(
    container: Sides,
    types: Iterable[BoxType],
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
            time is up. A search that ends at its largest width gives the same load on every
            machine.
        threads: Number of threads of the compiled search; None uses torch's number.
        rules: Additional rules for every box of the load.

    Raises:
        ParameterError: An option is wrong, or more than 10 million boxes may fit.
        MissingPackageError: numba is not installed.
    """
    types, rules = list(types), rules or LoadRules()
    check_problem(container, types, rules)
    loader = Loader(container, types, rules=rules, threads=threads)
    check_number("seconds", seconds, above=0.0)
    if loader.is_empty:
        _LOGGER.warning("the load is empty: no box fits into container=%s", tuple(container))
        return []
    compile_kernels()
    boxes = loader.run(seconds, width)
    if loader.interrupted:
        _LOGGER.warning("interrupted: the load is the best so far")
    return boxes


class Loader:
    """A single search for a load; its arguments are those of :func:`load_boxes`. Counts may be 0.

    Attributes:
        is_empty: True if no box fits into the container.
        interrupted: True if Ctrl-C ended the search.
        tried: Number of compared loads.
        progress: Called at every better load with the filled share of the container; not to be used
            if boxes have values.
        bound: Volume that no load exceeds; valid once :meth:`run` has begun.
    """

    def __init__(
        self,
        container: Sides,
        types: Sequence[BoxType],
        *,
        rules: LoadRules | None = None,
        threads: int | None = None,
    ) -> None:
        self._threads = torch.get_num_threads() if threads is None else threads
        check_integer("threads", self._threads, 1)
        self._problem = Problem(container, types, rules)
        self.is_empty = not self._problem.orientations
        self.interrupted, self.tried = False, 0
        self.progress: Callable[[float], None] | None = None
        self.bound = 0.0

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
            self.bound = self._problem.whole
            try:
                search.run(width or WIDEST)
            except KeyboardInterrupt:
                if search.best < 0:
                    raise
                self.interrupted = True
            self.tried = search.tried
            boxes = search.boxes()
            spare = 0.0 if self.interrupted else _PLACES * seconds
            return self._problem.loaded(fill_places(self._problem, boxes, spare))
