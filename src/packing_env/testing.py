"""Checks for what others add: environments, reward terms and generators.

Each ``check_*`` returns nothing if all is well and raises :class:`CheckError`, which says what was
expected, what was found and where. The truth they compare with is :mod:`packing_env.reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import check_env_specs

from packing_env import reference
from packing_env.core import feasibility, metrics, rewards, transition
from packing_env.core.orientation import visible_items
from packing_env.core.random import choose_uniform
from packing_env.envs import PackingEnv
from packing_env.generators import Generator, Uniform, make_pool
from packing_env.generators.base import SPLITS, Request
from packing_env.items import Catalogue
from packing_env.items.cuboids import whole_cuboids
from packing_env.types import Instances, PackingParams

KNOWN_RULES = ("none", "com_hull", "center_hull", "area_corners", "area_corners_code")
"""Stability rules that the reference program has; with others, legality is not compared."""
KNOWN_TERMS = ("objective", "utilization", "item", "height", "illegal")
"""Reward terms that the reference program has; with others, rewards are not compared."""
_REWARD_TOLERANCE = 1e-6


class CheckError(AssertionError):
    """A check failed; the message says what was expected and what was found."""


def _require(good: bool | np.bool_, message: str) -> None:
    if not good:
        raise CheckError(message)


# ---------------------------------------------------------------------- the reference's view


def reference_item(catalogue: Catalogue, row: int) -> reference.Item:
    """A row of a catalogue as the reference program takes it."""
    tensors = catalogue.tensors()
    real = tensors["orientation_mask"][row].tolist()
    top, bottom = (
        [m.numpy() if there else None for m, there in zip(maps, real, strict=True)]
        for maps in (tensors["top"][row].cpu(), tensors["bottom"][row].cpu())
    )
    dx, dy, dz = tensors["extent"][row].tolist()
    return reference.Item(
        top=top,
        bottom=bottom,
        com=[(int(x), int(y)) for x, y in tensors["com"][row].tolist()],
        volume=float(tensors["volume"][row]),
        extent=(dx, dy, dz),
    )


def reference_rules(params: PackingParams) -> reference.Rules:
    """A task's constants as the reference program takes them."""
    return reference.Rules(
        height=params.height,
        cell=params.cell,
        grid_step=params.grid_step,
        num_visible=params.num_visible,
        stability=params.stability if params.stability in KNOWN_RULES else "none",
        stability_metric=(
            params.stability_metric if params.stability_metric in KNOWN_RULES else "none"
        ),
        contact_tol=params.tolerance,
        illegal_action=params.illegal_action,
        max_steps=params.step_limit,
        reward={k: v for k, v in params.reward.items() if k in KNOWN_TERMS},
        candidate_range=params.candidate_range,
    )


@dataclass(frozen=True)
class Decision:
    """One row's action in the words of the reference program (x and y in cells)."""

    slot: int
    orientation: int
    x: int
    y: int


def decode_action(env: PackingEnv, action: int, row: int) -> Decision:
    """What an index means, by plain division; out of range becomes an impossible decision.

    In ``candidate`` mode the list of candidates in ``env.state`` must be the one acted upon.
    """
    nowhere = Decision(-1, -1, -1, -1)
    if env.params.action_mode == "candidate":
        if not 0 <= action < env.params.num_candidates:
            return nowhere
        action = int(env.state["candidate"][row, action])
    xs, ys = env.params.lattice
    orientations = env.catalogue.tensors()["peak"].shape[1]
    if not 0 <= action < env.params.num_visible * orientations * xs * ys:
        return nowhere
    plane, place = divmod(action, xs * ys)
    slot, orientation = divmod(plane, orientations)
    x, y = divmod(place, ys)
    return Decision(slot, orientation, x * env.params.grid_step, y * env.params.grid_step)


