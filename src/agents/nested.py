"""Iterators over nested mappings and lists: configurations, and the states of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

if TYPE_CHECKING:
    from torch import Tensor


def walk(
    node: Any, path: str = "", *, lists: bool = True, separator: str = "."
) -> Iterator[tuple[str, Any]]:
    """Yield every value in nested mappings and lists, and these themselves, each with its path.

    With ``lists=False``, a list counts as a single value. Interpolations stay unresolved.
    """
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=False)
    yield path, node
    entries: Any = ()
    if isinstance(node, Mapping):
        entries = node.items()
    elif lists and isinstance(node, (list, tuple)):
        entries = enumerate(node)
    for key, inner in entries:
        below = f"{path}{separator}{key}" if path else str(key)
        yield from walk(inner, below, lists=lists, separator=separator)


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """Return the values in nested mappings by dotted keys; a list counts as a single value."""
    values = walk(node, path, lists=False)
    return {key: value for key, value in values if not isinstance(value, Mapping)}


def targets(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping that has a ``_target_``, with its dotted path."""
    for inner_path, inner in walk(node, path):
        if isinstance(inner, Mapping) and "_target_" in inner:
            yield inner_path, inner


def named_tensors(state: Any) -> dict[str, Tensor]:
    """Return every tensor in a state by its path, such as ``policy/weight``, in a fixed order."""
    from torch import Tensor  # the check of a configuration's keys does not import torch

    values = walk(state, separator="/")
    return {path: value for path, value in values if isinstance(value, Tensor)}
