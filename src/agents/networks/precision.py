"""Checks of a network's action mode, and its numeric precision: float32 or bfloat16."""

from __future__ import annotations

import logging
from typing import Any

import torch

from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.networks")


def check_mode(network: Any, env: PackingEnv) -> None:
    """Raise for an environment in whose action mode the network does not act."""
    if env.params.action_mode not in network.action_modes:
        modes = " or ".join(network.action_modes)
        raise ParameterError(
            f"{type(network).__name__} acts in action_mode={modes}, not "
            f"{env.params.action_mode!r}; choose another network or env.action_mode={modes}"
        )


def runs_in_bf16(precision: str, device: torch.device) -> bool:
    """Return whether a network runs in bfloat16, by the name ``fp32``, ``bf16`` or ``auto``."""
    if precision not in ("fp32", "bf16", "auto"):
        raise ParameterError(f"precision={precision!r} is unknown; choose fp32, bf16 or auto")
    chosen = precision == "bf16" or (precision == "auto" and _computes_bf16(device))
    if precision == "auto":
        _LOGGER.info("networks on %s: %s", device, "bf16" if chosen else "fp32")
    return chosen


def _computes_bf16(device: torch.device) -> bool:
    """Return whether bfloat16 is faster than float32 on this device, rather than emulated."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported()
