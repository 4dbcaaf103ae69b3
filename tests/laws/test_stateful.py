"""Any interleaving of calls to an environment, beside the reference program."""

import copy
import io
import math
from functools import cache, partial
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tensordict import TensorDict, TensorDictBase
from tests.tiny import cuboid_env, differing, enact, legal_choice, state_of, stream, tiny_env

from packing_env.envs import PackingEnv
from packing_env.testing import Referee

ROWS = 3
TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "irregular": (tiny_env, {"num_visible": 2, "preview": 1}),
    "irregular, no-op": (tiny_env, {"illegal_action": "noop", "action_mode": "candidate"}),
    "irregular, continuous": (tiny_env, {"action_mode": "continuous", "num_visible": 2}),
    "irregular, two heads": (tiny_env, {"action_mode": "multi_head", "max_steps": 3}),
    "cuboids": (cuboid_env, {"stability": "center_hull", "num_visible": 2}),
    "cuboids, no-op": (cuboid_env, {"illegal_action": "noop", "stability": "none"}),
    "boxes": (
        cuboid_env,
        {
            "items": {"maps": False},
            "stability": "none",
            "candidate_generator": "split_spaces",
            "num_candidates": 12,
        },
    ),
}
WAYS = ("legal", "legal", "legal", "any", "below", "above", "none")
"""What a row does; most of it legal, or no episode would get far."""
OUTSIDE = {"below": (-1.5, -1), "above": (math.inf, 2**40), "none": (math.nan, -(2**63))}
"""Actions of floats and of integers that are none."""
ways = st.lists(st.sampled_from(WAYS), min_size=ROWS, max_size=ROWS)
rows_chosen = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(any)
seeds = st.integers(0, 2**16)


@cache
def env_of(task: str, twin: int = 0) -> PackingEnv:
    """Environments are kept: each is brought into a state before it is used."""
    make, params = TASKS[task]
    first = {"instances": env_of(task).instances} if twin else {}
    return make(ROWS, num_items=4, reward={"utilization": 1.0, "illegal": 0.5}, **first, **params)


class Saved(NamedTuple):
    """A state, its observation, and the reference program's state."""

    state: TensorDictBase
    seen: TensorDictBase
    episodes: list[Any]
    spaces: list[Any]


def told(given: TensorDictBase) -> TensorDictBase:
    """Return a copy with a number in place of NaN, which does not equal itself."""
    return given.apply(lambda value: value.nan_to_num(7) if value.is_floating_point() else value)


