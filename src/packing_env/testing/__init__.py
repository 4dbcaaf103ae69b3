"""Checks of user-defined environments, reward terms and generators.

Each ``check_*`` returns ``None`` on success and raises :class:`CheckError` on failure. The error
holds the expected value, the actual value and the place of the difference. The check of an
environment compares it with :mod:`packing_env.reference`.
"""

from packing_env.reference import Episode
from packing_env.reference.box_episode import BoxEpisode
from packing_env.testing.environment_checks import check_env
from packing_env.testing.episodes import (
    KNOWN_RULES,
    KNOWN_TERMS,
    begin_episode,
    known_rules,
    reference_item,
    reference_rules,
)
from packing_env.testing.errors import CheckError
from packing_env.testing.generator_checks import check_generator
from packing_env.testing.referee import Decision, Referee, decode_action
from packing_env.testing.reward_checks import check_reward

__all__ = [
    "KNOWN_RULES",
    "KNOWN_TERMS",
    "BoxEpisode",
    "CheckError",
    "Decision",
    "Episode",
    "Referee",
    "begin_episode",
    "check_env",
    "check_generator",
    "check_reward",
    "decode_action",
    "known_rules",
    "reference_item",
    "reference_rules",
]
