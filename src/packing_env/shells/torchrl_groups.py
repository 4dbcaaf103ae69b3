"""The environment as an option of TorchRL's own Hydra groups: ``env: packing``.

``torchrl.trainers.algorithms.configs`` puts environments, collectors, losses and trainers into
Hydra's ``ConfigStore``; :func:`register` adds ours, so that a program that trains with TorchRL's
trainers names it like any other::

    defaults:
      - env@training_env: packing
      - collector@collector: sync
      - trainer@trainer: dqn
      - _self_          # last: what this file sets is set over the options above

    training_env:
      task: irregular
      num_envs: 64
"""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from packing_env.tasks import Task
from packing_env.types import PackingParams

OPTIONS = ("resolution", "split", "skip_infeasible", "autoreset", "draw", "row_offset")
"""What :func:`packing_env.make_env` takes besides the fields of the rules and of the task."""


def override_names() -> list[str]:
    """Every override that :func:`packing_env.make_env` takes."""
    of_rules = [f.name for f in fields(PackingParams)]
    of_task = [f.name for f in fields(Task) if f.name != "params"]
    return [*of_rules, *of_task, *OPTIONS]


def env_config() -> type:
    """TorchRL's kind of configuration for :func:`packing_env.make_env`: a dataclass.

    It has a field for every argument, so that Hydra refuses a name that is none. ``null`` keeps the
    preset's value.
    """
    from torchrl.trainers.algorithms.configs.envs import EnvConfig  # takes seconds

    return make_dataclass(
        "PackingEnvConfig",
        [
            ("task", str, "irregular"),
            ("num_envs", Any, 1),
            ("device", str, "cpu"),
            ("seed", int, 0),
            *((name, Any, None) for name in override_names()),
            ("_target_", str, "packing_env.make_env"),
            ("_convert_", str, "all"),  # lists and mappings as such, not OmegaConf's containers
        ],
        bases=(EnvConfig,),
    )


def register() -> None:
    """Put ``env/packing`` into Hydra's ``ConfigStore``, with TorchRL's groups; again is no harm."""
    from torchrl.trainers.algorithms import configs

    # It does so itself, but once: Hydra's state may have been replaced since.
    configs._register_configs()
    store = ConfigStore.instance()
    store.store(group="env", name="packing", node=env_config(), provider="packing_env")
