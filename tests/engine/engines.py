"""Environments of one task, each with another engine, compared after every step."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tests.tiny import cuboid_env, differing, enact, legal_choice, state_of, stream
from torch import Tensor

from packing_env import extras, kernels
from packing_env.envs import PackingEnv
from packing_env.kernels.backends import INTERPRETING

BACKENDS = {"triton": "fused", "numba": "compiled", "eager": "rules"}
TRITON = extras.is_installed("triton")
needs_numba = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)
needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
compiles = pytest.mark.skipif(INTERPRETING, reason="the kernels are interpreted here")
interprets = pytest.mark.skipif(
    not (INTERPRETING and TRITON),
    reason="run by tests/kernels/test_triton.py, with TRITON_INTERPRET=1",
)


def some_wild(chosen: Tensor, num_actions: int, generator: torch.Generator) -> Tensor:
    """Replace a tenth of the choices by random numbers, some of them out of range."""
    wild = torch.randint(-2, num_actions + 2, chosen.shape, generator=generator)
    return torch.where(torch.rand(chosen.shape, generator=generator) < 0.1, wild, chosen)


def entries(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> TensorDictBase:
    """Return the entries that an agent writes: random legal actions, and some illegal ones."""
    if env.params.action_mode == "continuous":
        shape = (*env.batch_size, env.mode.num_components)
        points = 2 * torch.rand(shape, generator=generator) - 1
        points[torch.rand(shape, generator=generator) < 0.03] = 1.5
        return TensorDict({"action": points}, env.batch_size)
    legal = legal_choice(env, root, generator)
    chosen = some_wild(legal, env.mode.num_actions, generator)
    if env.params.action_mode == "placement":  # also numbers that stand for no placement
        return TensorDict({"action": chosen}, env.batch_size)
    return enact(env, root.clone(), chosen).select(*env.takes)


class Engines:
    """Environments of one task, one for each backend; ``make`` makes one."""

    def __init__(
        self,
        make: Callable[..., PackingEnv] = cuboid_env,
        backends: tuple[str, ...] = ("numba", "eager"),
        **given: Any,
    ) -> None:
        self.backends, self.envs = backends, list[PackingEnv]()
        for backend in backends:
            kernels.set_backend(backend)
            self.envs.append(make(**given))
        self.roots = self.call(lambda env, _: env.reset())

    def call(self, function: Any) -> list[Any]:
        """Return what the function gives for each environment and its index."""
        found = []
        for index, (backend, env) in enumerate(zip(self.backends, self.envs, strict=True)):
            kernels.set_backend(backend)
            assert env.engine.name == BACKENDS[backend]
            found.append(function(env, index))
        return found

    def step(self, generator: torch.Generator, how: str = "step_and_maybe_reset") -> list[Any]:
        written = entries(self.envs[0], self.roots[0], generator)
        return self.call(lambda env, i: getattr(env, how)(self.roots[i].update(written)))

    def play(self, num_steps: int, seed: int = 0) -> None:
        """Play steps with automatic resets; the environments must agree in every step."""
        generator = stream(seed)
        for _ in range(num_steps):
            found = self.step(generator)
            for step, root in found[1:]:
                assert not differing(found[0][0], step)
                assert not differing(found[0][1], root)
            self.roots = [root for _, root in found]
        self.check_states()

    def step_without_resets(self, num_steps: int, generator: torch.Generator) -> None:
        """Play steps without resets: finished rows stay finished; every step must agree."""
        for _ in range(num_steps):
            steps = self.step(generator, "step")
            assert not differing(*steps)
            self.roots = [env.step_mdp(s) for env, s in zip(self.envs, steps, strict=True)]

    def reset_rows(self, rows: Tensor) -> None:
        """Reset the marked rows; the environments must agree."""
        self.roots = self.call(lambda env, i: env.reset_rows(rows, self.roots[i]))
        assert not differing(*self.roots)

    def check_states(self) -> None:
        first, *others = (state_of(env) for env in self.envs)
        assert all(not differing(first, other) for other in others)


def after_steps_without_resets(engines: Engines, marked: Sequence[int], num_steps: int) -> None:
    """Play steps without resets, then reset the marked rows; the environments must agree."""
    engines.step_without_resets(num_steps, stream(1))
    engines.reset_rows(torch.tensor(marked, dtype=torch.bool))
    engines.check_states()


def overwritten(env: PackingEnv, num_steps: int, after: Callable[[], Any] = int) -> bool:
    """Play steps; return whether a later one changed what an earlier one returned."""
    root, kept = env.reset(), []
    for _ in range(num_steps):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        kept += [(value, value.clone()) for value in step.values(True, True)]
        kept += [(value, value.clone()) for value in root.values(True, True)]
        after()
    return not all(torch.equal(value, copy) for value, copy in kept)
