"""What the actor-critic agents of the ``continuous`` mode share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDictBase
from torch import Tensor

LEARN_FROM = {"executed": "executed_action", "asked": "action"}
"""Which action a critic values, and where a sample of the replay has it."""


def check_learn_from(name: str) -> str:
    """Refuse what is not in :data:`LEARN_FROM`."""
    if name not in LEARN_FROM:
        raise ValueError(f"learn_from={name!r} is unknown; choose one of {', '.join(LEARN_FROM)}")
    return name


def learned(batch: TensorDictBase, learn_from: str) -> TensorDictBase:
    """The same transitions, with the action that the critic is to value under ``action``."""
    return batch.copy().set("action", batch.get(LEARN_FROM[learn_from]))


def worst(*steps: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of what several optimizers returned, the largest of each."""
    return {name: torch.stack([step[name] for step in steps]).amax(0) for name in steps[0]}
