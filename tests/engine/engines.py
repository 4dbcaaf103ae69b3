"""Environments of one task with an engine each, step by step beside each other."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.core.pairs import actions
from tests.tiny import cuboid_env, differing, state_of, stream

from packing_env import kernels
from packing_env.envs import PackingEnv
from packing_env.kernels import backends as dispatch

INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())
BACKENDS = {"triton": "fused", "numba": "compiled", "eager": "rules"}


class Engines:
    """Environments of one task, one for each engine; ``make`` makes one."""

    def __init__(
        self,
        backends: tuple[str, ...],
        make: Callable[..., PackingEnv] = cuboid_env,
        **given: Any,
    ) -> None:
        self.backends, self.envs = backends, list[PackingEnv]()
        for backend in backends:
            kernels.set_backend(backend)
            self.envs.append(make(**given))
        assert [env.engine.name for env in self.envs] == [BACKENDS[name] for name in backends]
        self.roots = self.call(lambda env, _: env.reset())

    def call(self, function: Any) -> list[Any]:
        """Return what the function gives for each environment and its index."""
        found = []
        for index, (backend, env) in enumerate(zip(self.backends, self.envs, strict=True)):
            kernels.set_backend(backend)
            found.append(function(env, index))
        return found

    def step(self, generator: torch.Generator, how: str = "step_and_maybe_reset") -> list[Any]:
        action = actions(self.envs[0], self.roots[0], generator)
        return self.call(lambda env, i: getattr(env, how)(self.roots[i].set("action", action)))

    def play(self, num_steps: int, seed: int = 0) -> None:
        """With automatic resets, held to be alike in every step."""
        generator = stream(seed)
        for _ in range(num_steps):
            found = self.step(generator)
            for step, root in found[1:]:
                assert not differing(found[0][0], step)
                assert not differing(found[0][1], root)
            self.roots = [root for _, root in found]
        self.check_states()

    def check_states(self) -> None:
        first, *others = (state_of(env) for env in self.envs)
        assert all(not differing(first, other) for other in others)


def after_steps_without_resets(engines: Engines, marked: Sequence[int], num_steps: int) -> None:
    """Play steps without resets, then reset the marked rows: all are held to be alike."""
    generator = stream(1)
    for _ in range(num_steps):
        steps = engines.step(generator, "step")
        assert not differing(*steps)
        engines.roots = [env.step_mdp(s) for env, s in zip(engines.envs, steps, strict=True)]
    rows = torch.tensor(marked, dtype=torch.bool)
    found = engines.call(lambda env, i: env.reset_rows(rows, engines.roots[i]))
    assert not differing(*found)
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
