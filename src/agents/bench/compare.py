"""Ratios of what two files of ``packing bench`` have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from agents.bench.base import Job, LeftOut, Row, Session
from agents.config.checks import ConfigError

FORMAT = 1
"""Of the JSON files."""
_ORIGIN = ("machine", "versions", "revision", "kernels", "configuration")
_NOT_SETTINGS = ("configuration.out",)


class Compare:
    """The second file's numbers over the first's, measurement by measurement.

    Where hardware, versions or settings differ, a note says how: such ratios are not of the code
    alone.

    Args:
        files: The two, in this order.
        values: Names of values; ``None``: all numbers.
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
        """One."""
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
        """Of every number that both have."""
        for name, value in row["values"].items():
            both = (value, after.get(name))
            wanted = self.values is None or name in self.values
            if not wanted or not all(_is_number(number) for number in both):
                continue
            ratio = both[1] / both[0] if both[0] else None
            found = {"before": both[0], "after": both[1], "ratio": ratio}
            yield Row(row["case"] | {"value": name}, found)


def read(path: Path) -> dict[str, Any]:
    """A file of ``packing bench``.

    Raises:
        ConfigError: It is none, or of another format.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON file: {error}") from error
    if not isinstance(report, dict) or "packing_bench" not in report:
        raise ConfigError(f"{path} was not written by packing bench")
    if report["packing_bench"] != FORMAT:
        raise ConfigError(
            f"{path} has format {report['packing_bench']}, this program reads {FORMAT}"
        )
    return report


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What numbers depend on besides the code, where the two differ; a line each."""
    found = []
    for section in _ORIGIN:
        old, new = (_flat(report.get(section), section) for report in (before, after))
        for key in dict.fromkeys((*old, *new)):
            values = [side.get(key, "nothing") for side in (old, new)]
            if values[0] != values[1] and key not in _NOT_SETTINGS:
                found.append(f"differs: {key}: {values[0]} | {values[1]}")
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    if not isinstance(value, Mapping):
        return {name: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}").items()}


def _by_case(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {json.dumps(row["case"], sort_keys=True): row for row in report["results"]}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
