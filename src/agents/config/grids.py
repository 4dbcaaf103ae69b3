"""Grids: experiments that are sweeps, one for each table of results.

``conf/experiment/grid_NAME.yaml`` sets ``hydra.sweeper.params`` and nothing else:

    packing train --multirun experiment=grid_NAME

runs every combination of them. Values on the command line replace those of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from agents.config.folders import ConfigError, config_folder

PREFIX = "grid_"
"""Beginning of the names of grids."""
GROUP = "experiment="


def grid_of(overrides: Sequence[str]) -> str | None:
    """Return the name of the grid that a command line chooses; None if it chooses none."""
    chosen = [word.removeprefix(GROUP) for word in overrides if word.startswith(GROUP)]
    return next((name for name in chosen if name.startswith(PREFIX)), None)


def expanded(overrides: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """Return a command line with the sweep of its grid in place of the grid's name.

    Args:
        overrides: Of the command.
        folders: Further folders of YAML files.

    Raises:
        ConfigError: There is no such grid, or its file sweeps nothing.
    """
    name = grid_of(overrides)
    if name is None:
        return list(overrides)
    rest = [word for word in overrides if word != f"{GROUP}{name}"]
    given = {word.partition("=")[0] for word in rest}
    swept = [f"{key}={value}" for key, value in params(name, folders).items() if key not in given]
    return [*swept, *rest]


def params(name: str, folders: Sequence[Path] = ()) -> dict[str, str]:
    """Return what a grid sweeps, as on the command line.

    Raises:
        ConfigError: There is no such grid, or its file sweeps nothing.
    """
    places = [top / "experiment" / f"{name}.yaml" for top in (config_folder(), *folders)]
    place = next((path for path in places if path.is_file()), None)
    if place is None:
        raise ConfigError(f"experiment={name}: there is no file experiment/{name}.yaml")
    found = OmegaConf.select(OmegaConf.load(place), "hydra.sweeper.params")
    if not found:
        raise ConfigError(f"{place} must set hydra.sweeper.params, as in {{seed: '0,1,2'}}")
    return {str(key): str(value) for key, value in found.items()}
