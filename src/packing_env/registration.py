"""The Gymnasium ids, registered when ``packing_env`` is imported.

To add an id, add a line to :data:`IDS`. Only strings are registered, so TorchRL is not imported
before an environment is made.
"""

from __future__ import annotations

import gymnasium

ENVIRONMENT = "Packing-v0"
"""Version of the behaviour; its number increases if the same seed and actions give new episodes."""

IDS: dict[str, str] = {
    "Packing-v0": "irregular",
    "PackingPaper-v0": "irregular_paper",
    "PackingCuboid-v0": "cuboid_online",
}
"""The preset behind each id."""

_HOME = "packing_env.shells"


def register_all() -> None:
    """Register every id that is not registered yet."""
    for name, task in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{_HOME}:PackingGymEnv",
                vector_entry_point=f"{_HOME}:PackingVectorEnv",
                kwargs={"task": task},
            )
