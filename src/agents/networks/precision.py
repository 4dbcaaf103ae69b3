"""Numeric precision of a network: float32 or bfloat16."""

from __future__ import annotations

import logging

import torch

from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.networks")


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
