"""The folders of YAML files, read without Hydra, so that help and completion stay fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class ConfigError(ValueError):
    """The configuration is wrong; the message names the key and a valid value."""


@contextmanager
def as_config_errors() -> Iterator[None]:
    """Convert constructors' errors, such as refused values, to ConfigErrors."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        raise ConfigError(str(error)) from error


def config_folder() -> Path:
    """Return the project's configuration folder.

    In an installed package it is ``packing_env/conf``, otherwise ``conf`` at the top of the
    checkout.

    Raises:
        ConfigError: Neither folder exists.
    """
    spec = find_spec("packing_env")  # without importing it
    package = Path(spec.origin if spec and spec.origin else __file__).resolve().parent
    for folder in (package / "conf", package.parents[1] / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"no configuration beside {package}; reinstall packing-env")


def groups(folders: Sequence[Path] = ()) -> dict[str, list[str]]:
    """Return the options of every group; the folders of YAML files are the registry.

    A file whose name begins with ``_`` is not an option; other files inherit from it.
    """
    options: dict[str, set[str]] = {}
    for folder in (config_folder(), *folders):
        for path in folder.rglob("*.yaml"):
            group = path.parent.relative_to(folder).as_posix()
            if group != "." and not path.name.startswith((".", "_")):
                options.setdefault(group, set()).add(path.stem)
    return {group: sorted(options[group]) for group in sorted(options)}
