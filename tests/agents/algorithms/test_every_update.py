"""What updates and decisions of every agent have in common, on transitions of the tiny task."""

from functools import lru_cache
from typing import Any

import pytest
import torch
from benchmarks.restarts import equal
from hydra.utils import instantiate
from omegaconf import DictConfig
from tensordict import TensorDictBase
from tests.agents.algorithms.test_every_agent import CASES, LEARNERS, often, small_config
from tests.agents.learning import shaken
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.optimization import GatedAdam
from agents.config.build import build_agent, build_env, build_replay
from agents.nested import named_tensors
from packing_env import PackingEnv

VARIANTS = {
    "rainbow mixture": ("rainbow", "agent.mixture=3"),
    "iqn risk": ("iqn", "agent.risk=[metrics,utilization]"),
    "ac_iqn risk": ("ac_iqn", "agent.risk=[metrics,utilization]"),
    "hierarchical ordered": ("hierarchical", "agent.stage1_frames=0", "agent.manager_every=1"),
}
"""Options under which an agent runs other code."""
SETTINGS: dict[str, tuple[str, ...]] = {case: (case,) for case in CASES} | VARIANTS
EVERY = often(SETTINGS, *LEARNERS, "dqn candidate", "ppo multi_head", "hierarchical ordered")
"""All settings; those that differ only in their networks are slow tests.

Other tests take the agents in their default action modes: what they check holds for the others.
"""
ON_POLICY = [case for case in SETTINGS if case.startswith(("ppo", "afterstate"))]
OFF_POLICY = [case for case in SETTINGS if case not in ON_POLICY]
OWN_OFF_POLICY = [case for case in LEARNERS if case in OFF_POLICY]
RANDOM, DETERMINISTIC = ExplorationType.RANDOM, ExplorationType.DETERMINISTIC


@lru_cache
def config_of(case: str, *overrides: str) -> DictConfig:
    agent, *options = SETTINGS[case]
    options += ["network.precision=fp32"] if agent != "afterstate" else []
    config = small_config(agent, *options, *overrides)
    if case in ON_POLICY:  # one gradient step per update
        config.agent.update({"batch_size": 1000, "epochs": 1})
    return config


@lru_cache
def env_of(case: str, *overrides: str) -> PackingEnv:
    return build_env(config_of(case, *overrides))


def targets(agent: Any) -> dict[str, Tensor]:
    """Return the target parameters by the names of the online ones."""
    if "target" in agent.parts:
        return dict(agent.target.named_parameters())
    copies = {name.removeprefix("target_"): v for name, v in agent.objective.named_buffers()}
    return {name: copies[name] for name in online(agent) if name in copies}


def online(agent: Any) -> dict[str, Tensor]:
    if "target" in agent.parts:
        own = agent.network if hasattr(agent, "network") else agent.networks
        return dict(own.named_parameters())
    return dict(agent.objective.named_parameters())


def agent_of(case: str, *overrides: str) -> Any:
    """Return an agent whose weights and targets are away from each other and from the start."""
    torch.manual_seed(1)
    config = config_of(case, *overrides)
    agent = build_agent(config, env_of(case, *overrides))
    shaken(agent.policy)
    if case in OFF_POLICY:
        shaken(targets(agent).values())
    return agent


@lru_cache
def collected(case: str) -> TensorDictBase:
    config, env, agent = config_of(case), env_of(case), agent_of(case)
    torch.manual_seed(0)
    replay = build_replay(config, env, agent)
    collector = instantiate(config.collector)(env, agent.policy)
    if case in ON_POLICY:
        while not replay.full:
            replay.extend(collector.step())
        return replay.take()
    while len(replay) < 64:
        replay.extend(collector.step())
    batch = replay.sample(32)
    assert 0 < batch["next", "terminated"].sum() < 32
    assert batch["steps_to_next_obs"].unique().numel() > 1
    return batch.exclude("priority_weight")


def batch_of(case: str) -> TensorDictBase:
    return collected(case).clone()


def updated(agent: Any, batch: TensorDictBase, seed: int = 5) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return agent.update(batch)


def optimizers(agent: Any) -> list[GatedAdam]:
    parts = [getattr(agent, name) for name in agent.parts]
    parts += [inner for part in parts if isinstance(part, dict) for inner in part.values()]
    return [part for part in parts if isinstance(part, GatedAdam)]


# ---------------------------------------------------------------------- updates


