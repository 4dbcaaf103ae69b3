"""Sources of instances, and pools of playable ones."""

import dataclasses
import logging
from pathlib import Path

import pytest
import torch
from tests.tiny import catalogue

from packing_env.core import feasibility
from packing_env.generators import (
    CatalogueMix,
    FixedPool,
    Generator,
    GeneratorError,
    InfeasibleError,
    SequenceFile,
    Uniform,
    make_pool,
)
from packing_env.generators.base import Request, full_length
from packing_env.generators.sequence_file import SequenceError
from packing_env.items import Catalogue
from packing_env.testing import check_generator
from packing_env.types import Instances, PackingParams

TALL = 5
"""A row that does not fit under the lid."""


@pytest.fixture
def items() -> Catalogue:
    """Return six blocks; the last is too tall, and rows 1 and 2 are one item at two scales."""
    made = catalogue(num_items=6)
    bottom = torch.where(made.bottom.isfinite(), 0.0, made.bottom)
    peak = made.peak.clone()
    peak[TALL] = 1.0
    return dataclasses.replace(
        made,
        bottom=bottom,
        com=32 * made.size,
        peak=peak,
        names=["mug", "box", "box", "can", "cup", "pole"],
        sources=[{"scale": s} for s in (1.0, 1.0, 1.2, 1.0, 1.0, 1.0)],
    )


@pytest.fixture
def params(items: Catalogue) -> PackingParams:
    return PackingParams(container=items.container, cell=items.cell, num_items=4)


def playable(items: Catalogue, params: PackingParams) -> torch.Tensor:
    return feasibility.legal_on_floor(items.tensors(), params).any(1)


def request(items: Catalogue, params: PackingParams, count: int = 2000, seed: int = 0) -> Request:
    return Request.of(params, seed, "train", count, playable(items, params))


@pytest.mark.parametrize("source", [Uniform(), CatalogueMix()])
def test_generators_keep_the_rules_of_generators(source: Generator, items: Catalogue) -> None:
    check_generator(source, items)


def test_uniform_draws_playable_rows_equally(items: Catalogue, params: PackingParams) -> None:
    drawn = Uniform().sample(request(items, params), items).item_id.flatten().bincount(minlength=6)
    assert drawn[TALL] == 0
    assert torch.allclose(drawn[:TALL] / drawn.sum(), torch.tensor(0.2), atol=0.02)


def test_the_mix_draws_items_equally_for_any_number_of_sizes(
    items: Catalogue, params: PackingParams
) -> None:
    drawn = CatalogueMix().sample(request(items, params), items).item_id.flatten()
    share = drawn.bincount(minlength=6) / drawn.numel()
    expected = torch.tensor([0.25, 0.125, 0.125, 0.25, 0.25, 0.0])
    assert torch.allclose(share, expected, atol=0.02)


def test_fixed_pool_pads_short_instances(items: Catalogue, params: PackingParams) -> None:
    made = FixedPool([[3, 1], [0, 1, 2, 3]]).sample(request(items, params), items)
    assert made.item_id.tolist() == [[3, 1, 0, 0], [0, 1, 2, 3]]
    assert made.num_items.tolist() == [2, 4]
    check_generator(FixedPool([[3, 1], [0, 1, 2, 3]]), items, params)


def test_an_instance_that_cannot_start_raises_or_is_left_out(
    items: Catalogue, params: PackingParams, caplog: pytest.LogCaptureFixture
) -> None:
    pool, may = FixedPool([[0, 1], [TALL, 1], [1, TALL]]), playable(items, params)
    with pytest.raises(InfeasibleError, match=r"instance 1 .*\(pole\).*skip_infeasible=true"):
        make_pool(pool, items, params, may)
    with caplog.at_level(logging.WARNING, "packing_env.generators"):
        left = make_pool(pool, items, params, may, skip_infeasible=True)
    assert left.item_id.tolist() == [[0, 1, 0, 0], [1, TALL, 0, 0]]
    assert "left out 1 of 3" in caplog.text
    two = params.evolve(num_visible=2)  # the second visible item fits: it can be started
    assert len(make_pool(pool, items, two, may)) == 3


def test_a_pool_that_is_too_small_to_hold_a_playable_instance_says_so(
    items: Catalogue, params: PackingParams
) -> None:
    class Blind(Uniform):
        """Draws all rows, playable or not: in this pool, only row 5, which is too tall."""

        def sample(self, request: Request, catalogue: Catalogue) -> Instances:
            return full_length(torch.full((request.num_instances, request.num_items), TALL))

    with pytest.raises(InfeasibleError, match="larger pool_size"):
        make_pool(Blind(), items, params, playable(items, params), size=2)


def test_largest_first_keeps_padding_last(items: Catalogue, params: PackingParams) -> None:
    ordered = make_pool(
        FixedPool([[0, 1, 2], [3, 4, 0, 1]]),
        items,
        params.evolve(item_order="volume"),
        playable(items, params),
    )
    box = items.extent.prod(-1)
    for ids, count in zip(ordered.item_id.tolist(), ordered.num_items.tolist(), strict=True):
        sizes = [float(box[i]) for i in ids[:count]]
        assert sizes == sorted(sizes, reverse=True)
    assert sorted(ordered.item_id[0, :3].tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("json", '[["mug", "can"], ["cup", 1]]'),
        ("csv", "mug, can\n\ncup,1\n"),
        ("csv", "mug;can\ncup;1\n"),
    ],
)
def test_sequences_are_read_by_name_or_row(
    suffix: str, text: str, tmp_path: Path, items: Catalogue, params: PackingParams
) -> None:
    path = tmp_path / f"orders.{suffix}"
    path.write_text(text, encoding="utf-8")
    made = SequenceFile(str(path)).sample(request(items, params), items)
    assert made.item_id[:, :2].tolist() == [[0, 3], [4, 1]]
    assert made.num_items.tolist() == [2, 2]
    check_generator(SequenceFile(str(path)), items, params)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[["mug", "vase"]]', "sequence 0 names 'vase'.*known items: box, can"),
        ("a.json", '{"mug": 1}', "expected a list of lists"),
        ("a.json", '["mug"]', "expected a list of lists"),
        ("a.json", "[[", "cannot be read"),
        ("a.txt", "mug", "read from .json, .csv or .pt"),
        ("missing.csv", None, "cannot be read"),
        ("a.json", "[[]]", "empty instance"),
    ],
)
def test_bad_sequence_files_name_the_file_and_the_place(
    name: str,
    text: str | None,
    message: str,
    tmp_path: Path,
    items: Catalogue,
    params: PackingParams,
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(GeneratorError, match=message) as error:
        SequenceFile(str(path)).sample(request(items, params), items)
    assert name in str(error.value) or not isinstance(error.value, SequenceError)
