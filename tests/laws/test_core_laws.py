"""Laws of the core: placements of single items on random grounds, on grids up to 12 x 12."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.cases import core_laws, seeds, sides_of_grids
from tests.tiny import catalogue, cuboids
from torch import Tensor

from packing_env import reference
from packing_env.core import candidates, feasibility, transition
from packing_env.core.orientation import decode_placement
from packing_env.items import Catalogue
from packing_env.testing import KNOWN_RULES, reference_item, reference_rules
from packing_env.types import PackingParams, State

# ---------------------------------------------------------------------- random grounds


@dataclass(frozen=True)
class Ground:
    """One item and the ground it is put on.

    Attributes:
        make_items: A small catalogue; made on demand, since the shape checker draws random numbers
            and a strategy must not.
        item: Row of it.
        heights: ``[X, Y]`` float32, metres.
        params: The task, with ``stability="none"``.
    """

    make_items: Callable[[], Catalogue]
    item: int
    heights: Tensor
    params: PackingParams

    def maps(self, rule: str) -> feasibility.Maps:
        """All placements of the item."""
        return feasibility.placement_maps(
            self.heights[None],
            torch.tensor([[self.item]]),
            torch.ones(1, 1, dtype=torch.bool),
            self.items.tensors(),
            self.params.evolve(stability=rule),
        )

    @property
    def items(self) -> Catalogue:
        return self.make_items()

    @property
    def is_cuboid(self) -> bool:
        return self.items.cuboid.shape[-1] == 3


@st.composite
def grounds(draw: st.DrawFn) -> Ground:
    """Draw irregular items or cuboids, and heights that are equal often, sometimes, or never."""
    x, y = draw(sides_of_grids, label="grid")
    random = np.random.default_rng(draw(seeds, label="seed"))
    seed = int(random.integers(8))
    if draw(st.booleans(), label="cuboids"):
        cell = draw(st.sampled_from([1.0, 0.25, 0.1]))
        make = partial(cuboids, seed, (12, 12), 12, sides=(1, 6), pitch=cell)
        levels = random.integers(0, random.integers(1, 5), (x, y)).astype(np.float64)
        tolerance = 0.0
    else:
        cell = 0.01
        make = partial(catalogue, seed, (12, 12), window=draw(st.integers(1, 5)))
        levels = random.integers(0, random.integers(1, 8), (x, y)) / 2.0
        levels = levels + random.random((x, y)) * random.choice([0, 0, 1])
        tolerance = draw(st.sampled_from([None, 0.0]))
    params = PackingParams(
        container=(x * cell, y * cell, 6 * cell),
        cell=cell,
        grid_step=draw(st.integers(1, min(x, y, 3))),
        num_items=1,
        stability="none",
        contact_tol=tolerance,
        candidate_range=draw(st.sampled_from(["container", "pct"])),
    )
    heights = torch.from_numpy((levels * cell).astype(np.float32))
    return Ground(make, int(random.integers(6)), heights, params)


def some_places(legal: Tensor, count: int, random: np.random.Generator) -> np.ndarray:
    """Return flat indices; half of them are legal under "none", if any place is."""
    flat = legal.flatten().numpy()
    anywhere = random.integers(0, len(flat), count)
    good = np.flatnonzero(flat)
    return anywhere if not len(good) else np.concatenate((anywhere, random.choice(good, count)))


@core_laws
@given(grounds(), seeds)
def test_places_are_judged_as_the_reference_judges_them(ground: Ground, seed: int) -> None:
    """Rest heights and legality under every rule of all placements; the support of single ones."""
    found = {rule: ground.maps(rule) for rule in KNOWN_RULES}
    index = some_places(found["none"].legal, 4, np.random.default_rng(seed))
    place = decode_placement(torch.from_numpy(index), ground.items.num_orientations, ground.params)
    state = {"heightmap": ground.heights.expand(len(index), -1, -1)}
    item_id, items = torch.full_like(place.x, ground.item), ground.items.tensors()
    where = (place.orientation.tolist(), place.x.tolist(), place.y.tolist())
    plain = [plain_verdicts(ground, *at) for at in zip(*where, strict=True)]
    inside = found["none"].legal.flatten()[index].tolist()
    for rule, maps in found.items():
        params = ground.params.evolve(stability=rule, stability_metric=rule)
        rest = feasibility.ground(items, params).at_rest(state, item_id, place)
        legal, z = (values.flatten()[index].tolist() for values in (maps.legal, maps.z))
        assert legal == [verdicts[rule] for _, verdicts in plain]
        assert z == [float(at.z) for at, _ in plain]
        for row, (at, _) in enumerate(plain):
            if inside[row]:
                assert bool(rest.stable[row]) is legal[row]
                assert float(rest.z[row]) == z[row]
                assert float(rest.support_ratio[row]) == at.support_ratio


def plain_verdicts(
    ground: Ground, orientation: int, x: int, y: int
) -> tuple[reference.Placement, dict[str, bool]]:
    """Return the reference's result under "none", and the legality under each rule."""
    item, params = reference_item(ground.items, ground.item), ground.params
    episode = reference.Episode(
        params.grid, [item], reference_rules(params, cuboids=ground.is_cuboid)
    )
    episode.heightmap = ground.heights.numpy()
    found = episode.check(0, orientation, x, y)
    if not found.legal:
        return found, dict.fromkeys(KNOWN_RULES, False)
    bottom, com = item.bottom[orientation], item.com[orientation]
    touch = reference.touch_at(episode.heightmap, bottom, x, y, found.z, com, params.tolerance)
    return found, {rule: reference.is_stable(rule, touch) for rule in KNOWN_RULES}


