"""Action specs that draw legal actions, even if the environment is wrapped.

The specs of discrete actions are TorchRL's specs, with three differences:

- A spec and its copies of the same shape share the mask. ``RandomPolicy`` and ``TransformedEnv``
  hold copies; these use the mask that an environment or ``ActionMask`` writes to the original.
- A draw takes one uniform number per row instead of ``multinomial`` over all actions, and copies
  nothing to the host.
- The mask changes with the state, so it does not affect equality.

A spec of another shape (``expand``, ``torch.stack``, an index) has no mask until ``update_mask``
sets one. Until then it draws from all actions, like TorchRL's specs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torchrl.data import BoundedContinuous, Categorical, MultiCategorical, TensorSpec
from torchrl.data.utils import ACTION_SPACE_MAP

from packing_env.core.actions.base import draw

Shape = torch.Size | Sequence[int]


class Legality:
    """The current mask, which all copies of a spec share.

    Attributes:
        mask: ``[*batch, A]``, True = legal; None if not known.
        draw: Function that draws the spec's part of a joint action, ``[*shape, *batch]`` for a
            ``shape``; None if the mask suffices. The function belongs to an environment; pickled
            copies do not have it.
    """

    mask: Bool[Tensor, "*batch A"] | None = None
    draw: Callable[[torch.Size], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the mask alone, without the function."""
        return {"mask": self.mask}


class Masked(TensorSpec):
    """Base of the masked specs: legal draws, and copies that share the mask.

    ``index_of``, ``action_of`` and ``clamped`` are those of an action with a single index.

    Attributes:
        sizes: The number of actions, or the number of values of each index of an action.
        legality: The current mask.
    """

    sizes: Any
    legality: Legality

    @property
    def mask(self) -> Tensor | None:
        """``[*batch, A]`` on the spec's device, True = legal; None until a mask is set."""
        mask = self.legality.mask
        return mask if mask is None or mask.device == self.device else mask.to(self.device)

    @mask.setter
    def mask(self, value: Tensor | None) -> None:
        self.legality.mask = value

    def remade(
        self, legality: Legality, device: torch.device | None = None, dtype: Any = None
    ) -> Any:
        """Return a spec of the same domain and shape with this ``legality``."""
        device, dtype = device or self.device, dtype or self.dtype
        return type(self)(self.sizes, self.shape, device, dtype, legality=legality)

    def index_of(self, value: Tensor) -> Int[Tensor, "*batch"]:
        """Return the indices of actions in the mask."""
        return value.long()

    def action_of(self, index: Int[Tensor, "*batch"]) -> Tensor:
        """Return the actions at indices of the mask, the inverse of :meth:`index_of`."""
        return index

    def clamped(self, value: Tensor) -> Tensor:
        """Return the nearest actions of the domain."""
        return value.round().clamp(0, self.sizes - 1)

    def _plain(self) -> Any:
        """Return a copy without a mask, on which TorchRL's own methods work."""
        return super(Masked, self.remade(Legality()))

    def rand(self, shape: Shape | None = None) -> Tensor:
        """Draw actions ``[*shape, *self.shape]``; all legal actions are equally likely.

        Without a known mask all actions count as legal. A row without a legal action gets the first
        action.
        """
        size, mask = torch.Size(shape or ()), self.mask
        if self.legality.draw is not None:  # a part of a joint action
            action = self.legality.draw(size).to(self.device)
        elif mask is None:
            action = self._plain().rand(size)
        else:
            action = self.action_of(draw(mask.expand(*size, *mask.shape)))
        return action.to(self.dtype)

    def is_in(self, val: Tensor) -> bool:
        """Return whether every value is in the domain and, if a mask is known, legal."""
        inside, mask = bool(self._plain().is_in(val)), self.mask
        return inside and (mask is None or bool(self._is_legal(val, mask).all()))

    def _project(self, val: Tensor) -> Tensor:
        """Return the nearest actions of the domain; where these are illegal, random legal ones."""
        clamped, mask = self.clamped(val).to(self.dtype), self.mask
        if mask is None:
            return clamped
        legal, index = self._is_legal(clamped, mask), self.index_of(clamped)
        other = draw(mask.expand(*index.shape, mask.shape[-1]))
        return self.action_of(torch.where(legal, index, other)).to(self.dtype)

    def _is_legal(self, value: Tensor, mask: Bool[Tensor, "*batch A"]) -> Bool[Tensor, "*batch"]:
        index = self.index_of(value)
        return mask.expand(*index.shape, mask.shape[-1]).gather(-1, index[..., None]).squeeze(-1)

    def enumerate(self, use_mask: bool = False) -> Tensor:
        """Return all actions ``[N, *self.shape]``; with ``use_mask``, those legal in some row."""
        every: Tensor = self._plain().enumerate()
        mask = self.mask
        if not use_mask or mask is None:
            return every
        return every[mask.view(-1, mask.shape[-1]).any(0)]

    def __eq__(self, other: object) -> bool:
        """Return whether the domains are equal; masks change in every step and are ignored."""
        if not isinstance(other, Masked) or type(self) is not type(other):
            return False
        return bool(self._plain().__eq__(other.remade(Legality())))

    def clone(self) -> Any:
        """Return a copy that shares the mask."""
        return self.remade(self.legality)

    def to(self, dest: torch.dtype | torch.device | str | int | None) -> Any:
        """Return a copy of another dtype or on another device that shares the mask."""
        if isinstance(dest, torch.dtype):
            return self if dest == self.dtype else self.remade(self.legality, dtype=dest)
        device = self.device if dest is None else torch.device(dest)
        return self if device == self.device else self.remade(self.legality, device=device)

    def expand(self, *shape: Any) -> Any:
        """Return a spec of another shape, without a mask, or a copy if the shape is the same."""
        axes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self.clone() if torch.Size(axes) == self.shape else self._plain().expand(*axes)


