"""Build hook: the README as the description of the package, without links into the checkout.

A package page cannot follow relative links. They become plain text there, and pictures are left
out; links with an address stay.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURES = re.compile(r"^\|[^\n]*\|\n\|[-|]+\|\n\|[^\n]*<img [^\n]*\|\n\n", re.MULTILINE)
"""A table with pictures from the checkout."""
RELATIVE_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")


def description(readme: str) -> str:
    """Return a README without pictures and links that need the checkout."""
    return RELATIVE_LINK.sub(r"\1", PICTURES.sub("", readme))


class PackagePage(MetadataHookInterface):
    """Sets ``project.readme``, which ``pyproject.toml`` declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description of the package."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(readme)}