class Referee:
    """Plays the reference program beside an environment, row by row, and compares.

    Heights, rest heights, masks and the done flags must agree bit for bit, rewards and metrics to
    1e-6. Call :meth:`begin` for rows that were reset, :meth:`step` after each ``env.step``.

    Args:
        env: The environment, after ``reset()``.
        mask_bits: How many random places of the mask to compare per row and step; ``None``: all.
        seed: For choosing them.
    """

    def __init__(self, env: PackingEnv, mask_bits: int | None = None, seed: int = 0) -> None:
        self.env = env
        self.mask_bits = mask_bits
        self.steps = 0
        self.orientations = int(env.catalogue.tensors()["peak"].shape[1])
        self._random = np.random.default_rng(seed)
        self._items: dict[int, reference.Item] = {}
        self.episodes: list[reference.Episode] = [
            self._episode(row) for row in range(env.batch_size.numel())
        ]

    def _episode(self, row: int) -> reference.Episode:
        state = self.env.state
        length = int(state["num_items"][row])
        ids = state["item_id"][row, :length].tolist()
        for item in set(ids) - set(self._items):
            self._items[item] = reference_item(self.env.catalogue, item)
        rules = reference_rules(self.env.params)
        return reference.Episode(self.env.params.grid, [self._items[i] for i in ids], rules)

    def begin(self, rows: Tensor, seen: TensorDictBase) -> None:
        """Start anew in the given rows (bool, any shape) and compare their first observation."""
        mask = _action_mask(self.env, seen)
        for row in rows.flatten().nonzero().flatten().tolist():
            self.episodes[row] = self._episode(row)
            if self._masks_are_maps():
                self._compare_mask(row, mask[row], None)

    def decide(self, action: Tensor) -> list[Decision]:
        """Decode a batch of actions; call it before ``env.step``, whose state it reads."""
        return [decode_action(self.env, a, row) for row, a in enumerate(action.flatten().tolist())]

    def step(self, decisions: list[Decision], seen: TensorDictBase) -> None:
        """Take the decisions in the reference program and compare ``seen``, the ``next`` entry."""
        state = dict(self.env.state.items())
        params, items = self.env.params, self.env.catalogue.tensors()
        item_id, there = visible_items(state, params.num_visible)
        maps = feasibility.placement_maps(state["heightmap"], item_id, there, items, params)
        mask = _action_mask(self.env, seen)
        for row, decision in enumerate(decisions):
            episode = self.episodes[row]
            packed = len(episode.packed)
            live = not episode.done
            reward = episode.step(
                decision.slot, decision.orientation, decision.x, decision.y, self.orientations
            )
            self._compare_row(row, seen, reward)
            if live and len(episode.packed) > packed:
                found = state["placement_z"][row, packed].item()
                self._expect(row, "rest height of the placement", float(episode.rest[-1]), found)
            if params.stability not in KNOWN_RULES:
                continue
            legal = torch.ones_like(maps.legal[row]) if episode.done else maps.legal[row]
            self._compare_mask(row, legal, maps.z[row])
            if self._masks_are_maps():
                same = torch.equal(mask[row], legal.flatten())
                _require(same, f"{self._where(row)}: action_mask is not the legality of placements")
            if params.action_mode == "candidate" and not episode.done:
                self._compare_candidates(row, mask[row], maps.legal[row])
            self.steps += 1

    def _masks_are_maps(self) -> bool:
        params = self.env.params
        return params.action_mode == "placement" and params.stability in KNOWN_RULES

    def _where(self, row: int) -> str:
        return f"row {row}, step {self.episodes[row].steps} of its episode"

    def _expect(self, row: int, name: str, expected: object, found: object) -> None:
        _require(expected == found, f"{self._where(row)}: {name}: {expected} != {found} (env)")

    def _compare_row(self, row: int, seen: TensorDictBase, reward: float) -> None:
        """Heightmap, flags, reward, metrics."""
        state, episode = self.env.state, self.episodes[row]
        heights = state["heightmap"][row].cpu().numpy()
        cells = np.argwhere(heights != episode.heightmap)
        _require(
            cells.size == 0,
            f"{self._where(row)}: heightmap differs in {len(cells)} cells, first {cells[:1]}",
        )
        self._expect(row, "terminated", episode.terminated, bool(state["terminated"][row]))
        self._expect(row, "truncated", episode.truncated, bool(state["truncated"][row]))
        self._expect(row, "illegal", episode.illegal_actions, int(state["illegal_actions"][row]))
        flat = seen.flatten(0, seen.batch_dims - 1) if seen.batch_dims > 1 else seen
        self._expect(row, "done", episode.done, bool(flat["done"][row]))
        if set(self.env.params.reward) <= set(KNOWN_TERMS):
            self._close(row, "reward", reward, float(flat["reward"][row]))
        expected = episode.metrics()
        if self.env.params.stability_metric not in KNOWN_RULES:
            del expected["stability"]
        for name, value in expected.items():
            self._close(row, name, value, float(flat["metrics", name][row]))

    def _close(self, row: int, name: str, expected: float, found: float) -> None:
        good = abs(expected - found) <= _REWARD_TOLERANCE * max(1.0, abs(expected))
        _require(good, f"{self._where(row)}: {name} is {expected:.9g}, the environment's {found}")

    def _compare_mask(self, row: int, legal: Tensor, z: Tensor | None) -> None:
        """Legality (and rest height) of all places or of some random ones."""
        episode, step = self.episodes[row], self.env.params.grid_step
        shape = (self.env.params.num_visible, self.orientations, *self.env.params.lattice)
        legal_at = legal.reshape(shape).cpu().numpy()
        z_at = None if z is None else z.cpu().numpy()
        places = np.arange(legal_at.size)
        if self.mask_bits is not None:
            places = self._random.choice(legal_at.size, self.mask_bits)
        for slot, orientation, i, j in zip(*np.unravel_index(places, shape), strict=True):
            found = episode.check(int(slot), int(orientation), int(i) * step, int(j) * step)
            where = (int(slot), int(orientation), int(i), int(j))
            expected = episode.done or found.legal
            self._expect(row, f"mask at {where}", expected, bool(legal_at[where]))
            if z_at is not None:
                self._expect(row, f"rest height at {where}", float(found.z), float(z_at[where]))

    def _compare_candidates(self, row: int, mask: Tensor, legal: Tensor) -> None:
        """Filled places hold distinct legal placements; the first is filled if any is legal."""
        candidate = self.env.state["candidate"][row]
        filled = candidate[mask].tolist()
        _require(
            torch.equal(mask, candidate >= 0) and len(set(filled)) == len(filled),
            f"{self._where(row)}: action_mask and the candidate list disagree, or one is repeated",
        )
        _require(
            bool(legal.flatten()[filled].all()), f"{self._where(row)}: a candidate is not legal"
        )
        _require(
            bool(mask[0]) or not bool(legal.any()),
            f"{self._where(row)}: the lattice has a legal placement but candidate 0 is empty",
        )


