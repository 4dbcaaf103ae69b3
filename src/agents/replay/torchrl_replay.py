"""`TorchRLReplay`: whole transitions in TorchRL's own storage."""

from __future__ import annotations

from tensordict import TensorDictBase

from agents.replay.device_replay import DeviceReplay


class TorchRLReplay(DeviceReplay):
    """A ``TensorDictReplayBuffer`` over a ``LazyTensorStorage`` of whole transitions.

    Transitions, n-step returns, interface and arguments are those of :class:`DeviceReplay`. Maps
    are computed once, when a transition is written, instead of whenever it is sampled: samples cost
    less, and each transition takes the memory of all maps.
    """

    def _stored(self, ready: TensorDictBase) -> TensorDictBase:
        return super()._whole(ready)

    def _whole(self, stored: TensorDictBase) -> TensorDictBase:
        return stored
