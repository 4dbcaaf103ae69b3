"""The subcommand ``export``: a trained policy as a program that needs only torch."""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.loggers.console import PlainConsole, plain_table
from agents.policies.export import export_policy, name_of
from agents.training.loading import Run, load_run

_DECISIONS = 20
"""Number of decisions for which the program is compared with the policy."""


def export(options: argparse.Namespace) -> int:
    """Write the program, compare it with the policy, and print its inputs and outputs."""
    # 1. Export.
    run = load_run(options.run, [f"env.num_envs={options.rows}"])
    program = export_policy(run.policy, run.env)
    with warnings.catch_warnings():
        # torch warns that a view of a larger constant is saved without the rest of the constant.
        warnings.filterwarnings("ignore", "No complete tensor found")
        torch.export.save(program, options.out)
    # 2. Load the program again; its decisions must equal those of the policy.
    decide = torch.export.load(options.out).module()
    seconds = _compared(run, decide)
    # 3. Print inputs and outputs.
    console, table = PlainConsole(), plain_table("", "name", "type", "shape")
    root = run.env.reset()
    for key in run.policy.in_keys:
        _add(table, "in", name_of(key), root.get(key))
    for name, value in decide(_inputs(run, root)).items():
        _add(table, "out", name, value)
    console.print(table)
    console.say(
        f"wrote {options.out}: {_DECISIONS} decisions equal those of the policy; the median of a "
        f"decision of {options.rows} row(s) takes {1000 * seconds:.2f} ms on this CPU"
    )
    return 0


def _compared(run: Run, decide: Any) -> float:
    """Return the median seconds of a decision of the program.

    Raises:
        RuntimeError: A decision of the program differs from the policy's.
    """
    root, times = run.env.reset(), []
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(_DECISIONS):
            start = time.perf_counter()
            actions = decide(_inputs(run, root))
            times.append(time.perf_counter() - start)
            root = run.policy(root)
            if any(not torch.equal(value, root.get(name)) for name, value in actions.items()):
                raise RuntimeError("the exported program decides otherwise than the policy")
            _, root = run.env.step_and_maybe_reset(root)
    return statistics.median(times)


def _inputs(run: Run, root: TensorDictBase) -> Mapping[str, Tensor]:
    return {name_of(key): root.get(key) for key in run.policy.in_keys}


def _add(table: Any, way: str, name: str, value: Tensor) -> None:
    kind = str(value.dtype).removeprefix("torch.")
    table.add_row(way, name, kind, " x ".join(map(str, value.shape)))
