"""The compiled modules of container loading."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from packing_env.types import ParameterError


class Compiled(NamedTuple):
    """Modules of compiled functions."""

    blocks: ModuleType
    loads: ModuleType
    places: ModuleType
    rules: ModuleType
    spaces: ModuleType
    tables: ModuleType


def compiled() -> Compiled:
    """Import the compiled functions."""
    try:
        from packing_env.kernels.loading import (
            blocks_numba,
            numba,
            places_numba,
            rules_numba,
            spaces_numba,
            tables_numba,
        )
    except ImportError as error:
        raise ParameterError(
            "loading boxes needs numba: pip install 'packing-env[fast]'"
        ) from error
    return Compiled(blocks_numba, numba, places_numba, rules_numba, spaces_numba, tables_numba)
