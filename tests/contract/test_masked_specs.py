"""The specs of masked actions: draws, copies, shapes, devices, equality."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torchrl.data import Categorical, Composite, MultiCategorical
from torchrl.modules import RandomPolicy

from packing_env.envs.masked_specs import MaskedCategorical, MaskedMultiCategorical, UniformBox

SIZES = (2, 3)
ONE = torch.tensor([[0, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]]).bool()


def single(**options: Any) -> MaskedCategorical:
    return MaskedCategorical(6, (3,), **options)


def several(**options: Any) -> MaskedMultiCategorical:
    return MaskedMultiCategorical(SIZES, (3, 2), **options)


def index(action: Tensor) -> Tensor:
    return action if action.shape[-1] != 2 else action[..., 0] * 3 + action[..., 1]


BOTH = pytest.mark.parametrize("make", [single, several])


@BOTH
def test_draws_are_legal_and_cover_the_mask(make: Any) -> None:
    torch.manual_seed(0)
    spec = make(mask=ONE)
    drawn = spec.rand((200,))
    assert drawn.shape == (200, *spec.shape)
    assert drawn.dtype == torch.int64
    seen = torch.zeros(200, 3, 6).scatter(-1, index(drawn)[..., None], 1).any(0)
    assert torch.equal(seen, ONE)
    assert spec.rand().shape == spec.shape


@BOTH
def test_without_a_mask_it_is_torchrls(make: Any) -> None:
    spec = make()
    assert spec.mask is None
    assert spec.is_in(spec.rand())
    assert len(index(spec.rand((300,))).unique()) == 6
    assert isinstance(spec, Categorical)
    assert isinstance(spec, MultiCategorical) == (make is several)


@BOTH
def test_copies_share_the_mask(make: Any) -> None:
    spec = make()
    copies = [
        spec.clone(),
        spec.to(torch.int32),
        spec.expand(spec.shape),
        Composite(action=spec, shape=(3,)).clone()["action"],
        RandomPolicy(Composite(action=spec, shape=(3,))).action_spec["action"],
    ]
    spec.update_mask(ONE)
    for other in copies:
        assert torch.equal(other.mask, ONE)
        taken = ONE.gather(1, index(other.rand())[:, None].long())
        assert taken.all()
    assert copies[1].rand().dtype == torch.int32
    copies[0].update_mask(None)
    assert spec.mask is None


@BOTH
def test_specs_of_another_shape_know_no_mask(make: Any) -> None:
    spec = make(mask=ONE)
    stacked = torch.stack([spec, make(mask=~ONE)])
    others = [
        (spec.expand(4, *spec.shape), (4, *spec.shape)),
        (spec.unsqueeze(0), (1, *spec.shape)),
        (spec.unsqueeze(0).squeeze(0), spec.shape),
        (spec[1], spec.shape[1:]),
        (spec.unbind(0)[2], spec.shape[1:]),
        (spec.reshape(3, 1, *spec.shape[1:]), (3, 1, *spec.shape[1:])),
        (stacked, (2, *spec.shape)),
    ]
    for other, shape in others:
        assert type(other) is type(spec)
        assert other.shape == shape
        assert other.mask is None
        assert other.rand().shape == shape
    stacked.update_mask(torch.stack([ONE, ~ONE]))
    assert torch.stack([ONE, ~ONE]).gather(-1, index(stacked.rand())[..., None]).all()
    assert torch.equal(spec.mask, ONE)


@BOTH
def test_membership_and_projection(make: Any) -> None:
    torch.manual_seed(0)
    spec = make(mask=ONE)
    legal, illegal = (spec.action_of(torch.tensor(row)) for row in ([4, 0, 5], [4, 3, 5]))
    assert spec.is_in(legal) is True
    assert spec.is_in(illegal) is False
    assert spec.is_in(legal.to(torch.int32)) is False
    assert spec.is_in(legal + 6) is False
    assert torch.equal(spec.project(legal.clone()), legal)
    fixed = spec.project(illegal.clone())
    assert spec.is_in(fixed)
    assert torch.equal(fixed[[0, 2]], legal[[0, 2]])  # those that were legal stay
    assert spec.is_in(spec.project(legal + 60))
    assert make().is_in(illegal) is True


def test_a_box_stays_one_that_reads_nothing_back() -> None:
    torch.manual_seed(0)
    low, high = torch.tensor([0.0, -3.0]), torch.tensor([0.1, 7.0])
    spec = UniformBox(low, high, (2,), dtype=torch.float32)
    copies = [spec.clone(), spec.to(torch.float64), spec.expand(4, 2), spec.unsqueeze(0), spec[:1]]
    copies += [pickle.loads(pickle.dumps(spec)), Composite(action=spec).clone()["action"]]
    for other in (spec, *copies):
        assert type(other) is UniformBox
        assert other.is_in(other.rand())
        assert other.rand((3,)).shape == (3, *other.shape)
    assert spec == spec.clone()
    assert copies[1].rand().dtype == torch.float64
    drawn = spec.rand((5_000,))
    torch.testing.assert_close(drawn.mean(0), (low + high) / 2, rtol=0.05, atol=0.1)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        spec.rand()
    assert not {event.key for event in record.key_averages()} & {"aten::item", "aten::is_nonzero"}
