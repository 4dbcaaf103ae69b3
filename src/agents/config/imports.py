"""Packages of the user that a command imports, to register rewards, rules, heuristics, agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from agents.config.folders import ConfigError

VARIABLE = "PACKING_IMPORT"
"""Environment variable with names of modules, separated by commas; worker processes read it."""


def import_packages(names: str | Sequence[str] = ()) -> None:
    """Import the modules of ``PACKING_IMPORT``, then ``names``; also search the current folder.

    Raises:
        ConfigError: A module does not exist or cannot be imported.
    """
    chosen = list(dict.fromkeys([*imported(), *([names] if isinstance(names, str) else names)]))
    if chosen and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in chosen:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
                raise ConfigError(
                    f"--import {name}: it imports {error.name}, which is not found"
                ) from error
            raise ConfigError(
                f"--import {name}: there is no module {error.name!r} in this folder or in "
                "PYTHONPATH, and none is installed"
            ) from error
        except Exception as error:  # the user's module may raise any error
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"--import {name}: importing it fails ({reason})") from error
    os.environ[VARIABLE] = ",".join(chosen)


def imported() -> list[str]:
    """Return the names of the modules from this command and from ``PACKING_IMPORT``."""
    return [name for name in os.environ.get(VARIABLE, "").replace(" ", "").split(",") if name]


def conf_folders() -> list[Path]:
    """Return the folder ``conf`` of each imported package that has one."""
    places = (Path(str(sys.modules[name].__file__)).parent for name in imported())
    return [place / "conf" for place in places if (place / "conf").is_dir()]


def check_imported(names: Iterable[str], run: str) -> None:
    """Refuse a run whose packages this command does not name, because code runs only on request.

    Raises:
        ConfigError: Packages are missing.
    """
    missing = [name for name in names if name not in imported()]
    if missing:
        options = " ".join(f"--import {name}" for name in missing)
        raise ConfigError(f"{run} was made with {options}; add it, if you trust that package")
