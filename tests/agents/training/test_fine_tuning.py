"""Fine-tuning: weights are carried over, counters are not, and what does not fit is named."""

from pathlib import Path

import pytest
import torch
from tests.agents.algorithms.test_every_agent import ONE_OF_EACH_KIND, small_config
from tests.agents.cli.test_cli import TRAIN
from tests.commands import refused
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.cli import main as cli
from agents.config.build import build_agent, build_env
from agents.training import checkpoint
from agents.training.fine_tuning import carry_over

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_agent_takes_the_weights_of_another(name: str, tmp_path: Path) -> None:
    """The weights come from a full checkpoint, and from a checkpoint of a policy alone."""
    torch.manual_seed(0)
    config = small_config(name)
    env = build_env(config)
    trained = build_agent(config, env)
    trained.set_frames(10**6)
    whole = trained.state_dict()
    root = env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        expected = trained.policy(root.clone())
    for frames, state in enumerate((whole, {"policy": whole["policy"]})):
        new = build_agent(config, env)
        buffers = dict(new.policy.named_buffers())
        before = {key: value.clone() for key, value in buffers.items() if "epsilon" in key}
        saved = checkpoint.load(checkpoint.save(tmp_path, frames, {"agent": state}, {}))
        copied, others = carry_over(new, saved)
        assert copied
        assert not others or frames  # a policy alone has no critics
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            found = new.policy(root.clone())
        for key in env.action_keys:
            assert torch.equal(found.get(key), expected.get(key))
        for key, value in before.items():  # schedules start from the beginning
            assert torch.equal(value, buffers[key]), key
        if hasattr(new, "target"):
            network = trained.networks if name == "hierarchical" else trained.network
            weights = zip(new.target.parameters(), network.parameters(), strict=True)
            assert all(torch.equal(target, weight) for target, weight in weights)


def test_another_container_keeps_the_weights_that_fit(capsys) -> None:
    assert cli.main([*TRAIN, "run_dir=run"]) == 0
    capsys.readouterr()
    other = ["env.container=[0.08,0.12,0.06]", "warm_start.checkpoint=run", "run_dir=tuned"]
    # The network of the run is used, except if the command line sets one.
    given = [word for word in TRAIN if not word.startswith("network.")]
    assert cli.main([*given, *other]) == 0
    said = capsys.readouterr().out
    assert "carried over from" in said
    assert "network.value.ground.weight" in said
    assert "env.container was [0.08, 0.08, 0.06] and is now [0.08, 0.12, 0.06]" in said
    meta = checkpoint.read_meta("tuned")
    assert meta["config"]["network"]["channels"] == 4
    assert meta["frames"] == 96  # counters start at 0

    # The run continues without its source, and its policy is named if it does not fit a task.
    Path("run").rename("elsewhere")
    assert cli.main(["train", "resume=tuned", "trainer.frames=128"]) == 0
    said = refused(capsys, "eval", "checkpoint=tuned", "env.container=[0.08,0.08,0.06]")
    assert "network.value.ground.weight" in said
    assert "warm_start.checkpoint=" in said


def test_weights_of_another_agent_are_refused(capsys) -> None:
    said = refused(capsys, *TRAIN, "warm_start.checkpoint=pretrained/irregular")
    assert "agent=afterstate" in said
    assert not Path("runs").exists()
