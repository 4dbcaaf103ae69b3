"""Checks of reward terms and generators."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.core import feasibility, metrics, rewards, transition
from packing_env.generators import Generator, make_pool
from packing_env.generators.base import SPLITS, Request
from packing_env.items import Catalogue
from packing_env.testing.errors import CheckError, require
from packing_env.testing.of_environments import act
from packing_env.testing.small_tasks import random_catalogue, small_env
from packing_env.types import Instances, PackingParams


def check_reward(term: rewards.Term | str) -> None:
    """Check a reward term: a function ``(before, after, legal) -> [B]`` of metrics.

    It must give one finite float per row, from that row alone, the same again when called again,
    without changing its arguments and without reading a value back to Python (an ``if`` on a
    tensor, ``.item()``, ``float(tensor)``).

    Raises:
        CheckError: Says which of these fails.
    """
    function = rewards.TERMS[term] if isinstance(term, str) else term
    before, after, legal = _transitions()
    copies = [{k: v.clone() for k, v in m.items()} for m in (before, after)]
    value = function(before, after, legal)
    require(isinstance(value, Tensor), f"a reward term returns a tensor, not {type(value)}")
    require(
        value.shape == legal.shape,
        f"a reward term returns one value per row, {tuple(legal.shape)}; got {tuple(value.shape)}",
    )
    require(value.is_floating_point(), f"a reward term returns floats; got {value.dtype}")
    require(bool(value.isfinite().all()), f"the term is not finite: {value[~value.isfinite()]}")
    require(torch.equal(value, function(before, after, legal)), "called twice, the term differs")
    for metric, copy in zip((before, after), copies, strict=True):
        changed = [k for k in copy if not torch.equal(metric[k], copy[k])]
        require(not changed, f"the term changed its argument {changed}; work on new tensors")
    one = torch.stack([
        function({k: v[i : i + 1] for k, v in before.items()},
                 {k: v[i : i + 1] for k, v in after.items()}, legal[i : i + 1])[0]
        for i in range(len(legal))
    ])  # fmt: skip
    require(
        bool(torch.allclose(one, value, rtol=1e-9, atol=1e-12)),
        "a row's value depends on the other rows (a mean or a maximum over the batch?)",
    )
    try:
        function(
            {k: v.to("meta") for k, v in before.items()},
            {k: v.to("meta") for k, v in after.items()},
            legal.to("meta"),
        )
    except (RuntimeError, NotImplementedError) as error:
        raise CheckError(
            f"the term reads a value back to Python, or needs another device: {error}; use "
            "torch.where instead of `if`, and tensors on the metrics' device"
        ) from error


def _transitions() -> tuple[rewards.Metrics, rewards.Metrics, Tensor]:
    """Metrics before and after some legal and illegal decisions, all rows of all steps."""
    env = small_env(num_envs=8, illegal_action="noop")
    root, found = env.reset(), []
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        before = metrics.measure(dict(env.state.items()), env.params)
        root, _ = act(env, root, generator)
        if step % 3 == 2:
            root["action"] = torch.where(torch.arange(8) % 2 == 0, -1, root["action"])
        count = env.state["illegal_actions"].clone()  # a step may change it in place
        live = ~transition.is_done(dict(env.state.items()))
        root = env.step_mdp(env.step(root))
        after = metrics.measure(dict(env.state.items()), env.params)
        found.append((before, after, live & (env.state["illegal_actions"] == count)))
    before = {name: torch.cat([b[name] for b, _, _ in found]) for name in metrics.NAMES}
    after = {name: torch.cat([a[name] for _, a, _ in found]) for name in metrics.NAMES}
    return before, after, torch.cat([legal for _, _, legal in found])


def check_generator(
    generator: Generator,
    catalogue: Catalogue | None = None,
    params: PackingParams | None = None,
    num_instances: int = 64,
) -> None:
    """Check a generator: shapes, ranges, that draws repeat, and that splits differ.

    Args:
        generator: What to check.
        catalogue: The items it draws from; a :func:`random_catalogue` by default. A generator that
            brings its own cuboids draws from those.
        params: The task; a small one by default.
        num_instances: How many to ask for.

    Raises:
        CheckError: Says what is wrong, and what would be right.
    """
    catalogue = random_catalogue() if catalogue is None else catalogue
    if params is None:
        params = PackingParams(container=catalogue.container, cell=catalogue.cell, num_items=8)
    given = catalogue

    def sample(seed: int, stream: int, size: int = num_instances) -> tuple[Instances, Catalogue]:
        items = _own_cuboids(generator, params, seed, SPLITS[stream], size) or given
        playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
        request = Request(size, params.num_items, seed, stream, playable)
        return generator.sample(request, items), items

    state = torch.get_rng_state()
    made, items = sample(0, 0)
    require(
        torch.equal(state, torch.get_rng_state()),
        "the generator drew from torch's global stream; use core.random.philox with request.seed "
        "and request.stream",
    )
    _check_instances(made, len(items.names), params.num_items)
    require(
        generator.finite or len(made) == num_instances,
        f"{num_instances} instances were asked for, {len(made)} made; a source with an end sets "
        "finite = True",
    )
    require(_same((made, items), sample(0, 0)), "the same request gives other instances")
    if not generator.finite:
        require(not _same((made, items), sample(1, 0)), "another seed gives the same instances")
        require(
            not _same((made, items), sample(0, 1)), "the test split repeats the training instances"
        )
        require(len(sample(0, 0, 1)[0]) == 1, "one instance was asked for, another number made")
    playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
    pool = make_pool(generator, items, params, playable, size=num_instances, skip_infeasible=True)
    require(len(pool) > 0, "no instance of the generator can be started")


def _own_cuboids(
    generator: Generator, params: PackingParams, seed: int, split: str, size: int
) -> Catalogue | None:
    """The catalogue of what a generator brings, if it brings any."""
    supplied = generator.cuboids(params, seed, split, size)
    return supplied and Catalogue.from_cuboids(
        supplied.extents,
        cell=params.pitch,
        container=params.container,
        orientations="yaw",
        names=supplied.names,
        upright=supplied.upright,
        maps=params.geometry == "maps",
    )


def _same(one: tuple[Instances, Catalogue], other: tuple[Instances, Catalogue]) -> bool:
    """Whether two draws are the same rows, of catalogues whose items measure the same."""
    (a, items), (b, others) = one, other
    return (
        torch.equal(a.item_id, b.item_id)
        and torch.equal(a.num_items, b.num_items)
        and torch.equal(items.extent[a.item_id], others.extent[b.item_id])
    )


def _check_instances(made: object, num_rows: int, capacity: int) -> None:
    """Types, shapes and ranges."""
    require(isinstance(made, Instances), f"sample() returns Instances, not {type(made).__name__}")
    assert isinstance(made, Instances)
    item_id, num_items = made.item_id, made.num_items
    for name, tensor, shape in (
        ("item_id", item_id, (len(made), capacity)),
        ("num_items", num_items, (len(made),)),
    ):
        require(
            tensor.dtype == torch.int64 and tuple(tensor.shape) == shape,
            f"Instances.{name} must be int64 {shape}; got {tensor.dtype} {tuple(tensor.shape)}",
        )
        require(tensor.device.type == "cpu", f"Instances.{name} must be on the CPU")
    require(len(made) > 0, "the generator made no instance")
    require(
        bool(((item_id >= 0) & (item_id < num_rows)).all()),
        f"Instances.item_id must lie in 0..{num_rows - 1}, also in padding; found "
        f"{int(item_id.min())}..{int(item_id.max())}",
    )
    require(
        bool(((num_items >= 1) & (num_items <= capacity)).all()),
        f"Instances.num_items must lie in 1..{capacity}; found {num_items.unique().tolist()}",
    )
