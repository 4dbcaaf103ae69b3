"""Cuboids and instances of a file, replayed exactly."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from packing_env.generators.base import SHUFFLE, Cuboids, Request, padded, split_stream
from packing_env.generators.cuboids.files import read_loads
from packing_env.generators.cuboids.loads import MAX_ITEMS, Kind, Load
from packing_env.generators.cuboids.source import CuboidSource
from packing_env.generators.sequence_file import SequenceError, file_name
from packing_env.items.meshes.mesh import UNITS
from packing_env.types import Instances
from packing_env.values import Count, Option, check

_LOGGER = logging.getLogger("packing_env.generators")
_LISTED = 8
"""Number of names that an error message lists."""


@dataclass(frozen=True)
class CuboidSequences(CuboidSource):
    """The instances of a file (:func:`packing_env.generators.cuboids.files.read_loads`).

    The catalogue holds each cuboid once, in order of appearance, with the sides that may stand
    vertically. All instances of a pool have the same container.

    Attributes:
        path: The file.
        instance: The name of an instance, the name of a class of instances (``BR1``), or the index
            of an instance; ``None`` means all.
        order: ``"arrival"`` is the order of the file, or kind by kind if the file has no order.
            ``"types"`` is kind by kind. ``"shuffled"`` is random, determined by the pool's seed and
            split.
        limit: Number of items to keep from the start of each instance, in this order; ``None``
            means all.
        unit: Unit of the file, a name in ``items.meshes.mesh.UNITS``. ``None`` means the unit that
            the file states; if it states none, steps of the lattice (cells).
        own_container: Whether to refuse a container that differs from the one in the file.
        holdout: Share of the instances that are held out: the last ones of the file. The split
            ``"test"`` has these, and ``"train"`` has the others. With 0, both splits have all
            instances.
    """

    path: Annotated[str | Path, Option(read=file_name)]
    instance: str | int | None = None
    order: Annotated[str, Option(choices=("arrival", "types", "shuffled"))] = "arrival"
    limit: Count | None = None
    unit: Annotated[str, Option(choices=tuple(UNITS))] | None = None
    own_container: bool = True
    holdout: Annotated[float, Option(at_least=0.0, below=1.0)] = 0.0
    finite = True

    def __post_init__(self) -> None:
        check(self, "generator.")

    def loads(self) -> list[Load]:
        """Read the chosen instances."""
        loads = read_loads(self.path)
        if self.instance is None:
            return loads
        if isinstance(self.instance, int):
            if not 0 <= self.instance < len(loads):
                raise SequenceError(
                    f"{self.path}: instance={self.instance} is not in 0..{len(loads) - 1}; a name "
                    f"of digits needs quotes"
                )
            return [loads[self.instance]]
        chosen = [load for load in loads if load.name == self.instance]
        chosen = chosen or [load for load in loads if load.group == self.instance]
        if not chosen:
            known = list(dict.fromkeys(load.name for load in loads))
            known += sorted({load.group for load in loads} - {""})
            raise SequenceError(
                f"{self.path}: no instance is named {self.instance!r}; use one of "
                f"{', '.join(known[:_LISTED])}{', ...' if len(known) > _LISTED else ''}, or an "
                f"index 0..{len(loads) - 1}"
            )
        return chosen

    def cuboids(self, request: Request) -> Cuboids:
        """Return each cuboid of the chosen instances once; log remarks on the file."""
        for remark in dict.fromkeys(load.remark for load in self.loads() if load.remark):
            _LOGGER.warning("%s: %s", self.path, remark)
        return super().cuboids(request)

    def make(self, request: Request) -> tuple[Cuboids, Instances]:
        """Return the cuboids of all chosen instances, and the instances of the split."""
        # 1. Check the container and the lengths before items are listed individually.
        loads = self.loads()
        if self.own_container:
            self._check_container(loads, request)
        self._check_lengths(loads, request)
        # 2. Equal kinds share a row; list the rows of each instance.
        rows: dict[tuple[object, ...], int] = {}
        kinds: list[tuple[Kind, float]] = []
        sequences = []
        for number, load in enumerate(loads):
            metres = self._metres(load, request.pitch)
            ids = []
            for kind in load.kinds:
                key = (kind.name, kind.sides, kind.upright, metres)
                ids.append(rows.setdefault(key, len(kinds)))
                if ids[-1] == len(kinds):
                    kinds.append((kind, metres))
            sequences.append([ids[i] for i in self._arrival(load, number, request)])
            if not sequences[-1]:
                raise SequenceError(f"{self.path}: instance {load.name} has no items; give it some")
        return _cuboids(kinds), padded(self._of_split(sequences, request), request.num_items)

    def _of_split(self, sequences: list[list[int]], request: Request) -> list[list[int]]:
        if not self.holdout:
            return sequences
        first = len(sequences) - round(self.holdout * len(sequences))
        if not 0 < first < len(sequences):
            raise SequenceError(
                f"{self.path}: generator.holdout={self.holdout:g} of {len(sequences)} instances "
                "leaves a split empty; change the share, or give more instances"
            )
        return sequences[first:] if request.stream == split_stream("test") else sequences[:first]

    def _metres(self, load: Load, pitch: float) -> float:
        unit = self.unit or load.unit
        return pitch if unit is None else UNITS[unit]

    def _arrival(self, load: Load, number: int, request: Request) -> list[int]:
        kinds = [i for i, kind in enumerate(load.kinds) for _ in range(kind.count)]
        if self.order == "arrival" and load.arrival is not None:
            kinds = list(load.arrival)
        elif self.order == "shuffled":
            words = request.words(SHUFFLE, len(kinds), torch.tensor([number]))[0][0]
            kinds = [kinds[i] for i in words.argsort(stable=True).tolist()]
        return kinds[: self.limit]

    def _check_lengths(self, loads: list[Load], request: Request) -> None:
        longest = max(loads, key=lambda load: load.num_items)
        if longest.num_items > MAX_ITEMS:
            raise SequenceError(
                f"{self.path}: the counts of instance {longest.name} add up to "
                f"{longest.num_items} items; at most {MAX_ITEMS} are supported"
            )
        most = min(longest.num_items, self.limit or longest.num_items)
        if most > request.num_items:
            raise SequenceError(
                f"{self.path}: instance {longest.name} has {most} items, but episodes have "
                f"num_items={request.num_items}; set num_items={most} or more, or generator.limit"
            )

    def container(self, loads: list[Load], pitch: float) -> tuple[float, float, float] | None:
        """Return the container of some instances, metres.

        It is ``None`` if the file gives no container. ``pitch`` is the length of an abstract unit.

        Raises:
            SequenceError: The instances have different containers.
        """
        instance_of: dict[tuple[float, float, float], str] = {}
        for load in loads:
            if load.container is not None:
                x, y, z = (side * self._metres(load, pitch) for side in load.container)
                instance_of.setdefault((x, y, z), load.name)
        if len(instance_of) > 1:
            names = ", ".join(list(instance_of.values())[:_LISTED])
            raise SequenceError(
                f"{self.path}: the {len(loads)} instances have {len(instance_of)} different "
                f"containers, but an environment has one; choose one with instance=NAME ({names}, "
                "...), or set own_container=false"
            )
        return next(iter(instance_of), None)

    def _check_container(self, loads: list[Load], request: Request) -> None:
        own = self.container(loads, request.pitch)
        if own is not None and not all(
            math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6 * request.pitch)
            for a, b in zip(own, request.container, strict=True)
        ):
            sides = ",".join(f"{side:g}" for side in own)
            raise SequenceError(
                f"{self.path}: instance {loads[0].name} has a container of [{sides}] m, but the "
                f"task has {list(request.container)}; set container=[{sides}], or "
                "generator.own_container=false to pack its cuboids into this one"
            )


def _cuboids(kinds: list[tuple[Kind, float]]) -> Cuboids:
    extents = [[side * metres for side in kind.sides] for kind, metres in kinds]
    names = [kind.name or "x".join(f"{side:g}" for side in kind.sides) for kind, _ in kinds]
    upright = torch.tensor([kind.upright for kind, _ in kinds])
    return Cuboids(torch.tensor(extents, dtype=torch.float64), upright, names)
