"""Replay on the device: compact states, n-step returns, priorities, rollouts."""

from agents.replay.compact import RebuildMaps
from agents.replay.device_replay import DeviceReplay, TorchRLReplay
from agents.replay.n_step import NStep
from agents.replay.prioritized import DevicePrioritizedSampler
from agents.replay.rollout_buffer import Rollout

__all__ = [
    "DevicePrioritizedSampler",
    "DeviceReplay",
    "NStep",
    "RebuildMaps",
    "Rollout",
    "TorchRLReplay",
]
