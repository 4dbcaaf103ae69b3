"""TorchRL's own trainers, composed through its Hydra groups, with the environment as an option."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.singleton import Singleton
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import DictConfig
from tensordict import TensorDict, TensorDictBase
from tests.contract.trainer_configs import FILES, FRAMES, PER_BATCH, ROWS
from torchrl.trainers import Trainer

from packing_env import PackingEnv, make_env
from packing_env.shells import torchrl_groups


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    before = Singleton.get_state()
    torchrl_groups.register()
    yield
    Singleton.set_state(before)


@pytest.fixture
def composed(tmp_path: Path) -> Callable[..., DictConfig]:
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")

    def make(name: str, *overrides: str) -> DictConfig:
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            return compose(name, list(overrides))

    return make


@dataclass
class Seen:
    """Batches and losses of a trainer's run."""

    batches: list[TensorDictBase] = field(default_factory=list)
    samples: list[TensorDictBase] = field(default_factory=list)
    losses: list[TensorDictBase] = field(default_factory=list)

    def loss_is_finite(self) -> bool:
        return all(value.isfinite().all() for loss in self.losses for value in loss.values())


def train(trainer: Trainer) -> Seen:
    """Run a trainer; every parameter of the loss and of its target must have changed."""
    seen = Seen()

    def keep_batch(batch: TensorDictBase) -> TensorDictBase:
        seen.batches.append(batch.clone())
        return batch

    def keep_loss(sample: TensorDictBase, losses: TensorDictBase) -> TensorDictBase:
        seen.samples.append(sample.detach().clone())
        seen.losses.append(losses.detach().clone())
        return losses

    trainer.register_op("batch_process", keep_batch)
    trainer.register_op("process_loss", keep_loss)
    parameters = dict(trainer.loss_module.named_parameters())
    before = {name: value.detach().clone() for name, value in parameters.items()}
    trainer.train()
    assert trainer.collected_frames == FRAMES
    assert [batch.shape for batch in seen.batches] == [(ROWS, PER_BATCH // ROWS)] * 4
    assert not [name for name, value in parameters.items() if torch.equal(value, before[name])]
    assert all(value.isfinite().all() for value in parameters.values())
    assert seen.losses
    assert seen.loss_is_finite()
    return seen


def check_legal(batches: list[TensorDictBase]) -> None:
    """Every action is one that the mask allows, where it forbids some; episodes end."""
    batch = torch.cat(batches, 1)
    assert batch["action_mask"].gather(-1, batch["action"][..., None]).all()
    assert batch["action_mask"].float().mean() < 0.9
    assert (batch["next", "metrics", "illegal_actions"] == 0).all()
    assert batch["next", "done"].any()


def acts_on(trainer: Trainer, trained: TensorDictBase, where: str = "") -> bool:
    """Whether the collector's policy has the parameters that were trained."""
    acting = TensorDict.from_module(trainer.collector._policy_w_state_dict).flatten_keys()
    trained = trained.data.flatten_keys()
    return all(torch.equal(acting[where + key], value) for key, value in trained.items())


# ---------------------------------------------------------------------- the option


def test_values_arrive(composed: Callable[..., DictConfig]) -> None:
    config = composed(
        "env",
        "env.task=cuboid_online",
        "env.num_envs=[2,3]",
        "env.seed=7",
        "env.num_items=5",
        "env.pool_size=8",
        "env.reward={item: 2.0}",
        "env.autoreset=masked",
    )
    env = instantiate(config.env)
    assert isinstance(env, PackingEnv)
    assert env.batch_size == (2, 3)
    assert env.autoreset == "masked"
    expected = make_env("cuboid_online", 2, seed=7, num_items=5, pool_size=8, reward={"item": 2.0})
    assert env.params == expected.params
    assert torch.equal(env.instances.item_id, expected.instances.item_id)


def test_a_wrong_key_is_refused(composed: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigCompositionException, match="num_envz"):
        composed("env", "env.num_envz=3")


# ---------------------------------------------------------------------- the trainers


@pytest.mark.parametrize("name", ["dqn", "prioritized", "ppo", "sac"])
def test_trainers(composed: Callable[..., DictConfig], name: str) -> None:
    torch.manual_seed(0)
    trainer = instantiate(composed(name).trainer)
    loss = trainer.loss_module
    if name == "ppo":
        # Hydra makes the actor twice, for the collector and for the loss: begin with the same one.
        trainer.collector.update_policy_weights_(TensorDict.from_module(loss.actor_network))
    seen = train(trainer)
    if name == "sac":  # every point of the box is legal
        batch = torch.cat(seen.batches, 1)
        assert (batch["next", "metrics", "illegal_actions"] == 0).all()
        assert batch["next", "done"].any()
        assert batch["action"].abs().amax() <= 1
    else:
        check_legal(seen.batches)
    if name in ("dqn", "prioritized"):
        assert acts_on(trainer, loss.value_network_params, "module.0.")
        assert trainer.greedy_module.eps == pytest.approx(0.2, abs=1e-3)
    else:
        assert acts_on(trainer, loss.actor_network_params)
    if name == "prioritized":
        assert all(sample["priority_weight"].amax() == 1 for sample in seen.samples)
        powers = trainer.replay_buffer.sampler.state_dict()["powers"]
        assert len(powers.unique()) > 10
    if name == "ppo":
        # Rollout and update agree about the log-probabilities until the first step is taken.
        for losses in seen.losses[:: 2 * PER_BATCH // 20]:
            assert losses["kl_approx"].abs() < 1e-6
