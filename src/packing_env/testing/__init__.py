"""Checks for what others add: environments, reward terms and generators.

Each ``check_*`` returns nothing if all is well and raises :class:`CheckError`, which says what was
expected, what was found and where. The truth they compare with is :mod:`packing_env.reference`.
"""

from packing_env.testing.episodes import (
    KNOWN_RULES,
    KNOWN_TERMS,
    BoxEpisode,
    ListedEpisode,
    begin_episode,
    known_rules,
    reference_item,
    reference_rules,
)
from packing_env.testing.errors import CheckError
from packing_env.testing.of_environments import check_env
from packing_env.testing.of_parts import check_generator, check_reward
from packing_env.testing.referee import Decision, Referee, decode_action
from packing_env.testing.small_tasks import random_catalogue, random_cuboids, small_env

__all__ = [
    "KNOWN_RULES",
    "KNOWN_TERMS",
    "BoxEpisode",
    "CheckError",
    "Decision",
    "ListedEpisode",
    "Referee",
    "begin_episode",
    "check_env",
    "check_generator",
    "check_reward",
    "decode_action",
    "known_rules",
    "random_catalogue",
    "random_cuboids",
    "reference_item",
    "reference_rules",
    "small_env",
]
