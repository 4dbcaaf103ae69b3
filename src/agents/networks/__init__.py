"""Networks: encoders and heads, as TensorDict modules."""

from agents.networks.actor_critic import CandidateActorCritic, PlacementActorCritic
from agents.networks.afterstate_net import AfterstateNet
from agents.networks.candidate_scores import CandidateScores
from agents.networks.continuous import ContinuousActorCritic
from agents.networks.hierarchical.networks import HierarchicalNetworks
from agents.networks.multi_head import MultiHeadActorCritic
from agents.networks.score_maps import ScoreMaps
from agents.networks.tuple_tables import TupleTables

__all__ = [
    "AfterstateNet",
    "CandidateActorCritic",
    "CandidateScores",
    "ContinuousActorCritic",
    "HierarchicalNetworks",
    "MultiHeadActorCritic",
    "PlacementActorCritic",
    "ScoreMaps",
    "TupleTables",
]