class Interleaving(RuleBasedStateMachine):
    """One environment and its referee; saved states go on in it or in its twin."""

    saved = Bundle("saved")

    @initialize(task=st.sampled_from(sorted(TASKS)), seed=seeds)
    def begin(self, task: str, seed: int) -> None:
        self.env, self.twin = env_of(task), env_of(task, 1)
        self.env.set_seed(seed, static_seed=True)
        self.root = self.env.reset()
        self.referee = Referee(self.env, mask_bits=16)
        self.referee.begin(torch.ones(ROWS), self.root)

    def spoiled(self, asked: list[str], seed: int) -> tuple[TensorDictBase, torch.Tensor]:
        """Return the entries that the agent writes, and the referee's choices (-1: impossible)."""
        env, generator = self.env, stream(seed)
        choice = legal_choice(env, self.root, generator)
        anywhere = torch.randint(env.mode.num_actions or 1, choice.shape, generator=generator)
        wild = torch.tensor([way == "any" for way in asked])
        if env.params.action_mode != "continuous":  # what is in range there is never illegal
            choice = torch.where(wild, anywhere, choice)
        written = enact(env, self.root.clone(), choice)
        for row, way in enumerate(asked):
            for key in env.takes if way in OUTSIDE else ():
                floats = written[key].is_floating_point()
                written[key][row] = OUTSIDE[way][0 if floats else 1]
                choice[row] = -1
        return written, choice

    @rule(asked=ways, seed=seeds)
    def step(self, asked: list[str], seed: int) -> None:
        """A step without a reset: finished rows stay finished."""
        written, choice = self.spoiled(asked, seed)
        decisions = self.referee.decide(choice)
        given = written.clone()
        following = self.env.step(written)["next"]
        assert not differing(told(given), told(written.exclude("next")))
        self.referee.step(decisions, following)
        self.root = self.env.step_mdp(written)

    @rule(asked=ways, seed=seeds)
    def step_and_reset(self, asked: list[str], seed: int) -> None:
        twin = self.twin
        twin.reset(self.env.get_state(), set_state=True)
        written, choice = self.spoiled(asked, seed)
        decisions = self.referee.decide(choice)
        transition, root = twin.step_and_maybe_reset(written.clone())
        following = self.env.step(written)["next"]
        assert not differing(transition["next"], following)
        self.referee.step(decisions, following)
        self.root = self.env.maybe_reset(self.env.step_mdp(written))
        self.referee.begin(following["done"], self.root)
        assert not differing(state_of(twin), state_of(self.env))
        mode = self.env.mode
        seen = ("observation", "metrics", "done", "terminated", "truncated")
        seen += (*mode.mask_keys, *mode.report_keys)
        assert not differing(root.select(*seen), self.root.select(*seen))

    @rule(chosen=rows_chosen)
    def reset_some(self, chosen: list[bool]) -> None:
        """New episodes in some rows; the others do not notice."""
        before, rows = state_of(self.env), torch.tensor(chosen)
        seen = self.root[~rows].exclude(*self.env.mode.report_keys).clone()
        self.root = self.env.reset(TensorDict({"_reset": rows[:, None]}, [ROWS]))
        self.referee.begin(rows, self.root)
        assert not differing(
            seen.select(*self.root.keys(True, True), strict=False), self.root[~rows]
        )
        after = state_of(self.env)
        kept = {key: value[~rows] for key, value in after.items()}
        assert not differing({key: value[~rows] for key, value in before.items()}, kept)
        assert torch.equal(after["episode"], before["episode"] + rows)

    @rule(target=saved, through_a_file=st.booleans())
    def save(self, through_a_file: bool) -> Saved:
        state = self.env.get_state()
        if through_a_file:
            file = io.BytesIO()
            torch.save(state.to_dict(), file)
            file.seek(0)
            state = TensorDict(torch.load(file, weights_only=True), [ROWS])
        referee = copy.deepcopy((self.referee.episodes, self.referee._spaces))
        return Saved(state, self.root.clone(), *referee)

    @rule(saved=saved, elsewhere=st.booleans())
    def restore(self, saved: Saved, elsewhere: bool) -> None:
        """Go on from any saved state, here or in an environment that never saw it."""
        given = saved.state.clone()
        if elsewhere:
            self.env, self.twin = self.twin, self.env
        self.root = self.env.reset(given, set_state=True)
        assert not differing(saved.state, given)
        # a report is on the decision before, which a state does not hold
        found = self.root.exclude(*self.env.mode.report_keys)
        assert not differing(found, saved.seen.select(*found.keys()))
        self.referee.env = self.env
        both = copy.deepcopy((saved.episodes, saved.spaces))
        self.referee.episodes, self.referee._spaces = both

    @rule(kind=st.sampled_from(["dtype", "shape", "missing", "state"]))
    def refuse(self, kind: str) -> None:
        """Actions and states of the wrong kind are refused and change nothing."""
        before = state_of(self.env)
        key, (dtype, shape) = next(iter(self.env.takes.items()))
        action = torch.zeros(shape, dtype=dtype)
        wrong = {"dtype": {key: action.to(torch.float16)}, "shape": {key: action[..., None]}}
        given = TensorDict(wrong.get(kind, {}), [ROWS])
        act = self.env.step
        if kind == "state":
            given = self.env.get_state().exclude("heightmap")
            act = partial(self.env.reset, set_state=True)
        with pytest.raises((TypeError, ValueError, KeyError, RuntimeError)):
            act(given)
        assert not differing(before, state_of(self.env))

    @precondition(lambda self: hasattr(self, "env"))
    @invariant()
    def laws(self) -> None:
        """The state holds no NaN, and no item exceeds the height."""
        for value in self.env.state.values():
            assert not value.isnan().any()
        assert (self.env.state["heightmap"] <= self.env.params.height + 1e-6).all()
        mask = self.root.get("action_mask", None)
        assert mask is None or mask[self.root["terminated"].squeeze(-1)].all()
        assert mask is None or mask.any(-1).all()


Interleaving.TestCase.settings = settings(
    max_examples=max(1, settings.default.max_examples // 5), stateful_step_count=12
)
test_any_interleaving_follows_the_laws = Interleaving.TestCase
