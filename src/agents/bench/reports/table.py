"""Console table of a benchmark, with the skipped cases and the machine below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from agents.bench.base import LeftOut, Row
from agents.training.evaluate import LINE

_ANY_WIDTH = 1000


def shared(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the entries that all cases share."""
    first = rows[0].case
    return {k: v for k, v in first.items() if all(row.case.get(k) == v for row in rows)}


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> Table:
    """Return a table with a line per measurement: its case, and the values of ``columns``.

    Entries that all cases share stand in the title.
    """
    common = shared(rows)
    keys = dict.fromkeys(key for row in rows for key in row.case if key not in common)
    names = [name for name in columns if any(name in row.values for row in rows)]
    title = " ".join(f"{key}={_text(value)}" for key, value in common.items())
    made = Table(title=title, title_justify="left", box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
    for key in keys:
        made.add_column(key, no_wrap=True)
    for name in names:
        made.add_column(columns[name], justify="right", no_wrap=True)
    for row in rows:
        cells = [_text(row.case.get(key)) for key in keys]
        made.add_row(*cells, *(_text(row.values.get(name)) for name in names))
    return made


def print_table(console: Console, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Print the table, or where it is wider than the console the same as a line per measurement."""
    made = table(rows, columns)
    wide = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), made)
    if wide.maximum <= console.width:
        console.print(made)
        return
    console.print(str(made.title), style="bold", highlight=False)
    common = shared(rows)
    for row in rows:
        case = " ".join(f"{k}={_text(v)}" for k, v in row.case.items() if k not in common)
        found = [
            f"{columns[name]} {_text(row.values[name])}" for name in columns if name in row.values
        ]
        console.print(f"{case}: {', '.join(found)}", highlight=False)


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Print the skipped cases, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for row in left_out:
        case = " ".join(str(value) for value in row.case.values() if value is not None)
        by_reason.setdefault(row.reason, []).append(case)
    for reason, cases in by_reason.items():
        console.print(f"left out: {'; '.join(cases)}: {reason}", highlight=False, style="dim")


def print_origin(console: Console, origin: Mapping[str, Any], seconds: float) -> None:
    """Print the hardware, threads, versions and revision that the numbers depend on."""
    machine, versions = origin["machine"], origin["versions"]
    where = machine.get("gpu") or machine["processor"]
    console.print(
        f"{where}, {machine['torch_threads']} thread(s), torch {versions['torch']}, kernels "
        f"{origin['kernels']}, revision {origin['revision']}; {seconds:.0f} s",
        highlight=False,
        soft_wrap=True,
    )


def _text(value: Any) -> str:
    """Format a value for a cell; numbers have four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(inner) for inner in value)
    return str(value)
