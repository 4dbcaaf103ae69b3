"""Check of instance generators."""

from __future__ import annotations

from dataclasses import replace

import torch

from packing_env.core import feasibility
from packing_env.generators import Generator, make_pool
from packing_env.generators.base import SPLITS, GeneratorError, Request, check_instances
from packing_env.items import Catalogue
from packing_env.testing.errors import CheckError, require
from packing_env.types import Instances, PackingParams

_SIDES = ((1, 1, 1), (2, 1, 1), (2, 2, 1), (3, 1, 2), (3, 2, 2), (4, 3, 2))


def check_generator(
    generator: Generator,
    catalogue: Catalogue | None = None,
    params: PackingParams | None = None,
    num_instances: int = 64,
) -> None:
    """Check a generator: shapes, ranges, reproducible draws, and different splits.

    Args:
        generator: The generator to check.
        catalogue: The items from which it draws; by default six small cuboids. A generator with its
            own cuboids draws from these instead.
        params: The task; a small one by default.
        num_instances: Number of instances to request.

    Raises:
        CheckError: A requirement fails; the message names it and the expected value.
    """
    require(
        isinstance(generator, Generator), f"check_generator takes a Generator, not {generator!r}"
    )
    if catalogue is None:
        catalogue = Catalogue.from_cuboids(_SIDES, cell=1.0, container=(8.0, 8.0, 10.0))
    if params is None:
        params = PackingParams(container=catalogue.container, cell=catalogue.cell, num_items=8)
    base = catalogue

    def sample(seed: int, stream: int, size: int = num_instances) -> tuple[Instances, Catalogue]:
        request = Request.of(params, seed, SPLITS[stream], size)
        items = _own_cuboids(generator, params, request) or base
        playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
        return generator.sample(replace(request, playable=playable), items), items

    # 1. Only the request may determine the draw, not torch's global stream.
    state = torch.get_rng_state()
    drawn, items = sample(0, 0)
    require(
        torch.equal(state, torch.get_rng_state()),
        "the generator drew from torch's global stream; use core.random.philox with request.seed "
        "and request.stream",
    )
    # 2. The instances fit the task, and are as many as requested.
    try:
        check_instances(generator, drawn, len(items), params.num_items)
    except GeneratorError as error:
        raise CheckError(str(error)) from error
    require(
        generator.finite or len(drawn) == num_instances,
        f"{num_instances} instances were requested, but {len(drawn)} were made; a source with a "
        "fixed number of instances must set finite = True",
    )
    # 3. Equal requests give equal instances; other seeds and splits give others.
    require(_same((drawn, items), sample(0, 0)), "the same request gives different instances")
    if not generator.finite:
        require(not _same((drawn, items), sample(1, 0)), "another seed gives the same instances")
        require(
            not _same((drawn, items), sample(0, 1)), "the test split repeats the training instances"
        )
        require(
            len(sample(0, 0, 1)[0]) == 1, "one instance was requested, but another number was made"
        )
    # 4. Some instance begins with a legal placement.
    playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
    pool = make_pool(generator, items, params, playable, size=num_instances, skip_infeasible=True)
    require(len(pool) > 0, "no instance of the generator can be started")


def _own_cuboids(generator: Generator, params: PackingParams, request: Request) -> Catalogue | None:
    """Build the catalogue of the generator's own cuboids; ``None`` if it has none."""
    supplied = generator.cuboids(request)
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
