"""What a run keeps of its last moments: it can be made again, and costs the run nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agents.diagnostics.retrace import Findings, replay_states, run_update
from hydra.utils import instantiate
from tensordict import TensorDictBase
from tests.agents.algorithms.test_every_agent import LEARNERS, small_config
from tests.agents.conftest import TINY_OVERRIDES, FakeAgent
from tests.agents.training.test_resume import differing
from tests.agents.training.test_trainer import trainer_of as fake_trainer

from agents.cli import main as cli
from agents.config.build import build_agent, build_env, build_replay
from agents.diagnostics import black_box
from agents.loggers.logging import NullLogger
from agents.training import checkpoint
from agents.training.rollout import DeviceCollector
from agents.training.states import tensors
from agents.training.trainer import NonFiniteError, Trainer
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]
OFTEN = ("ppo",)
"""In every test run; the others are slow tests."""
AGENTS = [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in LEARNERS]


def trainer_of(name: str, *overrides: str) -> Trainer:
    """A small run."""
    torch.manual_seed(0)
    config = small_config(name, "trainer.log_every=16", *overrides)
    env = build_env(config)
    agent = build_agent(config, env)
    replay = build_replay(config, env, agent)
    collector = instantiate(config.collector)(env, agent.policy)
    return instantiate(config.trainer)(agent, collector, replay)


# ---------------------------------------------------------------------- while all is well


@pytest.mark.parametrize("name", AGENTS)
def test_it_changes_nothing_and_all_is_made_again_bit_for_bit(name: str) -> None:
    trainer = trainer_of(name, "trainer.black_box=5")
    returned = listening(trainer)
    trainer.run(NullLogger(Path()))
    other = trainer_of(name, "trainer.black_box=0")
    other.run(NullLogger(Path()))
    assert trainer.updates > 1
    assert differing(trainer.state_dict(), other.state_dict()) == []

    kept = trainer.black_box.contents()
    assert kept["update"]["number"] == trainer.updates - 1
    assert 5 <= len(kept["environment"]["decisions"]) < 10
    findings = Findings()
    assert replay_states(other.collector.env, kept["environment"], findings) is None
    end = other.collector.env.get_state().to_dict()
    assert differing(end, trainer.collector.state_dict()) == []
    with torch.no_grad():  # whatever the weights are before
        for parameter in other.agent.policy.parameters():
            parameter.zero_()
    again = listening(other)
    run_update(other.agent, kept["update"], findings)
    assert differing(again[-1], returned[-1]) == []
    assert differing(other.agent.state_dict(), trainer.agent.state_dict()) == []
    assert findings.culprit is None
    looked = {stage for stage, count in findings.looked_at.items() if count}
    assert {"state", "observation", "reward", "weights", "network", "loss", "gradient"} <= looked


def listening(trainer: Trainer) -> list[dict[str, torch.Tensor]]:
    """What the agent's updates return from now on."""
    returned: list[dict[str, torch.Tensor]] = []
    update = trainer.agent.update

    def noted(batch: TensorDictBase) -> dict[str, torch.Tensor]:
        returned.append(update(batch))
        return returned[-1]

    trainer.agent.update = noted
    return returned


def test_nothing_is_kept_where_nothing_is_asked_for(tiny: Make) -> None:
    assert fake_trainer(tiny(2), black_box=0).black_box is None
    with pytest.raises(ValueError, match=r"trainer\.black_box=-1 must be a number of states"):
        fake_trainer(tiny(2), black_box=-1)


# ---------------------------------------------------------------------- when something breaks


