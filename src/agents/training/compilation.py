"""Losses compiled by torch."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from agents.algorithms.base import Agent
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.compilation")
_COMPILED: dict[str, str | int | bool | Callable[..., Any]] = {"emulate_precision_casts": True}
"""Options of torch's compiler: bfloat16 numbers are rounded where they are without it.

Otherwise fused operations keep them in float32, while a maximum among them is rounded: then no
entry equals the maximum, over whose number the gradient of ``amax`` is divided, and it is NaN.
"""


def compile_losses(agent: Agent) -> None:
    """Let ``torch.compile`` compile an agent's losses, and their gradients, when they first run.

    Sums are fused and rounded in another order. The optimizers' steps, which are fused kernels, and
    what changes from update to update in Python stay as they are.

    Raises:
        ParameterError: The agent names no losses; or it is on a CPU, for which torch compiles C++,
            and there is no C++ compiler.
    """
    device = next(agent.policy.parameters()).device
    compiler = os.environ.get("CXX", "c++")
    if device.type == "cpu" and shutil.which(compiler) is None:
        raise ParameterError(
            f"trainer.compile=true needs a C++ compiler on a CPU, and there is no {compiler!r}; "
            f"install one (on Debian and Ubuntu: apt install g++), or use trainer.compile=false"
        )
    losses: tuple[str, ...] = getattr(agent, "losses", ())
    if not losses:
        raise ParameterError(
            f"trainer.compile=true compiles the losses of an agent, and {type(agent).__name__} "
            f"names none; list them in its attribute losses, or use trainer.compile=false"
        )
    for name in losses:
        *path, last = name.split(".")
        owner: Any = reduce(getattr, path, agent)
        part = getattr(owner, last)
        if isinstance(part, torch.nn.Module):
            part.compile(dynamic=False, options=_COMPILED)
        else:
            setattr(owner, last, torch.compile(part, dynamic=False, options=_COMPILED))
    _LOGGER.info("torch.compile compiles %s when they first run", ", ".join(losses))
