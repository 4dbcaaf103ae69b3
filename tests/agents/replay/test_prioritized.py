"""`DevicePrioritizedSampler` against priorities kept in plain Python, and its frequencies."""

import io
import random

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.replay import DevicePrioritizedSampler
from packing_env.types import ParameterError


def buffer_of(capacity, ndim=1, **options):
    """Return a TorchRL buffer with the sampler; its entries are numbered from 0."""
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(capacity, ndim=ndim, compilable=True),
        sampler=DevicePrioritizedSampler(capacity, **options),
        writer=RoundRobinWriter(compilable=True),
        compilable=True,
    )


def rows(count, start=0):
    return TensorDict({"number": torch.arange(start, start + count)}, [count])


def state(sampler):
    return {key: value for key, value in vars(sampler).items() if isinstance(value, torch.Tensor)}


def chi_square(counts, shares):
    expected = counts.sum() * shares
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_million_draws_have_the_frequencies_of_the_priorities(alpha):
    buffer = buffer_of(1_000, alpha=alpha, eps=1e-3)
    buffer.extend(rows(900))
    generator = torch.Generator().manual_seed(0)
    priority = torch.rand(900, generator=generator, dtype=torch.float64) * 3
    buffer.update_priority(torch.arange(900), priority)
    torch.manual_seed(0)
    drawn = [buffer.sampler.sample(buffer.storage, 1_000)[0] for _ in range(1_000)]
    counts = torch.cat(drawn).bincount(minlength=900).double()
    assert counts.shape == (900,)
    shares = (priority + 1e-3) ** alpha
    # 1,150 is the quantile 1 - 1e-8 of chi-square with 899 degrees of freedom
    assert chi_square(counts, shares / shares.sum()) < 1_150
    other = (priority + 1e-3) ** (alpha + 0.1)
    assert chi_square(counts, other / other.sum()) > 1_150


def test_weights_equal_the_formula():
    buffer = buffer_of(64, alpha=0.7, beta=0.45, eps=0.01)
    buffer.extend(rows(50))
    priority = np.linspace(0, 2, 50)
    buffer.update_priority(torch.arange(50), torch.from_numpy(priority))
    sample = buffer.sample(32)
    share = (priority + 0.01) ** 0.7
    share /= share.sum()
    weight = (50 * share[sample["index"].numpy()]) ** -0.45
    expected = weight / weight.max()
    assert sample["priority_weight"].dtype == torch.float32
    np.testing.assert_allclose(sample["priority_weight"].numpy(), expected, rtol=1e-6)
    assert float(sample["priority_weight"].max()) == 1.0
    assert torch.equal(sample["number"], sample["index"])


class Plain:
    """The sampler's priorities, by plain loops."""

    def __init__(self, capacity, alpha, eps):
        self.powers, self.alpha, self.eps, self.top = [0.0] * capacity, alpha, eps, 0.0

    def write(self, places, priorities):
        largest = {}
        for place, priority in zip(places, priorities, strict=True):
            largest[place] = max(priority, largest.get(place, 0.0))
        for place, priority in largest.items():
            self.powers[place] = (priority + self.eps) ** self.alpha

    def update(self, places, priorities):
        self.top = max([self.top, *priorities])
        self.write(places, priorities)

    def added(self, places):
        self.write(places, [self.top or 1.0] * len(places))


@pytest.mark.parametrize("capacity", [1, 7, 65])
def test_updates_equal_a_naive_implementation(capacity):
    buffer = buffer_of(capacity, alpha=0.6, eps=1e-4)
    sampler, plain = buffer.sampler, Plain(capacity, 0.6, 1e-4)
    before = {name: tensor.data_ptr() for name, tensor in state(sampler).items()}
    draw = random.Random(capacity)
    cursor = filled = 0
    for _ in range(150):
        if not filled or draw.random() < 0.4:
            count = draw.randint(1, min(capacity, 13))
            buffer.extend(rows(count, cursor))
            plain.added([(cursor + i) % capacity for i in range(count)])
            cursor = (cursor + count) % capacity
            filled = min(capacity, filled + count)
        else:
            places = [draw.randrange(filled) for _ in range(draw.randint(1, 9))]
            places.append(places[0])  # twice
            priorities = [draw.choice([0.0, 1e-3, 0.5, 20.0]) * draw.random() for _ in places]
            buffer.update_priority(
                torch.tensor(places), torch.tensor(priorities, dtype=torch.float64)
            )
            plain.update(places, priorities)
            sampler.update_priority([-1, capacity + 2], 99.0)  # both are outside, so ignored
        powers = torch.tensor(plain.powers, dtype=torch.float64)
        torch.testing.assert_close(sampler._powers[:capacity], powers, rtol=1e-14, atol=0)
        assert not sampler._powers[capacity:].any()
        assert torch.equal(sampler._sums, sampler._rows.sum(1))
        assert float(sampler.default_priority) == (plain.top or 1.0)
        assert int(sampler._last) == filled - 1
        drawn = buffer.sample(5)["index"]
        assert bool((drawn < filled).all())
        assert bool((drawn >= 0).all())
    assert {name: tensor.data_ptr() for name, tensor in state(sampler).items()} == before


