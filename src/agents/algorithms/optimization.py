"""Gradient steps that are skipped on the device if they are not finite, and target updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn
from torchrl.objectives import SoftUpdate

from agents.process_group import add_up, processes

_ALIGNED = 16
"""Gradients start at multiples of this number of elements, as vector instructions require."""


class Gradients:
    """The loss, two scalars and the gradients of some parameters, in one block of memory.

    Processes that learn together sum the whole block in one message, without copying it first.

    Args:
        parameters: Parameters on one device and of one dtype.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        starts, end = [], _ALIGNED
        for parameter in self.parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNED) * _ALIGNED
        self.flat = self.parameters[0].detach().new_zeros(end)
        self.views = [
            self.flat.as_strided(parameter.shape, parameter.stride(), start)
            for start, parameter in zip(starts, self.parameters, strict=True)
        ]

    def of(self, loss: Tensor, weight: Tensor | None, extra: Tensor | None = None) -> Tensor:
        """Set every ``grad`` to the gradient of the mean loss over the processes; return this mean.

        Args:
            loss: Loss of this process, with a graph.
            weight: Number of samples in the loss; None if it is the same in every process.
            extra: A scalar that is replaced by its mean over the processes, in the same message.
        """
        # 1. Accumulate this process's gradients in the shared memory.
        self.flat.zero_()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view
        loss.backward()
        self.flat[0].copy_(loss.detach())
        # 2. Average over the processes; slot 1 sums the weights.
        if processes() > 1:
            self.flat[1].fill_(1.0)
            if extra is not None:
                self.flat[2].copy_(extra)
            if weight is not None:
                self.flat.mul_(weight)
            add_up(self.flat)
            self.flat.div_(self.flat[1].clamp(min=1e-12))
            if extra is not None:
                extra.copy_(self.flat[2])
        return self.flat[0].clone()


