"""Every preset with every constraint: built from its own items, played and compared, or refused."""

import itertools
from typing import Any

import pytest
from tests.contract.presets import SMALL, small_preset
from tests.core.test_constraints import BACKENDS, HANDLING
from tests.tiny import differing, play, play_beside_reference

from packing_env import PackingEnv, kernels
from packing_env.tasks import PRESETS
from packing_env.types import ParameterError

CONSTRAINTS = (
    "no_stacking",
    "max_load",
    "fragile last",
    "fragile top",
    "lifo",
    "weight_limit",
    "balance",
    "clearance",
    "wall_clearance",
    "preplaced",
    "preplaced between cells",
)


def rule(name: str, preset: str) -> dict[str, Any]:
    """The constraint, with lengths that suit the container of the preset's small task."""
    x, y, height = SMALL[preset].get("container", PRESETS[preset].params.container)
    key, _, value = name.partition(" ")
    whole = [0.0, 0.0, 0.0, x / 2, y, round(height / 5) or height / 5]
    between = [0.11 * x, 0.0, 0.0, 0.3 * x, 0.3 * y, 0.23 * height]
    values: dict[str, Any] = {
        "weight_limit": 9.0,
        "balance": 0.3,
        "clearance": 0.1 * x,
        "wall_clearance": 0.1 * x,
        "preplaced": [between if value else whole],
    }
    return {key: values.get(key, value or True)}


def small_task(preset: str, name: str, **options: Any) -> PackingEnv:
    rules = {"constraints": rule(name, preset), "handling": HANDLING}
    return small_preset(preset, **{"num_envs": 2, "pool_size": 4, **rules, **options})


MAPS = [name for name, task in PRESETS.items() if task.params.geometry == "maps"]
BOXES = [name for name in PRESETS if name not in MAPS]


PAIRS = [(MAPS[i % len(MAPS)], name) for i, name in enumerate(CONSTRAINTS)]
"""Each constraint once, on one preset after the other; all combinations are slow tests."""
GRID = [
    pytest.param(*pair, marks=[] if pair in PAIRS else pytest.mark.slow)
    for pair in itertools.product(MAPS, CONSTRAINTS)
]


@pytest.mark.parametrize(("preset", "name"), GRID)
def test_every_preset_plays_with_every_constraint(preset: str, name: str) -> None:
    """All kernel backends give the same bits, and these equal the reference program."""
    env = small_task(preset, name)
    steps = play(env, 3)
    for backend in BACKENDS[1:]:
        kernels.set_backend(backend)
        assert not differing(play(small_task(preset, name), 3), steps)
    kernels.set_backend(None)
    play_beside_reference(small_task(preset, name, num_envs=1), 2, mask_bits=8)


@pytest.mark.parametrize("preset", BOXES)
def test_other_geometries_refuse_constraints_by_name(preset: str) -> None:
    geometry = PRESETS[preset].params.geometry
    with pytest.raises(ParameterError, match=f"max_load need geometry='maps', not '{geometry}'"):
        small_task(preset, "max_load")


def test_the_compiled_engine_refuses_constraints() -> None:
    with pytest.raises(ParameterError, match="engine='compiled' cannot carry out this task"):
        small_task("cuboid_online", "clearance", engine="compiled")
