"""The console of the commands, and the style of their tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from agents.loggers.plain_text import printable

LINE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
"""A line only under the headings, because tables must fit into 80 characters."""
plain_table = partial(Table, box=LINE, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
"""A table in that style."""
number_column = partial(Column, justify="right", no_wrap=True)
"""A column of numbers."""


class PlainConsole(Console):
    """A console without markup that shows control characters as escape codes.

    Args:
        at_least: Smallest width of an output that is not a terminal.
        **options: Options of rich's console.
    """

    def __init__(self, at_least: int = 0, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        if at_least and not self.is_terminal:
            self.width = max(at_least, self.width)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string to rich's text; rich also calls this for the cells of tables."""
        return super().render_str(printable(text), **options)

    def working(self, text: str, *, always: bool = False) -> Status:
        """Show a line on a terminal while a block runs; with ``always``, print it elsewhere too."""
        if always and not self.is_terminal:
            self.say(text)
        return self.status(self.render_str(text))

    def say(self, text: str, **options: Any) -> None:
        """Print text; lines are broken between words on a terminal, and not broken elsewhere."""
        self.print(text, soft_wrap=not self.is_terminal, **options)
