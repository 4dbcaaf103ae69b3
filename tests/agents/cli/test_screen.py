"""What a person sees: help at once, lines that fit 80 columns, tables at the end."""

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tests.agents.cli.test_cli import TRAIN

from agents.cli import main as cli
from agents.loggers.console import PlainConsole
from agents.loggers.plain_text import LogHandler, OutputFormatter
from agents.loggers.progress import ProgressBar

FEW = [*TRAIN, "trainer.frames=32"]


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_fits_80_columns(command: str, monkeypatch, capsys) -> None:
    """Lines of 100 characters were broken by the terminal, in the middle of words."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 42
    if not command:
        assert all(any(line.strip().startswith(name) for line in lines) for name in cli.COMMANDS)
    elif cli.COMMANDS[command].groups:
        assert any("irregular" in line for line in lines)


def test_a_warning_stands_above_the_progress_bar() -> None:
    """It stood at the end of the line of the bar, which was drawn again below."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    logger = logging.Logger("test")
    logger.addHandler(LogHandler())
    bar = ProgressBar(console, 100)
    logger.warning("compiling")
    bar.close()
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "compiling" in re.split(r"[\r\n]+", drawn)


def test_lines_are_broken_between_words_on_a_terminal_alone() -> None:
    """The terminal broke them in words: "compared i / n 3 s"."""
    text = "packed 12 of 21 parts in 1 container, utilization 53.4 %; 17 packings compared in 3 s"
    shown = {}
    for terminal in (True, False):
        screen = io.StringIO()
        console = PlainConsole(file=screen, force_terminal=terminal, width=80, color_system=None)
        console.say(text)
        shown[terminal] = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert shown[False] == [text]
    assert len(shown[True]) == 2
    assert max(map(len, shown[True])) <= 80
    assert " ".join(shown[True]) == text


def test_lines_of_a_sweep_are_broken_between_words(monkeypatch) -> None:
    """Jobs with many settings were broken at the 80th character."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    words = ["#0", ":", "env=cuboid_online", "agent=afterstate", "trainer.frames=640"]
    record = logging.makeLogRecord({"msg": "\t" + " ".join(words)})
    shown = OutputFormatter("%(message)s").format(record)
    assert max(map(len, shown.splitlines())) <= 40
    assert shown.split() == words


@pytest.mark.parametrize("loss", [0.0123, 123456.7, float("nan")])
def test_the_progress_line_fits_80_columns(loss: float) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    bar = ProgressBar(console, 10_000_000)
    values = {"frames_per_second": 123456.0, "return": 0.5, "utilization": 0.4321, "loss": loss}
    bar.show(9_999_999, 3723.0, values)
    bar.close()
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", screen.getvalue())
    line = [text for text in drawn.splitlines() if "frames" in text][-1].strip()
    shown = "-" if loss != loss else "1.23e+05" if loss > 1 else "0.0123"
    left = "0:00:00 left"
    for part in ("100%", "9,999,999 frames", "123,456/s", "util 0.4321", f"loss {shown}", left):
        assert part in line
    assert "…" not in line
    assert len(line) <= 80


def test_a_list_of_items_shows_numbers_whole(capsys, monkeypatch) -> None:
    """Volumes above a litre ended in dots, and so did three of the headings."""
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["items", "items.families=[household]", "env.resolution=16"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "1,991" in shown  # cm^3 of the cracker box
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        (["seed={}", "agent.lr=1e-{}"], ["seed", "lr", "frames"]),
        (["trainer.frames=40{}", "--import=p{}", "seed={}"], ["seed", "frames"]),  # one "frames"
        (["env.num_envs=102400{}", "env.pool_size=102400{}"], ["num_envs", "frames"]),
    ],
)
def test_a_table_of_runs_keeps_estimates_whole_at_80_columns(
    settings: list[str], columns: list[str], capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    of_one = {"summary": {"utilization": {"mean": 0.625, "half_width": 0.089}}}
    results = {
        "training": {"frames": 300},
        "policies": dict.fromkeys(["dqn", "heightmap_minimization"], of_one),
    }
    stopped = {"training": {"frames": 200, "last": {"utilization": 0.5}}}
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        command = ["packing", "train", *(word.format(number) for word in settings)]
        files = {
            "run.json": {"command": command},
            "results.json": results if number < 2 else stopped,
        }
        for name, content in files.items():
            (tmp_path / str(number) / name).write_text(json.dumps(content))
    assert cli.main(["runs", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    heading = next(line.split() for line in table.splitlines() if " frames " in line)
    assert heading[1 : len(columns) + 1] == columns
    assert len(re.findall(r"0\.625±0\.089  0\.625±0\.089 +done", table)) == 2
    assert "200  0.500 (train)" in table


def test_a_sweep_ends_with_a_table_and_runs_are_listed_and_compared(
    capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    sweep = [*FEW, "--multirun", "seed=0,1", "hydra.sweep.dir=sweep", "evaluation.instances=2"]
    assert cli.main(sweep) == 0
    said = capsys.readouterr().out
    assert "][HYDRA]" not in said  # a time before each line
    assert "GiB are free" not in said
    assert "#1 : " in said
    table = said[said.rindex("sweep") :]
    heading = next(line.split() for line in table.splitlines() if "frames" in line)
    assert heading[:3] == ["run", "seed", "frames"]  # what differs comes first
    assert "env.cell" not in table
    for run in (tmp_path / "sweep/0", tmp_path / "sweep/1"):
        results = json.loads((run / "results.json").read_text())
        assert list(results["policies"]) == ["dqn", "random_legal", "deepest_bottom_left"]
        assert "revision" in results
    assert cli.main(["runs", "sweep"]) == 0
    assert re.search(r"^ *1 +1 ", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["runs", "sweep/0", "sweep/1"]) == 0
    compared = capsys.readouterr().out
    assert "seed " in compared
    assert re.search(r"^ frames +\d+ +\d+ ", compared, re.MULTILINE)
    assert "random_legal" in compared
    assert "env.cell" not in compared
    assert max(map(len, compared.splitlines())) <= 80
    assert cli.main(["runs", "elsewhere"]) == 2
    assert "no run is there" in capsys.readouterr().err
