"""Build search policies from their configurations."""

from __future__ import annotations

import os
from pathlib import Path

from agents import heuristics
from agents.search.beam import Beam
from agents.search.finalists import Finalists
from agents.search.lookahead import Budget, Lookahead
from agents.search.policy import BuildBase
from agents.training.loading import load_policy
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
    return Lookahead(
        env,
        base_of(base),
        breadth=breadth,
        depth=None if rule else depth,
        num_candidates=num_candidates,
        budget=Budget(playouts, ms),
        seed=seed,
    )


def build_beam(
    env: PackingEnv,
    base: str,
    *,
    width: int = 16,
    breadth: int = 8,
    depth: int | None = 10,
    num_candidates: int | None = None,
) -> Beam:
    """Build a beam search on the policy of a checkpoint.

    Args:
        env: The environment in which the policy acts.
        base: A run, a folder, or ``pretrained/NAME``, of an agent with a value.
        width: See :class:`agents.search.Beam`; the same holds for ``breadth``, ``depth`` and
            ``num_candidates``.
        breadth: See above.
        depth: See above.
        num_candidates: See above.

    Raises:
        ParameterError: There is no such run, or it has no value.
    """
    return Beam(
        env,
        base_of(base),
        width=width,
        breadth=breadth,
        depth=depth,
        num_candidates=num_candidates,
    )


def build_finalists(
    env: PackingEnv,
    base: str,
    *,
    tries: int = 16,
    trials: int = 2,
    apart: int = 3,
    limit: float = 1.0,
) -> Finalists:
    """Build a policy that simulates the choices of a heuristic, or of the policy of a checkpoint.

    Args:
        env: The environment in which the policy acts.
        base: A name in :data:`agents.heuristics.HEURISTICS`, a run, or ``pretrained/NAME``.
        tries: See :class:`agents.search.Finalists`; the same holds for ``trials``, ``apart`` and
            ``limit``.
        trials: See above.
        apart: See above.
        limit: See above.

    Raises:
        ParameterError: There is no such heuristic or run, or the task cannot be simulated.
    """
    return Finalists(env, base_of(base), tries=tries, trials=trials, apart=apart, limit=limit)


def base_of(base: str) -> BuildBase:
    """Return a function that builds a heuristic or the policy of a checkpoint.

    Raises:
        ParameterError: There is no such heuristic or run.
    """
    rule = base in heuristics.HEURISTICS
    if not rule and os.sep not in base and not Path(base).exists():
        raise ParameterError(
            f"base={base!r} is neither a run nor a heuristic; choose one of "
            f"{', '.join(sorted(heuristics.HEURISTICS))}, a run's folder, or pretrained/NAME"
        )
    return lambda env: heuristics.build(base, env) if rule else load_policy(base, env)
