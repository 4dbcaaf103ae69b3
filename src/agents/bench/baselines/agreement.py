"""Comparison of the rules with the unfold formulation: heights, legality, lowest place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agents.bench.base import using
from agents.bench.baselines.formulations import lowest, unfold_legal, unfold_map
from agents.bench.baselines.problems import Problem, random_problem, random_size
from packing_env.core import candidates, feasibility
from packing_env.types import PackingParams

CELL = 0.01
"""Metres."""


@dataclass
class Agreement:
    """Counts over random problems, one container of each.

    Attributes:
        cases: Problems.
        heights: Maps that differ in at least one bit.
        legality: Maps with a place that only one of the two calls legal.
        choices: Problems whose lowest places differ.
        none_legal: Problems without a legal place.
        ties: Problems with several lowest places.
    """

    cases: int = 0
    heights: int = 0
    legality: int = 0
    choices: int = 0
    none_legal: int = 0
    ties: int = 0

    @property
    def differences(self) -> int:
        """Differences of any kind."""
        return self.heights + self.legality + self.choices


def compare_with_unfold(
    backend: str, cases: int, seed: int, device: torch.device | str = "cpu"
) -> Agreement:
    """Compare the rules on a backend with the unfold formulation on random problems, rule ``none``.

    Every other problem, its lid included, is rounded to hundredths of a metre: then many places
    are equally low, and some items end exactly at the lid. Ties go to the lower index of
    orientation, then x, then y.
    """
    generator = torch.Generator().manual_seed(seed)
    found = Agreement()
    with using(backend):
        for case in range(cases):
            problem = random_problem(random_size(generator), generator, device)
            height = 0.2 + 0.3 * float(torch.rand((), generator=generator))
            if case % 2:
                rounded = [(100 * z).round() / 100 for z in (problem.heightmap, problem.bottom)]
                problem, height = Problem(problem.size, *rounded), round(height, 2)
            _compare(problem, height, found)
    return found


def _compare(problem: Problem, height: float, found: Agreement) -> None:
    """Add a problem's first container; each item's peak is 0.01 m above its highest bottom."""
    size = problem.size
    bottoms = [problem.cut(0, orientation) for orientation in range(len(size.footprints))]
    peaks = torch.stack([b.masked_fill(b.isinf(), 0.0).max() + 0.01 for b in bottoms])
    maps = _by_the_rules(problem, peaks, height)
    theirs, legal = [], []
    for bottom, peak, z, may in zip(bottoms, peaks, maps.z[0, 0], maps.legal[0, 0], strict=True):
        inside = unfold_map(problem.heightmap[0], bottom, size.stride)
        missing = [0, z.shape[1] - inside.shape[1], 0, z.shape[0] - inside.shape[0]]
        theirs.append(functional.pad(inside, missing, value=torch.inf))  # to the whole lattice
        legal.append(unfold_legal(theirs[-1], float(peak), height))
        found.heights += not torch.equal(z.view(torch.int32), theirs[-1].view(torch.int32))
        found.legality += not torch.equal(may, legal[-1])
    choice, ties = lowest(theirs, legal)
    index = -1 if choice is None else int(np.ravel_multi_index(choice, maps.z.shape[2:]))
    found.cases += 1
    found.choices += index != int(candidates.lowest(maps, 1))
    found.none_legal += choice is None
    found.ties += ties > 1


def _by_the_rules(problem: Problem, peaks: Tensor, height: float) -> feasibility.Maps:
    """Compute all placements in the problem's first container as an environment does."""
    size = problem.size
    container = (CELL * size.cells, CELL * size.cells, height)
    params = PackingParams(container, CELL, grid_step=size.stride, stability="none")
    device = problem.heightmap.device
    footprints = torch.tensor(size.footprints, device=device)
    catalogue = {
        "bottom": problem.bottom[:1],
        "peak": peaks[None],
        "com": torch.zeros_like(footprints)[None],
        "size": footprints[None],
    }
    item = torch.zeros(1, 1, dtype=torch.int64, device=device)
    z, legal = feasibility.general_maps(problem.heightmap[:1], item, item == 0, catalogue, params)
    return feasibility.Maps(z, legal)
