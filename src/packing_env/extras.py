"""The optional packages: what each extra adds, install commands, and configuration files."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

_LOGGER = logging.getLogger("packing_env.extras")


class MissingPackageError(ImportError):
    """An optional package is missing; the message gives the command that installs it."""


@dataclass(frozen=True)
class Extra:
    """An extra of ``pip install packing-env[...]``.

    Attributes:
        adds: Features that need the extra.
        modules: The modules that it installs, by import name.
    """

    adds: str
    modules: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """Packages of this extra that are not installed."""
        return [package(name) for name in self.modules if not is_installed(name)]


EXTRAS = {
    "fast": Extra("compiled kernels on the CPU", ("numba",)),
    "mesh": Extra(
        "COLLADA files, volume of overlapping parts",
        ("trimesh", "networkx", "lxml", "manifold3d", "collada"),
    ),
    "viz": Extra(
        "figures with titles, load plans in PDF, learning curves, GIF", ("matplotlib", "PIL")
    ),
    "excel": Extra("orders in XLSX", ("openpyxl",)),
    "video": Extra("MP4, and Gymnasium's RecordVideo", ("moviepy", "imageio", "imageio_ffmpeg")),
    "physics": Extra("simulation of plans", ("mujoco", "coacd", "manifold3d")),
    "triton": Extra("kernels on CUDA devices", ("triton",)),
    "log": Extra("TensorBoard", ("tensorboard",)),
    "sb3": Extra("Stable-Baselines3", ("stable_baselines3", "sb3_contrib")),
    "onnx": Extra("policies as ONNX files", ("onnx", "onnxscript", "onnxruntime")),
    "joblib": Extra("sweeps on several cores", ("hydra_plugins.hydra_joblib_launcher",)),
    "submitit": Extra("sweeps on a Slurm cluster", ("hydra_plugins.hydra_submitit_launcher",)),
    "ray": Extra("sweeps on a Ray cluster", ("ray", "hydra_plugins.hydra_ray_launcher")),
    "optuna": Extra("sweeps by Optuna", ("hydra_plugins.hydra_optuna_sweeper",)),
    "bench": Extra("Jumanji, for benchmarks/jumanji_bin_pack.py", ("jumanji",)),
}
"""The extras, from the most to the least useful. ``pyproject.toml`` holds their versions."""

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
"""Packages whose name differs from that of their module."""


def package(module: str) -> str:
    """Return the name of a module's package."""
    return _PACKAGES.get(module, module)


def is_installed(module: str) -> bool:
    """Return whether a module can be found; it is not imported."""
    top, _, rest = module.partition(".")
    if importlib.util.find_spec(top) is None:
        return False
    plugin = top == "hydra_plugins"  # a folder shared by several packages
    return not plugin or importlib.util.find_spec(f"{top}.{rest}") is not None


def command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "packing-env[{extra}]"'


def check(module: str, purpose: str) -> None:
    """Raise unless an optional module is installed; it is not imported.

    Args:
        module: Name of the module or submodule.
        purpose: The feature that needs it, in the plural: "GIF files".

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


# ---------------------------------------------------------------------- the working directory

_CONFIGURED = {"numba.core.config": ".numba_config.yaml", "matplotlib": "matplotlibrc"}
"""Modules that read a file of the working directory, and the file's name.

The working directory may come from someone else. Numba's file can set the folder of a cache of
pickles and the path of a shared library; both can run code.
"""
_REMEDY = {"numba": "NUMBA_ variables", "matplotlib": "MATPLOTLIBRC"}
_NOWHERE = os.path.join(os.devnull, "")
"""Prefix of a path that cannot exist."""


def ignore_working_directory() -> None:
    """Ignore files of the working directory that configure libraries.

    Environment variables and files in the user's home still have an effect.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    numba = sys.modules.get("numba.core.config")
    if numba is not None:  # another library imported it before, and it has read the file
        numba._config_fname = _NOWHERE + _CONFIGURED["numba.core.config"]  # type: ignore[attr-defined]
        numba.reload_config()
        warn_of_ignored("numba", _CONFIGURED["numba.core.config"])


def warn_of_ignored(package: str, name: str) -> None:
    """Log a warning if the working directory has a configuration file of a package."""
    if os.path.lexists(name):
        text = "%s in the working directory is ignored; use %s to configure %s"
        _LOGGER.warning(text, name, _REMEDY[package], package)


class _Finder(MetaPathFinder):
    """Finder for the modules of :data:`_CONFIGURED`, which :class:`_Loader` loads."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders return, with :class:`_Loader` as its loader."""
        if name not in _CONFIGURED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Loader of a module whose source names a configuration file of the working directory.

    The loader replaces this name by the name of a file that cannot exist. The alternatives are
    worse: changing the working directory during the import would affect all threads, and numba
    searches for the file again whenever it compiles.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code with the replaced name.

        Raises:
            ImportError: The source does not contain the name, but the file exists.
        """
        name = _CONFIGURED[fullname]
        tree = ast.parse(self.get_data(self.path))
        # Replace the name where it is the whole value of an assignment or a ``yield``.
        nodes = (node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.Yield)))
        values = [node.value for node in nodes if isinstance(node.value, ast.Constant)]
        named = [value for value in values if value.value == name]
        for value in named:
            value.value = _NOWHERE + name
        if os.path.lexists(name) and not named:
            raise ImportError(
                f"{name} of the working directory would configure {fullname}; remove it",
                name=fullname,
            )
        warn_of_ignored(fullname.partition(".")[0], name)
        return compile(tree, self.path, "exec", dont_inherit=True)
