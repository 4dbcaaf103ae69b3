"""Ctrl-C while something is finished first."""

import signal

import pytest

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
