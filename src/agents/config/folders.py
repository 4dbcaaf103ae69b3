"""The folders of YAML files, read without Hydra, so that help stays fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

RUN_FILES = (
    "run.json", "run.lock", "config.yaml", "metrics.csv", "checkpoints", "results.json",
    "physics.json", "physics.html",
)  # fmt: skip
"""Names in a run's folder that commands write themselves."""


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
    """Return the project's configuration folder, ``packing_env/conf``.

    In a checkout, it is a link to the folder ``conf`` at the top, so Hydra's search path
    ``pkg://packing_env.conf`` works there too.

    Raises:
        ConfigError: The folder does not exist.
    """
    spec = find_spec("packing_env")  # without importing it
    package = Path(spec.origin if spec and spec.origin else __file__).resolve().parent
    folder = (package / "conf").resolve()
    if not (folder / "train.yaml").is_file():
        raise ConfigError(f"no configuration in {package / 'conf'}; reinstall packing-env")
    return folder


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
