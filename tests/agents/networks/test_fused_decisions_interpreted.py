"""Fused kernels of decisions, as Triton's interpreter computes them, and the eager expressions.

Triton decides to interpret when it is imported, so these tests run in a process of their own, which
`test_fused_decisions.py` starts. The interpreter cuts bfloat16 off where a GPU rounds: the order of
roundings is compared in float16.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from tests.agents.distributional import small_env
from tests.tiny import cuboid_env, stream
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.ppo import ActorCriticPolicy
from agents.networks import PlacementActorCritic, ScoreMaps
from agents.networks.encoders.maps import coordinates, folded
from agents.networks.fused.layout import stacks
from agents.policies import sampling
from agents.policies.heads import action_heads
from packing_env import kernels
from packing_env.kernels import backends as dispatch

INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())

pytestmark = pytest.mark.skipif(
    not (INTERPRETING and importlib.util.find_spec("triton")),
    reason="run by test_fused_decisions.py, with TRITON_INTERPRET=1",
)
TASKS = {
    "two items": partial(small_env, "placement", 2),
    "step 2": partial(cuboid_env, 2, items={"grid": (11, 6)}, num_items=4, grid_step=2),
}
SIZES: list[tuple[str, dict[str, Any]]] = [
    ("two items", {"channels": 6, "depth": 2, "fold": 4, "context": True}),
    ("two items", {"channels": 8, "depth": 1, "fold": 1, "context": True, "dueling": False}),
    ("step 2", {"channels": 8, "depth": 3, "fold": 2, "context": True, "ground": 4}),
    ("step 2", {"channels": 4, "depth": 1, "fold": 1}),
]


class Launches(TorchDispatchMode):
    """Names of the kernels of this project that run within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "packing_env":
            self.names.add(func.name().split("::")[-1])
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def interpreted() -> Iterator[set[str]]:
    """Act by the kernels within the block, and list them; at least one must have run."""
    kernels.set_backend("triton")
    try:
        with torch.no_grad(), Launches() as launches:
            yield launches.names
    finally:
        kernels.set_backend(None)
    assert any(name.startswith("triton_") for name in launches.names)


def case(kind: Any, task: str, **sizes: Any) -> tuple[Any, Any]:
    """A network away from its start, and observations of the middle of an episode."""
    env = TASKS[task]()
    torch.manual_seed(0)
    network = kind(env, **sizes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    root = env.reset()
    for _ in range(3):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    return network, root


def values(network: Any, root: Any, *, fused: bool) -> Tensor:
    with interpreted() if fused else torch.no_grad():
        return network(root.clone())["action_value"]


@pytest.mark.parametrize(("task", "sizes"), SIZES)
def test_values_equal_eager(
    task: str, sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-5 of the largest: sums are added up in another order. No kernel copies its inputs."""
    network, root = case(ScoreMaps, task, precision="fp32", **sizes)
    expected, copied = values(network, root, fused=False), []
    plain = torch.Tensor.contiguous

    def contiguous(self: Tensor, **options: Any) -> Tensor:
        made = plain(self, **options)
        copied.append(made.data_ptr() != self.data_ptr())
        return made

    monkeypatch.setattr(torch.Tensor, "contiguous", contiguous)
    found = values(network, root, fused=True)
    assert expected.std() > 0.1
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert copied
    assert not any(copied)


@pytest.mark.parametrize(("task", "sizes"), SIZES[::2])
def test_values_in_bfloat16_are_as_near_as_eager_ones(task: str, sizes: dict[str, Any]) -> None:
    """To those in float32, within twice the distance that torch's own operations have."""
    exact, root = case(ScoreMaps, task, precision="fp32", **sizes)
    network, _ = case(ScoreMaps, task, precision="bf16", **sizes)
    network.load_state_dict(exact.state_dict())
    truth = values(exact, root, fused=False)
    eager, fused = (values(network, root, fused=flag) - truth for flag in (False, True))
    assert fused.square().mean() <= 4 * eager.square().mean()


def test_values_of_other_actions_take_the_eager_path() -> None:
    """An update values single actions, and the kernels have no gradient."""
    network, root = case(ScoreMaps, "two items", precision="fp32", channels=4)
    action = root["action_mask"].int().argmax(-1)
    expected = network.value_of(root, action)
    kernels.set_backend("triton")
    try:
        found = network.value_of(root, action)
        plain = network(root.clone())["action_value"]
    finally:
        kernels.set_backend(None)
    assert torch.equal(found, expected)
    assert plain.requires_grad
    assert torch.equal(plain, network(root.clone())["action_value"])


@pytest.mark.parametrize("fold", [1, 2, 4])
def test_stacked_images_equal_eager(fold: int) -> None:
    generator = stream(fold)
    images = torch.rand(2, 3, 3, 7, 9, generator=generator)
    ground, grid = torch.rand(2, 1, 7, 9, generator=generator), coordinates((7, 9))
    own, shared = torch.ops.packing_env.triton_stack_images(images, ground, grid, fold, False)
    together = torch.cat((ground, grid.expand(2, -1, -1, -1)), 1)
    assert torch.equal(own, folded(images.flatten(0, 1), fold))
    assert torch.equal(shared, folded(together, fold))
    for made, fake in zip((own, shared), stacks(images, ground, grid, fold, False), strict=True):
        assert (made.shape, made.stride()) == (fake.shape, fake.stride())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_residuals_have_the_bits_of_eager(dtype: torch.dtype) -> None:
    generator = stream(0)
    images, residual = (
        torch.randn(3, 6, 9, 5, generator=generator)
        .to(dtype)
        .contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    images[0, 0, 0, 0] = torch.nan
    bias = torch.randn(6, generator=generator).to(dtype)
    found = torch.ops.packing_env.triton_add_residual(images, bias, residual)
    expected = residual + functional.relu(images + bias[:, None, None])
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [1, 33, 1000, 2100])
def test_draws_equal_eager(size: int) -> None:
    """Draws are equal; log-probabilities to 2e-6, since sums are added up in another order."""
    generator = stream(size)
    logits = 3 * torch.randn(40, size, generator=generator)
    mask = torch.rand(40, size, generator=generator) < 0.3
    mask[0], mask[1] = False, torch.arange(size) == size // 2
    uniform = torch.rand(40, generator=generator, dtype=torch.float64)
    uniform[2], uniform[3] = 0, 1 - 2**-53
    expected = sampling.draw_by_logits(logits, mask, uniform)
    with interpreted():
        found = sampling.draw_by_logits(logits, mask, uniform)
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=2e-6, atol=2e-6)
    assert found[1][1] == 0


@pytest.mark.parametrize("task", TASKS)
def test_a_policy_decides_as_by_eager_operations(task: str) -> None:
    """PPO: actor, draw and critic."""
    kind = partial(PlacementActorCritic, channels=4, width=12, fold=2, context=True, ground=4)
    network, root = case(kind, task, precision="fp32")
    policy = ActorCriticPolicy(network, action_heads(TASKS[task]()))
    decisions = []
    for how in (torch.no_grad, interpreted):
        torch.manual_seed(1)
        with how(), set_exploration_type(ExplorationType.RANDOM):
            decisions.append(policy(root.clone()))
    expected, found = decisions
    assert torch.equal(found["action"], expected["action"])
    for key in ("action_log_prob", "state_value"):
        torch.testing.assert_close(found[key], expected[key], rtol=1e-5, atol=1e-5)
