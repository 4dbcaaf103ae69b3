"""Speed of Jumanji's BinPack, the best-known compiled packing environment.

Bonnet et al., "Jumanji: a Diverse Suite of Scalable Reinforcement Learning Environments in JAX",
ICLR 2024. It offers the corners of empty spaces instead of every place, and checks no stability.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from agents.bench.base import LeftOut, Row, Rows
from agents.bench.measure.timing import Clock, TooLongError

CASE = {"preset": "Jumanji BinPack-v2", "actions": "random_legal", "through": "lax.scan"}
_STEPS = 8
"""Steps per call, enough to make the cost of the call itself negligible."""
MOST = 1024
"""Largest batch: that of its published rates."""


def measure(clock: Clock, rows: Sequence[int]) -> Rows:
    """Measure random legal decisions, automatic resets included, jitted whole, on one thread."""
    if find_spec("jumanji") is None:
        yield LeftOut(CASE, "jumanji is not installed: pip install packing-env[bench]")
        return
    for count in rows:
        try:
            values = clock.measure(_player(count)).divided_by(_STEPS).values()
        except TooLongError as error:
            yield LeftOut({**CASE, "rows": count}, str(error))
            return
        values["decisions_per_second"] = 1e3 * count / values["wall_ms"]
        values["decisions_per_cpu_second"] = 1e3 * count / values["process_cpu_ms"]
        values |= {"jumanji": version("jumanji"), "jax": version("jax")}
        yield Row({**CASE, "rows": count}, values)


def _player(rows: int) -> Any:
    """Return a function that takes ``_STEPS`` steps in each of ``rows`` rows and waits for them."""
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
        return jax.lax.scan(step, carried, jax.random.split(key, _STEPS))

    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), rows))
    kept = [(state, timestep.observation.action_mask), jax.random.key(1)]

    def work() -> None:
        kept[1], key = jax.random.split(kept[1])
        kept[0], _ = jax.block_until_ready(play(kept[0], key))

    return work
