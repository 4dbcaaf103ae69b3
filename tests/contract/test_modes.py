"""Action modes beside `placement`: equal to the reference, and what each defines itself."""

import itertools

import numpy as np
import pytest
import torch
from tensordict import NestedKey, TensorDict
from tests.tiny import (
    act,
    differing,
    maps_of,
    play,
    play_beside_reference,
    state_of,
    stream,
    tiny_env,
)

from packing_env import WorkerMaps
from packing_env.core.actions import MODES
from packing_env.envs import PackingEnv
from packing_env.testing import Decision, Referee
from packing_env.types import ParameterError

OVER_PLACEMENTS = ("multi_head", "hierarchical", "continuous")


@pytest.mark.parametrize("illegal_action", ["terminate", "noop", "project"])
@pytest.mark.parametrize("action_mode", OVER_PLACEMENTS)
def test_modes_equal_the_reference(action_mode: str, illegal_action: str) -> None:
    env = tiny_env(
        5, action_mode=action_mode, illegal_action=illegal_action, num_visible=2, grid_step=2
    )
    share = 0.0 if action_mode == "continuous" else 0.2
    assert play_beside_reference(env, 8, illegal_share=share) > 0


@pytest.mark.parametrize(
    ("mode", "key", "part"),
    [
        *(("multi_head", "action", part) for part in range(4)),
        *(("hierarchical", (level, "action"), None) for level in ("manager", "worker")),
    ],
)
def test_one_head_or_level_out_of_range_makes_the_action_illegal(
    mode: str, key: NestedKey, part: int | None
) -> None:
    env = tiny_env(3, action_mode=mode, num_visible=2)
    root = act(env, env.reset(), stream())
    number = root[key][..., part] if part is not None else root[key]
    number[0] = env.mode.shape[part] if part is not None else env.full_action_spec[key].n
    number[1] = -1
    following = env.step(root)["next"]
    assert following["terminated"].flatten().tolist() == [True, True, False]
    assert following["metrics", "items_packed"].flatten().tolist() == [0, 0, 1]


# ---------------------------------------------------------------- continuous


def nearest(env: PackingEnv, legal: np.ndarray, action: list[float]) -> Decision:
    """Return the nearest placement, by a loop: by item, orientation, and distance in the plane."""
    items, turns, xs, ys = legal.shape
    x, y, turn, *item = action

    def gap(value: float, index: int, size: int) -> float:
        return abs((value + 1) * size / 2 - 0.5 - index)

    def cost(place: tuple[int, ...]) -> tuple[float, ...]:
        slot, r, i, j = place
        across, along = gap(x, i, xs), gap(y, j, ys)
        first = gap(item[0], slot, items) if item else 0
        return (first, gap(turn, r, turns), across**2 + along**2)

    places = (place for place in itertools.product(*map(range, legal.shape)) if legal[place])
    slot, r, i, j = min(places, key=cost)
    return Decision(slot, r, i * env.params.grid_step, j * env.params.grid_step)


@pytest.mark.parametrize(("num_visible", "grid_step"), [(1, 1), (3, 2)])
def test_points_are_snapped_to_the_nearest_legal_placement(
    num_visible: int, grid_step: int
) -> None:
    """Every random point gives the placement that a loop over the reference's legality finds."""
    env = tiny_env(
        3, action_mode="continuous", num_visible=num_visible, grid_step=grid_step,
        items={"grid": (6, 5), "height": 0.06},
    )  # fmt: skip
    root = env.reset()
    referee = Referee(env, mask_bits=0)
    finished = 0
    for _ in range(14):
        action = 2 * torch.rand(3, env.mode.num_components, generator=stream(finished)) - 1
        legal = [episode.mask(env.mode.num_orientations) for episode in referee.episodes.values()]
        decisions = [
            nearest(env, mask, row) for mask, row in zip(legal, action.tolist(), strict=True)
        ]
        following = env.step(root.set("action", action))["next"]
        assert not following["metrics", "illegal_actions"].any()
        referee.step(decisions, following)
        finished += int(following["done"].sum())
        root = env.maybe_reset(env.step_mdp(root))
        referee.begin(following["done"], root)
    assert finished > 2


