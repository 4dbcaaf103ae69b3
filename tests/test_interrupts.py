"""Ctrl-C while something is imported, or finished first."""

import signal
import sys

import pytest

from agents.cli.__main__ import main
from packing_env.files import finished_first


def test_ctrl_c_reaches_the_handler_of_the_program_after_the_block() -> None:
    seen: list[str] = []
    usual = signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
    try:
        with finished_first():
            signal.raise_signal(signal.SIGINT)
            seen.append("finished")
    finally:
        signal.signal(signal.SIGINT, usual)
    assert seen == ["finished", "handled"]


def press_twice() -> None:
    with finished_first():
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        pytest.fail("still running")


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_ends_the_block() -> None:
    with pytest.raises(KeyboardInterrupt):
        press_twice()


class Pressed:
    """An importer that is interrupted."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise for the module of the command line."""
        if name == "agents.cli.main":
            raise KeyboardInterrupt


def test_ctrl_c_while_the_command_is_imported_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "agents.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    assert main() == 130
    assert capsys.readouterr().err == "packing: interrupted\n"
