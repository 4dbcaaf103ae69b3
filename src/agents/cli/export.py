"""The subcommand ``export``: a trained policy as a program for torch or for ONNX Runtime."""

from __future__ import annotations

import argparse
import io
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.config.outputs import check_output
from agents.loggers.console import PlainConsole, plain_table
from agents.policies.export import check_onnx, export_onnx, export_policy, name_of
from agents.training.loading import Run, load_run
from packing_env import extras
from packing_env.files import reason
from packing_env.types import ParameterError

Decide = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Function from named observations and masks to named actions."""

_DECISIONS = 20
"""Number of decisions for which the program is compared with the policy."""


def export(options: argparse.Namespace) -> int:
    """Write the program, compare it with the policy, and print its inputs and outputs.

    Raises:
        ParameterError: ``--out`` cannot be written, or too few decisions are equal. In both cases
            no file is left.
    """
    write, least = _FORMATS[options.format]
    path = options.out or Path("policy.onnx" if options.format == "onnx" else "policy.pt2")
    if options.format == "onnx":
        check_onnx()
    check_output(str(path), "--out")
    # 1. Export, load the program again, and compare its decisions with those of the policy.
    run = load_run(options.run, [f"env.num_envs={options.rows}"])
    program = export_policy(run.policy, run.env)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        decide = write(program, path)
    except OSError as error:
        raise ParameterError(f"--out={path} cannot be written: {reason(error)}") from error
    equal, seconds = _compared(run, decide)
    if equal < least:
        path.unlink()
        raise ParameterError(
            f"--format {options.format}: only {equal} of {_DECISIONS} decisions equal those of the "
            f"policy, and {least} are required; nothing was written. Give --rows 1 or the other "
            "format"
        )
    # 2. Print inputs and outputs.
    console, table = PlainConsole(), plain_table("", "name", "type", "shape")
    root = run.env.reset()
    for key in run.policy.in_keys:
        _add(table, "in", name_of(key), root.get(key))
    for name, value in decide(_inputs(run, root)).items():
        _add(table, "out", name, value)
    console.print(table)
    console.say(
        f"wrote {path}: {equal} of {_DECISIONS} decisions equal those of the policy; a decision of "
        f"{options.rows} row(s) takes {1000 * seconds:.2f} ms on this CPU (median)"
    )
    return 0


def _for_torch(program: torch.export.ExportedProgram, path: Path) -> Decide:
    with warnings.catch_warnings():
        # torch warns that a view of a larger constant is saved without the rest of the constant.
        warnings.filterwarnings("ignore", "No complete tensor found")
        torch.export.save(program, content := io.BytesIO())
    path.write_bytes(content.getvalue())
    return torch.export.load(path).module()


def _for_onnx(program: torch.export.ExportedProgram, path: Path) -> Decide:
    export_onnx(program, path)
    runtime = extras.require("onnxruntime", "ONNX files")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def decide(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # ONNX Runtime takes NumPy arrays; the policy was loaded on the CPU.
        actions = session.run(names, {name: value.numpy() for name, value in inputs.items()})
        return {name: torch.from_numpy(a) for name, a in zip(names, actions, strict=True)}

    return decide


_FORMATS = {"torch_export": (_for_torch, _DECISIONS), "onnx": (_for_onnx, _DECISIONS - 2)}
"""The function that writes each format, and the least number of equal decisions.

ONNX Runtime adds numbers in another order, so it may rank nearly equal values differently.
"""


def _compared(run: Run, decide: Decide) -> tuple[int, float]:
    """Return how many decisions equal those of the policy, and the median seconds of one."""
    root, times, equal = run.env.reset(), [], 0
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(_DECISIONS):
            start = time.perf_counter()
            actions = decide(_inputs(run, root))
            times.append(time.perf_counter() - start)
            root = run.policy(root)
            equal += all(torch.equal(value, root.get(name)) for name, value in actions.items())
            _, root = run.env.step_and_maybe_reset(root)
    return equal, statistics.median(times)


def _inputs(run: Run, root: TensorDictBase) -> Mapping[str, Tensor]:
    return {name_of(key): root.get(key) for key in run.policy.in_keys}


def _add(table: Any, way: str, name: str, value: Tensor) -> None:
    kind = str(value.dtype).removeprefix("torch.")
    table.add_row(way, name, kind, " x ".join(map(str, value.shape)))