def _without_mask(name: str) -> Callable[..., Any]:
    """Return a method of TorchRL's specs, wrapped so that the spec that it makes has no mask."""

    def changed(self: Masked, *args: Any, **options: Any) -> Any:
        return getattr(self._plain(), name)(*args, **options)

    return changed


for _name in ("squeeze", "unsqueeze", "unbind", "_reshape", "to_one_hot_spec"):
    setattr(Masked, _name, _without_mask(_name))


class MaskedCategorical(Masked, Categorical):
    """One of ``n`` actions; draws are legal.

    Args:
        n: Number of actions.
        shape: Shape of the batch.
        device: Device of the actions.
        dtype: Dtype of the actions.
        mask: ``[*shape, n]``, or a tensor that expands to it; None if not known yet.
        legality: Legality of another spec of the same shape, whose mask is then shared.
    """

    def __init__(
        self,
        n: int,
        shape: Shape | None = None,
        device: Any = None,
        dtype: Any = torch.int64,
        mask: Tensor | None = None,
        legality: Legality | None = None,
    ) -> None:
        self.sizes, self.legality = n, Legality()
        Categorical.__init__(self, n, shape, device, dtype, mask)
        if legality is not None:
            self.legality = legality


ACTION_SPACE_MAP[MaskedCategorical] = ACTION_SPACE_MAP[
    Categorical
]  # TorchRL's Q-value actors read it


class MaskedMultiCategorical(Masked, MultiCategorical):
    """Several indices with one joint mask over all their combinations; draws are legal.

    TorchRL's spec takes one mask per index. Such masks cannot express that an index is legal only
    together with another one.

    Args:
        nvec: Number of values of each index, the same for every row.
        shape: ``[*batch, len(nvec)]``.
        device: Device of the actions.
        dtype: Dtype of the actions.
        mask: ``[*batch, A]``, where ``A`` is the product of ``nvec`` and the last index varies
            fastest; or a tensor that expands to this. None if the mask is not known yet.
        remove_singleton: As in TorchRL.
        legality: Legality of another spec of the same shape, whose mask is then shared.
    """

    def __init__(
        self,
        nvec: Any,
        shape: Shape | None = None,
        device: Any = None,
        dtype: Any = torch.int64,
        mask: Tensor | None = None,
        remove_singleton: bool = True,
        legality: Legality | None = None,
    ) -> None:
        rows = torch.as_tensor(nvec)
        self.sizes = tuple(rows.reshape(-1, rows.shape[-1])[0].tolist())
        if bool((rows != rows.new_tensor(self.sizes)).any()):
            raise ValueError(
                f"nvec={rows.tolist()} differs between rows, which share one mask; make the rows "
                "equal"
            )
        self.legality = Legality()
        shape, one = rows.shape if shape is None else shape, torch.tensor(self.sizes)
        MultiCategorical.__init__(self, one, shape, device, dtype, mask, remove_singleton)
        if legality is not None:
            self.legality = legality

    def update_mask(self, mask: Any) -> None:
        """Set the joint mask ``[*batch, A]``, or a tensor that expands to it; None if not known."""
        if mask is not None:
            mask = torch.as_tensor(mask, dtype=torch.bool, device=self.device)
            if mask.shape[-1] != math.prod(self.sizes):
                raise ValueError(
                    f"the mask {list(mask.shape)} should have one entry for each combination of "
                    f"{self.sizes}, {math.prod(self.sizes)} in all"
                )
            mask = mask.expand(*self.shape[:-1], mask.shape[-1])
        self.mask = mask

    def index_of(self, value: Tensor) -> Int[Tensor, "*batch"]:
        """Return the index of a combination; the last index varies fastest."""
        index = torch.zeros_like(value[..., 0], dtype=torch.int64)
        for size, part in zip(self.sizes, value.unbind(-1), strict=True):
            index = index * size + part.long()
        return index

    def action_of(self, index: Int[Tensor, "*batch"]) -> Tensor:
        """Return the combination at an index."""
        parts = []
        for size in reversed(self.sizes):
            parts.append(index % size)
            index = torch.div(index, size, rounding_mode="floor")
        return torch.stack(parts[::-1], -1)

    def clamped(self, value: Tensor) -> Tensor:
        """Return the nearest actions of the domain."""
        pairs = zip(self.sizes, value.round().unbind(-1), strict=True)
        return torch.stack([part.clamp(0, size - 1) for size, part in pairs], -1)


class _KeepsItsClass(type(BoundedContinuous)):  # type: ignore[misc]
    """Metaclass; TorchRL's own would turn every bounded spec into a `BoundedContinuous`."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        spec = super().__call__(*args, **options)
        spec.__class__ = cls
        return spec


class UniformBox(BoundedContinuous, metaclass=_KeepsItsClass):
    """TorchRL's spec of a box, in which all points are legal; draws copy nothing to the host."""

    def rand(self, shape: Shape | None = None) -> Tensor:
        """Draw points ``[*shape, *self.shape]`` uniformly."""
        low, high = self.space
        size = torch.Size((*(shape or ()), *self.shape))
        uniform = torch.rand(size, dtype=self.dtype, device=self.device)
        return ((high - low) * uniform + low).clamp(low, high)

    def to(self, dest: torch.dtype | torch.device | str | int | None) -> Any:
        """Return a copy of another dtype or on another device."""
        moved = super().to(dest)
        moved.__class__ = type(self)
        return moved
