"""The environment as an option of TorchRL's Hydra groups: ``env: packing``.

``torchrl.trainers.algorithms.configs`` registers environments, collectors, losses and trainers in
Hydra's ``ConfigStore``. :func:`register` adds this environment, so that a program with TorchRL's
trainers can select it by name::

    defaults:
      - env@training_env: packing
      - collector@collector: sync
      - trainer@trainer: dqn
      - _self_          # last: the values of this file override the options above

    training_env:
      task: irregular
      num_envs: 64
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from packing_env.tasks import override_names


def env_config() -> type:
    """Create a dataclass of the arguments of :func:`packing_env.make_env`, in TorchRL's form.

    It has a field for every argument, so Hydra rejects unknown names. ``null`` keeps the preset's
    value.
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
            ("_convert_", str, "all"),  # plain lists and mappings, not OmegaConf's containers
        ],
        bases=(EnvConfig,),
    )


def register(*, loggers: bool = True) -> None:
    """Add ``env/packing`` and TorchRL's groups to Hydra's ``ConfigStore``; may be repeated.

    Args:
        loggers: Include TorchRL's group ``logger``. Pass False in a program that also composes
            ``pkg://packing_env.conf``: both have ``logger/csv``, and Hydra would merge the two.
    """
    from torchrl.trainers.algorithms import configs

    # TorchRL registers its groups once, on import; Hydra's state may have been replaced since then.
    configs._register_configs()
    store = ConfigStore.instance()
    store.store(group="env", name="packing", node=env_config(), provider="packing_env")
    if not loggers:
        store.repo.pop("logger", None)
