"""Policy and step as a CUDA graph: equal to the environment, without allocations."""

import pytest
import torch
from tests.agents.algorithms.test_every_agent import CASES
from tests.agents.training.test_capture import KINDS, UPDATING, played
from tests.agents.training.test_collectors import policy, task
from tests.agents.training.test_resume import differing, trainer_of

from agents.training.capture import CapturedCollector
from agents.training.rollout import DeviceCollector

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_a_graph_equals_the_environment(mode: str) -> None:
    params = {"action_mode": mode, "stability": "com_hull"}
    plain, captured = (
        kind(task(**params).to("cuda"), policy().to("cuda"))
        for kind in (DeviceCollector, CapturedCollector)
    )
    for one, other in zip(played(plain, 15), played(captured, 15), strict=True):
        assert not differing(one.to_dict(), other.to_dict())
    assert not differing(plain.state_dict(), captured.state_dict())


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same(case: str) -> None:
    trainers = [
        trainer_of(case, "device=cuda", f"collector.capture={capture}")
        for capture in ("false", "true")
    ]
    steps = []
    for trainer in trainers:
        torch.manual_seed(7)
        steps.append([trainer.collector.step() for _ in range(8)])
    for one, other in zip(*steps, strict=True):
        assert not differing(one.to_dict(), other.to_dict())


@pytest.mark.parametrize("case", UPDATING)
def test_updates_are_the_same(case: str) -> None:
    """The learning rate decays; nondeterministic kernels are excluded."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    trainers = [
        trainer_of(case, "device=cuda", "agent.lr_frames=3000", f"trainer.capture={capture}")
        for capture in ("false", "true")
    ]
    try:
        for trainer in trainers:
            torch.manual_seed(7)
            while trainer.updates < 8:
                trainer.step()
    finally:
        torch.use_deterministic_algorithms(False)
    one, other = (trainer.agent.policy.state_dict() for trainer in trainers)
    assert differing(dict(one), dict(other)) == []


@pytest.mark.parametrize("case", KINDS)
def test_updates_of_every_kind_are_recorded(case: str) -> None:
    """Each graph is compared with ordinary updates when it is recorded, or an error is raised."""
    trainer = trainer_of(
        case, "device=cuda", "trainer.frames=4000", "trainer.capture=true", *KINDS[case]
    )
    torch.manual_seed(7)
    while trainer.updates < 14:
        trainer.step()
    assert trainer.captured is not None
    assert all(kind.captured is not None for kind in trainer.captured._recordings.values())
    trainer.check_finite()


def test_a_replay_neither_synchronizes_nor_allocates() -> None:
    collector = CapturedCollector(task().to("cuda"), policy().to("cuda"))
    for _ in range(3):
        collector.step()
    before = torch.cuda.memory_reserved()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            collector.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_reserved() == before
