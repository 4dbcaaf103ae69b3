"""Search computes its values, cannot know hidden items, and packs more."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents import heuristics
from agents.cli.main import main
from agents.networks.afterstate_net import AfterstateNet
from agents.policies.afterstate import AfterstatePolicy
from agents.search import Beam, Budget, Lookahead, Simulator
from agents.search.policy import SearchPolicy
from packing_env import PackingEnv, make_env
from packing_env.types import Instances, ParameterError

LAW = {"name": "uniform_cuboids", "low": 1, "high": 3}
TASK = {"container": (5.0, 5.0, 5.0), "num_items": 20, "generator": LAW, "pool_size": 64}


def task(rows: int = 3, **options: object) -> PackingEnv:
    return make_env("cuboid_online", rows, **{"draw": "sequential", **TASK, **options})


def values(env: PackingEnv) -> AfterstatePolicy:
    """Return values of afterstates with fixed random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        policy = AfterstatePolicy(env, AfterstateNet)
        torch.nn.init.normal_(policy.value.last.weight, std=0.3)
    return policy


def rule(env: PackingEnv) -> TensorDictModuleBase:
    return heuristics.build("deepest_bottom_left", env)


def with_future(env: PackingEnv, seen: int, seed: int) -> PackingEnv:
    """Return the same task, with other items after the first."""
    generator = torch.Generator().manual_seed(seed)
    items = env.instances.item_id.clone()
    items[:, seen:] = torch.randint(len(env.catalogue), items[:, seen:].shape, generator=generator)
    pool = Instances(items, env.instances.num_items)
    rows = env.batch_size.numel()
    return PackingEnv(
        env.params, env.catalogue, pool, num_envs=rows, draw="sequential", seed=seed,
        generator=env.generator,
    )  # fmt: skip


def choices(env: PackingEnv, search: SearchPolicy, steps: int) -> Tensor:
    root, found = env.reset(), []
    for _ in range(steps):
        found.append(search(root)["action"].clone())
        root = env.step_mdp(env.step(root))
    return torch.stack(found)


CUT = {"name": "guillotine", "low": 1, "high": 3}
CUTS = {"generator": CUT, "container": (4.0, 4.0, 4.0), "num_items": 64}
SIGNS = {
    **CUTS,
    "generator": {**CUT, "variant": "cut1"},
    "observation": ["heightmap", "item_id", "drop_height", "cut_surface"],
}
SEARCHES = {
    "value": lambda env: Lookahead(env, values, breadth=3, depth=2, budget=Budget(24)),
    "rule": lambda env: Lookahead(env, rule, breadth=3, depth=None, budget=Budget(24)),
    "beam": lambda env: Beam(env, values, width=4, breadth=3),
}


@pytest.mark.parametrize(
    ("search", "options"),
    [
        ("value", {}),
        ("rule", {"preview": 2}),
        ("beam", {"preview": 2}),
        ("value", CUTS),
        ("rule", SIGNS),
    ],
)
def test_equal_views_give_equal_decisions_whatever_follows(search, options) -> None:
    steps = 3
    env = task(**options)

    def play(seed: int, peeks: bool = False) -> Tensor:
        other = with_future(env, steps + env.params.preview, seed)
        policy = SEARCHES[search](other)
        if peeks:
            policy._known_state = other._current
            policy.futures = None
        return choices(other, policy, steps)

    first = play(1)
    assert (play(2) == first).all()
    peeking = play(1, peeks=True)
    assert any((play(seed, peeks=True) != peeking).any() for seed in range(2, 12))


def test_copies_read_the_state_of_the_same_environment() -> None:
    env = task(num_items=6, num_visible=6)
    policy = Lookahead(env, rule, breadth=4, depth=None, budget=Budget(4))
    with pytest.raises(ParameterError, match="another process"):
        pickle.dumps(policy)
    twin, root = copy.deepcopy(policy), env.reset()
    for _ in range(4):
        root = env.step_mdp(env.step(policy(root)))
    assert (twin(root.clone())["action"] == policy(root)["action"]).all()


@torch.no_grad()
def test_one_step_ahead_is_the_expectation_over_the_items() -> None:
    env = task(rows=2)
    size = len(env.catalogue)
    search = Lookahead(env, values, breadth=4, depth=1, budget=Budget(2 * 4 * size))
    root = env.reset()
    for _ in range(5):
        root = env.step_mdp(env.step(search(root)))
    state = env.get_known_state()
    observed = root.select(*search.in_keys)
    proposed = search.scorer.propose(observed, 4).action
    found = search.play_outs(state, proposed, size).mean(2)
    fork = fork_of(env)
    for row in range(2):
        for k in range(int((proposed[row] >= 0).sum())):
            expected = expectation(env, fork, row, int(proposed[row, k]))
            assert found[row, k] == pytest.approx(expected)


@torch.no_grad()
def test_the_value_of_a_proposal_counts_as_eight_play_outs(monkeypatch) -> None:
    env = task(rows=1)
    search = Lookahead(env, values, breadth=2, depth=1, budget=Budget(2))
    root = env.reset()
    proposed = search.scorer.propose(root.select(*search.in_keys), 2)
    ahead = 8 * float(proposed.value[0, 0] - proposed.value[0, 1])
    assert ahead > 0
    for lead, choice in ((0.9, 0), (1.1, 1)):  # the second one leads in a single play-out
        returns = torch.tensor([[[0.0], [lead * ahead]]], dtype=torch.float64)
        monkeypatch.setattr(search, "play_outs", lambda *_, found=returns: found)
        assert search(root)["action"].item() == proposed.action[0, choice]


