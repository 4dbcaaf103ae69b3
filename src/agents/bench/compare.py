"""Ratios of the numbers that two files of ``packing bench`` share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.bench.measure import FORMAT
from agents.bench.session import Session
from agents.config.folders import ConfigError
from agents.nested import leaves
from packing_env import files as packing_files

_ORIGIN = ("machine", "versions", "revision", "kernels", "configuration")


def compare(session: Session, files: Sequence[str], values: Sequence[str] | None) -> None:
    """Divide the numbers of the second file by those of the first, for each measurement.

    Args:
        session: Collects the ratios, and prints and writes them.
        files: The two files, in this order.
        values: Names of the values to compare; ``None`` compares all numbers.

    Raises:
        ConfigError: The files are not two files of the same benchmark.
    """
    # 1. Read both files, and list how their machines and settings differ.
    if len(files) != 2:
        raise ConfigError(
            f"packing bench compare takes two files of packing bench, not {len(files)}: "
            f"packing bench compare A.json B.json"
        )
    before, after = reports = [read(Path(path)) for path in files]
    if before["what"] != after["what"]:
        raise ConfigError(
            f"{files[0]} comes from packing bench {before['what']} and {files[1]} from packing "
            f"bench {after['what']}; give two files of the same benchmark"
        )
    stopped = [path for path, one in zip(files, reports, strict=True) if not one["complete"]]
    session.notes = [f"{path} comes from a run that was stopped" for path in stopped]
    session.notes += differences(before, after)
    # 2. Divide the numbers of the measurements that are in both files.
    session.columns = {"before": "A", "after": "B", "ratio": "B / A"}
    old, new = (
        {json.dumps(row["case"], sort_keys=True): row for row in report["results"]}
        for report in reports
    )
    for key in dict.fromkeys((*old, *new)):
        if key not in old or key not in new:
            case = (old.get(key) or new[key])["case"]
            session.leave_out(case, f"not in {files[1] if key in old else files[0]}")
            continue
        for name, a in old[key]["values"].items():
            b = new[key]["values"].get(name)
            if (values is None or name in values) and _are_numbers(a, b):
                ratios = {"before": a, "after": b, "ratio": b / a if a else None}
                session.add(old[key]["case"] | {"value": name}, ratios)


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a file written by ``packing bench``.

    Raises:
        ConfigError: The file cannot be read, or has another format.
    """
    try:
        report = packing_files.parse_json(packing_files.read_text(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a JSON file: {error}") from error
    written = report.get("packing_bench") if isinstance(report, dict) else None
    if written != FORMAT:
        if written is None:
            raise ConfigError(f"{path} is not a file of packing bench")
        raise ConfigError(f"{path} has format {written}; this version reads format {FORMAT}")
    return report


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference in hardware, versions, revision or configuration."""
    lines = []
    for section in _ORIGIN:
        old, new = (leaves(report.get(section), section) for report in (before, after))
        for key in dict.fromkeys((*old, *new)):
            values = [side.get(key, "nothing") for side in (old, new)]
            if values[0] != values[1] and key != "configuration.out":
                lines.append(f"differs: {key}: {values[0]} | {values[1]}")
    return lines


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
