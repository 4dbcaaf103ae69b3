"""Actors and critics of the ``continuous`` mode: networks that look where an action points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.score_maps import _computes_bf16 as computes_bf16
from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_FIT = 3  # lowest and mean rest height, share of legal places
_FEATURES = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES) + _FIT
_THERE = ORIENTATION_FEATURES.index("there")
_IMAGES = 5  # ground, lowest rest height, share of legal orientations, x, y
_COARSE = 8
_FINE = 4  # rest height, ground, x, y
_REACHES = (1, 2, 4, 8)
_SHARPNESS = 16.0
_EDGE = 0.995
_MOVE = 0.25
_LOG_SCALE = (-5.0, 1.0)


def tent(
    at: Float[Tensor, "*batch"], size: int, reach: float = 1.0
) -> Float[Tensor, "*batch {size}"]:
    """Weights of ``size`` cells around a coordinate in [-1, 1]; they sum to 1.

    The centre of cell i is ``(2 i + 1) / size - 1``. With ``reach`` 1 this is linear interpolation
    between the two nearest centres (at a centre, that cell alone); a wider tent averages over more
    cells, so that the gradient with respect to the coordinate knows of places further away.
    """
    cells = torch.arange(size, device=at.device, dtype=at.dtype)
    place = ((at[..., None] + 1) * size - 1) / 2
    weight = (1 - (cells - place.clamp(0, size - 1)).abs() / reach).clamp(min=0)
    return weight / weight.sum(-1, keepdim=True)


def centres(size: int) -> Float[Tensor, " {size}"]:
    """Coordinates in [-1, 1] of the centres of ``size`` cells."""
    return (2 * torch.arange(size) + 1) / size - 1


@dataclass(frozen=True)
class View:
    """What an encoder makes of a batch of states; P = L R planes, one per item and orientation.

    Attributes:
        cells: Features of the coarse cells.
        ground: Height of the ground over H.
        rest: Rest heights over H, 1 where illegal.
        legal: 1 where a placement is legal.
        features: Of item and orientation, and how well they still fit.
        summary: Of the whole state.
    """

    cells: Float[Tensor, "B C Xf Yf"]
    ground: Float[Tensor, "B 1 Xs Ys"]
    rest: Float[Tensor, "B P Xs Ys"]
    legal: Float[Tensor, "B P Xs Ys"]
    features: Float[Tensor, "B P F"]
    summary: Float[Tensor, "B W"]


class Encoder(nn.Module):
    """A small convolutional encoder of the container, with pooled features of the items.

    The images are folded ``fold x fold`` into channels (Shi et al., CVPR 2016), so that the
    convolutions run on a coarse grid and see far; what is fine is kept beside their features.

    Reads ``heightmap``, ``item_features``, ``orientation_features`` and, where the environment
    shows them, the rest heights ``drop_height``; otherwise the ground under a placement's lower
    corner stands in for its rest height, and every placement of an orientation that is there counts
    as legal.

    Args:
        env: Sets the shapes.
        channels: Width of the convolutions.
        width: Width of the summary.
        fold: Lattice cells per coarse cell and axis.
        autocast: Whether the convolutions run in bfloat16.
    """

    x: Tensor
    y: Tensor

    def __init__(
        self, env: PackingEnv, *, channels: int, width: int, fold: int, autocast: bool
    ) -> None:
        super().__init__()
        names = ["heightmap", "item_features", "orientation_features"]
        missing = sorted(set(names) - set(env.params.observation))
        if missing:
            raise ParameterError(
                f"the network reads {missing}; add them to observation={env.params.observation}"
            )
        if "drop_height" in env.params.observation:
            names.append("drop_height")
        self.in_keys = [("observation", name) for name in names]
        self.step, self.fold, self.autocast = env.params.grid_step, fold, autocast
        self.num_items = env.params.num_visible
        xs, ys = env.params.lattice
        self.register_buffer("x", centres(xs)[:, None].expand(xs, ys), persistent=False)
        self.register_buffer("y", centres(ys)[None, :].expand(xs, ys), persistent=False)
        self.stem = nn.Conv2d(_IMAGES * fold * fold, channels, 3, padding=1)
        self.block = nn.Conv2d(channels, channels, 3, padding=1)
        self.ground = nn.Linear(_COARSE * _COARSE + channels, width)
        self.items = nn.Linear(2 * _FEATURES, width, bias=False)

    def forward(
        self,
        heightmap: Float[Tensor, "B X Y"],
        item: Float[Tensor, "B S F"],
        orientation: Float[Tensor, "B S R G"],
        drop_height: Float[Tensor, "B L R Xs Ys"] | None = None,
    ) -> View:
        """See the class."""
        item, orientation = item[:, : self.num_items], orientation[:, : self.num_items]
        there = orientation[..., _THERE].flatten(1)[..., None]
        ground = functional.max_pool2d(heightmap[:, None], self.step, self.step, ceil_mode=True)
        if drop_height is None:
            legal = there[..., None].expand(-1, -1, *ground.shape[2:])
            rest = torch.where(legal > 0, ground, 1.0)
        else:
            rest = drop_height.flatten(1, 2)
            legal = (rest < 1).to(rest.dtype)
        cells = self._convolve(ground, rest, legal)
        turns = orientation.shape[2]
        known = torch.cat((item[:, :, None].expand(-1, -1, turns, -1), orientation), -1)
        fit = (rest.amin((2, 3)), rest.mean((2, 3)), legal.mean((2, 3)))
        features = torch.cat((known.flatten(1, 2), torch.stack(fit, -1)), -1)
        shown = features * there
        pooled = torch.cat((shown.sum(1) / there.sum(1).clamp(min=1), shown.amax(1)), -1)
        coarse = functional.adaptive_avg_pool2d(heightmap[:, None], _COARSE).flatten(1)
        hidden = self.ground(torch.cat((coarse, cells.mean((2, 3))), -1)) + self.items(pooled)
        return View(cells, ground, rest, legal, features, functional.relu(hidden))

    def _convolve(self, ground: Tensor, rest: Tensor, legal: Tensor) -> Tensor:
        """Features of the coarse cells; the far sides are padded as if they were full."""
        grid = torch.stack((self.x, self.y)).expand(len(ground), -1, -1, -1)
        lowest, share = rest.amin(1, keepdim=True), legal.mean(1, keepdim=True)
        images = torch.cat((ground, lowest, share, grid), 1)
        xs, ys = images.shape[2:]
        images = functional.pad(images, (0, -ys % self.fold, 0, -xs % self.fold), value=1.0)
        with torch.autocast(ground.device.type, torch.bfloat16, enabled=self.autocast):
            hidden = functional.relu(self.stem(functional.pixel_unshuffle(images, self.fold)))
            return (hidden + functional.relu(self.block(hidden))).float()


class Actor(TensorDictModuleBase):
    """Chooses a point of the box, by looking at all placements.

    ``heads`` score maps over all placements, bilinear in what is known of the orientation and of
    the cell (as queries and keys; Vaswani et al., NeurIPS 2017), with the rest height among the
    cell's features, give as many points: the best legal placement, with the gradient of the mean
    position under the softmax (a spatial softmax, Levine et al., JMLR 2016, straight through as of
    Bengio et al., 2013). The action is the first point, moved a little by a perceptron that sees
    all of them, through a tanh. A plain mean lies between the places that it averages, and a
    perceptron alone saturates in a corner of the box before the critic is of use.

    Writes ``action [*batch, D]`` in (-1, 1); if ``stochastic``, ``loc`` and ``scale [*batch, D]``
    of a Gaussian before the tanh. With ``risk`` it also reads the risk level ``risk [*batch, 1]``.

    Args:
        env: Sets the shapes.
        heads: Number of score maps.
        stochastic: Whether to give a distribution.
        risk: Whether to read a risk level.
        **sizes: See :class:`Encoder`; the hidden layers are as wide as the summary.
    """

    def __init__(
        self,
        env: PackingEnv,
        *,
        heads: int,
        stochastic: bool = False,
        risk: bool = False,
        **sizes: int,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(env, **sizes)
        channels, width = sizes["channels"], sizes["width"]
        self.in_keys = self.encoder.in_keys + (["risk"] if risk else [])
        self.out_keys = ["loc", "scale"] if stochastic else ["action"]
        self.heads, self.stochastic = heads, stochastic
        xs, ys = env.params.lattice
        self.shape = (env.params.num_visible, env.mode.num_orientations, xs, ys)
        self.size = 3 if env.params.num_visible == 1 else 4
        for name, count in zip(("item", "turn", "x", "y"), self.shape, strict=True):
            self.register_buffer(f"at_{name}", centres(count), persistent=False)
        self.query = nn.Sequential(
            nn.Linear(_FEATURES, width), nn.ReLU(), nn.Linear(width, heads * (channels + _FINE))
        )
        self.hidden = nn.Linear(heads * self.size + width + int(risk), width)
        self.move = nn.Linear(width, self.size * (2 if stochastic else 1))
        nn.init.normal_(self.move.weight, std=1e-2)
        nn.init.zeros_(self.move.bias)
        self.to(env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries of ``out_keys``."""
        seen = [tensordict.get(key) for key in self.in_keys]
        batch = seen[0].shape[:-2]
        found = self.act(*(entry.flatten(0, len(batch) - 1) for entry in seen))
        for key, value in zip(self.out_keys, found, strict=True):
            tensordict.set(key, value.unflatten(0, batch))
        return tensordict

    def act(self, *seen: Tensor) -> tuple[Tensor, ...]:
        """The entries of ``out_keys``, ``[B, D]``, from those of ``in_keys``."""
        images = len(self.encoder.in_keys)
        view = self.encoder(*seen[:images])
        points = self.points(view)
        known = torch.cat((points.flatten(1), view.summary, *seen[images:]), -1)
        moved = self.move(functional.relu(self.hidden(known)))
        moved, spread = moved[:, : self.size], moved[:, self.size :]
        loc = torch.atanh(points[:, 0] * _EDGE) + _MOVE * torch.tanh(moved / _MOVE)
        if not self.stochastic:
            return (torch.tanh(loc),)
        low, high = _LOG_SCALE
        return loc, (low + (high - low) * torch.sigmoid(spread)).exp()

    def points(self, view: View) -> Float[Tensor, "B K D"]:
        """Each head's best legal placement; the gradient is that of the mean under its softmax."""
        score = _SHARPNESS * self.scores(view)
        score = torch.where(view.legal.flatten(2)[:, :, None] > 0, score, -1e4)
        score = score.transpose(1, 2).flatten(2)
        weight = score.softmax(-1).unflatten(2, self.shape)
        plane, place = weight.sum((4, 5)), weight.sum((2, 3))
        soft = [place.sum(3) @ self.at_x, place.sum(2) @ self.at_y, plane.sum(2) @ self.at_turn]
        _, turns, xs, ys = self.shape
        best = score.argmax(-1)
        turn, x = best // (xs * ys), best // ys % xs
        hard = [self.at_x[x], self.at_y[best % ys], self.at_turn[turn % turns]]
        if self.size == 4:
            soft.append(plane.sum(3) @ self.at_item)
            hard.append(self.at_item[turn // turns])
        mean = torch.stack(soft, -1)
        return mean + (torch.stack(hard, -1) - mean).detach()

    def scores(self, view: View) -> Float[Tensor, "B P K XsYs"]:
        """Score maps: queries of the planes times keys of the places."""
        rows, planes = view.features.shape[:2]
        xs, ys = self.shape[2:]
        query = self.query(view.features)
        own, query = query.split([self.heads, query.shape[-1] - self.heads], -1)
        query = query.reshape(rows, planes * self.heads, -1)
        cells, fine = query.split([query.shape[-1] - _FINE + 1, _FINE - 1], -1)
        coarse = (cells @ view.cells.flatten(2)).unflatten(2, view.cells.shape[2:])
        fold = self.encoder.fold
        score = coarse.repeat_interleave(fold, 2).repeat_interleave(fold, 3)[..., :xs, :ys]
        grid = torch.stack((self.encoder.x, self.encoder.y)).expand(rows, -1, -1, -1)
        keys = torch.cat((view.ground, grid), 1).flatten(2)
        score = torch.baddbmm(score.flatten(2), fine, keys).unflatten(1, (planes, self.heads))
        return torch.addcmul(score, own[..., None], view.rest.flatten(2)[:, :, None])


class Critic(TensorDictModuleBase):
    """The value of an action: what the state looks like where the action points.

    Orientations (and items) near the action's coordinate are mixed, linearly between the two
    nearest; the rest heights of the mixture and the cells' features are averaged around its place
    within several distances (:func:`tent`). All of it has a gradient with respect to the action.

    Writes ``state_action_value [*batch, 1]``. With ``quantiles`` it reads ``tau [*batch, N]`` in
    (0, 1) and writes ``quantile_value [*batch, N]``: the features are multiplied by an embedding
    of tau in cosines (Dabney et al., ICML 2018, Eq. 4).

    Args:
        env: Sets the shapes.
        cosines: Number of cosines; 0: one value, no quantiles.
        **sizes: See :class:`Encoder`; the hidden layers are as wide as the summary.
    """

    def __init__(self, env: PackingEnv, *, cosines: int = 0, **sizes: int) -> None:
        super().__init__()
        self.encoder = Encoder(env, **sizes)
        channels, width = sizes["channels"], sizes["width"]
        self.in_keys = [*self.encoder.in_keys, "action"] + (["tau"] if cosines else [])
        self.out_keys = ["quantile_value" if cosines else "state_action_value"]
        xs, ys = env.params.lattice
        self.shape = (env.params.num_visible, env.mode.num_orientations, xs, ys)
        self.size = 3 if env.params.num_visible == 1 else 4
        local = len(_REACHES) * 3 + channels
        self.hidden = nn.Sequential(
            nn.Linear(local + _FEATURES + width + self.size, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.out = nn.Linear(width, 1)
        if cosines:
            angles = torch.pi * torch.arange(cosines)
            self.register_buffer("angles", angles, persistent=False)
            self.tau = nn.Linear(cosines, width)
            self.after = nn.Linear(width, width)
        self.cosines = cosines
        self.to(env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entry of ``out_keys``."""
        seen = [tensordict.get(key) for key in self.in_keys]
        batch = seen[0].shape[:-2]
        value = self.value(*(entry.flatten(0, len(batch) - 1) for entry in seen))
        return tensordict.set(self.out_keys[0], value.unflatten(0, batch))

    def value(self, *seen: Tensor) -> Tensor:
        """``[B, 1]`` or ``[B, N]``, from the entries of ``in_keys``."""
        images = len(self.encoder.in_keys)
        action = seen[images].clamp(-1, 1)
        hidden = self.hidden(self.look(self.encoder(*seen[:images]), action))
        if not self.cosines:
            return self.out(hidden)
        wave = torch.cos(seen[images + 1][..., None] * self.angles)
        hidden = hidden[:, None] * functional.relu(self.tau(wave))
        return self.out(functional.relu(self.after(hidden))).squeeze(-1)

    def look(self, view: View, action: Float[Tensor, "B D"]) -> Float[Tensor, "B F"]:
        """Features of the state at the action."""
        items, turns, xs, ys = self.shape
        plane = tent(action[:, 2], turns)
        if self.size == 4:
            plane = (tent(action[:, 3], items)[:, :, None] * plane[:, None]).flatten(1)
        features = torch.linalg.vecdot(plane[..., None], view.features, dim=1)
        rest, legal = (
            (plane[:, None] @ maps.flatten(2)).view(-1, 1, xs, ys)
            for maps in (view.rest, view.legal)
        )
        fine = _around(torch.cat((view.ground, rest, legal), 1), action, _REACHES)
        covered = [cells * self.encoder.fold for cells in view.cells.shape[2:]]
        share = action.new_tensor([xs / covered[0], ys / covered[1]])
        coarse = _around(view.cells, (action[:, :2] + 1) * share - 1, (1,))
        return torch.cat((fine, coarse, features, view.summary, action), -1)


def _around(
    images: Float[Tensor, "B C Xs Ys"], at: Float[Tensor, "B D"], reaches: tuple[int, ...]
) -> Float[Tensor, "B F"]:
    """Means of images around places, within several distances; F = len(reaches) C."""
    xs, ys = images.shape[2:]
    across = torch.stack([tent(at[:, 0], xs, reach) for reach in reaches], 1)
    along = torch.stack([tent(at[:, 1], ys, reach) for reach in reaches], 1)
    columns = (across @ images.transpose(1, 2).flatten(2)).unflatten(2, (-1, ys))
    return (columns @ along[..., None]).flatten(1)


class ActorCritic:
    """Makes the networks of one task in the ``continuous`` mode; actor and critics share nothing.

    Args:
        env: Sets the shapes.
        channels: Width of the convolutions.
        width: Width of the hidden layers.
        heads: Score maps of the actor.
        fold: Lattice cells per coarse cell and axis; the convolutions run on coarse cells.
        precision: ``"fp32"``, ``"bf16"`` for the convolutions (all else is float32 either way), or
            ``"auto"``: bf16 where the device computes in it.
    """

    action_modes = ("continuous",)

    def __init__(
        self,
        env: PackingEnv,
        *,
        channels: int = 32,
        width: int = 128,
        heads: int = 4,
        fold: int = 4,
        precision: str = "auto",
    ) -> None:
        if env.params.action_mode not in self.action_modes:
            raise ParameterError(
                f"ActorCritic acts in action_mode='continuous', not {env.params.action_mode!r}"
            )
        if precision not in ("fp32", "bf16", "auto"):
            raise ParameterError(f"precision={precision!r} must be fp32, bf16 or auto")
        self.env, self.heads = env, heads
        automatic = precision == "auto" and computes_bf16(env.device)
        autocast = precision == "bf16" or automatic
        self.sizes = {"channels": channels, "width": width, "fold": fold}
        self.sizes["autocast"] = autocast

    def actor(self, *, stochastic: bool = False, risk: bool = False) -> Actor:
        """An actor; see :class:`Actor`."""
        return Actor(self.env, heads=self.heads, stochastic=stochastic, risk=risk, **self.sizes)

    def critic(self, *, cosines: int = 0) -> Critic:
        """A critic; see :class:`Critic`."""
        return Critic(self.env, cosines=cosines, **self.sizes)