def _action_mask(env: PackingEnv, seen: TensorDictBase) -> Tensor:
    """``[B, A]``, whatever the environment's batch shape."""
    return seen["action_mask"].flatten(0, len(env.batch_size) - 1)


# ---------------------------------------------------------------------- catalogues for tests


def random_catalogue(
    seed: int = 0,
    *,
    num_items: int = 6,
    num_orientations: int = 4,
    window: int = 4,
    cell: float = 0.01,
    container: tuple[float, float, float] = (0.08, 0.08, 0.1),
) -> Catalogue:
    """Small irregular items: holes, overhangs, cavities, off-centre masses, padding orientations.

    Item 0 is a block, so that something always fits. Half of the others have heights in half cells
    (so that contacts tie), half have arbitrary heights. The maps of an item's orientations belong
    together only by its volume, which none of them falls below; no mesh stands behind them.
    """
    random = np.random.default_rng(seed)
    shape = (num_items, num_orientations, window, window)
    top = np.full(shape, -np.inf, np.float32)
    bottom = np.full(shape, np.inf, np.float32)
    size = np.zeros((num_items, num_orientations, 2), np.int64)
    com = np.zeros_like(size)
    there = np.zeros((num_items, num_orientations), bool)
    volume = np.full(num_items, np.inf)
    for item in range(num_items):
        there[item, : random.integers(1, num_orientations + 1)] = True
        for orientation in np.flatnonzero(there[item]):
            at = (item, orientation)
            w, h = size[at] = random.integers(1, window + 1, 2)
            low, high = _random_surfaces(random, (w, h), cell, rough=item % 2 == 1)
            if item == 0:
                low, high = np.zeros((w, h), np.float32), np.full((w, h), cell, np.float32)
            bottom[at][:w, :h], top[at][:w, :h] = low, high
            com[at] = random.integers(0, 64 * size[at] + 1) // (32, 1)[item % 2] * (32, 1)[item % 2]
            if item == 0:
                com[at] = 32 * size[at]
            thickness = (high.astype(np.float64) - low)[np.isfinite(low)]
            volume[item] = min(volume[item], thickness.sum() * cell**2)
    peak = np.where(there, top.max((2, 3)), np.float32(np.inf))
    extent = np.concatenate((size[:, 0] * cell, peak[:, :1]), 1).astype(np.float64)
    identity = np.broadcast_to(np.eye(3), (num_items, num_orientations, 3, 3)).copy()
    maps = [torch.from_numpy(array) for array in (top, bottom, size, there, volume)]
    return Catalogue(
        top=maps[0],
        bottom=maps[1],
        size=maps[2],
        cuboid=whole_cuboids(*maps, cell),
        peak=torch.from_numpy(peak),
        com=torch.from_numpy(com),
        volume=torch.from_numpy(volume),
        extent=torch.from_numpy(extent),
        orientation_mask=torch.from_numpy(there),
        rotation=torch.from_numpy(identity),
        offset=torch.zeros(num_items, num_orientations, 3, dtype=torch.float64),
        volume_reliable=torch.ones(num_items, dtype=torch.bool),
        never_feasible=torch.zeros(num_items, dtype=torch.bool),
        names=[f"random_{seed}_{item}" for item in range(num_items)],
        sources=[{"source": "random", "unit": "m", "scale": 1.0} for _ in range(num_items)],
        cell=cell,
        container=container,
    )


