"""Gradient steps that can be left out on the device: the finiteness gate of every agent."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn


class GatedAdam:
    """Adam with clipped gradients; a step whose loss or gradient is not finite is left out.

    Whether a step is taken is decided on the device (the fused kernel takes a flag), so nothing is
    read back: parameters, moments and step counts of a skipped step stay as they were, bit for bit.
    Where several processes learn together, the step is down the mean of their gradients.

    Args:
        parameters: What is learned.
        lr: Learning rate.
        max_grad_norm: Gradients are scaled down to this norm.
        eps: Added to the root of the second moment.

    Attributes:
        optimizer: The optimizer itself.
        skipped: Steps left out because they were not finite, so far; an int64 scalar.
        in_a_row: Those since the last good one.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        max_grad_norm: float = 10.0,
        eps: float = 1e-8,
    ) -> None:
        self.parameters = list(parameters)
        self.max_grad_norm = max_grad_norm
        # fused: one kernel, with its step counters where the parameters are, on any device
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr, eps=eps, fused=True)
        device = self.parameters[0].device
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        self.in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._lr: Tensor | None = None

    def keep_lr_in_memory(self) -> None:
        """Let the learning rate be a tensor, so that a captured step follows :meth:`set_lr`."""
        (group,) = self.optimizer.param_groups
        if self._lr is None:
            self._lr = torch.tensor(float(group["lr"]), device=self.skipped.device)
            group.update(lr=self._lr, capturable=self.skipped.device.type == "cuda")

    def set_lr(self, lr: float) -> None:
        """The learning rate from now on."""
        if self._lr is not None:
            self._lr.fill_(lr)
            return
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self, loss: Tensor, *, where: Tensor | None = None) -> dict[str, Tensor]:
        """One step down the gradient of ``loss``, a scalar.

        Args:
            loss: Has a graph; its gradient is computed here.
            where: A boolean scalar on the device: leave the step out unless it is True, without
                counting it as skipped.

        Returns:
            ``grad_norm`` before clipping (0 in a skipped step), ``skipped`` (0 or 1) and
            ``skipped_in_a_row``; scalars on the device.
        """
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        loss = loss.detach().clone()
        average((loss, *(p.grad for p in self.parameters if p.grad is not None)))
        norm = nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm, foreach=True)
        with torch.no_grad():
            finite = torch.isfinite(loss) & torch.isfinite(norm)
            taken = finite if where is None else finite & where
            self.optimizer.found_inf = (~taken).float()
            self.optimizer.step()
            torch.autograd.graph.increment_version(self.parameters)  # the fused kernel does not
            failed = ~finite if where is None else ~finite & where
            self.skipped += failed
            self.in_a_row.copy_(torch.where(failed, self.in_a_row + 1, self.in_a_row * ~taken))
            norm = torch.where(finite, norm, 0.0)
        return {
            "grad_norm": norm.detach(),
            "skipped": failed.float(),
            "skipped_in_a_row": self.in_a_row.clone(),
        }

    def state_dict(self) -> dict[str, Any]:
        """The optimizer and the counts."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "skipped": self.skipped,
            "in_a_row": self.in_a_row,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # Adam keeps what it gets
        (group,) = self.optimizer.param_groups
        group.update(lr=float(group["lr"]), capturable=False)  # where it was captured, it was not
        if self._lr is not None:
            self._lr = None
            self.keep_lr_in_memory()
        self.skipped.copy_(state["skipped"])
        self.in_a_row.copy_(state["in_a_row"])


@torch.no_grad()
def follow(targets: list[Tensor], online: list[Tensor], rate: float) -> None:
    """Move target parameters towards the online ones by a share ``rate`` (1 copies)."""
    torch._foreach_lerp_(targets, online, rate)


def mean_loss(losses: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of the losses ``[B]``, by the importance weights ``[B]`` of a prioritized sample."""
    return losses.mean() if weight is None else (losses * weight).mean()


def average(tensors: Iterable[Tensor]) -> None:
    """Replace tensors of one type by their means over the processes, in one message.

    Alone, nothing happens.
    """
    if not distributed.is_initialized():
        return
    held = list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in held])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    start = 0
    for tensor in held:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
