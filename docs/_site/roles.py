"""Griffe extension: Sphinx roles in docstrings, such as ``:class:`Name```, become plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|obj):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Rewriter of roles in the docstring of every object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the roles in one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
