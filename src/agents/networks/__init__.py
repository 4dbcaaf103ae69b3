"""Networks: encoders and heads, as TensorDict modules."""

from agents.networks.score_maps import ScoreMaps

__all__ = ["ScoreMaps"]
