"""Grids: experiments that sweep settings, one for each table of results.

``packing train --multirun experiment=grid_NAME`` runs every combination of the values that
``conf/experiment/grid_NAME.yaml`` sets in ``hydra.sweeper.params``; the command line may replace
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from agents.config.folders import ConfigError, config_folder

PREFIX = "grid_"
"""Prefix of the names of grids."""
GROUP = "experiment="


def grid_of(overrides: Sequence[str]) -> str | None:
    """Return the name of the grid that a command line chooses; None if it chooses none."""
    chosen = [word.removeprefix(GROUP) for word in overrides if word.startswith(GROUP)]
    return next((name for name in chosen if name.startswith(PREFIX)), None)


def expanded(overrides: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """Return a command line with the name of a grid replaced by the grid's sweep.

    Raises:
        ConfigError: There is no such grid, or its file sweeps no setting.
    """
    # 1. Find the grid's file.
    name = grid_of(overrides)
    if name is None:
        return list(overrides)
    places = [top / "experiment" / f"{name}.yaml" for top in (config_folder(), *folders)]
    place = next((path for path in places if path.is_file()), None)
    if place is None:
        raise ConfigError(f"experiment={name}: there is no file experiment/{name}.yaml")
    params = OmegaConf.select(OmegaConf.load(place), "hydra.sweeper.params")
    if not params:
        raise ConfigError(f"{place} must set hydra.sweeper.params, as in {{seed: '0,1,2'}}")
    # 2. Replace the name by the sweep, except for keys that the command line sets.
    rest = [word for word in overrides if word != f"{GROUP}{name}"]
    set_keys = {word.partition("=")[0] for word in rest}
    return [*(f"{key}={value}" for key, value in params.items() if key not in set_keys), *rest]