def test_the_first_broken_update_is_kept(tiny: Make) -> None:
    """An agent that does not leave it out goes on, and the loop stops at the log."""
    env = tiny(4)
    trainer = fake_trainer(env, FakeAgent(env, fail_at=2), update_every=4, black_box=3)
    weights = []
    update = trainer.agent.update
    trainer.agent.update = lambda batch: (
        weights.append(trainer.agent.policy.network.weight.detach().clone()) or update(batch)
    )
    with pytest.raises(NonFiniteError):
        trainer.run(NullLogger(Path()))
    assert trainer.updates == 3
    kept = trainer.black_box.contents()
    assert kept["update"]["number"] == 1
    assert torch.equal(kept["update"]["agent"]["policy"]["network.weight"], weights[1])
    # the tape ends with the decision that the broken update followed
    end = replayed(tiny(4), kept["environment"])
    assert torch.equal(end["step"], torch.full((4,), kept["update"]["frames"] // 4 + 1))


def replayed(env: PackingEnv, tape: dict[str, Any]) -> TensorDictBase:
    assert replay_states(env, tape, Findings()) is None
    return env.get_state()


class Flags:
    """An agent's returns, with updates that are left out as told."""

    def __init__(self, trainer: Trainer, broken: str) -> None:
        self.update, self.broken = trainer.agent.update, iter(broken)
        self.streak = 0
        trainer.agent.update = self

    def __call__(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        broken = next(self.broken) == "x"
        self.streak = self.streak + 1 if broken else 0
        told = {"skipped": torch.tensor(float(broken))}
        return self.update(batch) | told | {"skipped_in_a_row": torch.tensor(self.streak)}


@pytest.mark.parametrize(
    ("broken", "kept"),
    [(".xx.....", 7), (".x.xxx..", 3), ("xxx.xxx.", 0), ("...xx...", 7), (".....xxx", 5)],
)
def test_a_row_too_short_to_end_training_is_forgotten(tiny: Make, broken: str, kept: int) -> None:
    env = tiny(4)
    trainer = fake_trainer(env, update_every=4, frames=4 * 9, log_every=1000, black_box=2)
    Flags(trainer, broken)
    for _ in range(9):
        trainer.step()
    found = trainer.black_box.contents()
    assert (trainer.updates, found["update"]["number"]) == (8, kept)
    replayed(tiny(4), found["environment"])


RUN = [
    *TINY_OVERRIDES, "agent.batch_size=4", "replay.capacity=500", "trainer.frames=512",
    "trainer.warmup=32", "trainer.update_every=16", "trainer.log_every=64",
]  # fmt: skip


def broken_run(place: Path, capsys: Any, *overrides: str) -> str:
    """Train until it breaks; what it said."""
    assert cli.main(["train", *RUN, *overrides, f"run_dir={place}"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"to find what broke: packing inspect {place}/black_box" in said
    return said


def inspected(place: Path, capsys: Any) -> str:
    assert cli.main(["inspect", str(place)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_reward_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    step = DeviceCollector.step

    def poisoned(self: DeviceCollector) -> TensorDictBase:
        transition = step(self)
        transition["next", "reward"][2, 0] = torch.nan
        return transition

    with monkeypatch.context() as patch:
        patch.setattr(DeviceCollector, "step", poisoned)
        broken_run(tmp_path / "run", capsys)
    said = inspected(tmp_path / "run", capsys)
    assert "gave the recorded rewards up to decision 0, which gave others" in said
    assert "no number: reward, decision 0, as recorded, NaN at [2, 0]" in said
    assert "next/reward" in said


def test_a_loss_that_is_none_is_named_with_its_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def poisoned(value: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
        return (value - target).square().neg().sub(1).log()

    monkeypatch.setattr("agents.algorithms.dqn.functional.smooth_l1_loss", poisoned)
    said = broken_run(tmp_path / "run", capsys)
    assert "3 updates in a row were not finite" in said
    said = inspected(tmp_path / "run", capsys)
    assert "gave the recorded rewards, bit for bit" in said
    assert "update 0, at 40 frames, was made again on its batch of 4" in said
    assert "the first that is no number: loss, loss, NaN at []" in said
    assert "hide it): aten.log.default at tests.agents.diagnostics.test_black_box:" in said


@pytest.mark.slow
def test_weights_that_are_none_are_named(tmp_path: Path, capsys: Any) -> None:
    """A learning rate that no network survives."""
    broken_run(tmp_path / "run", capsys, "agent.lr=1e38", "agent.max_grad_norm=1e30")
    said = inspected(tmp_path / "run", capsys)
    assert "the first that is no number: weights, policy/network." in said


# ---------------------------------------------------------------------- a copy of a state


def test_a_copy_is_of_the_moment_whatever_the_memory_is_like() -> None:
    rows = torch.arange(24.0).view(2, 3, 2, 2)
    state: dict[str, Any] = {
        "scalar": torch.tensor(1.0),
        "none": torch.zeros(0, 3),
        "channels last": rows.to(memory_format=torch.channels_last),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "part of another": torch.arange(10.0)[2:7],
        "with gaps": torch.arange(12.0).view(3, 4)[:, ::2],
        "repeated": torch.ones(1, 2).expand(3, 2),
        "counts": [torch.tensor(5), torch.tensor([True, False])],
        "half": torch.ones(3, dtype=torch.bfloat16),
        "number": 3,
    }
    kept = black_box._Copy()
    for change in (
        "none",
        "in place",
        "in place",
        "other memory",
        "one more",
        "other objects",
        "data",
    ):
        if change == "in place":
            for value in (state["scalar"], state["channels last"], state["with gaps"]):
                value.add_(1)
        if change == "other memory":
            state["transposed"] = torch.arange(6.0).view(2, 3).T + 100
        if change == "one more":
            state["counts"].append(torch.tensor(6))
        if change == "other objects":
            state["half"] = state["half"].detach()
        if change == "data":
            state["part of another"].data = torch.arange(10.0)[3:8]
        before = copy.deepcopy(state)
        kept.take({**state, "counts": list(state["counts"])})
        for value in (state["scalar"], state["transposed"], state["half"], state["counts"][0]):
            value.add_(1)  # what an update does
        found = kept.contents()
        assert differing(found, before) == []
        assert found["number"] == 3
        assert all(
            found[name].stride() == before[name].stride() for name in ("channels last", "scalar")
        )


def test_it_sees_weights_and_moments_that_were_loaded() -> None:
    """Adam keeps other tensors then; the networks keep theirs."""
    trainer = trainer_of("dqn")
    while trainer.updates < 3:
        trainer.step()
    state = copy.deepcopy(trainer.agent.state_dict())
    for value in tensors(state):
        value.copy_(value + 1)
    trainer.agent.load_state_dict(state)
    before = copy.deepcopy(trainer.agent.state_dict())
    while trainer.updates < 4:
        trainer.step()
    kept = trainer.black_box.contents()["update"]["agent"]
    kept["policy"]["epsilon"] = before["policy"]["epsilon"]  # of its own step
    assert differing(kept, before) == []
    assert differing(kept, trainer.agent.state_dict()) != []


# ---------------------------------------------------------------------- its file


def test_it_is_no_checkpoint_and_a_checkpoint_is_none(tiny: Make, tmp_path: Path) -> None:
    trainer = fake_trainer(tiny(2))
    trainer.step()
    place = black_box.save(tmp_path, trainer.black_box.contents(), {"error": "e"})
    assert black_box.load(tmp_path).path == black_box.load(place).path == place
    assert set(black_box.load(place).state) == {"environment"}
    with pytest.raises(checkpoint.CheckpointError, match="not a packing checkpoint"):
        checkpoint.load(place)
    other = checkpoint.save(tmp_path, 1, {}, {})
    with pytest.raises(checkpoint.CheckpointError, match="not a packing black box"):
        black_box.load(other)
    with pytest.raises(checkpoint.CheckpointError, match="no black box there"):
        black_box.load(tmp_path / "checkpoints")


def test_a_pickle_in_it_runs_nothing(tmp_path: Path, capsys: Any) -> None:
    from tests.agents.training.test_checkpoint import Malice

    place = black_box.save(tmp_path, {}, {"error": "e"})
    torch.save({"update": Malice(tmp_path / "created")}, place / "tensors.pt")
    files = {n: checkpoint._fingerprint(place / n) for n in ("tensors.pt", "meta.json")}
    manifest = {"format": black_box.KIND, "version": checkpoint.VERSION, "files": files}
    checkpoint._write_json(place / "manifest.json", manifest)
    assert cli.main(["inspect", str(tmp_path)]) == 2
    assert "something else than tensors and plain values" in capsys.readouterr().err
    assert not (tmp_path / "created").exists()


def test_a_target_of_its_own_is_refused(tmp_path: Path, capsys: Any) -> None:
    config = {"agent": {"_target_": "os.system", "command": "true"}}
    black_box.save(tmp_path, {}, {"error": "e", "config": config})
    assert cli.main(["inspect", str(tmp_path)]) == 2
    assert "made by 'os.system', which no configuration file names" in capsys.readouterr().err
