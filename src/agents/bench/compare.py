"""Ratios of the numbers that two files of ``packing bench`` share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from agents.bench.base import Benchmark, Job, LeftOut, Row, Rows, Session
from agents.bench.reports.record import read
from agents.config.folders import ConfigError

_ORIGIN = ("machine", "versions", "revision", "kernels", "configuration")


@dataclass(kw_only=True)
class Compare(Benchmark):
    """Numbers of the second file divided by those of the first, measurement by measurement.

    A note lists every difference in hardware, versions or settings: with such differences the
    ratios do not measure the code alone.

    Args:
        files: The two files, in this order.
        values: Names of the values to compare; ``None`` compares all numbers.
    """

    measures = False
    columns: ClassVar[Mapping[str, str]] = {"before": "A", "after": "B", "ratio": "B / A"}
    files: Sequence[str]
    values: Sequence[str] | None

    def __post_init__(self) -> None:
        if len(self.files) != 2:
            raise ValueError(
                f"packing bench compare takes two files of packing bench, not {len(self.files)}: "
                f"packing bench compare A.json B.json"
            )

    def jobs(self, session: Session) -> list[Job]:
        """Return one job, the comparison."""
        return [Job({}, partial(self._rows, session), " ".join(self.files))]

    def _rows(self, session: Session) -> Rows:
        before, after = (read(Path(path)) for path in self.files)
        if before["what"] != after["what"]:
            raise ConfigError(
                f"{self.files[0]} is of packing bench {before['what']}, {self.files[1]} of packing "
                f"bench {after['what']}: they have nothing in common"
            )
        session.notes += [
            f"{path} is of a run that was stopped"
            for path, report in zip(self.files, (before, after), strict=True)
            if not report["complete"]
        ]
        session.notes += differences(before, after)
        old, new = (_by_case(report) for report in (before, after))
        for key, row in old.items():
            if key not in new:
                yield LeftOut(row["case"], f"not in {self.files[1]}")
                continue
            for name, a in row["values"].items():
                b = new[key]["values"].get(name)
                if (self.values is None or name in self.values) and _are_numbers(a, b):
                    found = {"before": a, "after": b, "ratio": b / a if a else None}
                    yield Row(row["case"] | {"value": name}, found)
        for key, row in new.items():
            if key not in old:
                yield LeftOut(row["case"], f"not in {self.files[0]}")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference in hardware, versions, revision or configuration."""
    found = []
    for section in _ORIGIN:
        old, new = (_flat(report.get(section), section) for report in (before, after))
        for key in dict.fromkeys((*old, *new)):
            values = [side.get(key, "nothing") for side in (old, new)]
            if values[0] != values[1] and key != "configuration.out":
                found.append(f"differs: {key}: {values[0]} | {values[1]}")
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    """Flatten nested mappings to dotted keys."""
    if not isinstance(value, Mapping):
        return {name: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}").items()}


def _by_case(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {json.dumps(row["case"], sort_keys=True): row for row in report["results"]}


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
