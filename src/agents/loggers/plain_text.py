"""Text from files and users on a terminal: control characters are shown, not executed."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import textwrap
from typing import Any

_SPACES = re.compile(r"([\t\n])")


def printable(text: str) -> str:
    r"""Replace control characters except tab and newline by their codes, such as ``\x1b``."""
    # Help does not call this, so it does not wait for Gymnasium, which packing_env imports.
    from packing_env.names import plain_name

    return "".join(part if part in "\t\n" else plain_name(part) for part in _SPACES.split(text))


def on_terminal(text: str, stream: Any) -> str:
    """Return text whose lines are broken between words if the stream is a terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(each, width, break_long_words=False) for each in text.splitlines())
    return "\n".join(lines)


class PlainFormatter(logging.Formatter):
    """Log lines without control characters, broken between words on a terminal."""

    output = "stderr"

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return on_terminal(printable(super().format(record)), getattr(sys, self.output))


class OutputFormatter(PlainFormatter):
    """Formatter of a sweep's log lines on ``sys.stdout``."""

    output = "stdout"


class LogHandler(logging.StreamHandler[Any]):
    """Handler that writes to the current ``sys.stderr``, which a progress bar replaces."""

    @property
    def stream(self) -> Any:
        """The stream; setting it has no effect."""
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        """Do nothing: the handler keeps following ``sys.stderr``."""
