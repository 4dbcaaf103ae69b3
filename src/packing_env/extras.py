"""The optional packages: what each extra adds, and the command that installs it."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any


class MissingPackageError(ImportError):
    """An optional package is missing; the message has the command that installs it."""


@dataclass(frozen=True)
class Extra:
    """An extra of ``pip install packing-env[...]``.

    Attributes:
        adds: What works with it.
        modules: The modules that it brings, by the name of the import.
    """

    adds: str
    modules: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """The packages of it that are not installed."""
        return [package(name) for name in self.modules if not is_installed(name)]


EXTRAS = {
    "fast": Extra("compiled kernels on the CPU", ("numba",)),
    "mesh": Extra(
        "PLY and COLLADA files, volume of overlapping parts",
        ("trimesh", "networkx", "lxml", "manifold3d", "collada"),
    ),
    "viz": Extra("figures with titles, learning curves, GIF", ("matplotlib", "PIL")),
    "video": Extra("MP4, and Gymnasium's RecordVideo", ("moviepy", "imageio", "imageio_ffmpeg")),
    "physics": Extra("simulation of plans", ("mujoco", "coacd", "manifold3d")),
    "triton": Extra("kernels on CUDA devices", ("triton",)),
    "log": Extra("TensorBoard", ("tensorboard",)),
    "sb3": Extra("Stable-Baselines3", ("stable_baselines3", "sb3_contrib")),
    "joblib": Extra("sweeps on several cores", ("hydra_plugins.hydra_joblib_launcher",)),
    "submitit": Extra("sweeps on a Slurm cluster", ("hydra_plugins.hydra_submitit_launcher",)),
    "ray": Extra(
        "sweeps and rollouts on Ray", ("ray", "psutil", "hydra_plugins.hydra_ray_launcher")
    ),
    "optuna": Extra("sweeps by Optuna", ("hydra_plugins.hydra_optuna_sweeper",)),
    "bench": Extra("Jumanji, for comparison in packing bench step", ("jumanji",)),
}
"""The extras, the most useful first. ``pyproject.toml`` holds their versions."""

_PACKAGES = {
    "PIL": "Pillow",
    "collada": "pycollada",
    "hydra_plugins.hydra_joblib_launcher": "hydra-joblib-launcher",
    "hydra_plugins.hydra_optuna_sweeper": "hydra-optuna-sweeper",
    "hydra_plugins.hydra_ray_launcher": "hydra-ray-launcher",
    "hydra_plugins.hydra_submitit_launcher": "hydra-submitit-launcher",
    "imageio_ffmpeg": "imageio-ffmpeg",
    "sb3_contrib": "sb3-contrib",
    "stable_baselines3": "stable-baselines3",
}
"""Packages with another name than their module."""


def package(module: str) -> str:
    """Return the name of a module's package."""
    return _PACKAGES.get(module, module)


def is_installed(module: str) -> bool:
    """Return whether a module can be found; it is not imported."""
    top, _, rest = module.partition(".")
    if importlib.util.find_spec(top) is None:
        return False
    plugin = top == "hydra_plugins"  # a folder that packages share
    return not plugin or importlib.util.find_spec(f"{top}.{rest}") is not None


def command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "packing-env[{extra}]"'


def check(module: str, purpose: str) -> None:
    """Raise unless an optional module is installed; it is not imported.

    Args:
        module: Its name, of a submodule too.
        purpose: What needs it, in the plural: "GIF files".

    Raises:
        MissingPackageError: It is not installed.
    """
    if is_installed(module):
        return
    top = module if module in _PACKAGES else module.partition(".")[0]
    extra = next((name for name, extra in EXTRAS.items() if top in extra.modules), None)
    install = f"pip install {package(top)}" if extra is None else command(extra)
    raise MissingPackageError(f"{purpose} need {package(top)}, which is not installed: {install}")


def require(module: str, purpose: str) -> Any:
    """Import an optional module.

    Raises:
        MissingPackageError: It is not installed.
    """
    check(module, purpose)
    return importlib.import_module(module)
