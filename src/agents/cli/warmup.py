"""The subcommand ``warmup``: compile the kernels that the presets need, ahead of time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import suppress

import torch

import agents
from agents.config.folders import ConfigError
from packing_env import PRESETS, PackingEnv, kernels, make_env, plan
from packing_env.core.actions import MODES
from packing_env.core.lowest import LowestPlacement
from packing_env.values import check_choice

ROWS = 2
POOL_SIZE = 16
"""Number of instances per preset; a few are enough, because kernels do not depend on them."""


def warmup(options: argparse.Namespace) -> int:
    """Play a few steps of each preset in each action mode; print the seconds that each preset took.

    Without names, container loading is also compiled.
    """
    names = [check_choice("preset", name, PRESETS) for name in options.presets] or list(PRESETS)
    backend = kernels.backend_for("cpu")
    if backend != "numba":
        raise ConfigError(
            f"the kernels on the CPU are {backend!r}, which compiles nothing; install "
            "numba (pip install 'packing-env[fast]') and unset PACKING_KERNELS"
        )
    start = time.perf_counter()
    for number, name in enumerate(names, 1):
        began = time.perf_counter()
        print(f"[{number}/{len(names)}] {name} ...", end="", flush=True)
        for env in environments(name):
            play(env)
        print(f" {time.perf_counter() - began:.1f} s", flush=True)
    if not options.presets:
        plan.load_boxes((2, 1, 1), [plan.BoxType([(1, 1, 1)], 1)])
    print(f"the kernels of {len(names)} presets are ready, {time.perf_counter() - start:.1f} s")
    return 0


def environments(name: str) -> Iterator[PackingEnv]:
    """Yield a preset unchanged, then in the other action modes of its geometry."""
    env = make_env(name, num_envs=ROWS, pool_size=POOL_SIZE)
    yield env
    for mode in MODES if env.params.geometry == "maps" else ():
        if mode != env.params.action_mode:
            params = env.params.evolve(action_mode=mode)
            yield PackingEnv(params, env.catalogue, env.instances, num_envs=ROWS)


@torch.no_grad()
def play(env: PackingEnv) -> None:
    """Call every part of an environment that runs a kernel, and the search for low placements."""
    root = env.reset()
    for _ in range(2):  # the second step updates the results of the first
        _, root = env.step_and_maybe_reset(env.rand_action(root))
    following = env.step(env.rand_action(root)).get("next")
    env.reset_rows(following["done"].flatten(), following.exclude("reward"))
    env.reset(env.get_state(), set_state=True)
    if env.params.geometry == "maps" and env.params.action_mode == "placement":
        LowestPlacement(env.catalogue.tensors(), env.params)(dict(env.get_state().items()))
    if env.params.action_mode == "placement":  # values of afterstates use other kernels
        with suppress(ValueError):  # afterstates do not support this task
            agents.build_policy("afterstate", env)(env.reset())
