"""Ratios of the numbers that two files of ``packing bench`` share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from agents.bench.base import Job, LeftOut, Row, Session
from agents.bench.reports.record import read
from agents.config.folders import ConfigError

_ORIGIN = ("machine", "versions", "revision", "kernels", "configuration")
_NOT_SETTINGS = ("configuration.out",)


class Compare:
    """Numbers of the second file divided by those of the first, measurement by measurement.

    A note lists every difference in hardware, versions or settings: with such differences the
    ratios do not measure the code alone.

    Args:
        files: The two files, in this order.
        values: Names of the values to compare; ``None`` compares all numbers.
    """

    measures = False
    columns: ClassVar[Mapping[str, str]] = {"before": "A", "after": "B", "ratio": "B / A"}

    def __init__(self, *, files: Sequence[str], values: Sequence[str] | None) -> None:
        if len(files) != 2:
            raise ValueError(
                f"packing bench compare takes two files of packing bench, not {len(files)}: "
                f"packing bench compare A.json B.json"
            )
        self.files, self.values = [Path(name) for name in files], values

    def jobs(self, session: Session) -> list[Job]:
        """Return one job, the comparison."""
        return [Job(" ".join(map(str, self.files)), {}, partial(self._rows, session))]

    def _rows(self, session: Session) -> Iterator[Row | LeftOut]:
        before, after = (read(path) for path in self.files)
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
            yield from self._ratios(row, new[key]["values"])
        for key, row in new.items():
            if key not in old:
                yield LeftOut(row["case"], f"not in {self.files[0]}")

    def _ratios(self, row: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Row]:
        """Yield a row for every number that both files have."""
        for name, old in row["values"].items():
            new = after.get(name)
            wanted = self.values is None or name in self.values
            if not wanted or not _is_number(old) or not _is_number(new):
                continue
            found = {"before": old, "after": new, "ratio": new / old if old else None}
            yield Row(row["case"] | {"value": name}, found)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference in hardware, versions, revision or configuration."""
    found = []
    for section in _ORIGIN:
        old, new = (_flat(report.get(section), section) for report in (before, after))
        for key in dict.fromkeys((*old, *new)):
            values = [side.get(key, "nothing") for side in (old, new)]
            if values[0] != values[1] and key not in _NOT_SETTINGS:
                found.append(f"differs: {key}: {values[0]} | {values[1]}")
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    """Flatten nested mappings to dotted keys."""
    if not isinstance(value, Mapping):
        return {name: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}").items()}


def _by_case(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {json.dumps(row["case"], sort_keys=True): row for row in report["results"]}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
