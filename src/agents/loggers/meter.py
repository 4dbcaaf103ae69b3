"""Metrics that stay on the device until they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from agents.process_group import add_up

_MAX_VALUES, _MAX_CALLS = 2**18, 64
"""A meter sums its waiting values when there are this many of them, or after this many calls."""


class Meter:
    """Weighted means that stay on the device; :meth:`read` copies them all at once.

    Each call stacks its values with one operation; many stacked values are summed at a time.
    """

    def __init__(self) -> None:
        # key: the names that were added together; value: [2, n], sums and counts
        self._sums: dict[tuple[str, ...], Tensor] = {}
        # key: names, how many of them count only where the mask is True (None: no mask), and shape
        self._waiting: dict[tuple[tuple[str, ...], int | None, torch.Size], list[Tensor]] = {}
        self._calls = self._values = 0  # numbers of waiting calls and values

    def add(self, name: str, value: Tensor, where: Tensor | None = None) -> None:
        """Add ``value`` (any shape) to the mean of ``name``, only where ``where`` is True."""
        self.add_all({name: value}, None if where is None else where.expand_as(value))

    def add_all(
        self,
        values: Mapping[str, Tensor],
        where: Tensor | None = None,
        *,
        everywhere: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add several values, preferably of one shape; ``where`` applies to ``values`` alone."""
        # 1. Values of different shapes are added one by one.
        everything = {**values, **(everywhere or {})}
        parts = [value.detach() for value in everything.values()]
        if where is not None:
            parts.append(where)
        if len({part.shape for part in parts}) != 1:
            for name, value in everything.items():
                self.add(name, value, where if name in values else None)
            return
        # 2. Values of one shape are stacked; they are summed later.
        if len({torch.bool, *(part.dtype for part in parts)}) > 2:
            parts = [part.double() for part in parts]
        key = (tuple(everything), None if where is None else len(values), parts[0].shape)
        together = torch.stack(parts)
        self._waiting.setdefault(key, []).append(together)
        self._calls, self._values = self._calls + 1, self._values + together.numel()
        # 3. Sum the waiting values before they take too much memory.
        if self._calls >= _MAX_CALLS or self._values >= _MAX_VALUES:
            self._keep(self._totals())

    def _keep(self, sums: dict[tuple[str, ...], Tensor]) -> None:
        self._sums = sums
        self._waiting.clear()
        self._calls = self._values = 0

    def _totals(self) -> dict[tuple[str, ...], Tensor]:
        """Return the sums, including the waiting values; nothing is reset."""
        totals = dict(self._sums)
        for (names, masked, _), waiting in self._waiting.items():
            stacked = torch.stack(waiting).double().view(len(waiting), len(waiting[0]), -1)
            counted = torch.ones_like(stacked, dtype=torch.bool)
            if masked is not None:
                counted[:, :masked] = stacked[:, -1:] != 0
            sums = torch.where(counted, stacked, 0.0).sum((0, 2))
            pairs = torch.stack((sums, counted.sum((0, 2)).double()))[:, : len(names)]
            totals[names] = totals[names] + pairs if names in totals else pairs
        return totals

    def read(self) -> dict[str, float]:
        """Return the means since the last call, NaN for a count of 0; the only copy to the host."""
        means = self.peek()
        self._keep({})
        return means

    def peek(self) -> dict[str, float]:
        """Return what :meth:`read` would return, but keep the sums; this also copies to the host.

        Processes that learn together have the same names, and get means over all processes.
        """
        sums = self._totals()
        if not sums:
            return {}
        totals: dict[str, tuple[float, float]] = {}
        pairs = add_up(torch.cat(list(sums.values()), 1)).T.tolist()
        for name, (total, count) in zip(chain(*sums), pairs, strict=True):
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + total, before[1] + count
        return {name: s / c if c else math.nan for name, (s, c) in totals.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the sums since the last :meth:`read`, and the values that are not summed yet."""
        waiting = [
            {"names": list(names), "somewhere": masked, "values": torch.stack(values)}
            for (names, masked, _), values in self._waiting.items()
        ]
        sums = [{"names": list(names), "pairs": pairs} for names, pairs in self._sums.items()]
        return {"sums": sums, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._keep({tuple(part["names"]): part["pairs"] for part in state["sums"]})
        for part in state["waiting"]:
            values = part["values"]
            key = (tuple(part["names"]), part["somewhere"], values.shape[2:])
            self._waiting[key] = list(values.unbind(0))
            self._calls, self._values = self._calls + len(values), self._values + values.numel()
