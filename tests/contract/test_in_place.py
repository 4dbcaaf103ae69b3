"""Steps that change the environment's state in place still keep an environment's contract."""

import pytest
import torch
from tests.tiny import differing, legal_action, stream

from agents.heuristics import build
from packing_env import PackingEnv, make_env
from packing_env.core.actions import MODES

SMALL = {
    "irregular": {"resolution": 16, "pool_size": 8, "num_visible": 2},
    "cuboid_online": {"pool_size": 8, "num_items": 20},
}
tasks = pytest.mark.parametrize("task", SMALL)


def small(task: str, **options: object) -> PackingEnv:
    return make_env(task, num_envs=4, seed=2, **SMALL[task], **options)


@tasks
def test_memory_that_moved_is_found_again(task: str) -> None:
    """Memory moves, for example, if a process passes the catalogue to another process."""
    env, twin = small(task), small(task)
    root, other = env.reset(), twin.reset()
    generator = stream()
    for step in range(8):
        if step == 3:
            shared = [*env.catalogue.tensors().values(), env.instances.item_id]
            for tensor in [*shared, env.instances.num_items]:
                tensor.share_memory_()
            torch.rand(2_000_000)  # what was freed is used for something else
        root["action"] = legal_action(root["action_mask"], generator)
        other["action"] = root["action"].clone()
        taken, root = env.step_and_maybe_reset(root)
        expected, other = twin.step_and_maybe_reset(other)
        assert torch.equal(taken["next", "action_mask"], expected["next", "action_mask"])
        assert torch.equal(taken["next", "reward"], expected["next", "reward"])
        assert torch.equal(root["observation", "heightmap"], other["observation", "heightmap"])


@pytest.mark.parametrize("mode", sorted(MODES))
@tasks
def test_steps_inside_and_outside_inference_mode_are_the_same(task: str, mode: str) -> None:
    env, twin = small(task, action_mode=mode), small(task, action_mode=mode)
    with torch.inference_mode():
        root = env.reset()
    other = twin.reset()
    torch.manual_seed(0)
    for step in range(6):
        chosen = twin.rand_action(other.copy()).select(*twin.action_keys)
        with torch.inference_mode(step % 2 == 1):
            _, root = env.step_and_maybe_reset(root.clone().update(chosen))
        _, other = twin.step_and_maybe_reset(other.update(chosen))
        assert not differing(root, other)


@pytest.mark.parametrize("mode", ["hierarchical", "continuous"])
def test_the_lowest_placement_of_a_finished_row_is_an_action(mode: str) -> None:
    env = small("irregular", action_mode=mode, illegal_action="noop", num_items=3)
    policy = build("lowest_z", env)
    root = env.reset()
    for _ in range(6):
        root = policy(root)
        for key in env.action_keys:
            assert env.full_action_spec[key].is_in(root[key])
        root = env.step_mdp(env.step(root))
    assert bool(root["done"].all())
