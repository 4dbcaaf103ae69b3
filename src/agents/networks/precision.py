"""Checks of a network's action mode, and its numeric precision: float32 or bfloat16."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

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


@contextlib.contextmanager
def in_bf16(parts: Sequence[nn.Module], *, device: torch.device, enabled: bool) -> Iterator[None]:
    """Run convolutions and linear layers of some modules in bfloat16 within the block."""
    casts = torch.autocast(device.type, torch.bfloat16, enabled=enabled)
    with casts, rounded(parts, enabled=enabled):
        yield


@contextlib.contextmanager
def rounded(parts: Sequence[nn.Module], *, enabled: bool) -> Iterator[None]:
    """Round the weights of some modules to bfloat16 within the block, unless gradients need them.

    This needs one kernel launch. Autocast gives the same bits, but needs one launch per weight.
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
    in_short = [torch.empty_like(weight, dtype=torch.bfloat16) for _, _, weight in owned]
    if owned:
        torch._foreach_copy_(in_short, [weight for _, _, weight in owned])
    try:
        for (layer, name, _), weight in zip(owned, in_short, strict=True):
            layer._parameters[name] = weight  # type: ignore[assignment]
        yield
    finally:
        for layer, name, weight in owned:
            layer._parameters[name] = weight
