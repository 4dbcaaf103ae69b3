"""Checks of a network's action mode, and its numeric precision: float32 or bfloat16."""

from __future__ import annotations

import logging
from typing import Any

import torch

from packing_env.envs import PackingEnv
from packing_env.types import ParameterError
from packing_env.values import check_choice

_LOGGER = logging.getLogger("agents.networks")


def check_mode(network: Any, env: PackingEnv) -> None:
    """Raise if the network does not support the environment's action mode."""
    if env.params.action_mode not in network.action_modes:
        modes = " or ".join(network.action_modes)
        raise ParameterError(
            f"{type(network).__name__} supports action_mode={modes}, not "
            f"{env.params.action_mode!r}; choose another network or env.action_mode={modes}"
        )


def runs_in_bf16(precision: str, device: torch.device) -> bool:
    """Return whether a network runs in bfloat16.

    Args:
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``: bf16 if the device supports it natively,
            without emulation.
        device: Device of the network.
    """
    check_choice("precision", precision, ("fp32", "bf16", "auto"))
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = torch.cpu._is_avx512_bf16_supported()
    _LOGGER.info("networks on %s: %s", device, "bf16" if fast else "fp32")
    return fast
