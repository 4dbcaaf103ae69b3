"""Networks of manager and worker: what they see, what they share, and the cache of embeddings."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from tests.tiny import tiny_env
from torch import Tensor, nn
from torch.nn import functional

from agents.algorithms.optimization import GatedAdam, follow
from agents.config.compose import compose
from agents.networks import HierarchicalNetworks
from agents.networks.encoders.item_views import (
    DIRECTIONS,
    lattice_maps,
    principal_views,
    thumbnails,
)
from agents.networks.encoders.unet import UNet
from agents.networks.hierarchical import worker
from agents.policies.hierarchical import HierarchicalPolicy
from packing_env import PackingEnv
from packing_env.items import Catalogue
from packing_env.items.rotations import rotation_set
from packing_env.types import PackingParams, ParameterError

SMALL: dict[str, Any] = {
    "features": 8,
    "encoder_width": 4,
    "encoder_stages": 2,
    "encoder_blocks": 1,
    "hidden": 16,
    "view_size": 4,
    "worker_width": 4,
    "fold": 2,
    "condition": 8,
    "thumbnail": 2,
    "precision": "fp32",
}
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


def shaken(module: nn.Module) -> nn.Module:
    """Away from its first values, which are near zero."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return module


# ---------------------------------------------------------------------- sizes


@lru_cache
def config_of(network: str):
    return compose("train", ["agent=hierarchical", f"network={network}"]).network


