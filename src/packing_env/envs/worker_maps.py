"""`WorkerMaps`: the maps of the item that a manager picked, and of no other."""

from __future__ import annotations

from jaxtyping import Bool, Float
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env.core import feasibility, observation, packed
from packing_env.core.actions.hierarchical import record_spaces
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.types import Catalogue, PackingParams, ParameterError, State

_HEIGHTS, _ITEM_ID = ("observation", "heights"), ("observation", "item_id")
_MANAGER = ("manager", "action")


class WorkerMaps(TensorDictModuleBase):
    """Module that maps the container and the chosen item to the worker's observations.

    In ``hierarchical`` mode it stands between manager and worker, in a policy and in an update, on
    stored states as on new ones: any leading axes, no host read. Legality, the stability rule
    included, is that of the environment bit for bit, because ``heights`` is in metres.

    Reads ``("observation", "heights")``, ``("observation", "item_id")``, ``("manager", "action")``
    (an index out of range counts as the nearest in range), and of tasks with constraints the record
    of the packed items (:mod:`packing_env.core.packed`). Writes under ``"worker"``:

    | entry | shape | meaning |
    |---|---|---|
    | ``drop_height`` | ``[*batch, R, Xs, Ys]`` | rest height over H in [0, 1]; 1 where illegal |
    | ``action_mask`` | ``[*batch, R * Xs * Ys]`` | True = legal; all True if nothing is |
    | ``orientation_features`` | ``[*batch, R, G]`` | ``observation.ORIENTATION_FEATURES`` |

    Args:
        env: The environment, in ``hierarchical`` mode; its task and items are kept.
    """

    def __init__(self, env: PackingEnv) -> None:
        super().__init__()
        if env.params.action_mode != "hierarchical":
            raise ParameterError(
                f"WorkerMaps serves action_mode='hierarchical', not {env.params.action_mode!r}"
            )
        if "item_id" not in env.params.observation:
            raise ParameterError(
                f"WorkerMaps reads item_id; add it to observation={env.params.observation}"
            )
        self.params: PackingParams = env.params
        self.catalogue: Catalogue = env.catalogue.tensors()
        size = (len(self.catalogue["volume"]), env.mode.num_orientations)
        self._record = tuple(record_spaces(*size, env.params))
        recorded = [("observation", name) for name in self._record]
        self.in_keys = [_HEIGHTS, _ITEM_ID, _MANAGER, *recorded]
        names = ("drop_height", "action_mask", "orientation_features")
        self.out_keys = [("worker", name) for name in names]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries under ``"worker"``."""
        heights, item_id, slot = (tensordict.get(key) for key in (_HEIGHTS, _ITEM_ID, _MANAGER))
        batch = slot.shape
        visible = item_id[..., : self.params.num_visible].reshape(-1, self.params.num_visible)
        slot = slot.reshape(-1, 1).clamp(0, self.params.num_visible - 1)
        state: State = {"heightmap": heights.reshape(-1, *heights.shape[-2:])}
        if self._record:
            seen = tensordict.get("observation").reshape(-1)
            recorded = {name: seen.get(name) for name in self._record}
            state = packed.state_of(state["heightmap"], recorded)
        found = self._maps(state, visible.gather(1, slot))
        for key, value in zip(self.out_keys, found, strict=True):
            tensordict.set(key, value.reshape(*batch, *value.shape[1:]))
        return tensordict

    def _maps(
        self, state: State, item_id: Tensor
    ) -> tuple[Float[Tensor, "B R Xs Ys"], Bool[Tensor, "B A"], Float[Tensor, "B R G"]]:
        """Return the entries of the items ``[B, 1]``, in the order of ``out_keys``."""
        there = item_id >= 0
        item = (item_id.clamp(min=0), there, self.catalogue, self.params)
        maps = feasibility.legal_maps(state, *item)
        mask = maps.legal.flatten(1)
        return (
            observation.drop_heights(maps, self.params).squeeze(1),
            mask | ~mask.any(1, keepdim=True),
            observation.orientation_features(*item).squeeze(1),
        )