class GatedAdam:
    """Adam with clipped gradients; it skips a step whose loss or gradient is not finite.

    The fused kernel reads from a flag on the device whether to skip; nothing is copied to the host.
    A skipped step leaves parameters, moments and step counts unchanged, bit for bit. Processes that
    learn together use the mean of their gradients.

    Args:
        parameters: Parameters to learn.
        lr: Learning rate.
        schedule: Function from environment frames to the learning rate; None keeps ``lr``.
        max_grad_norm: Largest norm of the gradient; larger gradients are scaled down.
        eps: Added to the root of the second moment.

    Attributes:
        optimizer: The optimizer of torch.
        skipped: Number of steps that were skipped because they were not finite; an int64 scalar.
        in_a_row: Number of steps skipped since the last step that was taken.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        schedule: Callable[[int], float] | None = None,
        max_grad_norm: float = 10.0,
        eps: float = 1e-8,
    ) -> None:
        self.parameters = list(parameters)
        self.schedule, self.max_grad_norm = schedule, max_grad_norm
        # fused: one kernel, with its step counters on the parameters' device
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr, eps=eps, fused=True)
        device = self.parameters[0].device
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        self.in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._lr: Tensor | None = None
        self._gradients: Gradients | None = None

    def to(self, device: torch.device | str | None) -> None:
        """Move moments and counts to the device on which the parameters already are."""
        for moments in self.optimizer.state.values():
            moments.update({name: value.to(device) for name, value in moments.items()})
        self.skipped, self.in_a_row = self.skipped.to(device), self.in_a_row.to(device)
        self._gradients = None
        if self._lr is not None:
            self.keep_lr_in_memory(remake=True)

    def keep_lr_in_memory(self, remake: bool = False) -> None:
        """Make the learning rate a tensor, so that :meth:`set_lr` also changes a captured step."""
        (group,) = self.optimizer.param_groups
        if self._lr is None or remake:
            self._lr = torch.tensor(float(group["lr"]), device=self.skipped.device)
            group.update(lr=self._lr, capturable=self.skipped.device.type == "cuda")

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the following steps."""
        if self._lr is not None:
            self._lr.fill_(lr)
            return
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def set_frames(self, frames: int) -> None:
        """Set the learning rate to the schedule's value after this many environment frames."""
        if self.schedule is not None:
            self.set_lr(self.schedule(frames))

    def step(
        self,
        loss: Tensor,
        *,
        where: Tensor | None = None,
        below: tuple[Tensor, float] | None = None,
        weight: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Take one step down the gradient of ``loss``, a scalar.

        Args:
            loss: Scalar with a graph; its gradient is computed here.
            weight: Number of samples in the loss, a scalar on the device. Needed if it may differ
                between processes that learn together.
            where: A boolean scalar on the device. False omits the step; an omitted step does not
                count as skipped.
            below: A scalar and its limit. The scalar is replaced by its mean over the processes; if
                the mean exceeds the limit, ``where`` becomes False. NaN does not count as exceeding
                it.

        Returns:
            ``grad_norm`` before clipping (0 in a skipped step), ``skipped`` (0 or 1) and
            ``skipped_in_a_row``; scalars on the device.
        """
        # 1. Compute gradients, averaged over the processes, and clip them.
        if self._gradients is None:
            self._gradients = Gradients(self.parameters)
        loss = self._gradients.of(loss, weight, None if below is None else below[0])
        if where is not None and below is not None:
            where.logical_and_(~(below[0] > below[1]))
        norm = nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm, foreach=True)
        # 2. Take the step, unless something is not finite or the caller omits it.
        with torch.no_grad():
            finite = torch.isfinite(loss) & torch.isfinite(norm)
            taken = finite if where is None else finite & where
            self.optimizer.found_inf = (~taken).float()  # type: ignore[attr-defined]  # kernel's flag
            self.optimizer.step()
            # The fused kernel does not increment the version counters.
            torch.autograd.graph.increment_version(self.parameters)
            # 3. Count failures; an omitted step neither extends nor ends a series of skipped steps.
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
        """Return the state of the optimizer and the counts."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "skipped": self.skipped,
            "in_a_row": self.in_a_row,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        # Adam keeps the tensors that it gets, so it gets a copy.
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        (group,) = self.optimizer.param_groups
        # Under capture the rate is saved as a tensor, but this optimizer may not be captured.
        group.update(lr=float(group["lr"]), capturable=False)
        if self._lr is not None:
            self.keep_lr_in_memory(remake=True)
        self.skipped.copy_(state["skipped"])
        self.in_a_row.copy_(state["in_a_row"])


def worst(steps: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the largest value of each entry over the results of :meth:`GatedAdam.step`."""
    return {name: torch.stack([step[name] for step in steps]).amax(0) for name in steps[0]}


def minibatches(
    count: int, batch_size: int, epochs: int, device: torch.device | None
) -> Iterator[Tensor]:
    """Yield the rows of every minibatch of every epoch, shuffled on the device.

    The sizes of the minibatches of an epoch differ by at most one.
    """
    parts = max(1, round(count / batch_size))
    for _ in range(epochs):
        yield from torch.randperm(count, device=device).tensor_split(parts)


@torch.no_grad()
def follow(
    targets: Iterable[Tensor], online: Iterable[Tensor], rate: float, skipped: Tensor | None = None
) -> None:
    """Move target parameters towards the online ones by a share ``rate`` (1 copies them).

    The targets stay unchanged if ``skipped``, as returned by :meth:`GatedAdam.step`, is 1.
    """
    moved = list(targets)
    share = rate if skipped is None else [rate * (1 - skipped)] * len(moved)
    torch._foreach_lerp_(moved, list(online), share)


class GatedUpdate(SoftUpdate):
    """TorchRL's soft update of target networks, which is omitted after a skipped gradient step."""

    skipped: Tensor

    def follow(self, step: Mapping[str, Tensor]) -> None:
        """Move the targets; ``step`` comes from :meth:`GatedAdam.step` or :func:`worst`."""
        self.skipped = step["skipped"]
        self.step()

    def _step(self, p_source: TensorDictBase, p_target: TensorDictBase) -> None:
        online, targets = (each.data.values(True, True) for each in (p_source, p_target))
        follow(targets, online, 1 - self.eps, self.skipped)
