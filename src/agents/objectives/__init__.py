"""Losses, as TorchRL ``LossModule`` classes."""

from agents.objectives.ac_iqn import ACIQNLoss
from agents.objectives.c51 import C51Loss
from agents.objectives.iqn import IQNLoss
from agents.objectives.multi_head_ppo import MultiHeadPPOLoss

__all__ = ["ACIQNLoss", "C51Loss", "IQNLoss", "MultiHeadPPOLoss"]
