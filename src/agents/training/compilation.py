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
"""Options of torch's compiler: it rounds bfloat16 numbers at the same places as eager mode.

By default, fused operations keep these numbers in float32, but a maximum over them is rounded. As a
result, no entry equals the maximum. The gradient of ``amax`` is divided by the number of entries
that equal it, so it becomes NaN.
"""


def compile_losses(agent: Agent) -> None:
    """Compile an agent's losses, and their gradients, when they first run.

    Fused sums have other rounding errors. Optimizer steps are not compiled, because they are fused
    kernels already.

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
    # 2. Compile each loss: a module in place; for a function, replace the agent's attribute.
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
    """Put torch's compilation cache into the user's own folder.

    Torch's default is in the folder of temporary files, where another user may create it first.
    This is dangerous, because the cache holds pickles and code. If the user has set
    TORCHINDUCTOR_CACHE_DIR, that folder is used.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Torch sets the variable to its default on import; this does not count as set by the user.
    if os.environ.get(_PLACE, default_cache_dir()) != default_cache_dir():
        return
    try:
        os.environ[_PLACE] = str(folders.own("inductor"))
    except folders.FolderError as error:
        # If there is no such folder, use a private one that is removed when the process ends.
        place = tempfile.mkdtemp(prefix="packing-inductor-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ[_PLACE] = place
        _LOGGER.warning(
            "compiled losses are cached for this process only: %s (or %s)", error, _PLACE
        )
