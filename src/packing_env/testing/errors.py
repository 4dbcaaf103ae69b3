"""The error of a failed check."""

from __future__ import annotations

import numpy as np


class CheckError(AssertionError):
    """A failed check; the message states the expected and the actual value."""


def require(good: bool | np.bool_, message: str) -> None:
    """Raise a :class:`CheckError` unless ``good``."""
    if not good:
        raise CheckError(message)
