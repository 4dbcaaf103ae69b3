"""What compiled steps share: the state as they read it, its queue, and the start of an episode."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.step import cells as names


def entries(name: str, fields: Sequence[str], module: str) -> Any:
    """A tuple that compiled code reads by name; ``module`` is where its cache will look it up."""
    return namedtuple(name, fields, module=module)


State = entries("State", names.STATE, __name__)
"""Arrays that compiled code reads by name."""

_WORD = 0xFFFFFFFF


def as_arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """The memory of a CPU's tensors as NumPy sees it: shared, nothing is read or copied."""
    return [tensor.numpy() for tensor in tensors]


@jit
def clear_line(line):  # type: ignore[no-untyped-def]
    """Zeros."""
    for k in range(line.size):
        line[k] = 0


@jit
def copy_line(source, target):  # type: ignore[no-untyped-def]
    """As much of the source as the target takes."""
    for k in range(target.size):
        target[k] = source[k]


@jit
def quotient(numerator, denominator):  # type: ignore[no-untyped-def]
    """Their quotient, 0 where there is none."""
    return numerator / denominator if denominator > 0 else 0.0


@jit
def take_from_queue(state, row, slot):  # type: ignore[no-untyped-def]
    """Remove one place of a row's queue, before its item is counted as packed.

    See `core.orientation.take_from_queue`.
    """
    last = state.queue.shape[1] - 1
    for k in range(slot, last):
        state.queue[row, k] = state.queue[row, k + 1]
    following = state.items_packed[row] + last + 1
    state.queue[row, last] = min(following, state.item_id.shape[1] - 1)


@jit
def _philox(seed, first, second):  # type: ignore[no-untyped-def]
    """The first word of `core.random.philox` with two counters; int64, as it is there."""
    c0, c1, c2, c3 = first, second, np.int64(0), np.int64(0)
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(10):
        one, other = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((other >> 32) & _WORD) ^ c1 ^ k0, other & _WORD
        c2, c3 = ((one >> 32) & _WORD) ^ c3 ^ k1, one & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0


@jit
def begin_episode(state, row, pool, in_turn):  # type: ignore[no-untyped-def]
    """The next episode of one row, but for ``reward_sum``: see `core.transition.begin`.

    Of the records only those are cleared that the last episode made.
    """
    instances, lengths = pool
    packed = state.items_packed[row]
    state.episode[row] += 1
    episode, stream = state.episode[row], state.row[row]
    if in_turn:
        index = (stream + episode * state.row.size) % lengths.size
    else:
        index = (_philox(state.seed[row], episode, stream) * lengths.size) >> 32
    state.num_items[row] = lengths[index]
    copy_line(instances[index], state.item_id[row])
    for k in range(state.queue.shape[1]):
        state.queue[row, k] = k
    clear_line(state.heightmap[row].reshape(-1))
    clear_line(state.placement[row, :packed].reshape(-1))
    clear_line(state.placement_z[row, :packed])
    clear_line(state.placement_support[row, :packed])
    clear_line(state.packed[row])
    state.items_packed[row] = state.stable_items[row] = state.illegal_actions[row] = 0
    state.overflow[row] = state.step[row] = 0
    state.volume[row] = state.support_sum[row] = 0
    state.terminated[row] = state.truncated[row] = False
