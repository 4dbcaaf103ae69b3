"""The Gymnasium ids, registered when ``packing_env`` is imported.

To add an id, add a line to :data:`IDS`. Only strings are registered, so TorchRL is not imported
before an environment is made.
"""

from __future__ import annotations

import gymnasium

ENVIRONMENT = "Packing-v2"
"""Version of the behaviour; it increases when the same seed and actions give different episodes.

- v0: the mask of every finished row was all True, even if the row was only truncated.
- v1: a row that is only truncated keeps its true mask, to bootstrap from its legal actions.
- v2: the preset ``irregular`` prefers placements that stand; the v1 of ``irregular`` is now called
  ``irregular_com_hull``.
"""

IDS: dict[str, str] = {
    "Packing-v2": "irregular",
    "PackingPaper-v1": "irregular_paper",
    "PackingCuboid-v1": "cuboid_online",
    "PackingNesting-v0": "nesting",
}
"""The preset of each id."""

FORMER: dict[str, str] = {
    "Packing-v0": "irregular_com_hull",
    "Packing-v1": "irregular_com_hull",
    "PackingPaper-v0": "irregular_paper",
    "PackingCuboid-v0": "cuboid_online",
}
"""Ids of former versions, and the presets closest to them; Gymnasium warns that these ids are out
of date.
"""

_HOME = "packing_env.shells"


def register_all() -> None:
    """Register every id that is not registered yet."""
    for name, task in (IDS | FORMER).items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{_HOME}:PackingGymEnv",
                vector_entry_point=f"{_HOME}:PackingVectorEnv",
                kwargs={"task": task},
            )