def test_the_executed_action_is_the_centre_of_its_cell_and_stays_there() -> None:
    """Playing the executed action again gives the same placement. It is zero after a reset."""
    options = {"action_mode": "continuous", "num_visible": 2, "grid_step": 2, "num_items": 4}
    env, again = tiny_env(10, **options), tiny_env(10, **options)
    root, other = env.reset(), again.reset()
    assert not root["executed_action"].any()
    torch.manual_seed(0)
    finished = 0
    for _ in range(10):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        executed, done = step["next", "executed_action"], step["next", "done"].squeeze(-1)
        assert not torch.equal(executed, step["action"])
        assert env.action_spec.is_in(executed)
        assert torch.equal(root["executed_action"][~done], executed[~done])
        assert not root["executed_action"][done].any()
        repeated, other = again.step_and_maybe_reset(other.set("action", executed))
        assert torch.equal(repeated["next", "executed_action"], executed)
        assert not differing(state_of(env), state_of(again))
        for row in (~done).nonzero().flatten().tolist():
            last = env.state["items_packed"][row] - 1
            _, turn, x, y = env.state["placement"][row, last].tolist()
            expected = [(2 * i + 1) / n - 1 for i, n in ((x // 2, 4), (y // 2, 4), (turn, 3))]
            assert executed[row, :3].tolist() == pytest.approx(expected, abs=1e-6)
        finished += int(done.sum())
    assert finished > 5


@pytest.mark.parametrize("illegal_action", ["terminate", "noop", "project"])
def test_points_outside_the_box(illegal_action: str) -> None:
    """Where points are projected, NaN counts as 0, and a point beyond an edge as on the edge."""
    env = tiny_env(4, action_mode="continuous", illegal_action=illegal_action)
    inside = tiny_env(4, action_mode="continuous")
    action = torch.tensor(
        [[torch.nan, 0.3, 0], [0.3, torch.inf, 0], [-7, 0.3, -1.5], [0.3, 0.3, 0]]
    )
    meant = torch.tensor([[0, 0.3, 0], [0.3, 1, 0], [-1, 0.3, -1], [0.3, 0.3, 0]])
    root = env.reset()
    following = env.step(root.set("action", action))["next"]
    expected = inside.step(inside.reset().set("action", meant))["next"]
    assert following["metrics", "illegal_actions"].flatten().tolist() == [1, 1, 1, 0]
    assert following["executed_action"].isfinite().all()
    if illegal_action == "project":
        assert torch.equal(following["executed_action"], expected["executed_action"])
        assert torch.equal(state_of(env)["heightmap"], state_of(inside)["heightmap"])
        return
    assert not following["executed_action"][:3].any()
    assert not env.state["heightmap"][:3].any()
    ended = illegal_action == "terminate"
    assert following["terminated"].flatten().tolist() == [ended, ended, ended, False]


# ---------------------------------------------------------------- worker maps


@pytest.mark.parametrize("stability", ["com_hull", "none", "center_hull"])
def test_worker_maps_are_the_maps_of_the_chosen_item(stability: str) -> None:
    """The maps equal those of placement mode bit for bit, also on stored states."""
    options = {"num_visible": 3, "preview": 1, "stability": stability}
    plain = play(tiny_env((2, 3), **options), 15)
    env = tiny_env((2, 3), action_mode="hierarchical", **options)
    steps = play(env, 15)
    expected = plain["observation", "drop_height"]
    slot = steps["manager", "action"][..., None, None, None, None]
    chosen = expected.gather(3, slot.expand(*expected.shape[:3], 1, *expected.shape[4:])).squeeze(3)
    assert torch.equal(steps["manager", "action_mask"], (expected < 1).flatten(4).any(-1))
    maps = WorkerMaps(env)
    found = maps(steps.clone())["worker"]
    assert torch.equal(found["drop_height"], chosen)
    assert torch.equal(found["action_mask"], (chosen < 1).flatten(3))
    assert found["action_mask"].gather(-1, found["action"][..., None]).all()
    features = plain["observation", "orientation_features"]
    one = slot.squeeze(-1).expand(*features.shape[:3], 1, *features.shape[4:])
    assert torch.equal(found["orientation_features"], features.gather(3, one).squeeze(3))
    single = maps(steps[0, 0, 0].clone())["worker"]
    assert torch.equal(single["drop_height"], chosen[0, 0, 0])


# ---------------------------------------------------------------- what all modes share


@pytest.mark.parametrize("action_mode", ["multi_head", "hierarchical"])
def test_each_legal_placement_is_as_likely(action_mode: str) -> None:
    """All placements are equally likely, not all items or heads: a chi-square test."""
    rows = 6_000
    env = tiny_env(
        rows, action_mode=action_mode, num_visible=2, items={"grid": (4, 4), "window": 3},
        num_items=2, shell={"draw": "sequential"},
    )  # fmt: skip
    env.reset()
    state = {key: value[:1].expand(rows, *value.shape[1:]) for key, value in env.state.items()}
    state["row"] = env.state["row"]
    env.reset(TensorDict(state, [rows]), set_state=True)
    legal = maps_of(env).legal[0].flatten()
    torch.manual_seed(0)
    drawn = env.rand_action()
    place = env.mode.decode(dict(drawn.items(True, True)), state_of(env))
    index = MODES["placement"](env.params, env.mode.catalogue).encode(place)["action"]
    counts = torch.bincount(index, minlength=len(legal)).double()
    assert not counts[~legal].any()
    expected = rows / int(legal.sum())
    statistic = ((counts[legal] - expected) ** 2 / expected).sum()
    freedom = int(legal.sum()) - 1
    assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5


def test_a_listed_placement_is_encoded_as_its_index() -> None:
    env = tiny_env(4, action_mode="candidate")
    env.reset()
    state = state_of(env)
    for index, listed in enumerate((state["candidate"] >= 0).unbind(1)):
        place = env.mode.decode({"action": torch.full((4,), index)}, state)
        found = env.mode.encode(place, state)["action"]
        assert torch.equal(found, torch.where(listed, index, -1))
    with pytest.raises(ParameterError, match="state"):
        env.mode.encode(place)