@pytest.mark.parametrize("case", EVERY)
def test_a_loaded_agent_learns_on_bit_for_bit(case: str) -> None:
    agent, other = agent_of(case), agent_of(case)
    updated(agent, batch_of(case))
    agent.set_frames(777)
    other.load_state_dict(agent.state_dict())
    for seed in range(2):
        reports = [updated(each, batch_of(case), seed) for each in (agent, other)]
        assert equal(*reports)
    assert equal(agent.state_dict(), other.state_dict())


@pytest.mark.parametrize("case", ["dqn", "hierarchical", "ppo"])
def test_an_agent_moves_whole(case: str) -> None:
    """Modules, optimizers with what they hold, tensors, and mappings of these."""
    agent = agent_of(case)
    updated(agent, batch_of(case))
    agent.to("meta")
    moved = named_tensors(agent.state_dict())
    assert {v.device.type for name, v in moved.items() if "_extra_state" not in name} == {"meta"}


@pytest.mark.parametrize("case", LEARNERS)
def test_an_update_that_is_not_finite_is_left_out_and_counted(case: str) -> None:
    agent, broken = agent_of(case), batch_of(case)
    broken["next", "reward"].fill_(torch.nan)
    before = [[w.detach().clone() for w in each.parameters] for each in optimizers(agent)]
    report = updated(agent, broken)
    assert (report["skipped"], report["skipped_in_a_row"]) == (1, 1)
    skipped = [(o, w) for o, w in zip(optimizers(agent), before, strict=True) if o.skipped]
    assert skipped
    assert all(equal(list(optimizer.parameters), weights) for optimizer, weights in skipped)
    assert all(weight.isfinite().all() for weight in agent.policy.parameters())
    assert updated(agent, broken)["skipped_in_a_row"] == 2
    assert updated(agent, batch_of(case))["skipped_in_a_row"] == 0


@pytest.mark.parametrize("case", OWN_OFF_POLICY)
def test_importance_weights_weight_the_losses(case: str) -> None:
    share = torch.rand(32, generator=torch.Generator().manual_seed(0))
    reports = []
    for weight in (share, 1 - share, torch.ones(32), torch.zeros(32), None):
        batch = batch_of(case)
        if weight is not None:
            batch["priority_weight"] = weight
        reports.append(updated(agent_of(case), batch))
    for name in ("loss", "manager_loss") if "manager_loss" in reports[0] else ("loss",):
        some, others, all_rows, nothing, plain = (report[name] for report in reports)
        torch.testing.assert_close(some + others, plain)
        torch.testing.assert_close(all_rows, plain)
        assert nothing == 0
        assert some != others


@pytest.mark.parametrize("case", [*OWN_OFF_POLICY, "hierarchical ordered"])
def test_targets_move_by_the_rate(case: str) -> None:
    agent = agent_of(case, "agent.target_rate=0.3")
    before = {name: value.clone() for name, value in targets(agent).items()}
    updated(agent, batch_of(case))
    after, weights = targets(agent), online(agent)
    learned = [name for name in before if not name.startswith("manager") or "ordered" in case]
    assert learned
    for name in learned:
        expected = torch.lerp(before[name], weights[name].detach(), 0.3)
        torch.testing.assert_close(after[name], expected)
        assert not torch.equal(after[name], before[name]), name


@pytest.mark.parametrize("case", [*OWN_OFF_POLICY, "dqn candidate"])
def test_only_terminated_rows_do_not_bootstrap(case: str) -> None:
    """Truncated rows bootstrap; terminated rows do not, even if their mask allows actions."""
    errors = []
    for moves in (0.0, 0.3):
        agent, batch = agent_of(case), batch_of(case)
        batch["next", "truncated"] = ~batch["next", "terminated"]
        with torch.no_grad():
            for target in targets(agent).values():
                target.add_(moves)
        if moves == 0:
            for key in batch["next"].keys(True, True):
                if "action_mask" in key:
                    batch["next", key] = torch.ones_like(batch["next", key])
        updated(agent, batch)
        errors.append(batch["td_error"])
        assert (errors[-1] >= 0).all()
    ended = batch["next", "terminated"].squeeze(-1)
    same = torch.isclose(*errors, rtol=1e-5, atol=1e-6)
    assert same[ended].all()
    assert not same[~ended].any()


