"""The inputs and results of an engine, and the phases of a step.

These are the phases of a step in every engine::

    state ──observe──> observation + action mask ──policy──> action
      ^                                                        |
      |    1. decode      action -> (item, orientation, x, y)  |
      |    2. look up     is it legal? one gather in the state |
      |    3. commit      heightmap = max(heightmap, z + top)  |
      |    4. score       metrics, reward terms, done flags    |
      |    5. reset       rows that are done start again       |
      +----6. legality    of every placement, once <-----------+

Legality is computed once per state. The state keeps it as ``legal`` or as the list ``candidate``.
The action mask shows it, and step 2 of the next decision looks the action up in it. The code
carries out step 6 before step 5, because a row without a legal placement is done, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env.core.actions import Key
from packing_env.types import Catalogue, Instances, PackingParams, State

FLAGS = ("done", "terminated", "truncated")
"""Flags of a row, in the order in which the environment returns them."""


@dataclass(frozen=True)
class Task:
    """Inputs from which an engine is built.

    Attributes:
        params: The rules.
        catalogue: Tensors of the items, on the engine's device.
        instances: The pool from which episodes are drawn, on the same device.
        draw: ``"random"`` draws instances from the pool by the row's random stream;
            ``"sequential"`` gives row i of B the instances i, i + B, i + 2 B, ...
    """

    params: PackingParams
    catalogue: Catalogue
    instances: Instances
    draw: str = "random"

    @property
    def device(self) -> torch.device:
        """Device of the catalogue."""
        return self.catalogue["volume"].device

    def fingerprint(self) -> int:
        """Return a hash that is equal only for tasks with the same items and container."""
        # 1. Tasks with the same number of items may differ in the sizes of arrays and in the
        #    rewards.
        params, items = self.params, self.catalogue
        lengths = (params.container, params.cell, params.pitch)
        world = (*lengths, params.num_items, sorted(params.reward))
        digest = hashlib.sha256(repr(world).encode())
        if params.constraints:
            digest.update(repr(params.constraints).encode())
        # 2. The items, identified by volume, extent and height.
        real = items["orientation_mask"]
        peak = torch.where(real, items["peak"], 0.0)  # values of padding must not count
        for value in (items["volume"], items["extent"], real, peak):
            digest.update(value.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return int.from_bytes(digest.digest()[:7], "big")


@dataclass(frozen=True)
class Observations:
    """Observations of a state, one row per environment.

    Attributes:
        entries: ``[B, ...]`` by name: first the observations of ``params.observation``, then those
            of the action mode.
        masks: ``[B, A]`` by key, True = legal; all True in terminated rows. Truncated rows keep
            their masks, so that values can be bootstrapped from the legal actions.
        flags: ``[B]`` each of :data:`FLAGS`.
        metrics: ``[B, 1]`` float32 by name: ``core.metrics.NAMES``, then ``reward/<term>``, the sum
            of each weighted reward term over the episode.
        report: ``[B, ...]`` by key: the action mode's report on the last decision.
    """

    entries: Mapping[str, Tensor]
    masks: Mapping[Key, Tensor]
    flags: Mapping[str, Tensor]
    metrics: Mapping[str, Tensor]
    report: Mapping[Key, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """Result of one decision per row.

    Attributes:
        state: The next state. If finished rows were reset, they are at the start of their next
            episode. An engine that works in place returns the same mapping that it received.
        reward: ``[B]`` float32, 0 in rows that had finished before.
        observations: Observations after the decision; for a finished row, the terminal
            observations.
        start: Observations after finished rows were reset; None if no reset was requested.
    """

    state: State
    reward: Float[Tensor, " B"]
    observations: Observations
    start: Observations | None
