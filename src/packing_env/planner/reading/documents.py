"""Parsers of YAML and JSON orders that keep numbers and words as texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packing_env import files
from packing_env.planner.reading.tables import OrderError


def parse_json(path: Path, text: str) -> Any:
    """Parse JSON; keep numbers as texts, so that they can be read exactly.

    Raises:
        OrderError: The text is not JSON, or an entry repeats a key.
    """
    try:
        return files.parse_json(text, parse_float=str, parse_int=str)
    except ValueError as error:
        raise OrderError(f"{path}: cannot be read as JSON: {error}") from error


def parse_yaml(path: Path, text: str) -> Any:
    """Parse YAML; keep numbers and words such as ``on`` as texts, because YAML reads 010 as 8.

    Raises:
        OrderError: The text is not YAML, or an entry repeats a key.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """A loader that keeps texts and refuses repeated keys."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            for key in keys:
                if keys.count(key) > 1:
                    line = node.start_mark.line + 1
                    raise OrderError(f"{path}, line {line}: {key} is given twice in one entry")
            return super().construct_mapping(node, deep)

    kept = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")
    Loader.yaml_implicit_resolvers = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag in kept]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise OrderError(f"{path}: cannot be read as YAML: {error}") from error
