"""The interface of generators, and pools of playable instances."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.random import philox
from packing_env.items import Catalogue
from packing_env.memory import check_memory
from packing_env.types import MAX_SEED, Instances, PackingParams, check_integer, whole_cells

_LOGGER = logging.getLogger("packing_env.generators")
SPLITS = ("train", "test")
_CHECK = "check the items' unit, the container and the stability rule"
_STRIDE = 0x1E3779B97F4A7C15
"""Difference between the seeds of successive pools of a task; it is odd."""
ROWS, SIDES, SHUFFLE, ORDER, CUT = 1, 2, 3, 4, 16
"""Purposes for which random words are drawn; round k of the guillotine's cuts has CUT + k."""
_WORDS_AT_A_TIME = 2**15
DRAW_BYTES = 256
"""Bytes of temporary memory per item of a pool while it is drawn, for example for random words."""


class GeneratorError(ValueError):
    """A generator cannot make the requested instances; the message names the remedy."""


class InfeasibleError(GeneratorError):
    """An instance cannot be started: none of its first items fits into the empty container."""


@dataclass(frozen=True)
class Request:
    """The arguments of a generator: the size of a pool, its random stream, and its task.

    Attributes:
        num_instances: ``P``.
        num_items: ``N``, largest number of items of an instance.
        seed: Seed of the pool.
        stream: Index of the random stream; each split has its own.
        container: ``(X, Y, H)``, metres.
        pitch: Step of the lattice, metres: the cell, or the unit of geometry ``"boxes"``.
        geometry: The geometry of the task.
        playable: ``[M]`` True for catalogue rows with a legal placement in the empty container;
            empty before there is a catalogue.
    """

    num_instances: int
    num_items: int
    seed: int
    stream: int
    container: tuple[float, float, float]
    pitch: float
    geometry: str
    playable: Bool[Tensor, " M"]

    @classmethod
    def of(
        cls,
        params: PackingParams,
        seed: int = 0,
        split: str = "train",
        size: int = 4096,
        playable: Bool[Tensor, " M"] | None = None,
    ) -> Request:
        """Make the request for a pool of a task.

        Raises:
            ParameterError: The size or the seed is invalid.
            GeneratorError: The split is unknown.
        """
        return cls(
            num_instances=check_integer("pool_size", size, 1),
            num_items=params.num_items,
            seed=check_integer("seed", seed, 0, MAX_SEED),
            stream=split_stream(split),
            container=params.container,
            pitch=params.pitch,
            geometry=params.geometry,
            playable=torch.zeros(0, dtype=torch.bool) if playable is None else playable,
        )

    @property
    def steps(self) -> tuple[int, int, int]:
        """The container's sides in pitches; raises unless all three are whole."""
        x, y, z = map(whole_cells, self.container, (self.pitch,) * 3, "XYH")
        return x, y, z

    def words(
        self, purpose: int, num_places: int, instance: Int[Tensor, " P"] | None = None
    ) -> tuple[Int[Tensor, "P S"], Int[Tensor, "P S"], Int[Tensor, "P S"], Int[Tensor, "P S"]]:
        """Draw four independent 32-bit words per instance and place.

        Args:
            purpose: Word 3 of the counter, at least 1; draws for different purposes are
                independent. (In the draws of the environment's rows, this word is 0.)
            num_places: ``S``, number of places of each instance.
            instance: Indices of the instances; by default ``0 .. P - 1``.
        """
        if instance is None:
            instance = torch.arange(self.num_instances)
        # A block at a time: the temporaries of a whole pool would not fit into the cache.
        rows = max(1, _WORDS_AT_A_TIME // max(1, num_places))
        blocks = [self._words(purpose, num_places, block) for block in instance.split(rows)]
        first, second, third, fourth = (torch.cat(words) for words in zip(*blocks, strict=True))
        return first, second, third, fourth

    def _words(
        self, purpose: int, num_places: int, instance: Int[Tensor, " P"]
    ) -> tuple[Int[Tensor, "P S"], Int[Tensor, "P S"], Int[Tensor, "P S"], Int[Tensor, "P S"]]:
        shape = (len(instance), num_places)
        place = torch.arange(num_places).expand(shape)
        seed, stream, kind = (torch.full(shape, n) for n in (self.seed, self.stream, purpose))
        return philox(seed, instance[:, None].expand(shape), place, stream, kind)


@dataclass(frozen=True)
class Cuboids:
    """Cuboids that a generator supplies, in the order of the catalogue's rows.

    Attributes:
        extents: ``[M, 3]`` float64 sides (x, y, z) of each item as it arrives, metres.
        upright: ``[M, 3]`` True for sides that may stand vertically; ``None`` means all.
        names: One name per row; with ``None`` the cuboids are named by their extents.
    """

    extents: Float[Tensor, "M 3"]
    upright: Bool[Tensor, "M 3"] | None = None
    names: list[str] | None = None


class Generator(ABC):
    """A source of instances. Equal requests give equal instances, on every device."""

    finite = False
    """True if :meth:`sample` returns a fixed list and ignores ``num_instances``."""
    catalogue_of_seed = False
    """True if :meth:`cuboids` depends on the seed, so that every pool has its own catalogue."""

    @abstractmethod
    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Make ``num_instances`` instances in arrival order, on the CPU."""

    def cuboids(self, request: Request) -> Cuboids | None:
        """Return the cuboids of a pool; ``None`` if the generator supplies no cuboids."""
        return None

    def law(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> Float[Tensor, " M"] | None:
        """Return the probability of each catalogue row, if it is equal at all places, or None."""
        return None

    def signs(
        self, item_id: Int[Tensor, "B N"], catalogue: Mapping[str, Tensor], params: PackingParams
    ) -> Float[Tensor, "B N C"] | None:
        """Return numbers, computed from the items up to each place, that predict later items.

        ``None`` means that there are no such numbers.
        """
        return None


def full_length(rows: Int[Tensor, "P N"]) -> Instances:
    """Make instances that all have N items."""
    return Instances(rows, torch.full((rows.shape[0],), rows.shape[1]))


def padded(sequences: Sequence[Sequence[int]], num_items: int) -> Instances:
    """Make instances from lists of catalogue rows, padded with row 0 to ``num_items``."""
    what = f"num_items={num_items} of {len(sequences)} instances"
    size = torch.int64.itemsize * len(sequences) * num_items
    check_memory(what, size, torch.device("cpu"), lambda _: "use a smaller num_items", log=False)
    rows = torch.zeros(len(sequences), num_items, dtype=torch.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return Instances(rows, torch.tensor([len(sequence) for sequence in sequences]))


def split_stream(split: str) -> int:
    """Return the random stream of a split; held-out instances have a separate stream."""
    if split not in SPLITS:
        raise GeneratorError(f"split={split!r} is unknown; choose one of {SPLITS}")
    return SPLITS.index(split)


def check_pool_memory(generator: Generator, size: int, num_items: int) -> None:
    """Raise if the draws of a pool would not fit into memory."""
    count = 1 if generator.finite else size
    what = f"pool_size={count} of num_items={num_items}"
    remedy = "use a smaller pool_size or num_items"
    check_memory(what, DRAW_BYTES * count * num_items, torch.device("cpu"), lambda _: remedy)


def make_pool(
    generator: Generator,
    catalogue: Catalogue,
    params: PackingParams,
    playable: Bool[Tensor, " M"],
    *,
    seed: int = 0,
    split: str = "train",
    size: int = 4096,
    skip_infeasible: bool | None = None,
) -> Instances:
    """Make instances whose first visible items include one that fits into the empty container.

    Args:
        generator: Source of the instances.
        catalogue: The items.
        params: The task (capacity, visibility, order).
        playable: ``[M]`` True for rows with a legal placement in the empty container.
        seed: Seed of the pool.
        split: ``"train"`` or ``"test"``; their random streams are disjoint.
        size: Number of instances; finite generators ignore it.
        skip_infeasible: Whether to leave out instances that cannot be started. ``None`` means True,
            except for finite generators (files, fixed pools): for these, such an instance is an
            error.

    Raises:
        GeneratorError: The generator returned something other than instances of the catalogue.
        InfeasibleError: An instance of a finite generator, or every instance, cannot be started.
        ParameterError: ``seed`` or ``size`` is invalid.
    """
    # 1. Check the arguments before anything is drawn.
    playable = playable.cpu()
    request = Request.of(params, seed, split, size, playable)
    check_pool_memory(generator, size, params.num_items)
    if not bool(playable.any()):
        raise InfeasibleError(
            f"none of the catalogue's {len(playable)} items has a legal placement in the empty "
            f"{params.container} m container; {_CHECK}"
        )
    # 2. Draw the instances, and find the items that are visible first.
    drawn = generator.sample(request, catalogue)
    check_instances(generator, drawn, len(catalogue), params.num_items)
    pool = _ordered(drawn, catalogue, params)
    first = pool.item_id[:, : params.num_visible]
    filled = torch.arange(first.shape[1]) < pool.num_items[:, None]
    startable = (playable[first] & filled).any(1)
    skipped = int((~startable).sum())
    # 3. Leave out instances that cannot be started, or raise an error.
    if skip_infeasible is None:
        skip_infeasible = not generator.finite
    if skipped and not skip_infeasible:
        index = int((~startable).nonzero()[0])
        names = [catalogue.names[row] for row in first[index][filled[index]].tolist()]
        raise InfeasibleError(
            f"instance {index} cannot be started: none of its first items ({', '.join(names)}) "
            f"fits into the empty container ({skipped} of {len(pool)} instances cannot be started)"
            "; set skip_infeasible=true to leave them out"
        )
    if skipped:
        _LOGGER.warning("left out %d of %d instances that cannot be started", skipped, len(pool))
    if skipped == len(pool):
        more = "" if generator.finite else ", or use a larger pool_size"
        raise InfeasibleError(f"no instance can be started in the empty container; {_CHECK}{more}")
    return Instances(pool.item_id[startable], pool.num_items[startable])


def check_instances(generator: Generator, drawn: object, num_rows: int, num_items: int) -> None:
    """Raise a GeneratorError unless a generator returned instances of a catalogue.

    Args:
        generator: The generator, for the message.
        drawn: The result of its :meth:`Generator.sample`.
        num_rows: Rows of the catalogue.
        num_items: Largest number of items of an instance.
    """
    call = f"{type(generator).__name__}.sample()"
    if not isinstance(drawn, Instances):
        raise GeneratorError(f"{call} must return Instances, not {type(drawn).__name__}")
    for name, shape, (low, high) in (
        ("item_id", (len(drawn), num_items), (0, num_rows - 1)),
        ("num_items", (len(drawn),), (1, num_items)),
    ):
        tensor = getattr(drawn, name)
        if (tensor.dtype, tuple(tensor.shape), tensor.device.type) != (torch.int64, shape, "cpu"):
            raise GeneratorError(
                f"{call}: Instances.{name} must be int64 {shape} on the CPU; it is {tensor.dtype} "
                f"{tuple(tensor.shape)} on {tensor.device}"
            )
        if not bool(((tensor >= low) & (tensor <= high)).all()):
            raise GeneratorError(
                f"{call}: Instances.{name} must lie in {low}..{high}, also in padding; it has "
                f"{int(tensor.min())}..{int(tensor.max())}"
            )
    if not len(drawn):
        raise GeneratorError(f"{call} made no instance")


def make_next_pool(
    number: int,
    task: tuple[Generator, Catalogue, PackingParams, Tensor],
    *,
    seed: int,
    **options: Any,
) -> Instances:
    """Make one of a task's pools, which differ in their seeds.

    Args:
        number: Number of the pool; pool 0 is that of :func:`make_pool`.
        task: The leading arguments of :func:`make_pool`.
        seed: Seed of pool 0.
        options: Further arguments of :func:`make_pool`.

    Raises:
        GeneratorError: The generator has only one pool.
    """
    generator, catalogue, params, playable = task
    if generator.finite or generator.catalogue_of_seed:
        raise GeneratorError(
            f"{type(generator).__name__} has one pool of instances, so no other can be drawn; set "
            f"trainer.redraw_every=null"
        )
    own_seed = (seed + number * _STRIDE) % (MAX_SEED + 1)
    return make_pool(generator, catalogue, params, playable, seed=own_seed, **options)


def _ordered(pool: Instances, catalogue: Catalogue, params: PackingParams) -> Instances:
    """Sort by bounding box, largest first and padding last, if ``item_order`` is ``"volume"``."""
    if params.item_order == "arrival":
        return pool
    box = catalogue.tensors()["extent"].cpu().prod(-1)[pool.item_id]
    is_item = torch.arange(pool.item_id.shape[1]) < pool.num_items[:, None]
    order = torch.where(is_item, box, -1.0).argsort(dim=1, descending=True, stable=True)
    return Instances(pool.item_id.gather(1, order), pool.num_items)
