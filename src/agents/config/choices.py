"""The values that text options accept, read from the source files without importing torch."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

import packing_env
from agents.config.folders import as_config_errors
from packing_env.values import check_choice

_RULES = "kernels/stability_rules.py"
TABLES = {
    "env.action_mode": [("core/actions/__init__.py", "MODES")],
    "env.stability": [("core/stability.py", "RULES"), (_RULES, "RULES"), (_RULES, "MARGINS")],
    "items.source": [("item_source.py", "SOURCES")],
}
"""Keys whose values are names in tables: the file in ``packing_env`` and the name of each table."""


def check_choices(config: DictConfig) -> None:
    """Raise a ConfigError for an unknown value, before the modules that define the values load.

    Call it only if no code of the user could have added a value.
    """
    for key, known in choices().items():
        value = OmegaConf.select(config, key)
        if isinstance(value, str):
            with as_config_errors():
                check_choice(key, value, known)


def choices() -> dict[str, list[str]]:
    """Return the names of each of :data:`TABLES`, and the declared choices of a task's options."""
    # 1. Keys of dictionaries.
    known: dict[str, list[str]] = {}
    for key, tables in TABLES.items():
        nodes = [_definition(file, name).value for file, name in tables]
        known[key] = [ast.literal_eval(k) for node in nodes for k in node.keys]
    # 2. Choices in annotations.
    for field in _definition("types.py", "PackingParams").body:
        for word in ast.walk(getattr(field, "annotation", field)):
            listed = getattr(word, "value", None) if getattr(word, "arg", "") == "choices" else None
            if isinstance(listed, ast.Tuple):
                known[f"env.{field.target.id}"] = list(ast.literal_eval(listed))
    return known


def _definition(file: str, name: str) -> Any:
    """Return the statement of a module of ``packing_env`` that defines a class or a variable."""
    path = Path(str(packing_env.__file__)).parent / file
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = getattr(node, "target", getattr(node, "targets", [node])[0])
        if name in (getattr(target, "id", None), getattr(target, "name", None)):
            return node
    raise LookupError(f"{file} does not define {name}")
