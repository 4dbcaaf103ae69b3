"""Starting an episode and taking a decision."""

import torch
from tests.tiny import advance, legal_action, play, play_once, state_of, stream, tiny_env

from packing_env.core import feasibility, transition
from packing_env.core.orientation import decode_placement


def test_a_decision_is_recorded() -> None:
    env = tiny_env(3, num_visible=2)
    root = env.reset()
    action = legal_action(root["action_mask"], stream())
    placement = decode_placement(action, env.mode.num_orientations, env.params)
    after, outcome, _ = advance(env, state_of(env), placement)
    assert feasibility.judge(state_of(env), placement, env.catalogue.tensors(), env.params).all()
    assert after["items_packed"].tolist() == [1, 1, 1]
    record = after["placement"][:, 0]
    assert torch.equal(record[:, 0], placement.slot)  # positions of a full queue are its slots
    assert torch.equal(record[:, 1], placement.orientation)
    assert torch.equal(record[:, 2:], torch.stack((placement.x, placement.y), 1))
    assert (after["placement_support"][:, 0] > 0).all()
    assert after["packed"].gather(1, record[:, :1]).all()
    assert after["packed"].sum() == 3
    item = after["item_id"].gather(1, record[:, :1]).squeeze(1)
    assert torch.equal(after["volume"], env.catalogue.volume[item])
    assert (outcome.reward > 0).all()


def test_the_last_item_terminates() -> None:
    env = tiny_env(2, num_items=3, container=(0.08, 0.07, 0.5))
    seen = play_once(env, 3, stream())
    assert [bool(step["terminated"].all()) for step in seen] == [False, False, True]
    assert (seen[-1]["metrics", "success"] == 1).all()
    assert (seen[-1]["truncated"]).all()  # N decisions are also the default limit


def test_a_row_draws_its_instances_by_seed_row_and_episode_alone() -> None:
    seed, row, episode = torch.full((5,), 7), torch.arange(5), torch.tensor([0, 3, 1, 1, 9])
    together = transition.draw_instance(seed, row, episode, 1000)
    for i in range(5):
        alone = transition.draw_instance(seed[:1], row[i : i + 1], episode[i : i + 1], 1000)
        assert int(alone) == int(together[i])
    assert len(set(together.tolist())) > 1
    assert not torch.equal(together, transition.draw_instance(seed + 1, row, episode, 1000))


def test_sequential_draw_plays_the_pool_in_order() -> None:
    env = tiny_env(3, num_items=2, shell={"draw": "sequential"}, container=(0.08, 0.07, 0.5))
    steps = play(env, 8)
    first = env.instances.item_id
    starts = torch.arange(0, 8, 2)
    expected = first[(torch.arange(3)[None] + 3 * torch.arange(4)[:, None])][..., 0]
    assert torch.equal(steps["observation", "item_id"][starts].squeeze(-1), expected)
