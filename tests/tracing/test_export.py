"""An exported policy acts like the policy, even where only torch is installed."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tests.agents.algorithms.test_every_agent import small_config
from tests.agents.learning import shaken
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents import export_policy
from agents.config.build import build_agent, build_env
from agents.policies.export import export_onnx, name_of
from packing_env import PackingEnv, kernels

MODES = ("rainbow", "iqn candidate", "ppo", "ppo multi_head", "sac")
"""A case of each action mode, and of each way to decide; the fifth mode is hierarchical, below."""
SHAPES = ("items.source=shapes", "~items.extents")
"""Items with places that are blocked to two sides; of cuboids every place is a candidate."""
COARSE = ("env.container=[0.16,0.16,0.12]", "env.cell=0.04")
PROGRAM = """
import sys, torch
decide = torch.export.load(sys.argv[1]).module()
given, expected = torch.load(sys.argv[2])
found = decide(given)
assert {name: value.tolist() for name, value in found.items()} == expected, found
assert not {"packing_env", "agents", "tensordict", "torchrl"} & set(sys.modules)
"""


def playing(case: str, *overrides: str) -> tuple[PackingEnv, Any, TensorDictBase]:
    """An agent's policy in training mode, and rows in the midst of their episodes."""
    config = small_config(case, "env.num_envs=3", *overrides)
    env = build_env(config)
    torch.manual_seed(0)
    policy = build_agent(config, env).policy
    shaken(policy)  # away from values that are all alike
    root = env.reset()
    for _ in range(2):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    return env, policy, root


def decided(policy: Any, env: PackingEnv, root: TensorDictBase) -> dict[str, torch.Tensor]:
    training = policy.training
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        written = policy.eval()(root.clone())
    policy.train(training)
    return {name_of(key): written.get(key) for key in env.action_keys}


def given_to(policy: Any, root: TensorDictBase) -> dict[str, torch.Tensor]:
    return {name_of(key): root.get(key) for key in policy.in_keys}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("case", "settings", "least"),
    [
        ("dqn", ["network.precision=bf16"], 57),
        pytest.param("ppo multi_head", ["network.precision=fp32"], 60, marks=pytest.mark.slow),
        pytest.param("afterstate", [*SHAPES, *COARSE], 60, marks=pytest.mark.slow),
    ],
)
def test_onnx_decides_as_the_policy(
    case: str, settings: list[str], least: int, tmp_path: Path
) -> None:
    """Twenty decisions of three rows; ONNX Runtime sums in another order."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(
            package, reason=f"{package} (extra onnx) is missing: ONNX was NOT tried"
        )
    import onnxruntime

    env, policy, root = playing(case, *settings)
    export_onnx(export_policy(policy, env), tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "policy.onnx", providers=["CPUExecutionProvider"]
    )
    names, equal = [output.name for output in session.get_outputs()], 0
    for _ in range(20):
        given = {name: value.numpy() for name, value in given_to(policy, root).items()}
        found = dict(zip(names, session.run(names, given), strict=True))
        for name, value in decided(policy, env, root).items():
            equal += int((torch.from_numpy(found[name]) == value).view(3, -1).all(1).sum())
        for key in env.action_keys:
            root.set(key, torch.from_numpy(found[name_of(key)]))
        _, root = env.step_and_maybe_reset(root)
    assert equal >= least  # of 60; in bfloat16 some values are nearly equal


class Sums(torch.nn.Module):
    """Sums under the footprints of each row, as the candidates of afterstates need them."""

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        weights = inputs["footprints"].flatten(0, 1)[:, None]
        groups = len(inputs["heights"])
        sums = torch.nn.functional.conv2d(inputs["heights"][None], weights, None, 2, groups=groups)
        return {"sums": sums.view(groups, -1, *sums.shape[2:])}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_onnx_convolves_float64(tmp_path: Path) -> None:
    """ONNX Runtime convolves only float32, which is not exact for these sums."""
    runtime = pytest.importorskip(
        "onnxruntime", reason="onnxruntime (extra onnx) is missing: ONNX was NOT tried"
    )
    given = {
        "heights": torch.randint(2**30, (3, 7, 6)).double(),
        "footprints": torch.randint(2, (3, 4, 3, 2)).double(),
    }
    program = torch.export.export(Sums(), (given,), strict=False)
    export_onnx(program, tmp_path / "sums.onnx")
    session = runtime.InferenceSession(tmp_path / "sums.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["sums"], {name: value.numpy() for name, value in given.items()})
    assert torch.equal(torch.from_numpy(found), Sums()(given)["sums"])


# The warnings are torch's own, of what it calls while it traces.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:No complete tensor found")  # of channels-last ones
@pytest.mark.parametrize("case", MODES)
def test_the_program_decides_as_the_policy(case: str) -> None:
    env, policy, root = playing(case)
    file, expected = io.BytesIO(), decided(policy, env, root)
    torch.export.save(export_policy(policy, env), file)
    program = torch.export.load(file)  # autocast of PPO's placements could not be loaded
    assert policy.training
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)  # the program has weights of its own
    found = program.module()(given_to(policy, root))
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)
    for key in env.action_keys:
        root.set(key, found[name_of(key)])
    assert not env.step(root)["next", "metrics", "illegal_actions"].any()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:No complete tensor found:UserWarning")  # of channels-last ones
def test_it_runs_without_this_package(tmp_path: Path) -> None:
    """The policy is the one that computes maps between its two levels, with torch's kernels.

    The program of this rule has a quarter of the operations of `com_hull`.
    """
    rule = ("env.stability=center_hull", "env.stability_metric=center_hull")
    env, policy, root = playing("hierarchical", *rule)
    backend = kernels.backend_for("cpu")
    torch.export.save(export_policy(policy, env), tmp_path / "policy.pt2")
    expected = {name: value.tolist() for name, value in decided(policy, env, root).items()}
    given = {name: value.clone() for name, value in given_to(policy, root).items()}
    torch.save((given, expected), tmp_path / "example.pt")
    assert kernels.backend_for("cpu") == backend
    command = [sys.executable, "-c", PROGRAM, "policy.pt2", "example.pt"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
