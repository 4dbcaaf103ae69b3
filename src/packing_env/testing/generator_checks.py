"""Check of instance generators."""

from __future__ import annotations

import torch

from packing_env.core import feasibility
from packing_env.generators import Generator, make_pool
from packing_env.generators.base import SPLITS, Request
from packing_env.items import Catalogue
from packing_env.testing.errors import require
from packing_env.testing.small_tasks import random_catalogue
from packing_env.types import Instances, PackingParams


def check_generator(
    generator: Generator,
    catalogue: Catalogue | None = None,
    params: PackingParams | None = None,
    num_instances: int = 64,
) -> None:
    """Check a generator: shapes, ranges, reproducible draws, and different splits.

    Args:
        generator: The generator to check.
        catalogue: The items from which it draws; by default a :func:`random_catalogue`. A generator
            with its own cuboids draws from these instead.
        params: The task; a small one by default.
        num_instances: Number of instances to request.

    Raises:
        CheckError: A requirement fails; the message names it and the expected value.
    """
    catalogue = random_catalogue() if catalogue is None else catalogue
    if params is None:
        params = PackingParams(container=catalogue.container, cell=catalogue.cell, num_items=8)
    base = catalogue

    def sample(seed: int, stream: int, size: int = num_instances) -> tuple[Instances, Catalogue]:
        items = _own_cuboids(generator, params, seed, SPLITS[stream], size) or base
        playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
        request = Request.of(params, seed, SPLITS[stream], size, playable)
        return generator.sample(request, items), items

    state = torch.get_rng_state()
    drawn, items = sample(0, 0)
    require(
        torch.equal(state, torch.get_rng_state()),
        "the generator drew from torch's global stream; use core.random.philox with request.seed "
        "and request.stream",
    )
    _check_instances(drawn, len(items.names), params.num_items)
    require(
        generator.finite or len(drawn) == num_instances,
        f"{num_instances} instances were requested, but {len(drawn)} were made; a source with a "
        "fixed number of instances must set finite = True",
    )
    require(_same((drawn, items), sample(0, 0)), "the same request gives different instances")
    if not generator.finite:
        require(not _same((drawn, items), sample(1, 0)), "another seed gives the same instances")
        require(
            not _same((drawn, items), sample(0, 1)), "the test split repeats the training instances"
        )
        require(
            len(sample(0, 0, 1)[0]) == 1, "one instance was requested, but another number was made"
        )
    playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
    pool = make_pool(generator, items, params, playable, size=num_instances, skip_infeasible=True)
    require(len(pool) > 0, "no instance of the generator can be started")


def _own_cuboids(
    generator: Generator, params: PackingParams, seed: int, split: str, size: int
) -> Catalogue | None:
    """Build the catalogue of the generator's own cuboids; ``None`` if it has none."""
    supplied = generator.cuboids(params, seed, split, size)
    if supplied is None:
        return None
    return Catalogue.from_cuboids(
        supplied.extents,
        cell=params.pitch,
        container=params.container,
        orientations="yaw",
        names=supplied.names,
        upright=supplied.upright,
        maps=params.geometry == "maps",
    )


def _same(one: tuple[Instances, Catalogue], other: tuple[Instances, Catalogue]) -> bool:
    """Test if two draws have equal rows, and their catalogues equal extents."""
    (a, items), (b, others) = one, other
    return (
        torch.equal(a.item_id, b.item_id)
        and torch.equal(a.num_items, b.num_items)
        and torch.equal(items.extent[a.item_id], others.extent[b.item_id])
    )


def _check_instances(drawn: object, num_rows: int, capacity: int) -> None:
    require(
        isinstance(drawn, Instances), f"sample() must return Instances, not {type(drawn).__name__}"
    )
    assert isinstance(drawn, Instances)
    item_id, num_items = drawn.item_id, drawn.num_items
    for name, tensor, shape in (
        ("item_id", item_id, (len(drawn), capacity)),
        ("num_items", num_items, (len(drawn),)),
    ):
        require(
            tensor.dtype == torch.int64 and tuple(tensor.shape) == shape,
            f"Instances.{name} must be int64 {shape}; got {tensor.dtype} {tuple(tensor.shape)}",
        )
        require(tensor.device.type == "cpu", f"Instances.{name} must be on the CPU")
    require(len(drawn) > 0, "the generator made no instance")
    require(
        bool(((item_id >= 0) & (item_id < num_rows)).all()),
        f"Instances.item_id must lie in 0..{num_rows - 1}, also in padding; found "
        f"{int(item_id.min())}..{int(item_id.max())}",
    )
    require(
        bool(((num_items >= 1) & (num_items <= capacity)).all()),
        f"Instances.num_items must lie in 1..{capacity}; found {num_items.unique().tolist()}",
    )
