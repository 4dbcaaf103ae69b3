"""Types and sizes of entries, without the batch axis; the environment makes specs from them."""

from __future__ import annotations

from dataclasses import dataclass

Key = str | tuple[str, ...]
"""Name of an entry that the agent writes or reads; a tuple if the entry is nested."""


@dataclass(frozen=True)
class Index:
    """int64 ``[]`` below ``size``."""

    size: int


@dataclass(frozen=True)
class Indices:
    """int64 ``[len(sizes)]``, entry i below ``sizes[i]``."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Flags:
    """bool ``[size]``."""

    size: int


@dataclass(frozen=True)
class Box:
    """float32 of this shape, each entry in [low, high]."""

    shape: tuple[int, ...]
    low: float
    high: float


Space = Index | Indices | Flags | Box
