"""Readers of the tables of `packing_env.kernels.loading`, and tables of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import reader, table
from packing_env.kernels.loading.arrays_numba import (
    Beam,
    Blocks,
    Cutting,
    Pile,
    Problem,
    Room,
    Rules,
    Scratch,
)

as_beam, as_pile, as_scratch, as_cutting = map(reader, (Beam, Pile, Scratch, Cutting))
as_blocks, _as_rules, _as_room = map(reader, (Blocks, Rules, Room))


@jit
def as_problem(tables):
    """Return the problem whose tables compiled code reads."""
    return Problem(as_blocks(tables.blocks), _as_rules(tables.rules), _as_room(tables.room))


def table_of(entries: Any) -> np.ndarray:
    """Return the table of a named tuple of arrays and numbers.

    The table holds addresses, so the caller has to keep the arrays alive.
    """
    tensors = [torch.from_numpy(e) if isinstance(e, np.ndarray) else e for e in entries]
    return table(type(entries), tensors)


def problem_tables(problem: Problem) -> Problem:
    """Return the tables of a problem."""
    return Problem(*map(table_of, problem))
