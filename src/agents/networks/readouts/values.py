"""Readouts of values and of categorical distributions, and the networks that use one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from agents.networks.readouts.noisy import NoisyLinear
from agents.options import option_groups
from packing_env.core import rewards
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError
from packing_env.values import NonNegative, Option, check

_MIXED = 4
_OWN = 4096  # largest number of actions for which each action has its own logits


class ValueReadout(nn.Module):
    """One value per action: ``Q = V + A``.

    A readout defines the number and meaning of the outputs of a network's last layers. There are
    ``V`` values per group of actions (a map of placements, a list of candidates) and ``S`` scores
    per action. The scores are centred over the group's legal actions. These are the two streams of
    Wang et al., ICML 2016.

    Args:
        width: Number of hidden features that :meth:`gain` may scale; unused here.

    Attributes:
        num_values: Number of values per group, V.
        num_scores: Number of scores per action, S.
        is_additive: Whether only the sums of values and scores matter; V then equals S.
        in_keys: Entries that :meth:`gain` reads in addition to the observations.
    """

    num_values = 1
    num_scores = 1
    is_additive = True
    in_keys: Sequence[Any] = ()

    def __init__(self, width: int) -> None:
        super().__init__()

    def linear(
        self, inputs: int, outputs: int, *, bias: bool = True, small: bool = False
    ) -> nn.Module:
        """Build a layer between trunk and streams; if ``small``, its outputs start near 0."""
        layer = nn.Linear(inputs, outputs, bias=bias)
        if small:
            start_small(layer.weight, layer.bias)
        return layer

    def gain(self, tensordict: TensorDictBase) -> Float[Tensor, "B 1 D"] | None:
        """Return the factors of the hidden features for :meth:`mean`; None means no scaling."""
        return None

    def mean(
        self, value: Float[Tensor, "*batch V"], score: Float[Tensor, "*batch S A"]
    ) -> Float[Tensor, "*batch A"]:
        """Return the values by which actions are chosen."""
        return value + score.squeeze(-2)


@dataclass(frozen=True)
class Distribution:
    """Return distributions on fixed atoms, and the noise of the layers that produce them.

    Attributes:
        v_min: Lowest return of the support; lower returns count as this one. If None,
            :meth:`fitted` chooses it.
        v_max: Highest return of the support; higher returns count as this one. If None,
            :meth:`fitted` chooses it.
        num_atoms: Atoms from ``v_min`` to ``v_max``, equally spaced.
        mixture: Number of distributions that the placements of a map mix; see
            :class:`CategoricalReadout`. With None, every action has its own logits. With
            ``"auto"``, :meth:`fitted` chooses.
        noisy: Whether the layers after the trunk carry noise (:class:`NoisyLinear`) and explore.
        sigma: Initial scale of that noise.
    """

    v_min: float | None = -1.0
    v_max: float | None = 1.5
    num_atoms: Annotated[int, Option(at_least=2)] = 51
    mixture: int | str | None = None
    noisy: bool = True
    sigma: NonNegative = 0.5

    def __post_init__(self) -> None:
        check(self)
        low, high = self.v_min, self.v_max
        if low is not None and high is not None and not low < high:
            raise ParameterError(f"v_min={low} must be less than v_max={high}")
        mixture = self.mixture
        if not (mixture in (None, "auto") or (isinstance(mixture, int) and mixture > 1)):
            raise ParameterError(f"mixture={mixture!r} must be at least 2, auto or null")

    def fitted(self, env: PackingEnv) -> Distribution:
        """Return a copy in which values chosen for a task replace None and "auto".

        The support extends from the smallest to the largest return that the task's reward can give.
        With ``mixture="auto"``, placements mix distributions if there are more than :data:`_OWN`
        actions.

        Raises:
            ParameterError: The range of a term of the reward is not known.
        """
        low, high = self.v_min, self.v_max
        if low is None or high is None:
            bounds = rewards.return_bounds(env.params.reward, env.params.num_items)
            low, high = (bounds[k] if end is None else end for k, end in enumerate((low, high)))
        mixture = self.mixture
        if mixture == "auto":
            mixture = _MIXED if env.mode.mask_spaces["action_mask"].size > _OWN else None
        return replace(self, v_min=low, v_max=high, mixture=mixture)


class CategoricalReadout(ValueReadout):
    """A return distribution per action on fixed atoms, and its expectation.

    Bellemare et al., ICML 2017 (C51). Without ``mixture``, every action has its own logits, the sum
    of the two streams, as in Rainbow (Hessel et al., AAAI 2018). For 24 maps of 1,024 placements
    that is a million logits per state.

    With ``mixture = C``, each map has C distributions, and each placement mixes them: ``p(z |
    placement) = sum over c of w_c(placement) p_c(z | map)``, where w is a softmax of C scores (a
    mixture of softmaxes: Yang et al., ICLR 2018). The expectation is ``sum over c of w_c E_c``,
    with ``E_c`` the mean of the c-th distribution.

    Args:
        width: See :class:`ValueReadout`.
        distribution: Atoms, mixture and noise; each field is a keyword.
    """

    support: Tensor

    @option_groups
    def __init__(self, width: int, *, distribution: Distribution = Distribution()) -> None:
        super().__init__(width)
        self.noisy, self.sigma = distribution.noisy, distribution.sigma
        low, high, mixture = distribution.v_min, distribution.v_max, distribution.mixture
        if low is None or high is None or isinstance(mixture, str):
            raise ParameterError(f"{distribution} is not fitted to a task; see Distribution.fitted")
        self.mixture = mixture
        num_atoms = distribution.num_atoms
        self.is_additive = mixture is None
        self.num_scores = num_atoms if mixture is None else mixture
        self.num_values = num_atoms if mixture is None else mixture * num_atoms
        support = torch.linspace(low, high, num_atoms)
        self.register_buffer("support", support, persistent=False)
        if mixture is not None:
            # Equal distributions would stay equal, so they start tilted, from low to high returns.
            tilt = torch.linspace(-2, 2, mixture)[:, None] * torch.linspace(-1, 1, num_atoms)
            self.register_buffer("tilt", tilt, persistent=False)

    def linear(
        self, inputs: int, outputs: int, *, bias: bool = True, small: bool = False
    ) -> nn.Module:
        """Build a noisy layer, or a plain one if ``noisy`` is False."""
        if not self.noisy:
            return super().linear(inputs, outputs, bias=bias, small=small)
        layer = NoisyLinear(inputs, outputs, bias=bias, sigma=self.sigma)
        if small:
            start_small(layer.weight_mu, layer.bias_mu)
        return layer

    def log_probs(
        self, value: Float[Tensor, "*batch V"], score: Float[Tensor, "*batch S A"]
    ) -> Float[Tensor, "*batch atoms A"]:
        """Return the log-probabilities of the atoms."""
        if self.mixture is None:
            return torch.log_softmax(value[..., None] + score, -2)
        share = torch.log_softmax(score, -2)
        parts = self._parts(value).log_softmax(-1)
        return torch.logsumexp(parts[..., None] + share[..., None, :], -3)

    def mean(
        self, value: Float[Tensor, "*batch V"], score: Float[Tensor, "*batch S A"]
    ) -> Float[Tensor, "*batch A"]:
        """Return the expected returns."""
        if self.mixture is None:
            chance = torch.softmax(value[..., None] + score, -2)
            return torch.einsum("...za,z->...a", chance, self.support)
        level = self._parts(value).softmax(-1) @ self.support
        return torch.linalg.vecdot(torch.softmax(score, -2), level[..., None], dim=-2)

    def _parts(self, value: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch C atoms"]:
        return value.unflatten(-1, (self.mixture, -1)) + self.tilt


class ActionNetwork(TensorDictModuleBase):
    """Base of networks with two streams and a readout, for all actions or one per row.

    Reads :attr:`in_keys`, whose first key is ``("observation", "heightmap")``. Writes
    ``action_value [*batch, A]`` float32.

    Args:
        in_keys: Entries that :meth:`streams` receives.
        readout: Function that builds the readout from the number of hidden features that it may
            scale.
        width: Number of hidden features that the readout may scale.
    """

    role = "action values"
    readout: Any  # a ValueReadout; some methods need one of its subclasses

    def __init__(
        self, in_keys: Sequence[Any], readout: Callable[[int], ValueReadout], width: int
    ) -> None:
        super().__init__()
        self.readout = readout(width)
        self._read = list(in_keys)
        self.in_keys = [*in_keys, *self.readout.in_keys]
        self.out_keys = ["action_value"]

    @abstractmethod
    def streams(
        self, observed: Sequence[Tensor], gain: Float[Tensor, "B 1 D"] | None
    ) -> tuple[Float[Tensor, "B P V"], Float[Tensor, "B P S A"]]:
        """Return values and scores of all actions, in P groups."""

    @abstractmethod
    def streams_of(
        self,
        observed: Sequence[Tensor],
        action: Int[Tensor, " B"],
        gain: Float[Tensor, "B N D"] | None,
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B N S 1"]]:
        """Return values and scores of one action per row, for each of N gains."""

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``action_value``, for any leading axes."""
        batch, observed = flattened(tensordict, self._read)
        value, score = self.streams(observed, self.readout.gain(tensordict))
        mean = self.readout.mean(value, score).flatten(1)
        return tensordict.set("action_value", mean.unflatten(0, batch))

    def value_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return ``action_value`` of one action per row."""
        value, score = self._streams_of(tensordict, action, self.readout.gain(tensordict))
        return self.readout.mean(value, score).flatten()

    def log_probs_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"]
    ) -> Float[Tensor, "B atoms"]:
        """Return the atoms' log-probabilities of one action per row (categorical readouts)."""
        value, score = self._streams_of(tensordict, action, None)
        return self.readout.log_probs(value, score).flatten(1)

    def quantiles_of(
        self, tensordict: TensorDictBase, action: Int[Tensor, " B"], tau: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B N"]:
        """Return the quantiles of one action per row (quantile readouts)."""
        value, score = self._streams_of(tensordict, action, self.readout.embed(tau))
        return self.readout.mean(value, score).squeeze(-1)

    @property
    def support(self) -> Float[Tensor, " atoms"]:
        """The atoms of a :class:`CategoricalReadout`."""
        return self.readout.support

    def _streams_of(
        self, tensordict: TensorDictBase, action: Tensor, gain: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return self.streams_of([tensordict.get(key) for key in self._read], action, gain)


def flattened(tensordict: TensorDictBase, keys: Sequence[Any]) -> tuple[torch.Size, list[Tensor]]:
    """Return the leading axes (all but two of the first entry), and the flattened entries."""
    observed = [tensordict.get(key) for key in keys]
    batch = observed[0].shape[:-2]
    return batch, [entry.flatten(0, len(batch) - 1) for entry in observed]


def scaled(hidden: Tensor, gain: Tensor | None) -> Tensor:
    """Multiply hidden features by their gains, if there are any."""
    return hidden if gain is None else hidden * gain


def start_small(weight: Tensor, bias: Tensor | None, std: float = 1e-2) -> None:
    """Initialize a layer so that its outputs are close to 0."""
    nn.init.normal_(weight, std=std)
    if bias is not None:
        nn.init.zeros_(bias)
