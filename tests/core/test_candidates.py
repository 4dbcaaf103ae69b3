"""The K lowest legal placements."""

import pytest
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


def scene(index: torch.Tensor, z: torch.Tensor, legal: torch.Tensor, **changes: object):
    """A scene of one item whose generator proposes ``index``."""
    name = f"proposes_{len(candidates.GENERATORS)}"
    dropped = torch.zeros(len(index), dtype=torch.int64)
    candidates.register(name, lambda scene: candidates.Proposals(index, dropped))
    params = PARAMS.evolve(candidate_generator=name, **changes)
    rows = torch.zeros(len(index), 1, dtype=torch.int64)
    return candidates.Scene({}, rows, rows == 0, maps(z, legal), {}, params)


@pytest.fixture(autouse=True)
def _only_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "GENERATORS", dict(candidates.GENERATORS))


def test_legal_and_distinct_proposals_in_their_order() -> None:
    z = torch.arange(24.0)[None] * 0.001
    legal = torch.ones(1, 24, dtype=torch.bool)
    legal[0, 7] = False
    found = candidates.propose(scene(torch.tensor([[9, 7, -1, 3, 9, 3, 20]]), z, legal))
    assert found.index.tolist() == [[9, 3, 20, -1, -1]]
    assert found.z[0, :3].tolist() == [z[0, 9], z[0, 3], z[0, 20]]
    assert found.z[0, 3:].isinf().all()
    assert found.overflow.tolist() == [0]
