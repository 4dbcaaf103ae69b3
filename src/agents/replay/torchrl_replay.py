"""`TorchRLReplay`: whole transitions in TorchRL's own storage."""

from __future__ import annotations

from tensordict import TensorDictBase

from agents.replay.device_replay import DeviceReplay


class TorchRLReplay(DeviceReplay):
    """A ``TensorDictReplayBuffer`` over a ``LazyTensorStorage`` of whole transitions.

    The same transitions, n-step returns and interface as :class:`DeviceReplay`, whose arguments it
    takes. The difference is when maps are computed: once, as a transition is written, instead of
    whenever it is sampled. Samples cost less, and each transition takes the memory of all maps.
    """

    def _stored(self, ready: TensorDictBase) -> TensorDictBase:
        return super()._whole(ready)

    def _whole(self, stored: TensorDictBase) -> TensorDictBase:
        return stored
