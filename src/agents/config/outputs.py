"""Checks of the paths of outputs, before anything is computed; without imports that take long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agents.config.folders import RUN_FILES
from packing_env.files import reason
from packing_env.values import ParameterError


def check_path(value: Any, name: str, ending: str = "") -> str:
    """Return the name of a file or folder; raise unless it is text."""
    if not isinstance(value, str):
        write = f"{name}=./{value}{ending}"
        raise ParameterError(f"{name}={value} must be a path; for the name {value}, write {write}")
    if not value.strip():
        raise ParameterError(f"{name}={value!r} must be a path")
    return value


def check_output(
    value: Any, name: str, *, ending: str = "", folder: bool = False, in_run: bool = False
) -> str:
    """Return the path of an output; raise unless it can be written.

    Args:
        value: The path, of a file unless ``folder``.
        name: Name of the setting.
        ending: Ending that the file must have.
        folder: Whether a folder is written.
        in_run: Whether relative paths begin at the run's folder, which does not exist yet.
    """
    place = Path(check_path(value, name, ending))
    if ending and place.suffix.lower() != ending:
        raise ParameterError(f"{name}={value} must be the name of a file that ends in {ending}")
    below = in_run and not place.is_absolute() and ".." not in place.parts
    for path in [place] if below else _in_runs(place.absolute()):
        if path.parts and path.parts[0].lower() in RUN_FILES and not folder:
            raise ParameterError(
                f"{name}={value} would overwrite {path.parts[0]} of a run; name another file"
            )
    if below:
        return str(value)
    try:
        if place.exists() and place.is_dir() != folder:
            kind, other = ("file", "folder") if folder else ("folder", "file")
            raise ParameterError(f"{name}={value} is a {kind}; name a {other}")
        places = (place.absolute(), *place.absolute().parents)
        nearest = next(path for path in places if path.exists())
    except OSError as error:
        raise ParameterError(f"{name}={value} cannot be written: {reason(error)}") from error
    usable = nearest.is_dir() or nearest == place.absolute()
    if not usable or not os.access(nearest, os.W_OK):
        raise ParameterError(f"{name}={value} cannot be written: you cannot write to {nearest}")
    return str(value)


def _in_runs(place: Path) -> list[Path]:
    """Return the path of a file relative to each run in whose folder it is."""
    runs = [folder for folder in place.parents if os.path.isfile(folder / RUN_FILES[0])]
    return [place.relative_to(folder) for folder in runs]