def test_nothing_beyond_the_filled_part_is_drawn():
    """Rounding must not do it either: draws at the end of the sum, in a partly empty row."""
    buffer = buffer_of(64, alpha=1.0)
    buffer.extend(rows(11))
    buffer.update_priority(torch.arange(11), torch.rand(11) * 1e-9)
    sampler = buffer.sampler
    sampler._sums.mul_(1.5)  # far more than what rounding does
    drawn = [buffer.sample(64)["index"] for _ in range(20)]
    assert int(torch.cat(drawn).max()) == 10


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_priority_does_no_lasting_harm(broken):
    buffer = buffer_of(16)
    buffer.extend(rows(16))
    buffer.update_priority(torch.arange(16), torch.full((16,), 0.5))
    buffer.update_priority(torch.tensor([3, 4]), torch.tensor([broken, -0.25]))
    powers = buffer.sampler._powers
    assert bool(powers.isfinite().all())
    assert float(powers[3]) == pytest.approx(0.5**0.6, rel=1e-5)  # as if it were new
    assert float(buffer.sampler.default_priority) == 0.5
    assert float(powers[4]) == pytest.approx(0.25**0.6, rel=1e-5)  # a magnitude
    sample = buffer.sample(16)
    assert bool(sample["priority_weight"].isfinite().all())


def test_torchrl_takes_it_for_its_own():
    """The buffer is emptied, extended by ``add``, given priorities by key, and other storages."""
    assert issubclass(DevicePrioritizedSampler, PrioritizedSampler)
    buffer = buffer_of(12)
    buffer.extend(rows(12))
    buffer.update_priority(torch.arange(12), torch.full((12,), 9.0))
    buffer.empty()
    assert float(buffer.sampler._powers.sum()) == 0
    with pytest.raises(RuntimeError, match="empty"):
        buffer.sample(2)
    buffer.add(rows(1)[0])
    assert buffer.sample(4)["index"].tolist() == [0] * 4
    data = buffer.sample(4).set("td_error", torch.tensor([0.1, 0.5, 0.2, 0.3]))
    buffer.update_tensordict_priority(data)
    assert float(buffer.sampler._powers[0]) == pytest.approx(0.5**0.6, rel=1e-5)

    plane = buffer_of(12, ndim=2)
    plane.extend(TensorDict({"number": torch.arange(12).view(4, 3)}, [4, 3]))  # rows, steps
    error = torch.zeros(3, 4)
    error[2, 1] = 1e6  # step, row
    index = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij"), -1)
    plane.update_priority(index.view(12, 2), error.view(12))
    plane.update_priority(torch.tensor([[0, 7], [1, -1], [-1, 5], [3, 0]]), 9e9)  # outside: ignored
    sample = plane.sample(5)
    assert sample["index"].tolist() == [[2, 1]] * 5
    assert sample["number"].tolist() == [1 * 3 + 2] * 5

    filled = LazyTensorStorage(6)
    filled.set(torch.arange(6), rows(6))
    late = TensorDictReplayBuffer(storage=filled, sampler=DevicePrioritizedSampler(6))
    assert set(late.sample(100)["number"].tolist()) == set(range(6))


def test_state_returns_with_the_same_draws(tmp_path):
    one, other, third = (DevicePrioritizedSampler(100, beta=0.4, beta_frames=100) for _ in range(3))
    storage = LazyTensorStorage(100)
    storage.set(torch.arange(90), rows(90))
    one.mark_update(torch.arange(90), storage=storage)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        index = torch.randint(90, (13,), generator=generator)
        one.update_priority(index, torch.rand(13, generator=generator))
    one.set_frames(50)
    assert one.beta == pytest.approx(0.7)  # halfway from 0.4 to 1
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    one.dumps(tmp_path / "sampler")
    third.loads(tmp_path / "sampler")
    assert other.beta == third.beta == one.beta
    drawn = []
    for sampler in (one, other, third):
        sampler.mark_update(torch.tensor([95]))
        torch.manual_seed(5)
        index, info = sampler.sample(storage, 64)
        drawn.append(torch.stack((index.double(), info["priority_weight"].double())))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
    with pytest.raises(ParameterError, match="100 priorities were saved"):
        DevicePrioritizedSampler(50).load_state_dict(one.state_dict())
