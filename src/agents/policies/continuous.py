"""`ContinuousPolicy` explores points in a box; `TanhGaussian` is a distribution over them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional
from torchrl.data import Bounded, Composite, TensorSpec

from agents.networks.readouts.noisy import explores
from agents.policies.policy_wrapper import (
    EpsilonSchedule,
    LinearSchedule,
    PolicyWrapper,
    trailing,
)

Shape = torch.Size | list[int] | tuple[int, ...]
_NO_SHAPE = torch.Size()
_INSIDE = 1 - 2**-24
"""The largest float32 below 1: its inverse hyperbolic tangent is finite."""


class TanhGaussian(Distribution):
    """``low + (1 + tanh(u)) (high - low) / 2`` for a Gaussian ``u`` with independent entries.

    The density is exact: ``log p(tanh(u)) = sum of log N(u; loc, scale) - log(1 - tanh(u)^2)``
    (Haarnoja et al., ICML 2018, Appendix C), with ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2
    u))``, which does not overflow. The log-density of a sample uses the ``u`` from which it was
    computed, not an inverse. TorchRL's ``TanhNormal`` copies its bounds to the host outside a
    compiled graph.

    Args:
        loc: Mean of ``u``, ``[*batch, D]``.
        scale: Standard deviation of the Gaussian, positive.
        low: Lower bound of the values, a number or ``[D]``.
        high: Upper bound.
    """

    arg_constraints = {}  # noqa: RUF012

    def __init__(
        self,
        loc: Float[Tensor, "*batch D"],
        scale: Float[Tensor, "*batch D"],
        low: float | Tensor = -1.0,
        high: float | Tensor = 1.0,
    ) -> None:
        self.loc, self.scale = loc, scale
        self.middle, self.half = (high + low) / 2, (high - low) / 2
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def mode(self) -> Float[Tensor, "*batch D"]:
        """The value at ``u = loc``: the median, which is the action without exploration."""
        return self._squash(self.loc)

    @property
    def deterministic_sample(self) -> Float[Tensor, "*batch D"]:
        """The value that TorchRL uses without exploration."""
        return self.mode

    def rsample(self, sample_shape: Shape = _NO_SHAPE) -> Tensor:
        """Draw a sample with a gradient with respect to ``loc`` and ``scale``."""
        return self.rsample_and_log_prob(sample_shape)[0]

    def rsample_and_log_prob(self, sample_shape: Shape = _NO_SHAPE) -> tuple[Tensor, Tensor]:
        """Draw a sample and compute its log-density, both with gradients."""
        shape = torch.Size(sample_shape) + self.loc.shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        before = self.loc + self.scale * noise
        return self._squash(before), self._score(before, noise)

    def log_prob(self, value: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch"]:
        """Return the log-density at ``value``; a bound counts as the nearest float32 inside."""
        unit = (value - self.middle) / self.half
        before = torch.atanh(unit.clamp(-_INSIDE, _INSIDE))
        return self._score(before, (before - self.loc) / self.scale)

    def _squash(self, before: Tensor) -> Tensor:
        return self.middle + self.half * torch.tanh(before)

    def _score(self, before: Tensor, noise: Tensor) -> Tensor:
        """Return the log-density at ``before``, u; ``noise`` is ``(u - loc) / scale``."""
        gauss = -0.5 * noise.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)
        slope = 2 * (math.log(2) - before - functional.softplus(-2 * before))
        half = self.half
        slope = slope + (half.log() if isinstance(half, Tensor) else math.log(half))
        return (gauss - slope).sum(-1)


@dataclass(frozen=True)
class NoiseSchedule(LinearSchedule):
    """Standard deviation of Gaussian noise in the action's units; see :class:`LinearSchedule`."""

    start: float | Tensor = 0.3
    end: float | Tensor = 0.1
    frames: int = 100_000
    name: ClassVar[str] = "noise"


class ContinuousPolicy(PolicyWrapper):
    """A :class:`PolicyWrapper` for actions in a box, for any environment.

    Without exploration, the action is the network's output, or the mode of its distribution. With
    exploration, it is a draw from the distribution (if there is one) plus Gaussian noise (if
    scheduled). With probability epsilon, it is a uniform random point of the box instead. All draws
    are per element of the batch; actions are clamped to the box. There is no mask: every point is
    legal (``PackingEnv`` moves it to the nearest legal placement).

    Args:
        network: Network that writes ``action [*batch, D]`` or, with ``distribution``, the arguments
            of the distribution.
        action_spec: Spec of the environment's actions, ``Bounded``; its bounds become the buffers
            ``low`` and ``high``, ``[D]``.
        noise: Schedule of the standard deviation; None adds no noise.
        distribution: Function of the network's outputs, ``low=`` and ``high=`` that builds a
            distribution, e.g. :class:`TanhGaussian`. None if the network writes the action.
        epsilon: Schedule of the share of uniform random actions.
        action_key: Key of the action.

    Raises:
        TypeError: The spec is not a box.
        ValueError: Its bounds are not finite, or differ between rows.
    """

    noise: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        network: TensorDictModuleBase,
        *,
        action_spec: TensorSpec,
        noise: NoiseSchedule | None = None,
        epsilon: EpsilonSchedule | None = None,
        distribution: Callable[..., Distribution] | None = None,
        action_key: Any = "action",
    ) -> None:
        super().__init__(network, epsilon=epsilon, action_key=action_key, mask_key=None)
        self.out_keys = [action_key]
        spec = action_spec[action_key] if isinstance(action_spec, Composite) else action_spec
        for name, bound in _bounds(spec).items():
            self.register_buffer(name, bound, persistent=False)
        self.distribution = distribution
        self.adds_noise = noise is not None
        self.noise_schedule = noise if noise is not None else NoiseSchedule(0.0, 0.0, 0)
        self.noise_schedule.add_buffers(self)

    def set_frames(self, frames: int) -> None:
        """Set both schedules to their values after ``frames`` environment frames."""
        super().set_frames(frames)
        self.noise_schedule.move(self, frames)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action ``[*batch, D]``."""
        # 1. The network's action, or a draw from its distribution.
        outputs = self.written(tensordict, self.network.out_keys)
        exploring = explores(self)
        if self.distribution is None:
            action = outputs[0]
        else:
            distribution = self.distribution(*outputs, low=self.low, high=self.high)
            action = distribution.sample() if exploring else distribution.mode
        # 2. Explore: add noise, or use a uniform point.
        if exploring and self.adds_noise:
            action = action + trailing(self.noise, action) * torch.randn_like(action)
        if exploring and self.explores:
            draw = torch.rand(action.shape[:-1], device=action.device)
            uniform = self.low + torch.rand_like(action) * (self.high - self.low)
            chosen = draw < trailing(self.epsilon, draw)
            action = torch.where(chosen[..., None], uniform, action)
        return tensordict.set(self.action_key, action.clamp(self.low, self.high))


def _bounds(spec: TensorSpec) -> dict[str, Float[Tensor, " D"]]:
    if not isinstance(spec, Bounded) or not spec.shape:
        raise TypeError(
            "ContinuousPolicy takes actions in a box, a Bounded spec [*batch, D], not "
            f"{type(spec).__name__} {list(spec.shape)}; for integer actions use PolicyWrapper"
        )
    bounds = {}
    for name in ("low", "high"):
        rows = getattr(spec.space, name).detach().reshape(-1, spec.shape[-1])
        if not bool((rows == rows[0]).all() & rows.isfinite().all()):
            raise ValueError(f"the action's bound {name} must be finite and the same in every row")
        bounds[name] = rows[0].float().clone()
    return bounds
