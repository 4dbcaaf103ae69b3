"""What the counting instruments see."""

import torch
from tests.counting import host_reads, reading_operations


def test_reads_are_seen_wherever_they_hide() -> None:
    value = torch.ones(3)
    probability = torch.tensor([0.5, 0.5])
    assert host_reads(lambda: value.sum().item(), 2)["aten::item"] == 2
    assert host_reads(lambda: value[value > 0], 2)["aten::nonzero"] == 2
    assert reading_operations(lambda: value.sum().item()) == {"aten::item": 1}
    assert reading_operations(lambda: value[value > 0]) == {"aten::index": 1}
    assert reading_operations(lambda: torch.multinomial(probability, 1))["aten::multinomial"] > 0
    assert not reading_operations(lambda: (value + 1).sum())
