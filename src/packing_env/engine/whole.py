"""A whole decision in place: what all that take one share.

A :class:`WholeStep` does to an environment's own state what :func:`transition.advance` and
:func:`transition.begin` say, and shows what :mod:`observation` and :mod:`metrics` say, bit for bit.
Rewards are asked of :mod:`rewards` in every step, so that new terms need nothing here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core import metrics, observation, rewards
from packing_env.core.orientation import num_orientations
from packing_env.types import Catalogue, PackingParams, State

MODES = ("placement", "multi_head")
"""Action modes that look at the legality of all placements, and at nothing else."""

FLAGS = ("terminated", "truncated", "done")

_PLACES = {name: place for place, name in enumerate(metrics.NAMES)}


@dataclass(frozen=True)
class Seen:
    """What is seen of a state.

    Attributes:
        shown: The observations that were asked for, ``mask [B, L, R, Xs, Ys]`` of what is legal
            (all of a finished row), and ``terminated``, ``truncated``, ``done [B]``.
        metrics: ``[B, 1]`` float32 each.
    """

    shown: dict[str, Tensor]
    metrics: dict[str, Tensor]


@dataclass(frozen=True)
class Taken(Seen):
    """What a decision brought, per row, and what is seen after it.

    Attributes:
        reward: ``[B]`` float32, 0 on rows that were finished before.
        start: What is seen once finished rows have begun their next episode, if they have.
    """

    reward: Float[Tensor, " B"]
    start: Seen | None


class WholeStep(ABC):
    """The operations of one task.

    Args:
        params: The task.
        catalogue: Its items.
        known: The observations that these operations know.
    """

    def __init__(self, params: PackingParams, catalogue: Catalogue, known: Sequence[str]) -> None:
        self.params = params
        shapes = _shapes(catalogue, params)
        asked = observation.entries([name for name in known if name in params.observation])
        self.shapes = {name: shapes[name] for name in (*asked, "mask")}
        nothing = {
            name: torch.empty([0] * (len(shapes[name][1]) + 1), dtype=shapes[name][0])
            for name in (*observation.entries(known), "mask")
        }
        nothing |= {name: torch.empty(0, dtype=torch.bool) for name in FLAGS}
        self.nothing = nothing | {"metrics": torch.empty(0, 0)}
        self.metrics = (*metrics.NAMES, *(f"reward/{term}" for term in params.reward))

    @abstractmethod
    def _carry_out(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        shown: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        outcome: Mapping[str, Tensor],
    ) -> None:
        """Advance the state, but for ``reward_sum``, and fill the rest.

        Args:
            state: The state.
            action: As for :meth:`advance`.
            shown: Room for what is shown; an observation that nobody asked for has no rows, and
                ``metrics [K, B]`` those of :data:`metrics.NAMES` first.
            start: Likewise once finished rows have begun their next episode; without rows where
                they shall not.
            outcome: ``asked`` and ``live [B]``, whether the action was legal and the row
                unfinished; ``before`` and ``after [10, B]`` float64, the metrics.
        """

    @abstractmethod
    def _renew(
        self,
        rows: Bool[Tensor, " B"],
        state: State,
        shown: Mapping[str, Tensor],
        measured: Sequence[Tensor],
    ) -> None:
        """What :meth:`renew` does, but for ``reward_sum``."""

    def renew(
        self,
        rows: Bool[Tensor, " B"],
        state: State,
        shown: Mapping[str, Tensor],
        measured: Sequence[Tensor],
    ) -> None:
        """Start the next episode in some rows, in place, and show its start there.

        Args:
            rows: Which.
            state: The state.
            shown: As in :class:`Seen`, of the state before.
            measured: ``[B, 1]`` metrics, which become 0.
        """
        state["reward_sum"].masked_fill_(rows[:, None], 0.0)
        self._renew(rows, state, {**self.nothing, **shown}, measured)

    def advance(self, state: State, action: Int[Tensor, "B heads"], *, renews: bool) -> Taken:
        """:func:`transition.advance` in place, and what is seen after it.

        Args:
            state: The state.
            action: An index of all placements of the lattice, or one of item, orientation, x, y.
            renews: Whether finished rows begin their next episode.
        """
        batch, device = len(action), action.device
        shown = self._room(batch, device)
        start = self._room(batch, device) if renews else {}
        asked, live = torch.empty(2, batch, dtype=torch.bool, device=device).unbind()
        measured = torch.empty(2, len(metrics.NAMES), batch, dtype=torch.float64, device=device)
        before, after = measured.unbind()
        outcome = {"asked": asked, "live": live, "before": before, "after": after}
        given = ({**self.nothing, **shown}, {**self.nothing, **start})
        self._carry_out(state, action.contiguous(), *given, outcome)
        terms = rewards.weighted_terms(self.params.reward, _Named(before), _Named(after), asked)
        terms.masked_fill_(live.logical_not()[:, None], 0.0)
        sums, count = state["reward_sum"].add_(terms), len(metrics.NAMES)
        shown["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        if renews:
            sums.masked_fill_(shown["done"][:, None], 0.0)
            start["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        following = Seen(start, self._measured(start)) if renews else None
        return Taken(shown, self._measured(shown), terms.sum(-1).float(), following)

    def _room(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """Tensors for what is shown."""
        room = {
            name: torch.empty([batch, *shape], dtype=dtype, device=device)
            for name, (dtype, shape) in self.shapes.items()
        }
        flags = torch.empty(len(FLAGS), batch, dtype=torch.bool, device=device)
        room |= zip(FLAGS, flags.unbind(), strict=True)
        room["metrics"] = torch.empty(len(self.metrics), batch, device=device)
        return room

    def _measured(self, shown: dict[str, Tensor]) -> dict[str, Tensor]:
        """The metrics by name, and the sums of the reward's terms."""
        return dict(zip(self.metrics, shown.pop("metrics")[..., None].unbind(), strict=True))


class _Named(Mapping[str, Tensor]):
    """The metrics by name; only those that are asked for become tensors."""

    def __init__(self, values: Float[Tensor, "metrics B"]) -> None:
        self.values_of = values

    def __getitem__(self, name: str) -> Tensor:
        return self.values_of[_PLACES[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


def _shapes(
    catalogue: Catalogue, params: PackingParams
) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Type and shape, without the batch, of what a decision shows."""
    orientations, slots = num_orientations(catalogue), params.num_slots
    lattice = [params.num_visible, orientations, *params.lattice]
    turned = [slots, orientations, len(observation.ORIENTATION_FEATURES)]
    surface = [slots, orientations, *catalogue["bottom"].shape[2:]]
    return {
        "heightmap": (torch.float32, list(params.grid)),
        "item_id": (torch.int64, [slots]),
        "item_features": (torch.float32, [slots, len(observation.ITEM_FEATURES)]),
        "orientation_features": (torch.float32, turned),
        "top": (torch.float32, surface),
        "bottom": (torch.float32, surface),
        "drop_height": (torch.float32, lattice),
        "mask": (torch.bool, lattice),
    }
