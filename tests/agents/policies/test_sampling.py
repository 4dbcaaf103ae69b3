"""The entropy of masked categoricals; `test_multi_head.py` tests their draws and probabilities."""

import math

import torch

from agents.policies import sampling


def test_entropy_is_that_of_the_legal_entries() -> None:
    stream = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20, 6, generator=stream)
    mask = torch.rand(20, 6, generator=stream) < 0.3
    mask[torch.arange(20), torch.randint(6, (20,), generator=stream)] = True
    log_prob = sampling.masked_log_softmax(logits, mask)
    for row, legal, share in zip(
        logits, mask, sampling.normalised_entropy(log_prob, mask), strict=True
    ):
        expected = torch.distributions.Categorical(logits=row[legal]).entropy()
        uniform = math.log(max(2, int(legal.sum())))
        torch.testing.assert_close(share * uniform, expected, rtol=1e-5, atol=1e-6)
    flat = sampling.masked_log_softmax(torch.zeros_like(logits), mask)
    normal = sampling.normalised_entropy(flat, mask)
    torch.testing.assert_close(normal, (mask.sum(1) > 1).float())
    assert (sampling.normalised_entropy(log_prob, mask) <= 1).all()
