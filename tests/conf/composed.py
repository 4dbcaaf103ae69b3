"""Configurations that several tests read; each is composed once."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from agents.config.compose import compose

NEEDED = {
    "items=meshes": ["items.paths=parts"],
    "generator=sequence_file": ["generator.path=orders.csv"],
    "generator=fixed_pool": ["generator.instances=[[0,1]]"],
    "generator=cuboid_sequences": ["generator.path=orders.csv"],
    "experiment=learn_blobs": ["items.paths=parts"],
    "experiment=learn_meshes": ["items.paths=parts"],
    "trainer=on_policy": ["agent=ppo"],
    "replay=rollout": ["agent=ppo"],
    "network=afterstate_net": ["agent=afterstate"],
    "network=tuple_tables": ["agent=afterstate"],
    "network=placement_actor_critic": ["agent=ppo"],
    "network=candidate_actor_critic": ["agent=ppo", "env.action_mode=candidate"],
    "network=multi_head_actor_critic": ["agent=ppo", "env.action_mode=multi_head"],
    "network=continuous_actor_critic": ["agent=sac"],
    "network=candidate_scores": ["agent=rainbow", "env.action_mode=candidate"],
    "network=hrl_paper": ["agent=hierarchical"],
    "network=hrl_small": ["agent=hierarchical"],
}
"""Options that cannot be chosen alone, and the overrides that they need."""


def composed(command: str, overrides: Sequence[str], folders: Sequence[Path] = ()) -> DictConfig:
    """Return the configuration that ``compose`` gives; it is cached, so do not change it."""
    return _composed(command, tuple(overrides), tuple(folders))


def of_option(command: str, choice: str) -> DictConfig:
    """Return a command's configuration with an option such as ``agent=ppo`` and what that needs."""
    return composed(command, [choice, *NEEDED.get(choice, [])])


@cache
def _composed(command: str, overrides: tuple[str, ...], folders: tuple[Path, ...]) -> DictConfig:
    return compose(command, overrides, folders)
