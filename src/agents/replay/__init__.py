"""Replay on the device: compact states, n-step returns, maps rebuilt when sampled."""

from agents.replay.compact import RebuildMaps
from agents.replay.device_replay import DeviceReplay
from agents.replay.n_step import NStep

__all__ = ["DeviceReplay", "NStep", "RebuildMaps"]
