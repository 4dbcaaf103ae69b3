"""`Finalists`: simulates the placements that a policy chooses, and plays the first that stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.heuristics.base import OwnState
from agents.options import option_groups
from agents.search.policy import Base, build_base
from packing_env import PackingEnv
from packing_env.core.orientation import Placement, decode_placement
from packing_env.core.transition import is_done
from packing_env.physics import PhysicsSettings, Pile, read_settings
from packing_env.plan import Packing, read_state
from packing_env.types import ParameterError, State
from packing_env.values import Count, Positive, Whole, check

_GIVE_UP = -1
"""An action out of range: it ends the episode."""
_NEEDED = {"action_mode": "placement", "geometry": "maps", "illegal_action": "terminate"}


@dataclass(frozen=True)
class Attempts:
    """Which placements are simulated, and when a placement is refused.

    Attributes:
        tries: Largest number of placements that are simulated for an item.
        trials: How many times a placement must stand, each time with another random velocity.
        apart: After a placement has failed, placements of the same orientation are masked if they
            are at most this many lattice steps away along x and y.
        limit: Share of the motion that the physics settings allow. A placement that moves an item
            farther is refused, so a smaller limit is safer, and packs less.
    """

    tries: Count = 16
    trials: Count = 2
    apart: Whole = 3
    limit: Positive = 1.0

    def __post_init__(self) -> None:
        check(self)


class Finalists(TensorDictModuleBase):
    """A policy that simulates the choices of another policy in MuJoCo before it plays them.

    Each row has a simulated pile. The base policy chooses a placement, and the item is placed on
    the pile. If any item then moves, the new item is taken out again, the placements nearby are
    masked, and the base policy chooses again. If no choice stands, the episode ends without the
    item.

    The simulation contains only the items that were placed. The policy acts only in the environment
    for which it was built, from the first decision of an episode; :meth:`bound_to` builds it for
    another environment. It reads from the device and simulates row by row.

    Args:
        env: The environment, with ``action_mode="placement"``, ``geometry="maps"`` and
            ``illegal_action="terminate"``.
        base: The base policy.
        attempts: See :class:`Attempts`; each field is a keyword.
        settings: Settings of the simulation; None means the defaults.

    Raises:
        ParameterError: The environment has another action mode, geometry or ``illegal_action``.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        base: Base,
        *,
        attempts: Attempts = Attempts(),
        settings: PhysicsSettings | None = None,
    ) -> None:
        super().__init__()
        for option, needed in _NEEDED.items():
            if getattr(env.params, option) != needed:
                raise ParameterError(
                    f"{option}={getattr(env.params, option)!r}: placements are simulated only "
                    f"with {option}={needed!r}"
                )
        self.attempts = attempts
        self.settings = read_settings() if settings is None else settings
        self.base = build_base(base, env)
        self._env, self._base = env, base
        self._state = OwnState(lambda: dict(env.state.items()))
        self._piles: dict[int, tuple[Packing, Pile]] = {}
        self.in_keys = [*dict.fromkeys((*self.base.in_keys, "action_mask"))]
        self.out_keys = ["action"]

    def bound_to(self, env: PackingEnv) -> Finalists:
        """Return the same policy for another environment."""
        return Finalists(env, self._base, attempts=self.attempts, settings=self.settings)

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write, for every row, the first choice that stands; -1 if none does."""
        env = self._env
        state: State = {key: value.cpu() for key, value in self._state().items()}
        mask = tensordict["action_mask"].clone()
        rows = mask.view(-1, mask.shape[-1])
        action = torch.full(rows.shape[:1], _GIVE_UP, device=rows.device)
        offered = tensordict.copy().set("action_mask", mask)
        # 1. A new episode starts with an empty pile.
        undecided = (~is_done(state)).nonzero()[:, 0].tolist()
        for b in undecided:
            if not state["items_packed"][b]:
                self._piles[b] = self._empty_pile(state, b)
            elif b not in self._piles:
                raise ParameterError(
                    f"row {b}: Finalists must play an episode from its first decision; reset the "
                    "environment"
                )
        # 2. Simulate the base's choices. A row whose choice fails gets another one, elsewhere.
        for _ in range(self.attempts.tries):
            if not undecided:
                break
            chosen = self.base(offered)["action"].reshape(-1)
            turns = env.catalogue.num_orientations
            placement = decode_placement(chosen.cpu(), turns, env.params)
            failed = [b for b in undecided if not self._place(state, placement, b)]
            stands = [b for b in undecided if b not in failed]
            action[stands] = chosen[stands]
            undecided = [b for b in failed if self._leave(rows[b], placement, b)]
        return tensordict.set("action", action.view(mask.shape[:-1]))

    def _empty_pile(self, state: State, b: int) -> tuple[Packing, Pile]:
        """Return the items of an episode, in the order of the instance, and their empty pile."""
        count = int(state["num_items"][b])
        row = {key: value[b] for key, value in state.items()}
        unplaced = torch.zeros_like(row["placement"])
        unplaced[:, 0] = torch.arange(len(unplaced))
        row |= {"placement": unplaced, "items_packed": torch.tensor(count)}
        items = read_state(row, self._env.catalogue, self._env.params)
        settings = replace(
            self.settings,
            moved_cells=self.attempts.limit * self.settings.moved_cells,
            moved_degrees=self.attempts.limit * self.settings.moved_degrees,
        )
        return items, Pile(items, settings, self.attempts.trials)

    def _place(self, state: State, placement: Placement, b: int) -> bool:
        """Place the item of row ``b`` on its pile if it stands; return whether it does."""
        items, pile = self._piles[b]
        item = items.items[int(state["queue"][b, placement.slot[b]])]
        r, x, y = (int(each[b]) for each in (placement.orientation, placement.x, placement.y))
        # The item rests on the heightmap; the pile lowers it further, until it touches a solid.
        catalogue, pitch = self._env.catalogue, self._env.params.pitch
        w, h = catalogue.size[item.item_id, r].tolist()
        bottom = catalogue.bottom[item.item_id, r, :w, :h].cpu()
        z = float((state["heightmap"][b, x : x + w, y : y + h] - bottom).max())
        rotation, offset = (
            each[item.item_id, r].cpu().numpy() for each in (catalogue.rotation, catalogue.offset)
        )
        corner = np.array([x * pitch, y * pitch, z])
        return pile.place(replace(item, rotation=rotation, translation=corner + offset))

    def _leave(self, legal: Bool[Tensor, " A"], placement: Placement, b: int) -> bool:
        """Mask the placements near a failed one; return whether others are left."""
        params, apart = self._env.params, self.attempts.apart
        planes = legal.view(params.num_visible, -1, *params.lattice)
        x, y = (int(each[b]) // params.grid_step for each in (placement.x, placement.y))
        rest = planes.clone()
        near = rest[placement.slot[b], placement.orientation[b]]
        near[max(0, x - apart) : x + apart + 1, max(0, y - apart) : y + apart + 1] = False
        if not rest.any():
            return False  # the mask stays as it is, because policies need a legal action
        planes.copy_(rest)
        return True
