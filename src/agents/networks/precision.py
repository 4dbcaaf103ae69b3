"""Checks of a network's action mode, and its numeric precision: float32 or bfloat16."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

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


@contextlib.contextmanager
def in_bf16(*parts: nn.Module, device: torch.device, enabled: bool) -> Iterator[None]:
    """Let convolutions and linear layers of some modules compute in bfloat16, within the block.

    Without gradients their weights are rounded together (:func:`rounded`).
    """
    casts = torch.autocast(device.type, torch.bfloat16, enabled=enabled)
    with casts, rounded(*parts, enabled=enabled):
        yield


@contextlib.contextmanager
def rounded(*parts: nn.Module, enabled: bool) -> Iterator[None]:
    """Round the weights of some modules to bfloat16 within the block, unless gradients need them.

    They are rounded in one launch; autocast, which gives the same bits, rounds each on its own.
    """
    if not enabled or torch.is_grad_enabled() or torch.compiler.is_compiling():
        yield
        return
    layers = [layer for module in parts for layer in module.modules()]
    owned = [
        (layer, name, weight)
        for layer in layers
        if type(layer) in (nn.Conv2d, nn.Linear)
        for name, weight in layer._parameters.items()
        if weight is not None and weight.dtype == torch.float32
    ]
    short = [torch.empty_like(weight, dtype=torch.bfloat16) for _, _, weight in owned]
    if owned:
        torch._foreach_copy_(short, [weight for _, _, weight in owned])
    try:
        for (layer, name, _), weight in zip(owned, short, strict=True):
            layer._parameters[name] = weight  # type: ignore[assignment]
        yield
    finally:
        for layer, name, weight in owned:
            layer._parameters[name] = weight
