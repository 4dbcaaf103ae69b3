"""A whole step of compiled code has the bits of the rules one by one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tests.engine.engines import Engines, needs_numba, overwritten
from tests.tiny import cuboid_env, differing, stream, tiny_env

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS, supported_ground
from packing_env.envs import PackingEnv
from packing_env.kernels.stability_rules import MAP_RULES
from packing_env.kernels.step.entries import Counts, Items, Lengths

pytestmark = needs_numba


def on_cells(num_envs: Any = 5, items: dict[str, Any] | None = None, **params: Any) -> PackingEnv:
    sizes = {"grid": (7, 6), "height": 8, **(items or {})}
    options = {"observation": ON_CELLS, "stability": "center_hull", **params}
    return cuboid_env(num_envs, items=sizes, **options)


GROUNDS: dict[str, Callable[..., PackingEnv]] = {"cells": on_cells, "heights": tiny_env}
RULES = {"cells": kernels.CUBOID_RULES, "heights": MAP_RULES}
MODES = ("placement", "candidate", "continuous", "hierarchical")
every_ground = pytest.mark.parametrize("ground", GROUNDS)
every_mode = pytest.mark.parametrize("mode", MODES)

# ---------------------------------------------------------------------- equal to the rules

VERDICTS = [
    *(
        ("cells", r, ("none", "area_corners", "com_hull")[i % 3])
        for i, r in enumerate(RULES["cells"])
    ),
    *(("heights", rule, "com_hull") for rule in RULES["heights"]),
    *(("heights", "none", rule) for rule in RULES["heights"] if rule != "com_hull"),
]
SHARED: dict[str, dict[str, Any]] = {
    "plain": {},
    "buffer": {"num_visible": 2, "preview": 1, "grid_step": 2, "num_candidates": 5},
    "short": {"observation": ("heightmap",), "max_steps": 4, "num_visible": 3},
    "noop": {"num_envs": (3, 5), "shell": {"draw": "sequential"}, "illegal_action": "noop"},
    "item": {"observation": ("item_id",), "stability": "none", "num_candidates": 500},
}
OF_GROUND: dict[str, list[dict[str, Any]]] = {
    "cells": [
        {"observation": ("drop_height",)},
        {"observation": ("item_features", "heightmap"), "stability": "center_hull"},
        {"items": {"grid": (8, 8), "pitch": 0.25, "orientations": "cuboid"}},
        {"items": {"grid": (6, 6), "height": 254, "sides": (2, 60)}, "shell": {"row_offset": 9}},
        {"items": {"grid": (24, 20), "sides": (1, 20)}, "stability": "com_hull"},
        {"items": {"grid": (24, 20), "sides": (1, 20)}, "stability": "none"},
    ],
    "heights": [
        {"observation": ("item_maps",), "contact_tol": 0.0, "stability": "area_corners"},
        {"observation": ("drop_height",), "contact_tol": 0.003, "stability": "area_corners_code"},
        {"observation": ("item_features", "heightmap"), "stability": "center_hull", "grid_step": 3},
        {"items": {"grid": (20, 9), "window": 9}, "num_visible": 4, "shell": {"row_offset": 9}},
        {"items": {"grid": (5, 4), "height": 0.04}},
    ],
}
OF_BOTH = [
    {"num_visible": 2, "preview": 1, "grid_step": 2, "reward": {"objective": 1.0, "height": 2.0}},
    {"action_mode": "multi_head", "num_visible": 3, "max_steps": 4},
]
SUREST = ("com_hull_10", "com_hull_20")
OF_GROUND["heights"] += [
    {"action_mode": mode, "stability": rule, "surest": SUREST, "stability_metric": "com_hull_10",
     "num_visible": 2}
    for mode, rule in [
        ("placement", "com_hull"),
        ("placement", "com_hull_20"),
        ("multi_head", "com_hull_strict"),
        ("candidate", "com_hull_20"),
        ("hierarchical", "center_hull"),
        ("continuous", "com_hull_strict"),
    ]
]  # fmt: skip


@pytest.mark.parametrize(("ground", "rule", "metric_rule"), VERDICTS)
def test_every_rule_equals_the_rules_one_by_one(ground: str, rule: str, metric_rule: str) -> None:
    engines = Engines(GROUNDS[ground], num_envs=40, stability=rule, stability_metric=metric_rule)
    engines.play(9)
    assert (engines.envs[0].state["episode"] > 0).any()
    stable, packed = (engines.envs[0].state[key] for key in ("stable_items", "items_packed"))
    if metric_rule in ("none", rule):
        assert torch.equal(stable, packed)
    elif rule == "none":
        assert (stable < packed).any()


@pytest.mark.parametrize(
    ("ground", "options"),
    [
        *((g, {"action_mode": mode, **own}) for i, g in enumerate(GROUNDS)
          for j, mode in enumerate(MODES) for k, own in enumerate(SHARED.values())
          if (i + j + k) % 2 == 0),
        *((g, own) for g in GROUNDS for own in [*OF_BOTH, *OF_GROUND[g]]),
    ],
    ids=lambda v: str(v)[:60],
)  # fmt: skip
def test_every_task_equals_the_rules_one_by_one(ground: str, options: dict[str, Any]) -> None:
    engines = Engines(GROUNDS[ground], **{"num_envs": 12, **options})
    engines.play(9)
    assert (engines.envs[0].state["episode"] > 0).any()


def test_equals_the_rules_in_wide_containers() -> None:
    """Windows of several vectors, and columns further from an edge than a byte tells."""
    items = {"grid": (74, 270), "height": 200, "sides": (60, 70), "num_items": 4}
    Engines(on_cells, num_envs=1, items=items).play(2)


# ---------------------------------------------------------------------- resets and states


@every_mode
@every_ground
def test_steps_without_resets_and_resets_of_some_rows(ground: str, mode: str) -> None:
    engines, generator = Engines(GROUNDS[ground], num_envs=9, action_mode=mode), stream(1)
    engines.step_without_resets(8, generator)
    rows = torch.rand(9, 1, generator=generator) < 0.5
    engines.roots = engines.call(
        lambda env, i: env.reset(engines.roots[i].clone().set("_reset", rows))
    )
    engines.play(4)
    engines.reset_rows(~rows[:, 0])
    engines.play(4)


@every_ground
def test_continues_from_a_state_of_the_other(ground: str) -> None:
    engines = Engines(GROUNDS[ground], num_envs=6)
    engines.play(5)
    saved = engines.envs[1].get_state()
    before = saved.clone()
    engines.roots = engines.call(lambda env, _: env.reset(saved, set_state=True))
    engines.play(8, seed=1)
    assert not differing(saved, before)


@every_mode
@every_ground
def test_what_was_returned_stays_as_it_was(ground: str, mode: str) -> None:
    assert not overwritten(GROUNDS[ground](6, action_mode=mode), 10)


@pytest.mark.parametrize("how", ["in place", "another", "restored"])
@every_ground
def test_a_state_changed_from_outside_is_noticed(ground: str, how: str) -> None:
    """Points are snapped to what is legal now, not to what was legal after the step before."""
    engines = Engines(GROUNDS[ground], num_envs=6, action_mode="continuous")
    engines.play(2)
    raised = engines.envs[0].state["heightmap"].clone()
    raised[:, :3] = raised.amax((1, 2), keepdim=True)

    def raise_heightmap(env: PackingEnv, index: int) -> TensorDictBase:
        if how == "restored":
            saved = env.get_state().set("heightmap", raised.clone())
            return env.reset(saved, set_state=True)
        if how == "in place":
            env.state["heightmap"].copy_(raised)
        else:
            env.state["heightmap"] = raised.clone()
        return engines.roots[index]

    engines.roots = engines.call(raise_heightmap)
    engines.play(3)


def test_the_lid_shuts_out_what_is_above_it_and_nothing_else() -> None:
    z = torch.tensor([[[[0.1, 0.2], [0.3, torch.inf]]]])
    peak = torch.tensor([[0.1]])
    lid = float(z[0, 0, 1, 0] + peak[0, 0])
    assert kernels.close_lid(z.clone(), peak, lid).tolist() == z.tolist()
    below = kernels.close_lid(z.clone(), peak, lid - 1e-6)
    assert torch.isinf(below).tolist() == [[[[False, False], [True, True]]]]


# ---------------------------------------------------------------------- where the rules step


def test_items_longer_than_a_byte_tells_go_by_the_rules() -> None:
    env = on_cells()
    tensors = dict(env.catalogue.tensors())
    for side, known in ((kernels.MAX_CUBOID_SIDE, True), (kernels.MAX_CUBOID_SIDE + 1, False)):
        tensors["bottom"] = torch.empty(1, 1, 1, side)
        assert (supported_ground(tensors, env.params) == "cells") == known
    task = env.engine.operations.task
    named = ((Items, task.items), (Counts, task.counts), (Lengths, task.lengths))
    items, counts, lengths = (
        dict(zip(names._fields, values, strict=True)) for names, values in named
    )
    with pytest.raises(ValueError, match="along must be 1 to 255 cells, not 256"):
        kernels.StepTask(items, tuple(task.pool), counts | {"along": 256}, lengths, on_cells=True)


UNKNOWN: list[dict[str, Any]] = [
    {"action_mode": "candidate", "candidate_generator": "corner_points"},
    {"illegal_action": "project"},
    {"candidate_range": "pct"},
]
UNKNOWN_ON_CELLS = [{"num_spaces": 8}, {"observation": ("item_maps",)}, {"contact_tol": 1.0}]


@pytest.mark.parametrize(
    ("ground", "params"),
    [
        *((ground, params) for ground in GROUNDS for params in UNKNOWN),
        *(("cells", params) for params in UNKNOWN_ON_CELLS),
    ],
    ids=str,
)
def test_other_tasks_go_by_the_rules(ground: str, params: dict[str, Any]) -> None:
    assert GROUNDS[ground]().engine.name == "compiled"
    env = GROUNDS[ground](**params)
    assert supported_ground(env.catalogue.tensors(), env.params) is None
    assert env.engine.name == "rules"


@pytest.mark.parametrize("observation", ["item_maps", "boxes"])
def test_the_log_names_an_observation_that_no_compiled_step_knows(
    observation: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "packing_env.engine"):
        env = cuboid_env(observation=("heightmap", observation))
    assert env.engine.name == "rules"
    assert repr(observation) in caplog.text
    assert repr("heightmap") not in caplog.text
