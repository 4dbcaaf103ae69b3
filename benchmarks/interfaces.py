"""Decisions per second of `cuboid_online` through each interface: engine, TorchRL and Gymnasium.

    python benchmarks/interfaces.py [--stability none] [--rows 1 128 1024 4096] [--out ...]

`rules` is the compiled engine without an environment. It computes state, rewards, metrics and
masks, but no other observation. `PackingEnv` and `PackingVectorEnv` (NumPy in and out) add their
observations. Finished rows start their next episode in all three.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from provenance import provenance, write_json
from tensordict import TensorDict

from agents.bench.measure import Clock
from agents.bench.step import ACTIONS, Loop, chooser
from packing_env import PackingEnv, PackingVectorEnv, kernels, make_env
from packing_env.engine import Task, make_engine

Step = Callable[[], None]
"""Function that takes one decision in every row."""


def through_rules(env: PackingEnv, actions: str) -> Step:
    """Return the step of the compiled engine alone."""
    task = Task(env.params.evolve(observation=()), env.catalogue.tensors(), env.instances)
    engine = make_engine(task, "compiled")
    mask = env.reset()["action_mask"]
    state = dict(env.get_state().items())
    uniform = torch.zeros if actions == "first_legal" else torch.rand

    def step() -> None:
        nonlocal mask, state
        action = kernels.choose_uniform(mask, uniform(mask.shape[0]))
        done = engine.advance(state, {"action": action}, reset=True)
        assert done.start is not None
        state, mask = done.state, done.start.masks["action_mask"]

    return step


def through_env(env: PackingEnv, actions: str) -> Step:
    """Return the step of the environment."""
    return Loop(env, actions).step


def through_vector_env(env: PackingEnv, actions: str) -> Step:
    """Return the step of Gymnasium's vector interface."""
    vector = PackingVectorEnv(env, num_envs=env.batch_size.numel())
    choose = chooser(env, actions)
    mask = vector.reset()[1]["action_mask"]

    def step() -> None:
        nonlocal mask
        legal = torch.from_numpy(mask).view(torch.bool)
        action = choose(TensorDict({"action_mask": legal}, legal.shape[:1])).get("action")
        mask = vector.step(action.numpy())[-1]["action_mask"]

    return step


INTERFACES: dict[str, Callable[[PackingEnv, str], Step]] = {
    "rules": through_rules,
    "PackingEnv": through_env,
    "PackingVectorEnv": through_vector_env,
}


@torch.no_grad()
def measure(clock: Clock, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row per number of rows, kind of actions and interface."""
    results = []
    for rows, actions, name in product(args.rows, args.actions, INTERFACES):
        env = make_env("cuboid_online", num_envs=rows, seed=0, stability=args.stability)
        values = clock.measure(INTERFACES[name](env, actions))
        values["decisions_per_cpu_second"] = rate = 1e3 * rows / clock.cost(values)
        values["decisions_per_second"] = 1e3 * rows / values["wall_ms"]
        results.append({"rows": rows, "actions": actions, "through": name} | values)
        print(f"{name}, {actions}, {rows} rows: {rate:,.0f} decisions per CPU second")
    return results


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 128, 1024, 4096])
    parser.add_argument("--actions", nargs="+", default=list(ACTIONS), choices=ACTIONS)
    parser.add_argument("--stability", help="a stability rule; default: of the preset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/interfaces.json")
    args = parser.parse_args()
    clock = Clock(torch.device("cpu"), repeats=args.repeats)
    write_json(args.out, provenance(args) | {"results": measure(clock, args)})


if __name__ == "__main__":
    main()
