"""States that are read again and again: by a shorter way, and never old ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.agents.algorithms.test_every_agent import LEARNERS, small_config
from torch import nn

from agents.config.build import build_agent, build_env
from agents.training.states import module_state, named_tensors, tensors


def made() -> nn.Module:
    """Parameters, a buffer, one that is not kept, and a module in a module."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
    module.register_buffer("scratch", torch.zeros(2), persistent=False)
    return module


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two states are of the same memory."""
    return list(one) == list(other) and all(
        (a.data_ptr(), a.shape, a.dtype, a.requires_grad)
        == (b.data_ptr(), b.shape, b.dtype, b.requires_grad)
        for a, b in zip(one.values(), other.values(), strict=True)
    )


def test_it_is_the_modules_state_and_the_same_objects_each_time() -> None:
    module = made()
    first = module_state(module)
    assert same(first, module.state_dict())
    first.pop("0.weight")  # it is the caller's
    with torch.no_grad():
        module[0].weight.fill_(7.0)
    again = module_state(module)
    assert same(again, module.state_dict())
    assert torch.equal(again["0.weight"], torch.full((3, 2), 7.0))
    assert all(a is b for a, b in zip(again.values(), module_state(module).values(), strict=True))


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "another parameter": lambda module: setattr(module[0], "bias", nn.Parameter(torch.ones(3))),
    "none any more": lambda module: setattr(module[0], "bias", None),
    "other memory": lambda module: setattr(module[0].bias, "data", torch.ones(3)),
    "fewer of them": lambda module: setattr(module[0].bias, "data", module[0].bias.data[:2]),
    "another name": lambda module: (setattr(module, "z", module[1]), delattr(module, "1")),
    "another type": lambda module: module.double(),
    "another buffer": lambda module: setattr(module[1][0], "running_mean", torch.ones(3)),
    "one more buffer": lambda module: module[1].register_buffer("more", torch.ones(1)),
    "another module": lambda module: module.__setitem__(0, nn.Linear(2, 3)),
    "one less and one more": lambda module: (
        delattr(module[1][1], "bias"),
        module[0].register_buffer("more", torch.ones(1)),
    ),
    "one more module": lambda module: module[1].append(nn.Linear(1, 1)),
    "a hook": lambda module: module[1].register_state_dict_post_hook(
        lambda module, state, prefix, local: state.update({prefix + "said": torch.ones(1)})
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_is_seen(change: Callable[[nn.Module], object]) -> None:
    module = made()
    module_state(module)
    change(module)
    wanted, found = module.state_dict(), module_state(module)
    assert list(wanted) == list(found)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            value.add_(1)
    assert all(torch.equal(module.state_dict()[n], v) for n, v in module_state(module).items())


class Counting(nn.Linear):
    """Has a state besides its tensors."""

    count = 0

    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor(self.count)


def test_a_module_with_a_state_of_its_own_is_asked_each_time() -> None:
    module = nn.Sequential(Counting(1, 1))
    for count in range(3):
        module[0].count = count
        assert module_state(module)["0._extra_state"] == count


@pytest.mark.parametrize("name", LEARNERS)
def test_agents_return_what_their_modules_hold(name: str) -> None:
    config = small_config(name)
    agent = build_agent(config, build_env(config))
    for _ in range(2):
        state = agent.state_dict()
        for part in ("policy", "target"):
            if part in state:
                held = getattr(agent, part).state_dict()
                anew = {name for name in held if name.endswith("_extra_state")}
                found = {name: value for name, value in state[part].items() if name not in anew}
                assert found.keys() | anew == held.keys()
                assert same(found, {name: held[name] for name in found})


def test_tensors_come_in_the_order_of_their_names() -> None:
    one, two, three = (torch.full((), float(i)) for i in range(3))
    state = {"a": [one, 1, None, {"b": two}], "c": "text", "d": (True, three)}
    assert [t.item() for t in tensors(state)] == [0.0, 1.0, 2.0]
    assert [name for name, _ in named_tensors(state)] == ["a/0", "a/3/b", "d/1"]
