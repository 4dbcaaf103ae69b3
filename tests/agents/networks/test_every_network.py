"""What networks have in common: modes and precisions, and one value among all."""

import inspect
from functools import lru_cache, partial

import pytest
import torch
from tests.agents.distributional import small_env
from tests.agents.learning import shaken
from tests.tiny import play, tiny_env

from agents import networks
from agents.networks import CandidateScores, ScoreMaps
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import CategoricalReadout, ValueReadout
from packing_env import PackingEnv
from packing_env.types import ParameterError

EXACT = {"precision": "fp32"}
VALUES = {
    "maps": ("placement", partial(ScoreMaps, channels=8, **EXACT)),
    "maps with context": ("placement", partial(ScoreMaps, channels=4, depth=4, fold=1, **EXACT)),
    "candidates": ("candidate", partial(CandidateScores, width=16, attention_heads=2, **EXACT)),
}
READOUTS = {
    "value": ValueReadout,
    "categorical": partial(CategoricalReadout, noisy=False),
    "mixture": partial(CategoricalReadout, noisy=False, mixture=3),
    "quantile": QuantileReadout,
}


@lru_cache
def env_of(mode: str) -> PackingEnv:
    return small_env(mode) if mode in ("placement", "candidate") else tiny_env(2, action_mode=mode)


@pytest.mark.parametrize("name", networks.__all__)
def test_other_modes_and_precisions_are_refused(name: str) -> None:
    network = getattr(networks, name)
    other = "placement" if "continuous" in network.action_modes else "continuous"
    with pytest.raises(ParameterError, match="action_mode"):
        network(env_of(other))
    if "precision" in inspect.signature(network).parameters:
        with pytest.raises(ParameterError, match="precision='fp16'"):
            network(env_of(network.action_modes[0]), precision="fp16")


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("name", VALUES)
def test_the_value_of_one_action_is_that_among_all(name: str, readout: str) -> None:
    mode, network = VALUES[name]
    torch.manual_seed(1)
    made = shaken(network(env_of(mode), readout=READOUTS[readout]))
    played = play(env_of(mode), 4)[-1]
    root, action = played.exclude("action", "next"), played["action"]
    whole = made(root.clone())["action_value"]
    assert whole.dtype == torch.float32
    expected = whole.gather(1, action[:, None]).squeeze(1)
    torch.testing.assert_close(made.value_of(root, action), expected, rtol=1e-4, atol=1e-6)
    if hasattr(made, "support"):
        chance = made.log_probs_of(root, action).exp()
        torch.testing.assert_close(chance @ made.support, expected, rtol=1e-4, atol=1e-6)
