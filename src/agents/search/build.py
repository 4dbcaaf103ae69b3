"""Build a search policy from its configuration."""

from __future__ import annotations

import os
from pathlib import Path

from tensordict.nn import TensorDictModuleBase

from agents import heuristics
from agents.config.compose import compose
from agents.config.saved import adopt
from agents.search.lookahead import Budget, Lookahead
from agents.training import checkpoint
from agents.training.resume import load_policy
from packing_env import PackingEnv
from packing_env.types import ParameterError


def build(
    env: PackingEnv,
    base: str,
    *,
    breadth: int = 4,
    depth: int | None = 2,
    num_candidates: int | None = None,
    playouts: int = 256,
    ms: float | None = None,
    seed: int = 0,
) -> Lookahead:
    """Build a search policy on a heuristic, or on the policy of a checkpoint.

    Args:
        env: The environment in which the policy acts.
        base: A name in :data:`agents.heuristics.HEURISTICS`, or a value of ``checkpoint=``: a run,
            a folder, or ``pretrained/NAME``.
        breadth: See :class:`agents.search.Lookahead`; the same holds for ``depth`` (a heuristic
            always plays to the end), ``num_candidates`` and ``seed``.
        depth: See above.
        num_candidates: See above.
        playouts: See :class:`agents.search.Budget`; the same holds for ``ms``.
        ms: See above.
        seed: See above.

    Raises:
        ParameterError: There is no such heuristic or run.
    """
    rule = base in heuristics.HEURISTICS
    if not rule and os.sep not in base and not Path(base).exists():
        raise ParameterError(
            f"base={base!r} is neither a run nor a heuristic; choose one of "
            f"{', '.join(sorted(heuristics.HEURISTICS))}, a run's folder, or pretrained/NAME"
        )
    return Lookahead(
        env,
        lambda inner: heuristics.build(base, inner) if rule else trained(base, inner),
        breadth=breadth,
        depth=None if rule else depth,
        num_candidates=num_candidates,
        budget=Budget(playouts, ms),
        seed=seed,
    )


def trained(name: str, env: PackingEnv) -> TensorDictModuleBase:
    """Load the policy of a checkpoint, for an environment of its task."""
    run = checkpoint.load(Path(name), device=str(env.device))
    saved = run.meta.get("config", {})
    config = adopt(compose("eval"), saved, ("network", "agent"), [])
    if config.agent["_target_"] == "agents.search.build":
        raise ParameterError(
            f"base={name!r} is itself a search policy; name the policy on which it is based"
        )
    policy: TensorDictModuleBase = load_policy(config, run, env)
    return policy
