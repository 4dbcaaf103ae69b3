"""The Gymnasium ids, registered when ``packing_env`` is imported.

To add an id, add a line to :data:`IDS`. Only strings are registered, so TorchRL is not imported
before an environment is made.
"""

from __future__ import annotations

import gymnasium

ENVIRONMENT = "Packing-v1"
"""Version of the behaviour; its number increases if the same seed and actions give new episodes.

- v0: the mask of a finished row was all True, also of one that was truncated only.
- v1: a row that is truncated only keeps its true mask, to bootstrap from what is legal there.
"""

IDS: dict[str, str] = {
    "Packing-v1": "irregular",
    "PackingPaper-v1": "irregular_paper",
    "PackingCuboid-v1": "cuboid_online",
}
"""The preset behind each id."""

FORMER = {
    "Packing-v0": "Packing-v1",
    "PackingPaper-v0": "PackingPaper-v1",
    "PackingCuboid-v0": "PackingCuboid-v1",
}
"""Ids of former versions. They make the present environment; Gymnasium warns that they are out of
date."""

_HOME = "packing_env.shells"


def register_all() -> None:
    """Register every id that is not registered yet."""
    for name, task in (IDS | {old: IDS[new] for old, new in FORMER.items()}).items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point=f"{_HOME}:PackingGymEnv",
                vector_entry_point=f"{_HOME}:PackingVectorEnv",
                kwargs={"task": task},
            )
