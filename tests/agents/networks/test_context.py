"""What networks see of the container: planes, a global token, whole heightmaps, free space."""

from functools import partial

import pytest
import torch
from tests.agents.learning import shaken
from tests.tiny import cuboid_env, play
from torch.nn import functional

from agents.algorithms.dqn import DQN
from agents.algorithms.ppo import PPO
from agents.networks import ScoreMaps
from agents.networks.encoders.candidates import room
from packing_env import make_env
from packing_env.core import candidates
from packing_env.kernels import placement_planes

HEIGHTMAP = ("observation", "heightmap")
MAPS = partial(ScoreMaps, channels=4, depth=4, fold=1, precision="fp32")


@pytest.mark.parametrize("stride", [1, 2])
def test_gaps_are_means_under_windows(stride):
    torch.manual_seed(0)
    heightmap = torch.rand(2, 7, 6)
    sides = torch.tensor([[1, 6], [3, 2], [7, 1]]).expand(2, 3, 2)
    rest = torch.rand(2, 3, *(-(-cells // stride) for cells in (7, 6)))
    rest[0, 1, 0, 0] = 1.0
    size, peak = sides / torch.tensor([7, 6]), torch.rand(2, 3)
    images = placement_planes(heightmap, rest, size, peak, stride)
    assert torch.equal(images[:, :, 0], rest)
    assert torch.equal(images[:, :, 1], (rest + peak[..., None, None]).clamp(max=1))
    found = images[:, :, 2]
    for row, plane, i, j in torch.cartesian_prod(*map(torch.arange, rest.shape)).tolist():
        (wide, deep), (x, y) = sides[row, plane].tolist(), (i * stride, j * stride)
        if x + wide > 7 or y + deep > 6:
            continue  # never legal
        z = rest[row, plane, i, j]
        expected = z - heightmap[row, x : x + wide, y : y + deep].mean() if z < 1 else 1.0
        torch.testing.assert_close(found[row, plane, i, j], torch.as_tensor(expected))


def test_a_placement_sees_the_whole_map():
    """Four 3 x 3 convolutions carry a change over five cells; the token carries it everywhere."""
    torch.manual_seed(0)
    env = cuboid_env(1, items={"grid": (14, 14)}, num_items=4)
    network = MAPS(env, dueling=False)
    shaken(network, 0.2)
    root = env.reset()
    value = network(root.clone())["action_value"]
    changed = root.clone()
    changed["observation", "drop_height"][..., -1, -1] = 0.9
    corner = network(changed)["action_value"].view(-1, 14, 14)[:, 0, 0]
    assert not torch.isclose(corner, value.view(-1, 14, 14)[:, 0, 0], rtol=0, atol=1e-7).any()


def hidden_change():
    """Return a change of the heightmap that leaves its 8 x 8 means equal."""
    cells = torch.eye(100).view(100, 1, 10, 10)
    means = functional.adaptive_avg_pool2d(cells, 8).flatten(1).T
    change = torch.linalg.svd(means)[2][-1]
    assert (means @ change).abs().max() < 1e-5
    return change.view(10, 10)


@pytest.mark.parametrize("agent", [PPO, DQN])
def test_critics_see_raw_heights(agent):
    """The former networks read 8 x 8 means: they valued these two containers equally."""
    env = make_env("cuboid_online", 2, pool_size=8)
    torch.manual_seed(0)
    network, root = agent(env).policy.network, play(env, 6)[-1]
    other = root.clone()
    other[HEIGHTMAP] = root[HEIGHTMAP] + 0.1 * hidden_change()
    if agent is PPO:
        values = [network.value(state) for state in (root, other)]
    else:
        scalars = torch.zeros(2, 1, network.value.features.in_features)
        values = [network.value(state[HEIGHTMAP], scalars) for state in (root, other)]
    assert not torch.isclose(*values, rtol=0, atol=1e-6).any()


def test_room_reaches_to_the_next_higher_cell():
    env = cuboid_env(8, num_items=12, action_mode="candidate", num_candidates=24)
    root = play(env, 5)[-1]
    heightmap, listed = root[HEIGHTMAP], root["observation", "candidates"]
    found = room(heightmap, listed)
    across, along = heightmap.shape[1:]
    assert (listed[..., -1] == 0).any()
    assert (listed[..., -1] > 0).any()
    for row, k in torch.cartesian_prod(torch.arange(8), torch.arange(24)).tolist():
        column = dict(zip(candidates.FEATURES, listed[row, k].tolist(), strict=True))
        if not column["there"]:
            assert not found[row, k].any()
            continue
        x, y, z = round(column["x"] * across), round(column["y"] * along), column["z"]
        ends = [x, y]
        while ends[0] < across and heightmap[row, ends[0], y] <= z + 1e-4:
            ends[0] += 1
        while ends[1] < along and heightmap[row, x, ends[1]] <= z + 1e-4:
            ends[1] += 1
        expected = torch.tensor([(ends[0] - x) / across, (ends[1] - y) / along, 1 - z])
        torch.testing.assert_close(found[row, k], expected, rtol=0, atol=1e-5)
