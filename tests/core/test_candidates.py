"""The K lowest legal placements, and the features of candidates."""

import torch
from tests.tiny import stream, tiny_env

from packing_env.core import candidates
from packing_env.core.feasibility import Maps
from packing_env.types import PackingParams

PARAMS = PackingParams(container=(0.04, 0.03, 0.1), cell=0.01, num_items=4, num_candidates=5)


def maps(z: torch.Tensor, legal: torch.Tensor) -> Maps:
    return Maps(z.view(-1, 1, 2, 4, 3), legal.view(-1, 1, 2, 4, 3))


def test_lowest_first_ties_by_index() -> None:
    generator = stream()
    z = torch.randint(0, 3, (50, 24), generator=generator) * 0.01
    legal = torch.rand(50, 24, generator=generator) < 0.2
    z[~legal & (torch.rand(50, 24, generator=generator) < 0.3)] = torch.inf
    z[0, 0] = -0.0
    found = candidates.lowest(maps(z, legal), PARAMS.num_candidates)
    for row in range(50):
        order = sorted(legal[row].nonzero().flatten().tolist(), key=lambda i: (float(z[row, i]), i))
        expected = (order + [-1] * 5)[:5]
        assert found[row].tolist() == expected


def test_features_describe_the_candidates() -> None:
    env = tiny_env(3, action_mode="candidate", num_candidates=9, num_visible=2)
    root = env.reset()
    seen = root["observation", "candidates"]
    assert seen.shape == (3, 9, len(candidates.FEATURES))
    assert ((seen >= 0) & (seen <= 1)).all()
    there = seen[..., candidates.FEATURES.index("there")] > 0
    assert torch.equal(there, root["action_mask"])
    assert (seen[~there] == 0).all()
    action = env.rand_action(root)["action"]
    env.step(root)
    place = env.state["placement"][:, 0]
    row = torch.arange(3)
    assert torch.allclose(seen[row, action, 0] * env.params.grid[0], place[:, 2].float())
    assert torch.allclose(seen[row, action, 1] * env.params.grid[1], place[:, 3].float())
