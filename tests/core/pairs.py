"""Two environments alike, one of which takes its steps at once: in step and in every bit."""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tests.tiny import differing, enact, legal_action, legal_choice, state_of, stream
from torch import Tensor

from packing_env import kernels
from packing_env.envs import PackingEnv


def actions(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> Tensor:
    """Random legal ones, and some of any kind."""
    legal = legal_action(root["action_mask"], generator)
    wild = torch.randint(-2, env.mode.num_actions + 2, legal.shape, generator=generator)
    chosen = torch.where(torch.rand(legal.shape, generator=generator) < 0.1, wild, legal)
    if env.params.action_mode == "placement":
        return chosen
    shape = torch.tensor(env.mode.shape)
    strides = shape.flip(0).cumprod(0).flip(0).roll(-1)
    strides[-1] = 1
    return chosen[..., None] // strides % shape - (chosen < 0)[..., None].long()


def entries(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> TensorDictBase:
    """What an agent writes: random legal ones, and some of any kind."""
    mode = env.params.action_mode
    if mode in ("placement", "multi_head"):
        return TensorDict({"action": actions(env, root, generator)}, env.batch_size)
    if mode == "continuous":
        shape = (*env.batch_size, env.mode.num_components)
        points = 2 * torch.rand(shape, generator=generator) - 1
        points[torch.rand(shape, generator=generator) < 0.03] = 1.5
        return TensorDict({"action": points}, env.batch_size)
    legal = legal_choice(env, root, generator)
    wild = torch.randint(-2, env.mode.num_actions + 2, legal.shape, generator=generator)
    chosen = torch.where(torch.rand(legal.shape, generator=generator) < 0.1, wild, legal)
    return enact(env, root.clone(), chosen).select(*env.takes)


class Pair:
    """The two of one task, the first with the compiled operations; ``make`` makes one."""

    def __init__(self, make: Callable[..., PackingEnv], **options: Any) -> None:
        self.envs = [self.built(i, make, **options) for i in (0, 1)]
        self.roots: list[TensorDictBase] = [self.call(i, lambda env: env.reset()) for i in (0, 1)]

    def built(self, index: int, make: Callable[..., PackingEnv], **options: Any) -> PackingEnv:
        kernels.set_backend(("numba", "eager")[index])
        return make(**options)

    def call(self, index: int, function: Any) -> Any:
        kernels.set_backend(("numba", "eager")[index])
        assert self.envs[index].engine.name == ("compiled", "rules")[index]
        return function(self.envs[index])

    def step(self, generator: torch.Generator, how: str = "step_and_maybe_reset") -> list[Any]:
        written = entries(self.envs[0], self.roots[0], generator)
        return [
            self.call(i, lambda env, i=i: getattr(env, how)(self.roots[i].update(written)))
            for i in (0, 1)
        ]

    def play(self, num_steps: int, seed: int = 0) -> None:
        """With automatic resets, held to be alike in every step."""
        generator = stream(seed)
        for _ in range(num_steps):
            (one, first), (other, second) = self.step(generator)
            assert not differing(one, other)
            assert not differing(first, second)
            self.roots = [first, second]
        self.check_states()

    def check_states(self) -> None:
        assert not differing(*(state_of(env) for env in self.envs))
