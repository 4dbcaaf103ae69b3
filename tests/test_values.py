"""Options: the check and the error message of a field agree with its declaration."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import pytest

from packing_env.values import Count, Length, Option, ParameterError, check, options, read_mapping


@dataclass(frozen=True)
class Declared:
    count: Count = 1
    share: Annotated[float, Option(at_least=0.0, below=1.0)] = 0.5
    length: Length | None = None
    flag: bool = False
    order: Annotated[str, Option(choices=("first", "last"), goes_with="count")] = "first"
    sizes: Annotated[tuple[float, ...], Option(above=0.0, filled=True)] = (1.0,)
    weights: Mapping[str, float] | None = None
    source: str | int = "any"
    anything: Any = None

    def __post_init__(self) -> None:
        check(self, "own.")


GOOD: list[tuple[str, Any, Any]] = [
    ("count", np.int64(3), 3),
    ("share", 0, 0.0),
    ("length", np.float32(2), 2.0),
    ("length", None, None),
    ("length", 2, 2.0),
    ("order", "last", "last"),
    ("sizes", np.array([1.0, 2.0]), (1.0, 2.0)),
    ("weights", {"a": 1}, {"a": 1.0}),
    ("source", 3, 3),
    ("anything", [None], [None]),
]
BAD: list[tuple[str, Any, str]] = [
    ("count", 0, r"own\.count=0 must be an integer, at least 1$"),
    ("count", 1.5, r"own\.count=1\.5 must be an integer"),
    ("share", 1.0, r"at least 0 and less than 1$"),
    ("share", float("nan"), "must be a finite number"),
    ("length", 10**400, "must be a finite number"),
    ("length", np.float32("inf"), "must be a finite number"),
    ("length", -1.0, r"more than 0 metres$"),
    ("flag", 1, "must be true or false"),
    ("order", "frist", "is unknown, did you mean first.*choose one of first, last"),
    ("order", 3, "choose one of first, last"),
    ("sizes", 1.0, "must be a list"),
    ("sizes", [], "at least one entry"),
    ("sizes", [1.0, 0.0], r"own\.sizes\[1\]=0\.0"),
    ("weights", {"a": "b"}, r"own\.weights\.a='b'"),
    ("source", True, "must be str or int"),
]


@pytest.mark.parametrize(("name", "value", "plain"), GOOD, ids=str)
def test_values_are_kept_as_plain_ones(name: str, value: Any, plain: Any) -> None:
    kept = getattr(Declared(**{name: value}), name)
    assert kept == plain
    assert type(kept) is type(plain)


@pytest.mark.parametrize(("name", "value", "message"), BAD, ids=str)
def test_other_values_are_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as refused:
        Declared(**{name: value})
    assert f"own.{name}" in str(refused.value)


def test_options_are_read_from_mappings_and_listed() -> None:
    assert read_mapping(Declared, {"count": 2, "flag": None}, "own", "own.") == {"count": 2}
    with pytest.raises(ParameterError, match="own has no option cuont, did you mean count"):
        read_mapping(Declared, {"cuont": 2}, "own", "own.")
    assert set(options(Declared)) == {field.name for field in fields(Declared)}
    assert options(Declared)["order"].goes_with == "count"
