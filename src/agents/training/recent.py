"""The batches of the last updates; after a failure, the failed batch is saved with the state."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

_UPDATES = 8
"""Number of batches that are kept."""


class RecentBatches:
    """References to the batches of the last updates; recording reads nothing from the device.

    Args:
        overwritten: Whether the next decisions overwrite the memory of a batch, as in rollouts. If
            so, only the last batch is kept, as a copy.
    """

    def __init__(self, *, overwritten: bool) -> None:
        self.overwritten = overwritten
        self._batches: deque[TensorDictBase] = deque(maxlen=1 if overwritten else _UPDATES)
        self._failed: deque[Tensor] = deque(maxlen=self._batches.maxlen)

    def before(self, batch: TensorDictBase) -> None:
        """Record the batch of an update that is about to be made."""
        if self.overwritten:
            self._batches.clear()  # release its memory before the next copy
        self._batches.append(batch.clone(self.overwritten))

    def after(self, metrics: Mapping[str, Tensor]) -> None:
        """Record whether that update failed, according to its metrics."""
        loss = metrics.get("loss", torch.zeros(()))
        self._failed.append(metrics["skipped"] if "skipped" in metrics else ~loss.isfinite())

    def failed(self) -> dict[str, Any]:
        """Return the first batch whose update failed, else the last one; reads from the device."""
        pairs = list(zip(self._batches, self._failed, strict=False))
        if not pairs:
            return {}
        batch = next((batch for batch, failed in pairs if bool(failed.any())), pairs[-1][0])
        entries = batch.flatten_keys("/").to_dict()
        return {"entries": entries, "batch_size": list(batch.batch_size)}