Fork = tuple[PackingEnv, AfterstatePolicy]


def fork_of(env: PackingEnv, **changes: object) -> Fork:
    """Return an environment for states of one row, and its values."""
    fork = PackingEnv(env.params.evolve(**changes), env.catalogue, env.instances)
    return fork, values(fork)


def worth(fork: Fork, state: TensorDict, action: int) -> float:
    """Return the reward of an action, and the best value after it."""
    env, policy = fork
    env.reset(state, set_state=True)
    after = env.step(TensorDict({"action": torch.tensor([action])}, [1]))
    root = env.step_mdp(after)
    total = float(after["next", "reward"])
    return total if root["done"] else total + float(policy(root)["state_value"]) / policy.scale


def expectation(env: PackingEnv, fork: Fork, row: int, action: int) -> float:
    """Return reward and mean best value after an action, one next item after the other."""
    total = 0.0
    for item in range(len(env.catalogue)):
        state = env.get_state()[row : row + 1]
        state["item_id"][:, int(state["items_packed"]) + 1] = item
        total += worth(fork, state, action)
    return total / len(env.catalogue)


def test_a_beam_of_one_item_ignores_the_next() -> None:
    env, blind = task(preview=1), task()
    deep, one, same = Beam(env, values), Beam(env, values, depth=1), Beam(blind, values)
    action = same(blind.reset())["action"]
    assert torch.equal(one(env.reset())["action"], action)
    assert not torch.equal(deep(env.reset())["action"], action)


@torch.no_grad()
def test_a_beam_that_keeps_every_plan_finds_the_best_one() -> None:
    env = task(container=(4.0, 4.0, 4.0), preview=1)
    search = Beam(env, values, width=1000, breadth=env.action_spec.n)
    root, fork = env.reset(), fork_of(env, preview=0)
    for _ in range(4):
        root = search(root)
        for row in (~root["done"].squeeze(-1)).nonzero().flatten().tolist():
            legal = root["action_mask"][row].nonzero().flatten().tolist()
            best = max(planned(env, fork, row, action) for action in legal)
            assert planned(env, fork, row, int(root["action"][row])) == pytest.approx(best)
        root = env.step_mdp(env.step(root))


def test_fewer_candidates_give_other_plans() -> None:
    env = task(8, preview=3)
    plans = [
        choices(env, Beam(env, values, width=4, num_candidates=count), 6) for count in (None, 2)
    ]
    assert (plans[0] != plans[1]).any()


def planned(env: PackingEnv, fork: Fork, row: int, action: int) -> float:
    """Return reward and best value after an action and one for the previewed item."""
    state = env.get_state()[row : row + 1]
    state["queue"] = state["queue"][:, :1]
    return worth(fork, state, action)


def test_a_simulator_in_a_worker_process_does_not_warn(monkeypatch, caplog) -> None:
    """Its artificial instance is not drawn, so it needs no rows of its own."""
    env = task()
    monkeypatch.setattr("multiprocessing.parent_process", object)
    Simulator(env)
    assert not caplog.records


def test_checkpoints_and_heuristics_are_bases() -> None:
    env = make_env("cuboid_online", 2, num_items=30, pool_size=8, draw="sequential")
    search = Lookahead(env, "pretrained/cuboid_online", playouts=16, depth=1)
    assert isinstance(search.base, AfterstatePolicy)
    root = search(env.reset())
    assert root["action_mask"].gather(1, root["action"][:, None]).all()
    assert Lookahead(env, "deepest_bottom_left").size.depth is None
    beam = Beam(env, "pretrained/cuboid_online", width=2)
    assert beam(env.reset())["action"].shape == env.batch_size


def test_the_command_line_names_it(tmp_path: Path) -> None:
    overrides = ["env=cuboid_online", "env.num_items=12", "agent=search", "agent.playouts=8"]
    overrides += ["evaluation.instances=2", "evaluation.rows=2", "evaluation.heuristics=[]"]
    assert main(["eval", *overrides, f"run_dir={tmp_path}"]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["policies"]) == ["lookahead"]


REFUSED = {
    "no value of a state; use depth=null": lambda env: Lookahead(env, rule, depth=2),
    "multi_head": lambda env: Lookahead(task(action_mode="multi_head"), rule, depth=None),
    "from which generator its instances were drawn": lambda env: Lookahead(
        PackingEnv(env.params, env.catalogue, env.instances), values
    ),
    "because it lists its instances": lambda env: Lookahead(
        task(
            generator={"name": "fixed_pool", "instances": [[0] * 20]},
            items={"source": "cuboids", "extents": [[1, 1, 1]]},
        ),
        values,
    ),
    "neither a run nor a heuristic": lambda env: Lookahead(env, "deepest_bottom_lef"),
    "a heuristic needs action_mode": lambda env: Lookahead(
        task(action_mode="candidate"), rule, depth=None
    ),
    "its own environment of": lambda env: Lookahead(env, values)(task(rows=2).reset()),
    "breadth": lambda env: Lookahead(env, values, breadth=0),
    "has no candidates; use num_candidates=null": lambda env: Lookahead(
        env, rule, depth=None, num_candidates=8
    ),
    "compares values of states": lambda env: Beam(env, "deepest_bottom_left"),
    "width": lambda env: Beam(env, values, width=0),
    "num_candidates": lambda env: Lookahead(env, values, num_candidates=0),
    "ms": lambda env: Budget(ms=0.0),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_search_cannot_do_is_refused(said) -> None:
    with pytest.raises(ParameterError, match=said):
        REFUSED[said](task())
