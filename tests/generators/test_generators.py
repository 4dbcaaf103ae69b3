"""Sources of instances, and pools of playable ones."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import catalogue, tiny_env

from packing_env.core import feasibility
from packing_env.generators import (
    CatalogueMix,
    ContinuousCuboids,
    CuboidSequences,
    FixedPool,
    Generator,
    GeneratorError,
    Guillotine,
    InfeasibleError,
    SequenceFile,
    Uniform,
    UniformCuboids,
    make_pool,
)
from packing_env.generators.base import Request
from packing_env.generators.sequence_file import SequenceError
from packing_env.items import Catalogue
from packing_env.testing import check_generator
from packing_env.types import PackingParams, ParameterError

TALL = 5
"""A row that does not fit under the lid."""


@pytest.fixture
def items() -> Catalogue:
    """Six blocks, the last of them too tall; rows 1 and 2 are one item at two scales."""
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
    return Request(count, params.num_items, seed, 0, playable(items, params))


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


def test_splits_and_seeds_are_disjoint_streams(items: Catalogue, params: PackingParams) -> None:
    pools = {
        (seed, split): make_pool(
            CatalogueMix(), items, params, playable(items, params), seed=seed, split=split, size=64
        ).item_id
        for seed in (0, 1)
        for split in ("train", "test")
    }
    for one in pools:
        for other in pools:
            assert torch.equal(pools[one], pools[other]) is (one == other)


def test_a_larger_pool_starts_with_the_smaller(items: Catalogue, params: PackingParams) -> None:
    small, large = (
        make_pool(Uniform(), items, params, playable(items, params), size=n).item_id
        for n in (16, 64)
    )
    assert torch.equal(small, large[:16])


def test_fixed_pool_pads_short_instances(items: Catalogue, params: PackingParams) -> None:
    made = FixedPool([[3, 1], [0, 1, 2, 3]]).sample(request(items, params), items)
    assert made.item_id.tolist() == [[3, 1, 0, 0], [0, 1, 2, 3]]
    assert made.num_items.tolist() == [2, 4]
    check_generator(FixedPool([[3, 1], [0, 1, 2, 3]]), items, params)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([], "empty instance"),
        ([[0], []], "empty instance"),
        ([[0] * 5], "set num_items=5 or more"),
        ([[0, 6]], r"rows 0\.\.6; .* rows 0\.\.5"),
        ([[-1]], r"rows -1\.\.0"),
    ],
)
def test_impossible_fixed_pools_say_so(
    instances: list[list[int]], message: str, items: Catalogue, params: PackingParams
) -> None:
    with pytest.raises(GeneratorError, match=message):
        FixedPool(instances).sample(request(items, params), items)


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


def test_nothing_that_fits_is_an_error(items: Catalogue, params: PackingParams) -> None:
    with pytest.raises(InfeasibleError, match=r"none of the catalogue's 6 items .*unit"):
        make_pool(Uniform(), items, params, torch.zeros(6, dtype=torch.bool))
    with pytest.raises(InfeasibleError, match="no instance can be started"):
        make_pool(FixedPool([[TALL]]), items, params, playable(items, params), skip_infeasible=True)


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


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_sequences_are_read_by_name_or_row(
    suffix: str, tmp_path: Path, items: Catalogue, params: PackingParams
) -> None:
    path = tmp_path / f"orders.{suffix}"
    text = json.dumps([["mug", "can"], ["cup", 1]]) if suffix == "json" else "mug, can\n\ncup,1\n"
    path.write_text(text, encoding="utf-8")
    made = SequenceFile(str(path)).sample(request(items, params), items)
    assert made.item_id[:, :2].tolist() == [[0, 3], [4, 1]]
    assert made.num_items.tolist() == [2, 2]
    check_generator(SequenceFile(str(path)), items, params)


def test_a_sequence_takes_one_scale(
    tmp_path: Path, items: Catalogue, params: PackingParams
) -> None:
    path = tmp_path / "orders.json"
    path.write_text('[["box"]]', encoding="utf-8")
    made = SequenceFile(str(path), scale=1.2).sample(request(items, params), items)
    assert int(made.item_id[0, 0]) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[["mug", "vase"]]', "sequence 0 names 'vase'.*known items: box, can"),
        ("a.json", '{"mug": 1}', "expected a JSON list of lists"),
        ("a.json", '["mug"]', "expected a JSON list of lists"),
        ("a.json", "[[", "cannot be read"),
        ("a.txt", "mug", "read from .json or .csv"),
        ("a.csv", "mug,vase", "sequence 0 names 'vase'"),
        ("missing.csv", None, "cannot be read"),
        ("a.json", "[[]]", "empty instance"),
        ("a.csv", "", "empty instance"),
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


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("part", r"'part', which is ambiguous; write one of a/part, b/part"),
        ("twin", r"'twin', which is ambiguous: rows \[3, 4\]"),
        (True, "True, which is neither the name of an item nor a row"),
        (1.5, r"1\.5, which is neither"),
        (None, "None, which is neither"),
    ],
)
def test_a_sequence_names_one_item(
    entry: object, message: str, tmp_path: Path, items: Catalogue, params: PackingParams
) -> None:
    named = dataclasses.replace(items, names=["a/part", "b/part", "4", "twin", "twin", "pole"])
    path = tmp_path / "orders.json"
    path.write_text(json.dumps([["b/part", entry]]), encoding="utf-8")
    with pytest.raises(SequenceError, match=message):
        SequenceFile(str(path), scale=1.0).sample(request(items, params), named)


def test_a_name_that_is_a_number_is_a_name(
    tmp_path: Path, items: Catalogue, params: PackingParams
) -> None:
    named = dataclasses.replace(items, names=["4", "0", "0", "can", "cup", "pole"])
    path = tmp_path / "orders.json"
    path.write_text('[["4", "0", 4, "3"]]', encoding="utf-8")
    made = SequenceFile(path).sample(request(items, params), named)
    assert made.item_id.tolist() == [[0, 1, 4, 3]]


def test_every_row_of_a_pool_starts_with_a_legal_action() -> None:
    env = tiny_env(64, items={"seed": 5, "num_items": 12})
    assert env.reset()["action_mask"].any(-1).all()


BAD_ARGUMENTS: list[tuple[type[Generator], dict[str, Any], str]] = [
    *[(UniformCuboids, {"low": low}, "low") for low in (0, 1.0, "1")],
    *[(UniformCuboids, {"low": 3, "high": high}, "high") for high in (2, True)],
    *[(ContinuousCuboids, {"low": low}, "low") for low in (0.0, 0.0004)],
    *[(ContinuousCuboids, {"low": 0.3, "high": high}, "high") for high in (0.2, "0.5")],
    *[(ContinuousCuboids, {"decimals": decimals}, "decimals") for decimals in (-1, 7)],
    *[(ContinuousCuboids, {"heights": h}, "heights") for h in (0.5, [], [0.1, 0.25555])],
    (Guillotine, {"variant": "cut3"}, "variant"),
    (Guillotine, {"low": 0}, "low"),
    *[(Guillotine, {"low": 4, "high": high}, "high") for high in (5, 4.0)],
    *[(CuboidSequences, {"path": path}, "path") for path in (5, "")],
    (CuboidSequences, {"path": "a", "order": "random"}, "order"),
    (CuboidSequences, {"path": "a", "limit": 0}, "limit"),
    *[(CuboidSequences, {"path": "a", "unit": unit}, "unit") for unit in ("furlong", ["a"])],
    (CuboidSequences, {"path": "a", "instance": 1.5}, "instance"),
    (CuboidSequences, {"path": "a", "own_container": "no"}, "own_container"),
]


@pytest.mark.parametrize(("kind", "options", "key"), BAD_ARGUMENTS, ids=lambda v: str(v)[:48])
def test_bad_arguments_are_refused_by_name(
    kind: type[Generator], options: dict[str, Any], key: str
) -> None:
    with pytest.raises(ParameterError, match=rf"generator\.{key}"):
        kind(**options)


@pytest.mark.parametrize(
    ("key", "value"),
    [("size", 0), ("size", True), ("seed", -1), ("seed", 2**63), ("split", "eval")],
)
def test_bad_arguments_of_pools_are_refused_by_name(
    key: str, value: Any, items: Catalogue, params: PackingParams
) -> None:
    given = {"size": 4, "seed": 0, "split": "train", key: value}
    with pytest.raises((ParameterError, GeneratorError), match=f"{key}="):
        make_pool(Uniform(), items, params, playable(items, params), **given)
    with pytest.raises((ParameterError, GeneratorError), match=f"{key}="):
        UniformCuboids().cuboids(params, **given)
