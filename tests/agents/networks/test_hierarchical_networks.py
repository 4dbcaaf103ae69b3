"""Networks of manager and worker: what they see, what they share, and the cache of embeddings."""

from functools import partial
from typing import Any

import pytest
import torch
from tests.agents.learning import shaken
from tests.tiny import tiny_env
from torch import Tensor

from agents.algorithms.optimization import GatedAdam, follow
from agents.networks import HierarchicalNetworks
from agents.networks.encoders.item_views import DIRECTIONS, principal_views
from agents.policies.hierarchical import HierarchicalPolicy
from packing_env import PackingEnv
from packing_env.items.rotations import rotation_set
from packing_env.types import PackingParams

SMALL: dict[str, Any] = {
    "features": 8, "encoder_width": 4, "encoder_stages": 2, "encoder_blocks": 1, "hidden": 16,
    "view_size": 4, "worker_width": 4, "fold": 2, "condition": 8, "thumbnail": 2,
    "precision": "fp32",
}  # fmt: skip
small = partial(HierarchicalNetworks, **SMALL)


def env_of(num_envs: Any = 4, **params: Any) -> PackingEnv:
    options = {"action_mode": "hierarchical", "num_items": 10, "num_visible": 3, **params}
    return tiny_env(num_envs, **options)


def seen_by_the_worker(env: PackingEnv, networks: HierarchicalNetworks):
    """Some states in the middle of episodes, with an item chosen and its maps."""
    policy = HierarchicalPolicy(env, networks)
    policy.learned_order = False
    root = env.reset()
    for _ in range(2):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    return policy.maps(policy.choose_item(root))


# ---------------------------------------------------------------------- pictures of items


def voxel_maps(voxels: Tensor, rotations: Tensor, window: int) -> dict[str, Tensor]:
    """Return the catalogue's maps of solids ``[M, X, Y, Z]`` of unit cells, in all rotations."""
    shape = (len(voxels), len(rotations), window, window)
    made = {
        "top": torch.full(shape, -torch.inf),
        "bottom": torch.full(shape, torch.inf),
        "size": torch.zeros(*shape[:2], 2, dtype=torch.int64),
        "peak": torch.zeros(shape[:2]),
        "orientation_mask": torch.ones(shape[:2], dtype=torch.bool),
        "rotation": rotations.expand(len(voxels), -1, -1, -1).clone(),
    }
    for m, solid in enumerate(voxels):
        cells = solid.nonzero().double() + 0.5
        for r, rotation in enumerate(rotations):
            turned = cells @ rotation.T
            turned = (turned - turned.amin(0)).round().long()
            made["size"][m, r] = turned[:, :2].amax(0) + 1
            made["peak"][m, r] = turned[:, 2].amax() + 1
            for x, y, z in turned.tolist():
                made["top"][m, r, x, y] = max(made["top"][m, r, x, y], z + 1.0)
                made["bottom"][m, r, x, y] = min(made["bottom"][m, r, x, y], float(z))
    return made


def seen_from(solid: Tensor, axis: int, sign: int) -> Tensor:
    """Return the view along an axis: the first cell's height above the opposite face."""
    solid = solid if sign > 0 else solid.flip(axis)
    height = torch.arange(1, solid.shape[axis] + 1).float()
    height = height.view([-1 if a == axis else 1 for a in range(3)])
    return torch.where(solid, height, 0.0).amax(axis)


def turned_alike(view: Tensor, expected: Tensor, mirrors: bool) -> bool:
    def crop(image: Tensor) -> Tensor:
        rows, columns = image.any(1).nonzero(), image.any(0).nonzero()
        return image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]

    wanted = crop(expected)
    sources = [wanted, wanted.T] if mirrors else [wanted]
    turns = [source.rot90(k) for source in sources for k in range(4)]
    return any(torch.equal(crop(view), turn) for turn in turns)


def solids() -> Tensor:
    """Random crooked solids in 4 x 3 x 3 boxes."""
    torch.manual_seed(3)
    filled = torch.rand(4, 4, 3, 3) < 0.4
    filled[:, :, 1, 0] = filled[:, 1, :, 2] = True
    return filled


PARAMS = PackingParams(container=(8.0, 8.0, 8.0), cell=1.0)


