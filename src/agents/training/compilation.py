"""Losses compiled by ``torch.compile``."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from agents.algorithms.base import Agent
from packing_env import folders
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.compilation")
_PLACE = "TORCHINDUCTOR_CACHE_DIR"
_COMPILED: dict[str, str | int | bool | Callable[..., Any]] = {"emulate_precision_casts": True}
"""Options of torch's compiler: bfloat16 numbers are rounded where they are without it.

Otherwise fused operations keep them in float32, while a maximum among them is rounded: then no
entry equals the maximum, over whose number the gradient of ``amax`` is divided, and it is NaN.
"""


def compile_losses(agent: Agent) -> None:
    """Compile an agent's losses, and their gradients, when they first run.

    Fused sums are rounded in another order. Optimizer steps stay as they are: they are fused
    kernels.

    Raises:
        ParameterError: The agent names no losses, or the CPU has no C++ compiler.
    """
    # 1. Check what compilation needs before anything changes.
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
    # 2. Compile each loss where the agent keeps it: a module in place, a function by replacing it.
    _keep_own()
    for name in losses:
        # ``losses`` holds dotted names, such as ``objective.actor_loss``.
        *path, last = name.split(".")
        owner: Any = reduce(getattr, path, agent)
        part = getattr(owner, last)
        if isinstance(part, torch.nn.Module):
            part.compile(dynamic=False, options=_COMPILED)
        else:
            setattr(owner, last, torch.compile(part, dynamic=False, options=_COMPILED))
    _LOGGER.info("torch.compile compiles %s when they first run", ", ".join(losses))


def _keep_own() -> None:
    """Cache what torch compiles in the user's own folder.

    Torch's default is in the folder of temporary files, where another user may create it first, and
    the cache holds pickles and code. A TORCHINDUCTOR_CACHE_DIR of the user stays.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Torch sets the variable to its default on import, which is no choice of the user.
    if os.environ.get(_PLACE, default_cache_dir()) != default_cache_dir():
        return
    try:
        os.environ[_PLACE] = str(folders.own("inductor"))
    except folders.FolderError as error:
        # Without a folder of the user's own, a private one that ends with the process.
        place = tempfile.mkdtemp(prefix="packing-inductor-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ[_PLACE] = place
        _LOGGER.warning("compiled losses are kept for this process only: %s (or %s)", error, _PLACE)
