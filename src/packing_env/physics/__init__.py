"""Simulation of packed containers in MuJoCo, to find out which items stay in place.

Stability rules check maps and boxes; the simulation checks solids. It needs
``pip install packing-env[physics]``.
"""

from packing_env.physics.judge import Motion, PhysicsReport, Pile, simulate
from packing_env.physics.settings import PhysicsSettings, read_settings
from packing_env.physics.world import load_mujoco

__all__ = [
    "Motion",
    "PhysicsReport",
    "PhysicsSettings",
    "Pile",
    "load_mujoco",
    "read_settings",
    "simulate",
]