def filled_columns(voxels: Tensor) -> Tensor:
    """Return voxels that fill each column between its lowest and highest cell."""
    levels = torch.arange(voxels.shape[3])
    lowest = torch.where(voxels, levels, len(levels)).amin(3, keepdim=True)
    highest = torch.where(voxels, levels, -1).amax(3, keepdim=True)
    return (lowest <= levels) & (levels <= highest)


@pytest.mark.parametrize("rotations", ["pi/2", "yaw"])
def test_six_views_at_quarter_turns(rotations):
    """Side views of items that are never turned over come from the columns, solid ones here."""
    turned = rotations == "pi/2"
    voxels = solids() if turned else filled_columns(solids())
    views = principal_views(voxel_maps(voxels, rotation_set(rotations), 4), PARAMS, 8) * 8
    assert views.shape == (4, 6, 4, 4)
    for solid, images in zip(voxels, views, strict=True):
        for image, direction in zip(images, DIRECTIONS, strict=True):
            axis = next(a for a in range(3) if direction[a])
            expected = seen_from(solid, axis, direction[axis])
            # from outside: the picture's axes a, b obey a x b = direction, as x, y do from above
            left_handed = (axis == 1) == (direction[axis] > 0)
            assert turned_alike(image, expected.T if left_handed else expected, mirrors=not turned)


# ---------------------------------------------------------------------- the manager


def test_items_share_their_encoder():
    """Swapping two items swaps their values and leaves the rest alone."""
    env = env_of()
    manager = shaken(small(env)).manager
    root = env.reset()
    value = manager(root.clone())["manager", "action_value"]
    swapped, order = root.clone(), torch.tensor([2, 1, 0])
    for name in ("item_id", "item_features"):
        swapped["observation", name] = root["observation", name][:, order]
    again = manager(swapped)["manager", "action_value"]
    torch.testing.assert_close(again, value[:, order])
    assert (value.std(-1) > 1e-4).all()


def fresh(manager, item_id: Tensor) -> Tensor:
    return torch.stack([manager.items(manager.views[i][None])[0] for i in item_id.flatten()])


@pytest.mark.parametrize("shape", [(2, 1), (40, 3)], ids=["fewer", "more than the catalogue"])
def test_cached_embeddings_are_those_of_a_fresh_encoding(shape):
    env = env_of()
    manager = shaken(small(env)).manager
    item_id = torch.randint(len(manager.views), shape)
    expected = fresh(manager, item_id).view(*shape, -1)
    with torch.no_grad():
        cached = manager.embed(item_id)
    learned = manager.embed(item_id)
    assert learned.requires_grad
    torch.testing.assert_close(cached, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(learned, expected, rtol=1e-5, atol=1e-6)


CHANGES = {
    "noise": lambda own, other: shaken(own),
    "a step": lambda own, other: GatedAdam(own.items.parameters(), lr=0.1).step(
        own.items(own.views).sum()
    ),
    "loading": lambda own, other: own.load_state_dict(other.state_dict()),
    "a target": lambda own, other: follow([*own.parameters()], [*other.parameters()], 0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_new_weights_give_new_embeddings(change):
    manager, other = (shaken(small(env_of())).manager for _ in range(2))
    item_id = torch.arange(len(manager.views))[:, None]
    with torch.no_grad():
        before = manager.embed(item_id).clone()
    CHANGES[change](manager, other)
    with torch.no_grad():
        after = manager.embed(item_id)
        torch.testing.assert_close(after[:, 0], fresh(manager, item_id), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(before, after)


# ---------------------------------------------------------------------- the worker


WHOLE = {**SMALL, "joint": True, "thumbnail": 0}
"""As the paper: a joint encoder, and whole maps as channels."""


@pytest.mark.parametrize("grid_step", [1, 3])
@pytest.mark.parametrize("fold", [1, 2])
@pytest.mark.parametrize("sizes", [SMALL, WHOLE], ids=["thumbnails", "whole maps"])
def test_value_of_is_the_gathered_value(sizes, fold, grid_step):
    env = env_of(grid_step=grid_step)
    networks = shaken(HierarchicalNetworks(env, **{**sizes, "fold": fold}))
    seen = seen_by_the_worker(env, networks)
    value = networks.worker(seen.clone(False))["worker", "action_value"]
    mask = seen["worker", "action_mask"]
    assert value.shape == mask.shape
    action = torch.where(mask, torch.rand(mask.shape), -1.0).argmax(-1)
    one = networks.worker.value_of(seen, action)
    torch.testing.assert_close(one, value.gather(1, action[:, None]).squeeze(1))
