"""The order in which episodes take instances from the pool."""

import torch
from tests.tiny import play, tiny_env


def test_sequential_draw_plays_the_pool_in_order() -> None:
    env = tiny_env(3, num_items=2, shell={"draw": "sequential"}, container=(0.08, 0.07, 0.5))
    steps = play(env, 8)
    first = env.instances.item_id
    starts = torch.arange(0, 8, 2)
    expected = first[(torch.arange(3)[None] + 3 * torch.arange(4)[:, None])][..., 0]
    assert torch.equal(steps["observation", "item_id"][starts].squeeze(-1), expected)
    finished = steps["next", "terminated"]
    assert torch.equal(steps["next", "metrics", "success"] > 0, finished)  # both items are packed
