"""`PolicyWrapper` and `ContinuousPolicy` in environments that are not of this package."""

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.data import Binary, Bounded, Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase, check_env_specs
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.policies.continuous import ContinuousPolicy, NoiseSchedule, TanhGaussian
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper

ROWS, ACTIONS = 4, 5
LOW, HIGH = torch.tensor([0.0, -3.0]), torch.tensor([10.0, -1.0])


class Corridor(EnvBase):
    """A walk whose legal moves change in every step; the reward is the action's number."""

    def __init__(self, action: TensorSpec, mask_key: str | None = "allowed") -> None:
        super().__init__(batch_size=[ROWS])
        self.mask_key, self.time = mask_key, 0
        seen = {"position": Unbounded((ROWS, 3))}
        if mask_key is not None:
            seen[mask_key] = Binary(ACTIONS, (ROWS, ACTIONS), dtype=torch.bool)
        self.observation_spec = Composite(seen, shape=[ROWS])
        self.action_spec = action
        self.reward_spec = Unbounded((ROWS, 1))

    def _seen(self) -> TensorDict:
        """Return the position and the mask, which allows three moves and shifts every step."""
        moves = (torch.arange(ACTIONS) - self.time - torch.arange(ROWS)[:, None]) % ACTIONS
        seen = {"position": torch.full((ROWS, 3), float(self.time))}
        if self.mask_key is not None:
            seen[self.mask_key] = moves < 3
        return TensorDict(seen, [ROWS])

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDict:
        self.time = 0
        return self._seen().set("done", torch.zeros(ROWS, 1, dtype=torch.bool))

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        action = tensordict["action"].float()
        self.time += 1
        done = torch.full((ROWS, 1), self.time >= 6)
        reward = action.reshape(ROWS, -1).sum(-1, keepdim=True)
        return self._seen().update({"reward": reward, "done": done})

    def _set_seed(self, seed: int | None) -> None:
        return None


def network(out: str | list[str], size: int) -> TensorDictModule:
    torch.manual_seed(0)
    keys = [out] if isinstance(out, str) else out
    layers = [nn.Linear(3, size * len(keys)), *[NormalParamExtractor()] * (len(keys) > 1)]
    return TensorDictModule(nn.Sequential(*layers), in_keys=["position"], out_keys=keys)


def collected(env: EnvBase, policy: nn.Module) -> TensorDictBase:
    collector = Collector(
        env, policy, frames_per_batch=120, total_frames=120, auto_register_policy_transforms=False
    )
    (batch,) = [part.clone() for part in collector]
    collector.shutdown()
    return batch


def test_numbered_actions_under_a_foreign_mask() -> None:
    env = Corridor(Categorical(ACTIONS, (ROWS,)))
    check_env_specs(env)
    policy = PolicyWrapper(
        network("q", ACTIONS), value_key="q", mask_key="allowed",
        epsilon=EpsilonSchedule(0.5, 0.5, 0),
    )  # fmt: skip
    played = collected(env, policy)
    assert env.action_spec.is_in(played["action"][:, 0])
    index = played["action"]
    assert played["allowed"].gather(-1, index[..., None]).all()
    assert len(index.unique()) == ACTIONS
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        found = policy(env.reset())
    values = torch.where(found["allowed"], policy.network(found.clone())["q"], -torch.inf)
    assert torch.equal(found["action"], values.argmax(-1))


def box() -> Bounded:
    return Bounded(LOW.expand(ROWS, 2), HIGH.expand(ROWS, 2), (ROWS, 2))


def inside(action: Tensor) -> bool:
    return bool(((action >= LOW) & (action <= HIGH)).all())


@pytest.mark.parametrize("stochastic", [True, False])
def test_a_box_with_bounds_of_its_own(stochastic: bool) -> None:
    """Noise, uniform points and squashed draws use the whole box and stay inside."""
    env = Corridor(box(), mask_key=None)
    actor = network(["loc", "scale"] if stochastic else "action", 2)
    policy = ContinuousPolicy(
        actor, action_spec=env.action_spec, noise=NoiseSchedule(1.0, 1.0, 0),
        epsilon=EpsilonSchedule(0.5, 0.5, 0), distribution=TanhGaussian if stochastic else None,
    )  # fmt: skip
    assert torch.equal(policy.low, LOW)
    assert torch.equal(policy.high, HIGH)
    assert dict(policy.named_buffers())["high"] is policy.high
    assert not {"low", "high"} & set(policy.state_dict())
    action = collected(env, policy)["action"]
    assert inside(action)
    spread = (action.flatten(0, 1).amax(0) - action.flatten(0, 1).amin(0)) / (HIGH - LOW)
    assert (spread > 0.8).all()
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        assert inside(policy(env.reset())["action"])


def test_the_squashed_density_is_that_of_the_box() -> None:
    made = partial(TanhGaussian, low=LOW.double(), high=HIGH.double())
    line = [torch.linspace(a, b, 1_001)[:-1].double() for a, b in zip(LOW, HIGH, strict=True)]
    step = [float(points[1] - points[0]) for points in line]
    at = torch.cartesian_prod(*(p + s / 2 for p, s in zip(line, step, strict=True)))
    loc = torch.tensor([0.4, -0.8]).double().expand_as(at)
    scale = torch.tensor([0.3, 0.6]).double().expand_as(at)
    total = made(loc, scale).log_prob(at).exp().sum().item() * step[0] * step[1]
    assert total == pytest.approx(1.0, abs=1e-3)
    draw, score = made(loc[:9], scale[:9]).rsample_and_log_prob()
    torch.testing.assert_close(made(loc[:9], scale[:9]).log_prob(draw), score)


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        (Categorical(3, (2,)), TypeError, "Bounded spec.*use PolicyWrapper"),
        (Unbounded((2, 3)), TypeError, "not Unbounded"),
        (Bounded(torch.tensor([[0.0], [1.0]]), torch.ones(2, 1) * 2), ValueError, "low must be"),
    ],
)
def test_other_specs_are_refused(spec: TensorSpec, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ContinuousPolicy(network("action", 2), action_spec=spec)
