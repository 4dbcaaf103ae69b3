"""The restriction of a policy to the placements that are surest to stand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import PackingEnv
from packing_env.core import feasibility, stability
from packing_env.core.orientation import visible_items
from packing_env.types import ParameterError


class Surest(TensorDictModuleBase):
    """A policy that is shown, of the legal placements, those of the strictest rule that has any.

    An item that has no legal placement ends the episode, so a strict stability rule packs little;
    a lenient one offers placements that do not stand beside others that do. Here the task's own
    rule says what is legal, and ``rules`` what is preferred: of each row, those legal placements
    remain that pass the last of the rules, else the one before it, else all. What the mask holds
    after the decision is as it was.

    The placements are judged on ``env.state``, so the policy acts in the environment it was built
    for.

    Args:
        policy: Reads ``action_mask``.
        env: Its action mode is ``placement``.
        rules: Stability rules, the least strict one first.

    Raises:
        ParameterError: The rules or the action mode are not fit for it.
    """

    def __init__(self, policy: TensorDictModuleBase, env: PackingEnv, rules: Sequence[str]) -> None:
        super().__init__()
        if env.params.action_mode != "placement":
            raise ParameterError(
                f"surest={list(rules)} needs action_mode='placement', "
                f"not {env.params.action_mode!r}"
            )
        for rule in rules:
            stability.check_rule(rule, env.params)
        self.policy, self.rules = policy, tuple(rules)
        self.in_keys = list(dict.fromkeys([*policy.in_keys, "action_mask"]))
        self.out_keys = list(policy.out_keys)
        self._env, self._catalogue = [env], env.catalogue.tensors()

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the policy's action under the restricted mask."""
        mask = tensordict.get("action_mask")
        tensordict.set("action_mask", self.restrict(mask.flatten(0, -2)).view(mask.shape))
        tensordict = self.policy(tensordict)
        return tensordict.set("action_mask", mask)

    def restrict(self, mask: Bool[Tensor, "B A"]) -> Bool[Tensor, "B A"]:
        """Return the mask of the surest legal placements; a row without any keeps its mask."""
        (env,) = self._env
        state = dict(env.state.items())
        items = visible_items(state, env.params.num_visible)
        for rule in self.rules:
            params = env.params.evolve(stability=rule)
            maps = feasibility.legal_maps(state, *items, self._catalogue, params)
            held = mask & maps.legal.flatten(1)
            mask = torch.where(held.any(1, keepdim=True), held, mask)
        return mask
