"""Actors and critics of the ``continuous`` mode, which read the state around an action's point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.encoders.continuous import (
    NUM_FEATURES,
    Encoder,
    EncoderSize,
    View,
    centres,
    tent,
)
from agents.networks.precision import check_mode, runs_in_bf16
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import flattened, start_small
from agents.options import option_groups
from packing_env.envs import PackingEnv
from packing_env.values import Count

_FINE = 4  # features of a placement in addition to the coarse ones: rest height, ground, x, y
_SHARPNESS = 16.0
_EDGE = 0.995  # largest magnitude of a point: its inverse hyperbolic tangent is finite
_MOVE = 0.25  # largest displacement of the first point, before the tanh
_LOG_SCALE = (-5.0, -0.35)
"""Range of the log standard deviation; its upper end is the logarithm of 1 / sqrt(2). If the
Gaussian were wider, its squashed density would have its modes at the sides of the box. The action
without exploration, the tanh of the mean, would then lie in the valley between them.
"""
_REACHES = (1, 2, 4, 8)  # cells
_ILLEGAL = -1e4
"""Logit of an illegal placement."""


class Proposals(NamedTuple):
    """Placements from which a critic chooses.

    Attributes:
        action: Their points in [-1, 1]^D.
        place: Their flat indices over item, orientation, x and y.
        legal: Whether they are legal.
        log_share: Log-probability of every placement under the mean of the heads' distributions.
    """

    action: Float[Tensor, "B K D"]
    place: Int[Tensor, "B K"]
    legal: Bool[Tensor, "B K"]
    log_share: Float[Tensor, "B N"]

    def best(self, value: Float[Tensor, "B K"]) -> Int[Tensor, "B 1"]:
        """Return the index of the legal placement with the highest value."""
        return value.masked_fill(~self.legal, -torch.inf).argmax(1, keepdim=True)

    def point_of(self, number: Int[Tensor, "B 1"]) -> Float[Tensor, "B D"]:
        """Return the point of one placement per row."""
        at = number[..., None].expand(-1, -1, self.action.shape[2])
        return self.action.gather(1, at).squeeze(1)


class Proposer(TensorDictModuleBase):
    """Scores of all placements, from which placements are proposed to a critic.

    There are ``heads`` score maps over all placements. A score is bilinear in the features of the
    orientation (query) and of the cell (key; Vaswani et al., NeurIPS 2017). The features of the
    cell include the rest height. The softmax of each map is a distribution over the legal
    placements.

    Args:
        env: Sets the shapes.
        size: Sizes of the layers.
        heads: Number of score maps.
        autocast: Whether the convolutions run in bfloat16.
    """

    summarizes = False

    def __init__(self, env: PackingEnv, size: EncoderSize, *, heads: int, autocast: bool) -> None:
        super().__init__()
        self.encoder = Encoder(env, size, autocast=autocast, summary=self.summarizes)
        channels, width = size.channels, size.width
        self.in_keys: list[NestedKey] = list(self.encoder.in_keys)
        self.out_keys = ["action"]
        self.heads = heads
        xs, ys = env.params.lattice
        self.shape = (env.params.num_visible, env.mode.num_orientations, xs, ys)
        self.size = 3 if env.params.num_visible == 1 else 4
        names = ("item", "turn", "x", "y")  # these names are in checkpoints of TorchRL's losses
        for name, count in zip(names, self.shape, strict=True):
            self.register_buffer(f"at_{name}", centres(count), persistent=False)
        self.query = nn.Sequential(
            nn.Linear(NUM_FEATURES, width), nn.ReLU(), nn.Linear(width, heads * (channels + _FINE))
        )
        self.to(env.device)

    def propose(self, observed: Sequence[Tensor], count: int, *, draw: bool) -> Proposals:
        """Return ``count`` placements per row, equally many per head, distinct within a head.

        Args:
            observed: Entries of ``in_keys``, ``[B, ...]``.
            count: K. It is rounded down to a multiple of the heads and limited to the size of the
                lattice; each head proposes at least one.
            draw: Whether to draw from the distributions (by Gumbel noise: Kool et al., ICML 2019);
                otherwise the most probable placements are proposed.
        """
        score = self.scores(self.encoder(observed))
        key = score.detach()
        if draw:
            key = key - torch.empty_like(key).exponential_().log()
        most = max(1, min(count // self.heads, score.shape[-1]))
        place = key.topk(most, -1).indices.flatten(1)
        legal = score[:, 0].gather(1, place) > _ILLEGAL / 2
        share = score.log_softmax(-1).logsumexp(1) - math.log(self.heads)
        return Proposals(self.point(place), place, legal, share)

    def scores(self, view: View) -> Float[Tensor, "B K N"]:
        """Return the logits of all N placements under each head."""
        score = _SHARPNESS * self.score_maps(view)
        score = torch.where(view.legal.flatten(2)[:, :, None] > 0, score, _ILLEGAL)
        return score.transpose(1, 2).flatten(2)

    def point(self, place: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
        """Return the actions of placements: the centre of each placement's interval in the box."""
        _, orientations, xs, ys = self.shape
        plane, x = place // (xs * ys), place // ys % xs
        point = [self.at_x[x], self.at_y[place % ys], self.at_turn[plane % orientations]]
        if self.size == 4:
            point.append(self.at_item[plane // orientations])
        return torch.stack(point, -1)

    def score_maps(self, view: View) -> Float[Tensor, "B P K XsYs"]:
        """Compute the score maps: queries of the planes times keys of the placements."""
        rows, planes = view.features.shape[:2]
        xs, ys = self.shape[2:]
        # 1. Queries: one weight each for the rest height, every coarse feature, ground, x and y.
        query = self.query(view.features)
        own, query = query.split([self.heads, query.shape[-1] - self.heads], -1)
        query = query.reshape(rows, planes * self.heads, -1)
        cells, fine = query.split([query.shape[-1] - _FINE + 1, _FINE - 1], -1)
        # 2. Score the coarse cells, and repeat them to the lattice.
        coarse = (cells @ view.cells.flatten(2)).unflatten(2, view.cells.shape[2:])
        fold = self.encoder.fold
        score = coarse.repeat_interleave(fold, 2).repeat_interleave(fold, 3)[..., :xs, :ys]
        # 3. Add the terms of the lattice's points.
        grid = torch.stack((self.encoder.x, self.encoder.y)).expand(rows, -1, -1, -1)
        keys = torch.cat((view.ground, grid), 1).flatten(2)
        score = torch.baddbmm(score.flatten(2), fine, keys).unflatten(1, (planes, self.heads))
        return torch.addcmul(score, own[..., None], view.rest.flatten(2)[:, :, None])


class Actor(Proposer):
    """An actor that chooses a point of the box by scoring all placements.

    Each score map gives one point: its best legal placement. The gradient of the point is that of
    the mean position under the softmax (a spatial softmax, Levine et al., JMLR 2016, with the
    straight-through estimator of Bengio et al., 2013). The action is the first point after a small
    displacement and a tanh; a perceptron computes the displacement from all points. A plain mean
    would lie between the placements that it averages. A perceptron alone would saturate in a corner
    of the box before the critic is useful.

    Writes ``action [*batch, D]`` in (-1, 1) or, if ``stochastic``, ``loc`` and ``scale [*batch,
    D]`` of a Gaussian before the tanh.

    Args:
        env: Sets the shapes.
        size: See :class:`Proposer`.
        heads: See :class:`Proposer`.
        autocast: See :class:`Proposer`.
        stochastic: Whether to write a distribution.
    """

    summarizes = True

    def __init__(
        self,
        env: PackingEnv,
        size: EncoderSize,
        *,
        heads: int,
        autocast: bool,
        stochastic: bool = False,
    ) -> None:
        super().__init__(env, size, heads=heads, autocast=autocast)
        self.out_keys = ["loc", "scale"] if stochastic else ["action"]
        self.stochastic = stochastic
        self.hidden = nn.Linear(heads * self.size + size.width, size.width)
        self.move = nn.Linear(size.width, self.size * (2 if stochastic else 1))
        start_small(self.move.weight, self.move.bias)
        self.to(env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries of ``out_keys``."""
        batch, observed = flattened(tensordict, self.in_keys)
        # 1. The points of the score maps, and the perceptron's output for them.
        view = self.encoder(observed)
        points = self.points(view)
        features = torch.cat((points.flatten(1), view.summary), -1)
        moved = self.move(functional.relu(self.hidden(features)))
        moved, spread = moved[:, : self.size], moved[:, self.size :]
        # 2. Displace the first point, before the tanh.
        loc = torch.atanh(points[:, 0] * _EDGE) + _MOVE * torch.tanh(moved / _MOVE)
        if not self.stochastic:
            return tensordict.set("action", torch.tanh(loc).unflatten(0, batch))
        low, high = _LOG_SCALE
        scale = (low + (high - low) * torch.sigmoid(spread)).exp()
        tensordict.set("loc", loc.unflatten(0, batch))
        return tensordict.set("scale", scale.unflatten(0, batch))

    def points(self, view: View) -> Float[Tensor, "B K D"]:
        """Return each head's best legal placement, with the gradient of the softmax mean."""
        score = self.scores(view)
        weight = score.softmax(-1).unflatten(2, self.shape)
        plane, place = weight.sum((4, 5)), weight.sum((2, 3))
        soft = [place.sum(3) @ self.at_x, place.sum(2) @ self.at_y]
        soft.append(plane.sum(2) @ self.at_turn)
        if self.size == 4:
            soft.append(plane.sum(3) @ self.at_item)
        mean = torch.stack(soft, -1)
        return mean + (self.point(score.argmax(-1)) - mean).detach()


class Critic(TensorDictModuleBase):
    """The value of an action, computed from features of the state around the action's point.

    The maps of the two orientations (and items) nearest to the action's coordinate are interpolated
    linearly. The interpolated rest heights and the cells' features are averaged around the point
    within several distances (:func:`tent`). All steps have a gradient with respect to the action.

    Writes ``state_action_value [*batch, 1]``. With a readout it reads ``tau [*batch, N]`` in
    [0, 1] and writes ``quantile_value [*batch, N]``: the hidden features are multiplied by the
    readout's embedding of tau (Dabney et al., ICML 2018, Eq. 4).

    Args:
        env: Sets the shapes.
        size: Sizes of the layers.
        autocast: Whether the convolutions run in bfloat16.
        readout: Embeds quantile levels; None means one value and no quantiles.
    """

    def __init__(
        self,
        env: PackingEnv,
        size: EncoderSize,
        *,
        autocast: bool,
        readout: QuantileReadout | None = None,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(env, size, autocast=autocast)
        channels, width = size.channels, size.width
        self.readout = readout
        self.in_keys = [*self.encoder.in_keys, "action"] + ([] if readout is None else ["tau"])
        self.out_keys = ["state_action_value" if readout is None else "quantile_value"]
        xs, ys = env.params.lattice
        self.shape = (env.params.num_visible, env.mode.num_orientations, xs, ys)
        self.size = 3 if env.params.num_visible == 1 else 4
        local = len(_REACHES) * 3 + channels
        self.hidden = nn.Sequential(
            nn.Linear(local + NUM_FEATURES + width + self.size, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.out = nn.Linear(width, 1)
        self.last = None if readout is None else nn.Linear(width, width)
        # Coarse cells may extend beyond the lattice; ``share`` is the part of them that is inside.
        covered = [-(-cells // self.encoder.fold) * self.encoder.fold for cells in (xs, ys)]
        share = torch.tensor([xs / covered[0], ys / covered[1]])
        self.register_buffer("share", share, persistent=False)
        self.to(env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entry of ``out_keys``."""
        batch, entries = flattened(tensordict, self.in_keys)
        images = len(self.encoder.in_keys)
        action = entries[images].clamp(-1, 1)[:, None]
        hidden = self.hidden(self.look(self.encoder(entries[:images]), action).squeeze(1))
        if self.readout is None:
            value = self.out(hidden)
        else:
            value = self._quantiles(hidden, self.readout.embed(entries[images + 1]))
        return tensordict.set(self.out_keys[0], value.unflatten(0, batch))

    def compare(
        self, observed: Sequence[Tensor], action: Float[Tensor, "B K D"], tau: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B K"]:
        """Return each action's mean over its quantiles; ``observed`` holds the encoder's inputs."""
        assert self.readout is not None
        hidden = self.hidden(self.look(self.encoder(observed), action))
        return self._quantiles(hidden, self.readout.embed(tau)[:, None]).mean(-1)

    def _quantiles(self, hidden: Tensor, embedded: Tensor) -> Float[Tensor, "*batch N"]:
        assert self.last is not None
        hidden = hidden[..., None, :] * embedded
        return self.out(functional.relu(self.last(hidden))).squeeze(-1)

    def look(self, view: View, action: Float[Tensor, "B K D"]) -> Float[Tensor, "B K F"]:
        """Return features of the state at actions."""
        # 1. Mix the planes near the action's coordinates of orientation and item.
        items, orientations, xs, ys = self.shape
        plane = tent(action[..., 2], orientations)
        if self.size == 4:
            plane = (tent(action[..., 3], items)[..., None] * plane[:, :, None]).flatten(2)
        features = plane @ view.features
        rest, legal = (plane @ maps.flatten(2) for maps in (view.rest, view.legal))
        ground = view.ground.flatten(2).expand_as(rest)
        # 2. Average the maps around the action's point.
        fine = torch.stack((ground, rest, legal), 2).unflatten(3, (xs, ys))
        near = _around(fine, action, _REACHES)
        coarse = _around(view.cells[:, None], (action[..., :2] + 1) * self.share - 1, (1,))
        summary = view.summary[:, None].expand(-1, action.shape[1], -1)
        return torch.cat((near, coarse, features, summary, action), -1)


def _around(
    images: Float[Tensor, "B k C Xs Ys"], at: Float[Tensor, "B K D"], reaches: tuple[int, ...]
) -> Float[Tensor, "B K F"]:
    """Return means of images within several distances of each point.

    Each point has its own images (k = K), or all points share them (k = 1). ``F = len(reaches) C``.
    """
    xs, ys = images.shape[-2:]
    across = torch.stack([tent(at[..., 0], xs, reach) for reach in reaches], 2)
    along = torch.stack([tent(at[..., 1], ys, reach) for reach in reaches], 2)
    columns = (across @ images.transpose(2, 3).flatten(3)).unflatten(3, (-1, ys))
    return (columns @ along[..., None]).flatten(2)


class ContinuousActorCritic:
    """Builder of a task's networks in ``continuous`` mode; actor and critics share no layers.

    Args:
        env: Sets the shapes.
        size: See :class:`~agents.networks.encoders.continuous.EncoderSize`; each field is a
            keyword.
        heads: Number of score maps of the actor.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions, or ``"auto"`` (bf16 if the device
            supports it natively).
    """

    action_modes = ("continuous",)
    role = "continuous actor and critic"

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        size: EncoderSize = EncoderSize(),
        heads: Count = 4,
        precision: str = "auto",
    ) -> None:
        check_mode(self, env)
        self.env, self.size, self.heads = env, size, heads
        self.autocast = runs_in_bf16(precision, env.device)

    def actor(self, *, stochastic: bool = False) -> Actor:
        """Build an actor."""
        return Actor(
            self.env,
            self.size,
            heads=self.heads,
            autocast=self.autocast,
            stochastic=stochastic,
        )

    def proposer(self) -> Proposer:
        """Build a network that proposes placements."""
        return Proposer(self.env, self.size, heads=self.heads, autocast=self.autocast)

    def critic(self, readout: QuantileReadout | None = None) -> Critic:
        """Build a critic of mean returns or, with a readout, of return distributions."""
        return Critic(self.env, self.size, autocast=self.autocast, readout=readout)
