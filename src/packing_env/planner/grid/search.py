"""Search over the order of parts and their poses, many candidates in the rows of one state.

A candidate is a sequence of parts, each with a pose or with any pose (-1). Decoding puts each part
in turn at its lowest legal place and leaves out parts without a place. The first candidates sort
the parts by several keys, the largest first. In some of them, equal parts stand side by side
in rows: the lowest places of round parts interlock, so fewer may fit. Then a few candidates are
improved in turn. Their neighbours (one part earlier, two parts exchanged, or another pose) are
decoded together, from the state before the first difference on. The best neighbour replaces its
parent if it is better, or a little worse within a temperature that falls to zero with time
(simulated annealing).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.kernels import clock
from packing_env.planner.grid.poses import Poses
from packing_env.planner.reasons import OutOfTimeError
from packing_env.types import State

ANY = -1
"""The pose index that means any pose."""
_ROWS = 8
"""Largest number of candidates that are decoded together."""
_CHAINS = 2
"""Number of candidates that are improved in turn."""
_ROWS_SHARE = 0.5
"""Share of the time after which no more rows of parts in the same pose are tried."""
_SPREADS = (0.3, 0.6, 1.2)
"""Standard deviations of the logarithmic noise on volumes in the first orders."""
_SNAPSHOTS = 64
"""Largest number of states that are stored for a candidate."""
_TEMPERATURE = 0.004
"""The first temperature, as a share of the container's volume."""
_COUNT_WEIGHT = 0.2
"""Weight of the number of packed parts beside the packed volume."""
_HEIGHT_WEIGHT = 1e-3
"""Weight of the height beside the packed volume; it decides between equal volumes."""

Gene = tuple[int, int]
"""A part with a pose or :data:`ANY`."""
Genes = list[Gene]
"""Parts in the order of packing."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A decoded sequence.

    Attributes:
        genes: The sequence.
        value: The maximized value: share of packed volume, plus a term per part, minus a term for
            the height.
        packed: The packed parts in order, and their places in the sequence.
        states: States before every stride of parts, and the last state.
    """

    genes: Genes
    value: float
    packed: list[int]
    states: list[State]


