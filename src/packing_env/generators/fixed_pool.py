"""Instances given as lists of catalogue rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from packing_env.generators.base import Generator, GeneratorError, Request, padded
from packing_env.items import Catalogue
from packing_env.types import Instances
from packing_env.values import Option, check


@dataclass(frozen=True)
class FixedPool(Generator):
    """A list of instances, each a list of catalogue rows in arrival order.

    Attributes:
        instances: The lists; their lengths may differ, but none may exceed the task's
            ``num_items``.
    """

    instances: Annotated[tuple[tuple[int, ...], ...], Option(example="[[0, 1, 2], [3, 4]]")]
    finite = True

    def __post_init__(self) -> None:
        check(self, "generator.")

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
        pool = padded(self.instances, request.num_items)
        lowest, highest = int(pool.item_id.min()), int(pool.item_id.max())
        if lowest < 0 or highest >= len(catalogue):
            raise GeneratorError(
                f"fixed_pool uses catalogue rows {lowest}..{highest}; "
                f"the catalogue has rows 0..{len(catalogue) - 1}"
            )
        return pool
