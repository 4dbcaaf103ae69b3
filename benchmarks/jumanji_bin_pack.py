"""Speed of Jumanji's BinPack, the best-known compiled packing environment.

    python benchmarks/jumanji_bin_pack.py [--rows 128 1024] [--out ...]

Bonnet et al., "Jumanji: a Diverse Suite of Scalable Reinforcement Learning Environments in JAX",
ICLR 2024. BinPack offers the corners of empty spaces instead of every place, and checks no
stability. The benchmark plays random legal decisions with automatic resets, compiled as one jitted
function, on one thread. It needs `pip install packing-env[bench]`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from provenance import provenance, write_json

from agents.bench.measure import Clock

STEPS = 8
"""Steps per call, enough to make the cost of the call itself negligible."""


def player(rows: int) -> Callable[[], None]:
    """Return a function that takes `STEPS` steps in each of ``rows`` rows and waits for them."""
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", one_thread)  # read when jax starts its backend
    import jax
    import jumanji
    from jumanji.wrappers import VmapAutoResetWrapper

    env = VmapAutoResetWrapper(jumanji.make("BinPack-v2"))

    def step(carried: Any, key: Any) -> tuple[Any, Any]:
        state, mask = carried
        logits = jax.numpy.where(mask.reshape(rows, -1), 0.0, -jax.numpy.inf)
        index = jax.random.categorical(key, logits)
        action = jax.numpy.stack((index // mask.shape[-1], index % mask.shape[-1]), -1)
        state, timestep = env.step(state, action)
        return (state, timestep.observation.action_mask), timestep.reward

    @jax.jit
    def play(carried: Any, key: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, carried, jax.random.split(key, STEPS))

    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), rows))
    carried, key = (state, timestep.observation.action_mask), jax.random.key(1)

    def work() -> None:
        nonlocal carried, key
        key, drawn = jax.random.split(key)
        carried, _ = jax.block_until_ready(play(carried, drawn))

    return work


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/jumanji_bin_pack.json")
    args = parser.parse_args()
    clock = Clock(torch.device("cpu"), repeats=args.repeats)
    results = []
    for rows in args.rows:
        values = clock.measure(player(rows), parts=STEPS)
        values["decisions_per_second"] = 1e3 * rows / values["wall_ms"]
        values["decisions_per_cpu_second"] = 1e3 * rows / values["process_cpu_ms"]
        results.append({"rows": rows} | values)
        print(f"{rows} rows: {values['decisions_per_second']:,.0f} decisions/s")
    packages = {name: version(name) for name in ("jumanji", "jax")}
    write_json(args.out, provenance(args) | packages | {"results": results})


if __name__ == "__main__":
    main()