class OrderSearch:
    """Search for the best packing of one container.

    Args:
        poses: The parts.
        quantity: Number of pieces of each part.
        seed: Seed of the random numbers.
    """

    def __init__(self, poses: Poses, quantity: Sequence[int], seed: int = 0) -> None:
        self.poses, self._random = poses, random.Random(seed)
        self._volume = poses.volume
        room = poses.params.container_volume
        self._quantity = [
            min(n, int(room / v * 1.001) + 1) if count else 0
            for n, v, count in zip(
                quantity, self._volume.tolist(), poses.count.tolist(), strict=True
            )
        ]
        self.size = sum(self._quantity)
        self._stride = -(-self.size // _SNAPSHOTS) or 1
        self._filling = poses.filling(max(1, self.size))
        self._params = self._filling.params
        self.tried = 0
        self.best = self._decode_one(self._sequence(self._volume))
        self._chains = [self.best]
        self._rows = 0

    @property
    def volume(self) -> float:
        """Packed volume of the best candidate, m^3."""
        return float(self.best.states[-1]["volume"])

    def state(self) -> State:
        """Return the best candidate's container as a full state of one row."""
        return self._filling.replay(self.best.states[-1])

    @property
    def genes(self) -> Genes:
        """The packed parts of the best candidate, in order."""
        return [self.best.genes[place] for place in self.best.packed]

    def packed(self) -> list[int]:
        """Return the number of packed pieces of each part."""
        count = [0] * len(self.poses.count)
        for part, _ in self.genes:
            count[part] += 1
        return count

    def improve(self, deadline: float) -> None:
        """Improve until `packing_env.kernels.clock` reaches the deadline; may be called again."""
        start = clock()
        if not self.best.packed:
            return
        try:
            if not self._rows:
                self._begin(deadline)
            for turn in itertools.count():
                left = (deadline - clock()) / max(1e-9, deadline - start)
                self._improve(turn % len(self._chains), left * _TEMPERATURE, deadline)
        except OutOfTimeError:
            return

    def complete(self, deadline: float) -> None:
        """Pack parts that the best candidate left out but that have a place now.

        A part may have had no place in its turn, for example because of the balance of the
        container. The method ends when that clock reaches the deadline.
        """
        while len(self.best.packed) < self.size:
            sequence = self._sequence(self._volume, self.genes)
            try:
                again = self._decode_one(sequence, deadline=deadline)
            except OutOfTimeError:
                return
            volume = float(again.states[-1]["volume"])
            if len(again.packed) <= len(self.best.packed) or volume < self.volume:
                return
            self.best = again

    # ------------------------------------------------------------------ candidates

    def _begin(self, deadline: float) -> None:
        """Decode the first candidates, as many as later batches have."""
        # 1. Equal parts in rows.
        extent = self.poses.of_parts(self.poses.catalogue.extent).sort(1).values
        if len(extent.unique(dim=0)) < self.size:
            self._try_rows(clock() + _ROWS_SHARE * (deadline - clock()))
            self._chains[0] = self.best
        # 2. Other orders of the parts. The kernels are loaded now, so the time can be measured.
        begin = clock()
        self._decode_one(self.best.genes, deadline=deadline)
        rows = max(1, min(_ROWS, int(0.1 * (deadline - begin) / (clock() - begin))))
        keys = [extent.prod(1), extent[:, 2], extent[:, 1] * extent[:, 2]]
        orders = [self._sequence(key) for key in keys[: max(1, rows - 1)]]
        while len(orders) < rows:
            spread = _SPREADS[len(orders) % len(_SPREADS)]
            noise = [math.exp(self._random.gauss(0.0, spread)) for _ in self._volume]
            orders.append(self._sequence(self._volume * torch.tensor(noise)))
        value = self._decode(orders, deadline=deadline)[0]
        for i in value.argsort(descending=True)[: _CHAINS - 1].tolist():
            self._chains.append(self._decode_one(orders[i], deadline=deadline))
            self._keep(self._chains[-1])
        self._rows = rows

    def _try_rows(self, deadline: float) -> None:
        """Decode equal parts in rows, in any poses, and then until a deadline all in the same."""
        genes, count = self.best.genes, self.poses.count.tolist()
        with suppress(OutOfTimeError):
            for pose in range(ANY, max(count)):
                if len(self.best.packed) == self.size:
                    break
                turned = [(part, pose % count[part] if pose >= 0 else ANY) for part, _ in genes]
                until = deadline if pose >= 0 else math.inf
                self._keep(self._decode_one(turned, deadline=until, in_rows=True))

    def _improve(self, which: int, temperature: float, deadline: float) -> None:
        """Replace a chain's candidate by its best neighbour if the neighbour is accepted."""
        parent = self._chains[which]
        place = self._random.randrange(min(parent.packed[-1] + 2, self.size))
        neighbours = [self._neighbour(parent.genes, place) for _ in range(self._rows)]
        value = self._decode(neighbours, parent, place, deadline)[0]
        best = int(value.argmax())
        worse = parent.value - float(value[best])
        if worse <= 0 or worse < -temperature * math.log(1.0 - self._random.random()):
            candidate = self._decode_one(neighbours[best], parent, place, deadline)
            self._chains[which] = candidate
            self._keep(candidate)

    def _keep(self, candidate: Candidate) -> None:
        if candidate.value > self.best.value:
            self.best = candidate

    def _sequence(self, key: Tensor, packed: Sequence[Gene] = ()) -> Genes:
        """Return the packed parts, then the other parts by a key, the largest first.

        Of the other parts, those that constraints place late come last. The packed ones stay first,
        because each has a place in this order.
        """
        rest = list(self._quantity)
        for part, _ in packed:
            rest[part] -= 1
        parts = key.argsort(descending=True, stable=True).tolist()
        others = [(part, ANY) for part in parts for _ in range(rest[part])]
        late = [self._late(part) for part in range(len(rest))]
        return [*packed, *sorted(others, key=lambda gene: late[gene[0]])]

    def _late(self, part: int) -> tuple[int, int]:
        """Return a sort key; constraints such as `fragile` and `group` put a part behind others."""
        rules, handling = self._params.constraints, self.poses.catalogue.handling
        if handling is None:
            return 0, 0
        row = int(self.poses.first[part].clamp(max=len(handling.group) - 1))
        fragile = bool(rules.fragile) and bool(handling.fragile[row])
        return int(fragile), -int(handling.group[row]) if rules.lifo else 0

    def _neighbour(self, genes: Genes, place: int) -> Genes:
        """Return a sequence with one or a few changes at or behind a place."""
        changed = list(genes)
        self._change(changed, place)
        for _ in range(self._random.choice((0, 0, 1, 2))):
            self._change(changed, self._random.randrange(place, len(changed)))
        return changed

    def _change(self, genes: Genes, place: int) -> None:
        """Change the pose of the part at a place, or put another part there."""
        draw = self._random.random()
        other = self._random.randrange(place, len(genes))
        if draw < 0.35 or genes[other][0] == genes[place][0]:
            part, pose = genes[place]
            free = pose >= 0 and self._random.random() < 0.4
            drawn = self._random.randrange(int(self.poses.count[part]))
            genes[place] = (part, ANY if free else drawn)
        elif draw < 0.75:
            genes.insert(place, genes.pop(other))
        else:
            genes[place], genes[other] = genes[other], genes[place]

    # ------------------------------------------------------------------ decoding

    def _decode_one(
        self,
        genes: Genes,
        parent: Candidate | None = None,
        place: int = 0,
        deadline: float = math.inf,
        in_rows: bool = False,
    ) -> Candidate:
        """Decode a sequence, and store states on the way."""
        value, legal, states = self._decode([genes], parent, place, deadline, in_rows)
        first = place - place % self._stride
        before = [] if parent is None else [p for p in parent.packed if p < first]
        earlier = [] if parent is None else parent.states[: first // self._stride]
        packed = before + (first + legal[0].nonzero().flatten()).tolist()
        return Candidate(genes, float(value[0]), packed, earlier + states)

    def _decode(
        self,
        candidates: Sequence[Genes],
        parent: Candidate | None = None,
        place: int = 0,
        deadline: float = math.inf,
        in_rows: bool = False,
    ) -> tuple[Float[Tensor, " B"], Tensor, list[State]]:
        """Decode sequences that equal their parent's up to a place; see also `Filling.put`.

        Returns:
            Values; a mask of packed parts ``[B, T]``, from the stored state before ``place`` on;
            and the stored states: the first, one after every stride, and the last.

        Raises:
            OutOfTimeError: The deadline passed.
        """
        first = place - place % self._stride
        genes = torch.tensor([each[first:] for each in candidates], dtype=torch.int64)
        genes = genes.view(len(candidates), -1, 2)
        if parent is None:
            state = self._filling.empty(len(candidates))
        else:
            before = parent.states[first // self._stride]
            count = len(candidates)
            state = {key: value.expand(count, *value.shape[1:]) for key, value in before.items()}
        failed = torch.zeros(len(candidates), len(self.poses.count), dtype=torch.bool)
        legal, states = torch.zeros(genes.shape[:2], dtype=torch.bool), []
        for step in range(genes.shape[1]):
            if clock() > deadline:
                raise OutOfTimeError
            if (first + step) % self._stride == 0:
                states.append(state)
            part, pose = genes[:, step].unbind(1)
            state, legal[:, step] = self._put(state, part, pose, failed, in_rows)
        self.tried += len(candidates)
        height = state["heightmap"].amax((1, 2)).double() / self._params.height
        share = state["volume"] / self._params.container_volume
        share = share + _COUNT_WEIGHT * state["items_packed"] / max(1, self.size)
        return share - _HEIGHT_WEIGHT * height, legal, [*states, state]

    def _put(
        self,
        state: State,
        part: Int[Tensor, " B"],
        pose: Int[Tensor, " B"],
        failed: Tensor,
        in_rows: bool,
    ) -> tuple[State, Tensor]:
        """Put one part per row at its lowest place; mark parts without a place in ``failed``.

        A part without a place stays without one until another part is put down.
        """
        rows, there = self.poses.of(part, pose)
        there &= ~failed.gather(1, part[:, None])
        if not bool(there.any()):
            return state, torch.zeros_like(part, dtype=torch.bool)
        state, legal = self._filling.put(state, rows, there, in_rows)
        failed &= ~legal[:, None]
        failed[torch.arange(len(part)), part] |= ~legal & (pose < 0)
        return state, legal
