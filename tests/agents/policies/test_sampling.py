"""Masked categoricals: legal, in proportion, and finite where nothing is legal."""

import math

import torch

from agents.policies import sampling
from agents.policies.heads import Heads


def random_rows(rows: int, actions: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, actions, generator=stream)
    mask = torch.rand(rows, actions, generator=stream) < 0.3
    mask[torch.arange(rows), torch.randint(actions, (rows,), generator=stream)] = True
    return logits, mask


def draws(log_prob: torch.Tensor, mask: torch.Tensor, seed: int = 0) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    uniform = torch.rand(len(mask), generator=stream, dtype=torch.float64)
    return sampling.draw(log_prob, mask, uniform)


def chi_square(count: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((count - expected).square() / expected).sum())


def test_log_probabilities_are_those_of_the_legal_entries_alone() -> None:
    logits, mask = random_rows(50, 9)
    found = sampling.masked_log_softmax(logits.bfloat16(), mask)
    assert found.dtype == torch.float32
    for row, legal, got in zip(logits.bfloat16().float(), mask, found, strict=True):
        torch.testing.assert_close(got[legal], row[legal].log_softmax(0))
        assert (got[~legal] < -1e8).all()
        assert got.exp()[~legal].sum() == 0


def test_rows_without_a_choice_are_exact_and_rows_without_anything_are_finite() -> None:
    logits = torch.tensor([[5.0, -3.0, 100.0], [7.0, 1.0, 2.0]], requires_grad=True)
    mask = torch.tensor([[False, True, False], [False, False, False]])
    found = sampling.masked_log_softmax(logits, mask)
    assert found[0, 1] == 0
    found[0, 1].backward(retain_graph=True)
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    assert found.isfinite().all()
    index = draws(found.detach(), mask)
    assert ((index >= 0) & (index < 3)).all()
    score = sampling.normalised_entropy(found, mask)
    assert torch.equal(score, torch.zeros(2))
    (score.sum() + found[1].sum()).backward()
    assert logits.grad.isfinite().all()


def test_flat_logits_draw_uniformly_and_others_in_proportion() -> None:
    mask = torch.tensor([True, False, True, True, False, True, False, True])
    for logits in (torch.zeros(8), torch.linspace(-1, 1, 8)):
        log_prob = sampling.masked_log_softmax(logits, mask)
        rows = 100_000
        chosen = draws(log_prob.expand(rows, 8), mask.expand(rows, 8))
        count = torch.bincount(chosen, minlength=8)
        assert not count[~mask].any()
        # 4 degrees of freedom, p = 0.001
        assert chi_square(count[mask], rows * log_prob.exp()[mask]) < 18.5


def test_entropy_is_that_of_the_legal_entries() -> None:
    logits, mask = random_rows(20, 6)
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


def test_choices_under_the_masks_are_legal_actions() -> None:
    heads = Heads((2, 3, 4, 5))
    stream = torch.Generator().manual_seed(0)
    mask = torch.rand(30, 120, generator=stream) < 0.05
    mask[:, 7] = True
    chosen = torch.zeros(30, 0, dtype=torch.int64)
    for _ in heads.sizes:
        legal = heads.next_mask(mask, chosen)
        flat = sampling.masked_log_softmax(torch.zeros(legal.shape), legal)
        chosen = torch.cat((chosen, draws(flat, legal)[:, None]), 1)
    index = torch.zeros(30, dtype=torch.int64)
    for head, size in enumerate(heads.sizes):
        index = index * size + chosen[:, head]
    assert mask.gather(1, index[:, None]).all()
