"""Instances given as lists of catalogue rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from packing_env.generators.base import Generator, GeneratorError, Request, padded
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError


@dataclass(frozen=True)
class FixedPool(Generator):
    """A list of instances, each a list of catalogue rows in arrival order.

    Attributes:
        instances: The lists; lengths may differ, none may exceed the task's ``num_items``.
    """

    instances: Sequence[Sequence[int]]
    finite = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "instances", _whole_rows(self.instances))

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Return all instances, padded with row 0."""
        if not self.instances or not all(len(rows) for rows in self.instances):
            raise GeneratorError("fixed_pool holds an empty instance; give each at least one item")
        longest = max(len(rows) for rows in self.instances)
        if longest > request.num_items:
            raise GeneratorError(
                f"an instance of fixed_pool has {longest} items; "
                f"set num_items={longest} or more (now {request.num_items})"
            )
        made = padded(self.instances, request.num_items)
        lowest, highest = int(made.item_id.min()), int(made.item_id.max())
        if lowest < 0 or highest >= len(catalogue):
            raise GeneratorError(
                f"fixed_pool uses catalogue rows {lowest}..{highest}; "
                f"the catalogue has rows 0..{len(catalogue) - 1}"
            )
        return made


def _whole_rows(instances: Any) -> list[list[int]]:
    """Convert the instances, also tensors and arrays, to lists of integers."""
    wanted = "lists of catalogue rows, such as [[0, 1, 2], [3, 4]]"
    given = instances.tolist() if hasattr(instances, "tolist") else instances
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ParameterError(f"generator.instances={given!r} must be {wanted}")
    rows = []
    for number, instance in enumerate(given):
        entries = instance.tolist() if hasattr(instance, "tolist") else instance
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise ParameterError(
                f"generator.instances[{number}]={entries!r}; instances must be {wanted}"
            )
        entries = list(entries)
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, Integral):
                raise ParameterError(
                    f"generator.instances[{number}] holds {entry!r}; instances must be {wanted}; "
                    "for names of items use a sequence_file"
                )
        rows.append([int(entry) for entry in entries])
    return rows
