"""Training loops on CUDA tensors without values, see :mod:`tests.tracing.fake_cuda`.

An agent is built on the CPU, where building it may read values, and copied to fake CUDA with
everything that it holds. What it does not run is the backward pass, whose engine asks for a real
device: gradients stay zero.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictParams
from tests.agents.algorithms.test_every_agent import small_config
from tests.tracing.fake_cuda import on_cuda
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import agents.replay.device_replay
import agents.replay.rollout_buffer
from agents.config.build import build_agent, build_env, build_replay
from agents.training.trainer import Trainer

Memo = dict[int, Any]


class _Ones(TorchDispatchMode):
    """A mode that answers reads with ones while parts are built; no step runs under it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].is_floating_point() else 1
        return func(*args, **(kwargs or {}))


def _tensor(self: Tensor, memo: Memo) -> Tensor:
    """Return a tensor's copy on fake CUDA; two references to a tensor get one copy."""
    if id(self) not in memo:
        with torch.no_grad():
            made = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="cuda:0")
        if isinstance(self, nn.Parameter):
            made = nn.Parameter(made, requires_grad=self.requires_grad)
        memo[id(self)] = made
    return memo[id(self)]


def _tensordict(self: TensorDictBase, memo: Memo) -> TensorDictBase:
    """Return a TensorDict's copy on fake CUDA; its own copies would stay on its device."""
    if id(self) not in memo:
        inner = self._param_td if isinstance(self, TensorDictParams) else self
        made = TensorDict({k: copy.deepcopy(v, memo) for k, v in inner.items()})
        made.batch_size = self.batch_size
        if isinstance(self, TensorDictParams):
            made = TensorDictParams(made, no_convert=True)
        memo[id(self)] = made.lock_() if self.is_locked else made
    return memo[id(self)]


@contextlib.contextmanager
def _copies_to_cuda() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Tensor, nn.Parameter):
            patch.setattr(kind, "__deepcopy__", _tensor, raising=False)
        for kind in (TensorDictBase, TensorDict, TensorDictParams):
            patch.setattr(kind, "__deepcopy__", _tensordict, raising=False)
        yield


def do_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the backward pass, and answer torch's queries about a CUDA build."""
    for module in (agents.replay.device_replay, agents.replay.rollout_buffer):
        monkeypatch.setattr(module, "FakeTensorMode", lambda **options: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *given, **options: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)


@contextlib.contextmanager
def training(case: str, *overrides: str) -> Iterator[Trainer]:
    """Yield a case's training loop on fake CUDA."""
    off = ("trainer.capture=false", "collector.capture=false")
    config = small_config(case, "env=irregular_com_hull", *off, *overrides)
    if "epochs" in config.agent:  # an update after every other step, of one gradient step
        config.agent.update({"epochs": 1, "batch_size": 8})
        config.replay.horizon = 2
    else:  # two steps without an update, then one after every step
        config.trainer.update({"warmup": 12, "update_every": 4})
    here = build_env(config)
    agent, env = build_agent(config, here), build_env(config)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with _Ones():
            env = on_cuda(env)
            with _copies_to_cuda():
                agent = copy.deepcopy(agent, {id(here): env})
            replay = build_replay(config, env, agent)
            collector = instantiate(config.collector)(env, agent.policy)
            trainer = instantiate(config.trainer)(agent, collector, replay)
            env.reset()
        yield trainer
