"""The console of the commands: text as it stands, without markup or control characters."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from agents.loggers.plain_text import printable


class PlainConsole(Console):
    """A console that shows names from files as they are: their control characters as codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert text, a table's cells included, as rich does."""
        return super().render_str(printable(text), **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print; on a terminal ``soft_wrap`` breaks lines between words, elsewhere not at all."""
        super().print(*objects, soft_wrap=soft_wrap and not self.is_terminal, **options)
