"""Former names of modules and presets in saved runs, and iterators over configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

_MOVED = {
    "algorithms": "ac_iqn branching ddpg dqn hierarchical iqn ppo rainbow sac",
    "loggers": "logging telemetry",
    "training": "rollout trainer workers",
}
MODULES = {
    f"agents.{name}": f"agents.{folder}.{name}"
    for folder, names in _MOVED.items()
    for name in names.split()
}
"""Former names of modules in saved configurations, and their present names."""

_PRESETS = {"irregular": "irregular_com_hull", "irregular_standing": "irregular"}
"""Names of presets up to ``Packing-v1``, and their present names."""


_CONTINUOUS = {"learn_from": "executed"}
REMOVED: dict[str, dict[str, Any]] = {
    "agents.algorithms.ac_iqn.ACIQN": _CONTINUOUS,
    "agents.algorithms.ddpg.DDPG": _CONTINUOUS,
    "agents.algorithms.ppo.PPO": {"clip": "joint", "clip_value": None},
    "agents.algorithms.sac.SAC": _CONTINUOUS,
}
"""Options that were removed, by target, with the fixed value that agents now use."""


def present_name(target: Any) -> Any:
    """Return the present dotted path of a ``_target_``; anything else is returned unchanged."""
    module, _, name = target.rpartition(".") if isinstance(target, str) else ("", "", "")
    return f"{MODULES[module]}.{name}" if module in MODULES else target


def rename_saved(node: Any) -> Any:
    """Return plain data with the present name of every ``_target_``, without removed options."""
    if isinstance(node, Mapping):
        target = present_name(node.get("_target_"))
        removed = REMOVED.get(target, {}) if isinstance(target, str) else {}
        return {
            key: target if key == "_target_" else rename_saved(value)
            for key, value in node.items()
            if key not in removed or value != removed[key]
        }
    if isinstance(node, (list, tuple)):
        return type(node)(rename_saved(value) for value in node)
    return node


def rename_task(meta: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's description with the present name of its preset.

    Up to ``Packing-v1``, the name ``irregular`` meant the present ``irregular_com_hull``, and an
    unreleased preset had the settings of the present ``irregular``. Everything else of that version
    plays the same episodes now.
    """
    from packing_env.registration import ENVIRONMENT  # loads gymnasium, which takes a while

    if (version := meta.get("environment")) not in ("Packing-v0", "Packing-v1"):
        return meta
    present = ENVIRONMENT if version == "Packing-v1" else version
    config = meta.get("config")
    if not isinstance(config, Mapping) or not isinstance(env := config.get("env"), Mapping):
        return meta
    if env.get("task") not in _PRESETS:
        return {**meta, "environment": present}
    renamed = {"task": _PRESETS[env["task"]]}
    config = {**config, "env": {**env, **renamed}}
    return {**meta, **renamed, "environment": present, "config": config}


def targets(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping that has a ``_target_``, with its dotted path, in Hydra's order."""
    for inner_path, inner in walk(node, path):
        if isinstance(inner, Mapping) and "_target_" in inner:
            yield inner_path, inner


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """Return the values in nested mappings by dotted keys; a list counts as a single value."""
    values = walk(node, path, lists=False)
    return {key: value for key, value in values if not isinstance(value, Mapping)}


def walk(node: Any, path: str = "", *, lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield every value in nested mappings and lists, containers included, with its path.

    With ``lists=False``, a list counts as a single value. Interpolations stay unresolved.
    """
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=False)
    yield path, node
    entries: Any = ()
    if isinstance(node, Mapping):
        entries = node.items()
    elif lists and isinstance(node, (list, tuple)):
        entries = enumerate(node)
    for key, inner in entries:
        yield from walk(inner, f"{path}.{key}" if path else str(key), lists=lists)
