"""Instances given as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch

from packing_env.generators.base import Generator, GeneratorError, Request
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError


@dataclass(frozen=True)
class FixedPool(Generator):
    """A list of instances, each a list of catalogue rows in arrival order.

    Attributes:
        instances: Their rows; lengths may differ, none may exceed the task's ``num_items``.
    """

    instances: Sequence[Sequence[int]]
    finite = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "instances", _whole_rows(self.instances))

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """All of them, padded with row 0."""
        if not self.instances or not all(len(rows) for rows in self.instances):
            raise GeneratorError("fixed_pool holds an empty instance; give each at least one item")
        length = torch.tensor([len(rows) for rows in self.instances])
        if int(length.max()) > request.num_items:
            raise GeneratorError(
                f"an instance of fixed_pool has {int(length.max())} items; "
                f"set num_items={int(length.max())} or more (now {request.num_items})"
            )
        rows = torch.zeros(len(length), request.num_items, dtype=torch.int64)
        for index, instance in enumerate(self.instances):
            rows[index, : len(instance)] = torch.tensor(list(instance))
        if int(rows.min()) < 0 or int(rows.max()) >= len(catalogue.names):
            raise GeneratorError(
                f"fixed_pool names catalogue row {int(rows.max())} "
                f"(lowest {int(rows.min())}) of 0..{len(catalogue.names) - 1}"
            )
        return Instances(rows, length)


def _whole_rows(instances: Any) -> list[list[int]]:
    """The instances as lists of integers; tensors and arrays may be given too."""
    wanted = "lists of catalogue rows, such as [[0, 1, 2], [3, 4]]"
    given = instances.tolist() if hasattr(instances, "tolist") else instances
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ParameterError(f"generator.instances={given!r} must be {wanted}")
    rows = []
    for number, instance in enumerate(given):
        entries = instance.tolist() if hasattr(instance, "tolist") else instance
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise ParameterError(f"generator.instances[{number}]={entries!r}: needed are {wanted}")
        entries = list(entries)
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, Integral):
                raise ParameterError(
                    f"generator.instances[{number}] holds {entry!r}: needed are {wanted}; names "
                    f"of items go into a sequence_file"
                )
        rows.append([int(entry) for entry in entries])
    return rows