def weights(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_paper_size():
    networks = instantiate(config_of("hrl_paper"))(env_of())
    convolutions = [m for m in networks.worker.unet.modules() if isinstance(m, nn.Conv2d)]
    kernels = [m.kernel_size for m in convolutions]
    assert kernels.count((3, 3)) == 14
    assert kernels.count((1, 1)) == 1
    assert convolutions[0].out_channels == 32
    found = [m for m in networks.manager.items.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    carries = [m for m in found if getattr(m, "kernel_size", None) == (1, 1)]
    assert len(found) - len(carries) == 18
    assert found[0].in_channels == 7  # six views and the container
    assert networks.manager.container is None
    head = [m for m in networks.manager.head if isinstance(m, nn.Linear)]
    assert len(head) == 3


def test_small_size():
    env = env_of(num_visible=5, items={"grid": (16, 16), "num_orientations": 24})
    networks = instantiate(config_of("hrl_small"))(env)
    assert weights(networks) <= 200_000


def test_the_unet_takes_images_of_any_size():
    unet = UNet(3, 2, width=4, condition=5)
    for size in ((1, 1), (7, 12), (50, 50)):
        assert unet(torch.rand(2, 3, *size), torch.rand(2, 5)).shape == (2, 2, *size)
    image, told = torch.rand(1, 3, 8, 8), torch.rand(1, 5)
    assert not torch.equal(unet(image, told), unet(image, told + 1))


# ---------------------------------------------------------------------- pictures of items


def voxel_maps(voxels: Tensor, rotations: Tensor, window: int) -> dict[str, Tensor]:
    """What a catalogue holds of solids ``[M, X, Y, Z]`` of unit cells, in all rotations."""
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
    """Height above the opposite face of what is first met along an axis; an oracle."""
    solid = solid if sign > 0 else solid.flip(axis)
    height = torch.arange(1, solid.shape[axis] + 1).float()
    height = height.view([-1 if a == axis else 1 for a in range(3)])
    return torch.where(solid, height, 0.0).amax(axis)


def turned_alike(view: Tensor, expected: Tensor, mirrors: bool) -> bool:
    """Whether a picture is the expected one, up to quarter turns (and mirroring)."""

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


def test_six_views_at_quarter_turns():
    voxels = solids()
    views = principal_views(voxel_maps(voxels, rotation_set("pi/2"), 4), PARAMS, 8) * 8
    assert views.shape == (4, 6, 4, 4)
    for solid, images in zip(voxels, views, strict=True):
        for image, direction in zip(images, DIRECTIONS, strict=True):
            axis = next(a for a in range(3) if direction[a])
            expected = seen_from(solid, axis, direction[axis])
            # from outside: the picture's axes a, b obey a x b = direction, as x, y do from above
            left_handed = (axis == 1) == (direction[axis] > 0)
            assert turned_alike(image, expected.T if left_handed else expected, mirrors=False)


def test_views_of_items_that_are_never_turned_over():
    """Walls come from the columns: here solid ones, so nothing is lost."""
    voxels = solids()
    levels = torch.arange(3)
    lowest = torch.where(voxels, levels, 3).amin(3, keepdim=True)
    highest = torch.where(voxels, levels, -1).amax(3, keepdim=True)
    columns = (lowest <= levels) & (levels <= highest)
    views = principal_views(voxel_maps(columns, rotation_set("yaw"), 4), PARAMS, 8) * 8
    for solid, images in zip(columns, views, strict=True):
        for image, direction in zip(images, DIRECTIONS, strict=True):
            axis = next(a for a in range(3) if direction[a])
            assert turned_alike(image, seen_from(solid, axis, direction[axis]), mirrors=True)


def test_views_of_items_that_look_the_same_turned_over():
    """A cuboid keeps 3 or 6 of its 24 orientations; every side is seen all the same."""
    found = Catalogue.from_cuboids([[1, 2, 3], [2, 2, 1]], cell=1.0, container=(8, 8, 8))
    assert found.orientation_mask.sum(1).tolist() == [6, 3]
    views = principal_views(found.tensors(), PARAMS, 8) * 8
    for sides, images in zip(([1, 2, 3], [2, 2, 1]), views, strict=True):
        for image, direction in zip(images, DIRECTIONS, strict=True):
            axis = next(a for a in range(3) if direction[a])
            across = sorted(side for a, side in enumerate(sides) if a != axis)
            assert image.max() == sides[axis]
            assert sorted([image.any(0).sum().item(), image.any(1).sum().item()]) == across
            assert (image > 0).sum() == across[0] * across[1]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_lattice_maps_hold_every_cell_in_the_middle(step):
    maps = voxel_maps(solids(), rotation_set("pi/2"), 4)
    params = replace(PARAMS, grid_step=step)
    found = lattice_maps(maps, params).float()
    points = -(-4 // step)
    assert found.shape[2:] == (2 * step * step, points, points)
    for name, layer in (("top", 0), ("bottom", 1)):
        for m, r in ((0, 0), (1, 5), (3, 23)):
            cells = functional.pixel_shuffle(found[m, r].view(2, step * step, points, points), step)
            size = [int(side) for side in maps["size"][m, r]]
            first = [step * ((points - -(-side // step)) // 2) for side in size]
            inside = cells[layer, 0, first[0] : first[0] + size[0], first[1] : first[1] + size[1]]
            expected = maps[name][m, r, : size[0], : size[1]] / params.height
            expected = (expected if name == "top" else 1 - expected).clamp(0, 1)
            torch.testing.assert_close(inside, expected, rtol=0, atol=1e-3)
            assert cells[layer].sum() == pytest.approx(float(expected.sum()), rel=1e-3)


def test_thumbnails_hold_the_extremes():
    maps = voxel_maps(solids(), rotation_set("yaw"), 4)
    pictures = thumbnails(maps, PARAMS, 2)
    top, bottom = pictures.view(4, 4, 2, 2, 2).unbind(2)
    blocks = maps["top"].clamp(min=0).unfold(2, 2, 2).unfold(3, 2, 2)
    assert torch.equal(top * 8, blocks.amax((-1, -2)))
    blocks = maps["bottom"].clamp(max=8).unfold(2, 2, 2).unfold(3, 2, 2)
    assert torch.equal(bottom * 8, blocks.amin((-1, -2)))


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


def test_empty_places_change_nothing():
    env = env_of()
    manager = shaken(small(env)).manager
    root = env.reset()
    root["observation", "item_id"][:, 2] = -1
    value = manager(root.clone())["manager", "action_value"]
    other = shaken(small(env)).manager
    other.load_state_dict(manager.state_dict())
    other.views[0] = 9.0  # what an empty place would show
    known = (root["observation", "item_id"][:, :2] > 0).all(1)
    assert known.any()
    again = other(root.clone())["manager", "action_value"]
    torch.testing.assert_close(again[known, :2], value[known, :2])


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


def test_the_catalogue_is_encoded_once(monkeypatch):
    env = env_of()
    manager = shaken(small(env)).manager
    calls = []
    encode = manager._encode

    def counted(encoder, images):
        if encoder is manager.items:
            calls.append(len(images))
        return encode(encoder, images)

    monkeypatch.setattr(manager, "_encode", counted)
    with torch.no_grad():
        root = env.reset()
        for _ in range(4):
            manager(root.clone())
    assert calls == [len(manager.views)]


def changed_by_optimizer(manager) -> None:
    optimizer = torch.optim.Adam(manager.items.parameters(), lr=0.1)
    manager.items(manager.views).sum().backward()
    optimizer.step()


def changed_by_loading(manager) -> None:
    other = shaken(small(env_of())).manager
    manager.load_state_dict(other.state_dict())


def changed_by_gated_step(manager) -> None:
    GatedAdam(manager.items.parameters(), lr=0.1).step(manager.items(manager.views).sum())


def changed_as_a_target(manager) -> None:
    other = shaken(small(env_of())).manager
    follow(list(manager.parameters()), list(other.parameters()), 0.5)


@pytest.mark.parametrize(
    "change",
    [
        shaken,
        changed_by_optimizer,
        changed_by_gated_step,
        changed_by_loading,
        changed_as_a_target,
    ],
)
def test_new_weights_give_new_embeddings(change):
    manager = shaken(small(env_of())).manager
    item_id = torch.arange(len(manager.views))[:, None]
    with torch.no_grad():
        before = manager.embed(item_id).clone()
    change(manager)
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


def test_every_cell_of_an_item_counts_where_maps_are_whole():
    """A thumbnail of one pixel holds extremes only: a change inside it goes unseen."""
    env = env_of()
    whole = shaken(HierarchicalNetworks(env, **WHOLE))
    seen = seen_by_the_worker(env, whole)
    before = whole.worker(seen.clone(False))["worker", "action_value"]
    pictures = whole.worker.pictures
    for channel in range(pictures.shape[-1]):
        moved = pictures[..., channel].clone()
        pictures[..., channel] += 0.5
        after = whole.worker(seen.clone(False))["worker", "action_value"]
        assert not torch.equal(before, after), channel
        pictures[..., channel] = moved


def test_large_batches_are_evaluated_in_blocks(monkeypatch):
    env = env_of(6)
    networks = shaken(HierarchicalNetworks(env, **WHOLE))
    seen = seen_by_the_worker(env, networks)
    whole = networks.worker(seen.clone(False))["worker", "action_value"]
    monkeypatch.setattr(worker, "_BLOCK_PIXELS", 1)
    blocks = networks.worker(seen.clone(False))["worker", "action_value"]
    torch.testing.assert_close(whole, blocks)


def test_the_joint_encoder_reads_item_and_container_together():
    env = env_of()
    networks = shaken(HierarchicalNetworks(env, **WHOLE))
    seen = seen_by_the_worker(env, networks)
    value = networks.manager(seen.clone(False))["manager", "action_value"]
    assert value.shape == seen["manager", "action_mask"].shape
    for key in (("observation", "heights"), ("observation", "item_id")):
        other = seen.clone()
        other[key] = other[key].roll(1, -1) + (0.01 if key[1] == "heights" else 0)
        changed = networks.manager(other)["manager", "action_value"]
        assert not torch.allclose(value, changed, atol=1e-5), key
    with torch.no_grad():  # nothing is looked up: new weights count at once
        shaken(networks.manager)
    assert not torch.allclose(value, networks.manager(seen.clone(False))["manager", "action_value"])


def test_values_depend_on_the_item_and_its_orientation():
    env = env_of()
    networks = shaken(small(env))
    seen = seen_by_the_worker(env, networks)
    value = networks.worker(seen.clone(False))["worker", "action_value"]
    other = seen.clone()
    other["observation", "item_id"] = (other["observation", "item_id"] + 1) % 6
    changed = networks.worker(other)["worker", "action_value"]
    assert not torch.allclose(value, changed, atol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ParameterError, match="action_mode"):
        small(tiny_env(2))
    with pytest.raises(ParameterError, match="item_features"):
        small(env_of(observation=("heightmap", "item_id")))
    with pytest.raises(ParameterError, match="precision"):
        HierarchicalNetworks(env_of(), **{**SMALL, "precision": "fp16"})
