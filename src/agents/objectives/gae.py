"""Generalised advantage estimation on the device (Schulman et al., ICLR 2016)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional


def generalised_advantage(
    reward: Float[Tensor, "B T"],
    value: Float[Tensor, "B T"],
    next_value: Float[Tensor, "B T"],
    done: Bool[Tensor, "B T"],
    terminated: Bool[Tensor, "B T"],
    *,
    gamma: float,
    lam: float,
) -> Float[Tensor, "B T"]:
    """Return ``A_t = sum over k of (gamma lam)^k delta_{t+k}``, up to the end of the episode.

    ``delta_t = r_t + gamma V(s_{t+1}) - V(s_t)``. A terminated step has no future value.
    ``next_value`` holds V of the state that the step reached, before its row is reset. Episodes of
    a row do not affect each other, and nothing from beyond the rollout affects the last step. The
    computation takes ``log2 T`` steps for all rows and, unlike TorchRL's version, copies nothing to
    the host.
    """
    future = torch.where(terminated, 0.0, next_value)
    delta = reward + gamma * future - value
    carry = torch.where(done, 0.0, torch.full_like(delta, gamma * lam))
    return backward_scan(delta, carry)


def backward_scan(
    inputs: Float[Tensor, "B T"], carry: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Solve ``out_t = inputs_t + carry_t * out_{t+1}``, with 0 after the last entry.

    It uses recursive doubling (Hillis and Steele, CACM 1986): after k rounds, each entry holds the
    sum over the next ``2^k`` inputs and the product of the same number of carries.
    """
    length = inputs.shape[1]
    step = 1
    while step < length:
        inputs = inputs + carry * functional.pad(inputs[:, step:], (0, step))
        carry = carry * functional.pad(carry[:, step:], (0, step))
        step *= 2
    return inputs