def _random_surfaces(
    random: np.random.Generator, size: tuple[int, int], cell: float, *, rough: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper surface over a window; every border row and column is touched."""
    holes = random.random(size) < 0.25
    corners = [random.integers(0, n) for n in (*size, *size)]
    holes[corners[0], 0] = holes[corners[2], -1] = False
    holes[0, corners[1]] = holes[-1, corners[3]] = False
    if rough:
        low, thick = random.random(size) * 2 * cell, random.random(size) * 3 * cell
    else:
        low = random.integers(0, 4, size) * cell / 2
        thick = random.integers(1, 6, size) * cell / 2
    low = low - low[~holes].min()
    bottom = np.where(holes, np.inf, low).astype(np.float32)
    top = np.where(holes, -np.inf, low + np.maximum(thick, cell / 8)).astype(np.float32)
    return bottom, top


def small_env(
    catalogue: Catalogue | None = None,
    num_envs: int | tuple[int, ...] = 4,
    *,
    instances: Instances | None = None,
    shell: Mapping[str, object] | None = None,
    **params: object,
) -> PackingEnv:
    """A small environment on a random catalogue, fast enough for unit tests.

    Args:
        catalogue: The items; a :func:`random_catalogue` by default.
        num_envs: Rows.
        instances: The pool; drawn uniformly by default.
        shell: Arguments of :class:`PackingEnv` (``seed``, ``autoreset``, ``draw``, ...).
        **params: Fields of :class:`PackingParams`.
    """
    catalogue = random_catalogue() if catalogue is None else catalogue
    defaults = {"container": catalogue.container, "cell": catalogue.cell, "num_items": 8}
    task = PackingParams(**{**defaults, **params})  # type: ignore[arg-type]
    if instances is None:
        floor = feasibility.legal_on_floor(catalogue.tensors(), task).any(1)
        instances = make_pool(Uniform(), catalogue, task, floor, size=32)
    return PackingEnv(task, catalogue, instances, num_envs=num_envs, **(shell or {}))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the checks


def check_env(env: PackingEnv, num_steps: int = 30, seed: int = 0) -> None:
    """Check an environment: specs, masks, the reference program, illegal actions, its state.

    Plays ``num_steps`` random legal steps beside the reference program. With a stability rule,
    reward term or action mode of your own, what the reference does not know is left out. The
    environment is reset, and left in the middle of an episode.

    Raises:
        CheckError: Names the row, the step and the difference.
    """
    _require(
        isinstance(env, PackingEnv),
        f"check_env takes a PackingEnv, not {type(env).__name__}; of a TransformedEnv pass "
        "env.base_env",
    )
    _check_episodes(env, num_steps, seed)
    _check_specs(env)
    _check_state(env)
    _check_illegal(env)


def _check_episodes(env: PackingEnv, num_steps: int, seed: int) -> None:
    """Random legal play beside the reference program."""
    generator = torch.Generator().manual_seed(seed)
    known = env.params.action_mode in ("placement", "candidate")
    root = env.reset()
    referee = Referee(env, mask_bits=64, seed=seed) if known else None
    for step in range(num_steps):
        mask = root["action_mask"]
        _require(bool(mask.any(-1).all()), f"step {step}: a row has no legal action in its mask")
        root = _act(env, root, generator)
        decisions = referee.decide(root["action"]) if known else []
        following = env.step(root)["next"]
        if referee is not None:
            referee.step(decisions, following)
        _check_metrics(following["metrics"], step)
        root = env.maybe_reset(env.step_mdp(root))
        if referee is not None:
            referee.begin(following["done"], root)


def _check_specs(env: PackingEnv) -> None:
    """Each entry is within its spec; then TorchRL's own check."""
    following = env.step(env.rand_action(env.reset()))["next"]
    for key, spec in env.full_observation_spec.items(True, True):
        value = following.get(key)
        _require(value is not None, f"the observation spec has {key!r}, the step does not emit it")
        _require(
            spec.is_in(value),
            f"{key!r} is outside its spec: {value.dtype} {tuple(value.shape)}, "
            f"{value.min().item():.6g}..{value.max().item():.6g}; the spec is {spec}",
        )
    check_env_specs(env, break_when_any_done="both")


def _act(env: PackingEnv, root: TensorDictBase, generator: torch.Generator) -> TensorDictBase:
    """A random legal action from a stream of its own, or the environment's in other modes."""
    if env.params.action_mode not in ("placement", "candidate"):
        return env.rand_action(root)
    uniform = torch.rand(env.batch_size, generator=generator, dtype=torch.float64)
    return root.set("action", choose_uniform(root["action_mask"], uniform.to(env.device)))


def _check_metrics(found: TensorDictBase, step: int) -> None:
    """``0 <= U <= C <= P <= 1`` to 1e-6, and 1e-5 at the lid."""
    chain = [found[name].double() for name in ("utilization", "compactness", "pyramidality")]
    u, c, p = chain
    good = (u >= 0) & (u <= c * (1 + 1e-5)) & (c <= p * (1 + 1e-6)) & (p <= 1 + 1e-6)
    _require(
        bool(good.all()),
        f"step {step}: utilization <= compactness <= pyramidality <= 1 is broken: "
        f"{torch.cat(chain, -1)[~good.squeeze(-1)][:1].tolist()}; "
        "does an item's volume exceed what its maps enclose?",
    )


def _check_state(env: PackingEnv) -> None:
    """A restored state goes on bit for bit."""
    root = env.rand_action(env.reset())
    env.step(root)
    saved = env.get_state()
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        seen = env.reset(saved.clone(), set_state=True)
        results.append(env.step(env.rand_action(seen))["next"].clone())
    for key, value in results[0].items(True, True):
        same = torch.equal(value, results[1].get(key))
        _require(same, f"after reset(get_state(), set_state=True) {key!r} differs from before")


def _check_illegal(env: PackingEnv) -> None:
    """An illegal action raises nothing, is counted, and does not touch the container."""
    root = env.reset()
    if env.action_spec.dtype != torch.int64 or "action" not in env.action_keys:
        return
    legal = root["action_mask"]
    action = torch.where(legal.all(-1), -1, (~legal).int().argmax(-1))
    before = env.get_state()["heightmap"]
    following = env.step(root.set("action", action))["next"]
    if env.params.illegal_action == "project":
        return
    _require(
        torch.equal(env.get_state()["heightmap"], before),
        f"illegal_action={env.params.illegal_action!r}: an illegal action changed the heightmap",
    )
    _require(
        bool((following["metrics", "illegal_actions"] == 1).all()),
        "an illegal action is not counted in ('metrics', 'illegal_actions')",
    )


def check_reward(term: rewards.Term | str) -> None:
    """Check a reward term: a function ``(before, after, legal) -> [B]`` of metrics.

    It must give one finite float per row, from that row alone, the same again when called again,
    without changing its arguments and without reading a value back to Python (an ``if`` on a
    tensor, ``.item()``, ``float(tensor)``).

    Raises:
        CheckError: Says which of these fails.
    """
    function = rewards.TERMS[term] if isinstance(term, str) else term
    before, after, legal = _transitions()
    copies = [{k: v.clone() for k, v in m.items()} for m in (before, after)]
    value = function(before, after, legal)
    _require(isinstance(value, Tensor), f"a reward term returns a tensor, not {type(value)}")
    _require(
        value.shape == legal.shape,
        f"a reward term returns one value per row, {tuple(legal.shape)}; got {tuple(value.shape)}",
    )
    _require(value.is_floating_point(), f"a reward term returns floats; got {value.dtype}")
    _require(bool(value.isfinite().all()), f"the term is not finite: {value[~value.isfinite()]}")
    _require(torch.equal(value, function(before, after, legal)), "called twice, the term differs")
    for metric, copy in zip((before, after), copies, strict=True):
        changed = [k for k in copy if not torch.equal(metric[k], copy[k])]
        _require(not changed, f"the term changed its argument {changed}; work on new tensors")
    one = torch.stack([
        function({k: v[i : i + 1] for k, v in before.items()},
                 {k: v[i : i + 1] for k, v in after.items()}, legal[i : i + 1])[0]
        for i in range(len(legal))
    ])  # fmt: skip
    _require(
        bool(torch.allclose(one, value, rtol=1e-9, atol=1e-12)),
        "a row's value depends on the other rows (a mean or a maximum over the batch?)",
    )
    try:
        function(
            {k: v.to("meta") for k, v in before.items()},
            {k: v.to("meta") for k, v in after.items()},
            legal.to("meta"),
        )
    except (RuntimeError, NotImplementedError) as error:
        raise CheckError(
            f"the term reads a value back to Python, or needs another device: {error}; use "
            "torch.where instead of `if`, and tensors on the metrics' device"
        ) from error


def _transitions() -> tuple[rewards.Metrics, rewards.Metrics, Tensor]:
    """Metrics before and after some legal and illegal decisions, all rows of all steps."""
    env = small_env(num_envs=8, illegal_action="noop")
    root, found = env.reset(), []
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        before = metrics.measure(dict(env.state.items()), env.params)
        root = _act(env, root, generator)
        if step % 3 == 2:
            root["action"] = torch.where(torch.arange(8) % 2 == 0, -1, root["action"])
        count = env.state["illegal_actions"]
        live = ~transition.is_done(dict(env.state.items()))
        root = env.step_mdp(env.step(root))
        after = metrics.measure(dict(env.state.items()), env.params)
        found.append((before, after, live & (env.state["illegal_actions"] == count)))
    before = {name: torch.cat([b[name] for b, _, _ in found]) for name in metrics.NAMES}
    after = {name: torch.cat([a[name] for _, a, _ in found]) for name in metrics.NAMES}
    return before, after, torch.cat([legal for _, _, legal in found])


def check_generator(
    generator: Generator,
    catalogue: Catalogue | None = None,
    params: PackingParams | None = None,
    num_instances: int = 64,
) -> None:
    """Check a generator: shapes, ranges, that draws repeat, and that splits differ.

    Args:
        generator: What to check.
        catalogue: The items it draws from; a :func:`random_catalogue` by default. A generator that
            brings its own cuboids draws from those.
        params: The task; a small one by default.
        num_instances: How many to ask for.

    Raises:
        CheckError: Says what is wrong, and what would be right.
    """
    catalogue = random_catalogue() if catalogue is None else catalogue
    if params is None:
        params = PackingParams(container=catalogue.container, cell=catalogue.cell, num_items=8)
    given = catalogue

    def sample(seed: int, stream: int, size: int = num_instances) -> tuple[Instances, Catalogue]:
        items = _own_cuboids(generator, params, seed, SPLITS[stream], size) or given
        playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
        request = Request(size, params.num_items, seed, stream, playable)
        return generator.sample(request, items), items

    state = torch.get_rng_state()
    made, items = sample(0, 0)
    _require(
        torch.equal(state, torch.get_rng_state()),
        "the generator drew from torch's global stream; use core.random.philox with request.seed "
        "and request.stream",
    )
    _check_instances(made, len(items.names), params.num_items)
    _require(
        generator.finite or len(made) == num_instances,
        f"{num_instances} instances were asked for, {len(made)} made; a source with an end sets "
        "finite = True",
    )
    _require(_same((made, items), sample(0, 0)), "the same request gives other instances")
    if not generator.finite:
        _require(not _same((made, items), sample(1, 0)), "another seed gives the same instances")
        _require(
            not _same((made, items), sample(0, 1)), "the test split repeats the training instances"
        )
        _require(len(sample(0, 0, 1)[0]) == 1, "one instance was asked for, another number made")
    playable = feasibility.legal_on_floor(items.tensors(), params).any(1).cpu()
    pool = make_pool(generator, items, params, playable, size=num_instances, skip_infeasible=True)
    _require(len(pool) > 0, "no instance of the generator can be started")


def _own_cuboids(
    generator: Generator, params: PackingParams, seed: int, split: str, size: int
) -> Catalogue | None:
    """The catalogue of what a generator brings, if it brings any."""
    supplied = generator.cuboids(params, seed, split, size)
    return supplied and Catalogue.from_cuboids(
        supplied.extents,
        cell=params.pitch,
        container=params.container,
        orientations="yaw",
        names=supplied.names,
        upright=supplied.upright,
        maps=params.geometry == "maps",
    )


def _same(one: tuple[Instances, Catalogue], other: tuple[Instances, Catalogue]) -> bool:
    """Whether two draws are the same rows, of catalogues whose items measure the same."""
    (a, items), (b, others) = one, other
    return (
        torch.equal(a.item_id, b.item_id)
        and torch.equal(a.num_items, b.num_items)
        and torch.equal(items.extent[a.item_id], others.extent[b.item_id])
    )


def _check_instances(made: object, num_rows: int, capacity: int) -> None:
    """Types, shapes and ranges."""
    _require(isinstance(made, Instances), f"sample() returns Instances, not {type(made).__name__}")
    assert isinstance(made, Instances)
    item_id, num_items = made.item_id, made.num_items
    for name, tensor, shape in (
        ("item_id", item_id, (len(made), capacity)),
        ("num_items", num_items, (len(made),)),
    ):
        _require(
            tensor.dtype == torch.int64 and tuple(tensor.shape) == shape,
            f"Instances.{name} must be int64 {shape}; got {tensor.dtype} {tuple(tensor.shape)}",
        )
        _require(tensor.device.type == "cpu", f"Instances.{name} must be on the CPU")
    _require(len(made) > 0, "the generator made no instance")
    _require(
        bool(((item_id >= 0) & (item_id < num_rows)).all()),
        f"Instances.item_id must lie in 0..{num_rows - 1}, also in padding; found "
        f"{int(item_id.min())}..{int(item_id.max())}",
    )
    _require(
        bool(((num_items >= 1) & (num_items <= capacity)).all()),
        f"Instances.num_items must lie in 1..{capacity}; found {num_items.unique().tolist()}",
    )
