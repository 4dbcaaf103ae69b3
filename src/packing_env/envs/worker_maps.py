"""`WorkerMaps`: the maps of the item that a manager chose."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from packing_env.core import feasibility, observation
from packing_env.core.candidates import Scene
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.types import Catalogue, PackingParams, ParameterError, State

_HEIGHTS, _ITEM_ID = ("observation", "heights"), ("observation", "item_id")
_MANAGER = ("manager", "action")


class WorkerMaps(TensorDictModuleBase):
    """Module that computes the worker's observations from the container and the chosen item.

    In ``hierarchical`` mode it runs between manager and worker, in a policy and in an update. It
    accepts any leading axes and needs no host read. Its legality equals the environment's bit for
    bit, because ``heights`` is in metres.

    Reads ``("observation", "heights")``, ``("observation", "item_id")`` and ``("manager",
    "action")`` (an index out of range is clamped). Writes under ``"worker"``:

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
                f"WorkerMaps supports action_mode='hierarchical', not {env.params.action_mode!r}"
            )
        if "item_id" not in env.params.observation:
            raise ParameterError(
                f"WorkerMaps reads item_id; add it to observation={env.params.observation}"
            )
        self.params: PackingParams = env.params
        self.catalogue: Catalogue = env.catalogue.tensors()
        self.in_keys = [_HEIGHTS, _ITEM_ID, _MANAGER]
        names = ("drop_height", "action_mask", "orientation_features")
        self.out_keys = [("worker", name) for name in names]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the entries under ``"worker"``."""
        # 1. The state's entries that legality needs, and the chosen item, [B, 1].
        heights, item_id, slot = (tensordict.get(key) for key in (_HEIGHTS, _ITEM_ID, _MANAGER))
        batch, count = slot.shape, self.params.num_visible
        state: State = {"heightmap": heights.reshape(-1, *heights.shape[-2:])}
        visible = item_id[..., :count].reshape(-1, count)
        chosen = visible.gather(1, slot.reshape(-1, 1).clamp(0, count - 1))
        there, item = chosen >= 0, chosen.clamp(min=0)

        # 2. The maps of the item; if nothing is legal, the mask is all True.
        maps = feasibility.legal_maps(state, item, there, self.catalogue, self.params)
        scene = Scene(state, item, there, maps, self.catalogue, self.params)
        turned = observation.orientation_features(scene)
        mask = maps.legal.flatten(1)
        entries = {
            "drop_height": observation.drop_heights(maps, self.params).squeeze(1),
            "action_mask": mask | ~mask.any(1, keepdim=True),
            "orientation_features": turned.squeeze(1),
        }

        # 3. Restore the batch axes.
        for name, value in entries.items():
            tensordict.set(("worker", name), value.reshape(*batch, *value.shape[1:]))
        return tensordict