@pytest.mark.parametrize("case", ["dqn", "hierarchical", "rainbow", "sac"])
def test_updates_reduce_the_error(case: str) -> None:
    config = config_of(case)
    rates = [key for key in ("lr", "lr_joint") if key in config.agent]
    agent = agent_of(case, *(f"agent.{key}=3e-3" for key in rates), "agent.target_rate=0.05")
    agent.set_frames(0)
    batch, errors = batch_of(case), []
    for seed in range(30):
        updated(agent, batch, seed)
        errors.append(batch["td_error"].mean())
    assert errors[-1] < 0.7 * errors[0]


@pytest.mark.parametrize("case", [case for case in LEARNERS if case != "afterstate"])
def test_bfloat16_is_for_the_networks_alone(case: str) -> None:
    exact = agent_of(case)
    rough = agent_of(case, "network.precision=bf16")
    rough.load_state_dict(exact.state_dict())
    fine, coarse = (updated(agent, batch_of(case)) for agent in (exact, rough))
    assert fine.keys() == coarse.keys()
    assert all(coarse[name].dtype == value.dtype for name, value in fine.items())
    assert coarse["loss"] != fine["loss"]
    assert coarse["loss"].item() == pytest.approx(fine["loss"].item(), rel=0.1, abs=0.02)


@pytest.mark.parametrize("case", [case for case in LEARNERS if case != "hierarchical"])
def test_the_learning_rate_follows_the_frames(case: str) -> None:
    agent = agent_of(case, "agent.lr_frames=100")
    options = config_of(case).agent
    end = options.lr_end * (options.lr if "actor_lr" in options else 1.0)
    for frames, rate in ((0, options.lr), (50, (options.lr + end) / 2), (1000, end)):
        agent.set_frames(frames)
        assert agent.optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(rate)
        if "actor_lr" in options:
            actor = agent.actor_optimizer.optimizer.param_groups[0]["lr"]
            assert actor == pytest.approx(rate * options.actor_lr / options.lr)


# ---------------------------------------------------------------------- decisions


def always_exploring(case: str) -> list[str]:
    known = [f"epsilon_{end}" for end in ("start", "end")]
    return [f"agent.{key}=1.0" for key in known if key in config_of(case).agent]


def acted(env: PackingEnv, policy: nn.Module, root: TensorDictBase) -> Tensor:
    out = policy(root.clone())
    return torch.cat([out[key].reshape(len(root), -1).double() for key in env.action_keys], 1)


@pytest.mark.parametrize("case", EVERY)
def test_the_exploration_type_is_honoured_and_actions_are_legal(case: str) -> None:
    env = env_of(case)
    policy = agent_of(case, *always_exploring(case)).policy
    env.set_seed(0)
    root = env.reset()
    with torch.no_grad():
        best = acted(env, policy.eval(), root)  # nothing is set: the module's own mode decides
        drawn = [acted(env, policy.train(), root) for _ in range(4)]
        assert any(not torch.equal(each, best) for each in drawn)
        for mode in (ExplorationType.MODE, ExplorationType.MEAN, DETERMINISTIC):
            with set_exploration_type(mode):
                assert torch.equal(acted(env, policy.train(), root), best)
        with set_exploration_type(RANDOM):
            drawn = [acted(env, policy.eval(), root) for _ in range(4)]
            assert any(not torch.equal(each, drawn[0]) for each in drawn)
            written = set(policy(root.clone()).keys(True, True)) - set(root.keys(True, True))
            assert written == set(policy.out_keys)
            for _ in range(8):
                step, root = env.step_and_maybe_reset(policy(root))
                assert not step["next", "metrics", "illegal_actions"].any()


@pytest.mark.parametrize("case", EVERY)
def test_batches_of_any_shape_decide_as_their_rows(case: str) -> None:
    env = env_of(case, "env.num_envs=[2,3]")
    policy = agent_of(case, "env.num_envs=[2,3]").policy
    root = env.reset()
    with torch.no_grad(), set_exploration_type(DETERMINISTIC):
        for _ in range(2):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        whole = policy(root.clone())
        flat = policy(root.reshape(-1))
        rows = torch.cat([policy(root.reshape(-1)[k : k + 1].clone()) for k in range(6)])
    for key in policy.out_keys:
        assert whole[key].shape[:2] == (2, 3)
        assert torch.equal(whole[key].flatten(0, 1), flat[key]), key
        if key in env.action_keys and not flat[key].is_floating_point():
            continue  # of equal values another one may be the first
        torch.testing.assert_close(rows[key], flat[key], rtol=0, atol=1e-6)
