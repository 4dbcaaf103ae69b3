"""What the counting instruments see."""

import torch
from tests.agents.conftest import TINY
from tests.counting import CallSites, host_reads, reading_operations

from packing_env import make_env


def test_reads_are_seen_wherever_they_hide() -> None:
    value = torch.ones(3)
    probability = torch.tensor([0.5, 0.5])
    assert host_reads(lambda: value.sum().item(), 2)["aten::item"] == 2
    assert host_reads(lambda: value[value > 0], 2)["aten::nonzero"] == 2
    assert reading_operations(lambda: value.sum().item()) == {"aten::item": 1}
    assert reading_operations(lambda: value[value > 0]) == {"aten::index": 1}
    assert reading_operations(lambda: torch.multinomial(probability, 1))["aten::multinomial"] > 0
    assert not reading_operations(lambda: (value + 1).sum())


def test_a_call_site_is_the_innermost_line_of_this_project() -> None:
    env = make_env("irregular", num_envs=2, **TINY)
    root = env.reset()
    with CallSites() as sites:
        env.step_and_maybe_reset(env.rand_action(root))
        torch.zeros(2).tolist()
    operations = sites.counts["operations"]
    assert any(site.startswith("packing_env/core/transition.py:") for site in operations)
    assert operations["elsewhere"] == 1  # zeros
    assert sites.counts["reads"] == {"elsewhere": 1}  # tolist
    assert sites.total("operations") > 100