# ---------------------------------------------------------------------- lists of candidates


def standing_on(ground: Ground) -> State:
    """The state of an episode of one item, on a ground that is not empty."""
    zero = torch.zeros(1, dtype=torch.int64)
    item = torch.tensor([[ground.item]])
    state = transition.begin(item, zero + 1, zero, zero, zero, ground.params)
    return state | {"heightmap": ground.heights[None].clone()}


@core_laws
@given(grounds(), seeds, st.integers(1, 12), st.booleans())
def test_a_list_holds_the_first_legal_proposals_and_counts_the_rest(
    ground: Ground, seed: int, capacity: int, fallback: bool
) -> None:
    """Proposals may be illegal, repeated, or absent."""
    random = np.random.default_rng(seed)
    maps = ground.maps("none")
    legal, z = maps.legal.flatten(), maps.z.flatten()
    promising = some_places(legal, 10, random) if random.random() < 0.7 else np.empty(0, int)
    useless = np.flatnonzero(~legal.numpy())[:3]
    proposed = np.concatenate((promising, useless, np.full(5, -1)))
    random.shuffle(proposed)
    lost = int(random.integers(0, 3))
    generator = candidates.Proposals(torch.from_numpy(proposed)[None], torch.tensor([lost]))
    params = ground.params.evolve(
        action_mode="candidate",
        candidate_generator="lowest_z",
        num_candidates=capacity,
        candidate_fallback=fallback,
    )
    scene = candidates.Scene(
        standing_on(ground),
        torch.tensor([[ground.item]]),
        torch.ones(1, 1, dtype=torch.bool),
        maps,
        ground.items.tensors(),
        params,
    )
    found = with_generator(lambda _: generator, scene)
    good = list(dict.fromkeys(int(i) for i in proposed if i >= 0 and legal[i]))
    assert int(found.overflow) == max(0, len(good) - capacity) + lost
    if not good and fallback and legal.any():
        lowest = torch.where(legal, z, torch.inf)
        good = [int((lowest == lowest.min()).int().argmax())]
    kept = good[:capacity]
    assert found.index[0].tolist() == kept + [-1] * (capacity - len(kept))
    heights = [float(z[i]) for i in kept] + [np.inf] * (capacity - len(kept))
    assert found.z[0].tolist() == heights


def with_generator(
    generator: candidates.Generator, scene: candidates.Scene
) -> candidates.Candidates:
    """Return the list that is made of a generator's proposals."""
    honest = candidates.GENERATORS["lowest_z"]
    candidates.GENERATORS["lowest_z"] = generator
    try:
        return candidates.propose(scene)
    finally:
        candidates.GENERATORS["lowest_z"] = honest
