"""What a black box holds, done again: where the first number is that is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from agents.algorithms.base import Agent
from agents.training.states import named_tensors
from packing_env.envs import PackingEnv

STAGES = (
    "state", "observation", "action", "reward", "batch", "weights", "network", "loss", "gradient",
)  # fmt: skip
"""In the order in which a number that is none travels."""
_FRAMEWORKS = ("torch", "torchrl", "tensordict")


@dataclass(frozen=True)
class Finding:
    """A tensor with numbers that are none.

    Attributes:
        stage: One of :data:`STAGES`.
        name: Of the tensor.
        nan: How many of its numbers are NaN.
        infinite: How many are infinite.
        size: How many it has.
        first: Where the first of them is.
    """

    stage: str
    name: str
    nan: int
    infinite: int
    size: int
    first: tuple[int, ...]


@dataclass
class Findings:
    """What was looked at, and what of it is no number.

    Attributes:
        looked_at: Tensors by stage.
        found: Those with NaN or infinite numbers, as they were met.
        origin: The first operation that made a NaN of numbers, and the line that asked for it.
    """

    looked_at: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    found: list[Finding] = field(default_factory=list)
    origin: str | None = None

    def look(self, stage: str, name: str, value: Any, *, allowed: float | None = None) -> None:
        """Look at a tensor; ``allowed`` is an infinity that has a meaning there."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return
        self.looked_at[stage] += 1
        value = value.detach()
        broken = ~value.isfinite()
        if allowed is not None:
            broken &= value != allowed
        if not bool(broken.any()):
            return
        nan = int(value.isnan().sum())
        first = tuple(broken.nonzero()[0].tolist())
        count = int(broken.sum())
        self.found.append(Finding(stage, name, nan, count - nan, value.numel(), first))

    @property
    def culprit(self) -> Finding | None:
        """The first by stage, and of its stage the first that was met."""
        return min(self.found, key=lambda each: STAGES.index(each.stage), default=None)


# ---------------------------------------------------------------------- the environment


def replay_states(env: PackingEnv, tape: Mapping[str, Any], findings: Findings) -> int | None:
    """Take the recorded decisions again, from the recorded state.

    Returns:
        The first decision that gave another reward than was recorded; None: all gave the same bits.
    """
    state = TensorDict(dict(tape["state"]), env.batch_size, device=env.device)
    root = env.reset(state, set_state=True)
    differs = None
    taken = zip(tape["decisions"], tape["rewards"], strict=True)
    for step, (decision, recorded) in enumerate(taken):
        _look_at_state(env, root, step, findings)
        for key, action in decision.items():
            findings.look("action", f"{key} of decision {step}", action)
            root.set(tuple(key.split("/")), action)
        transition, root = env.step_and_maybe_reset(root)
        reward = transition["next", "reward"]
        findings.look("reward", f"decision {step}, as recorded", recorded)
        findings.look("reward", f"decision {step}, made again", reward)
        if differs is None and not torch.equal(_bits(reward), _bits(recorded)):
            differs = step
    _look_at_state(env, root, len(tape["decisions"]), findings)
    return differs


def _look_at_state(env: PackingEnv, root: TensorDictBase, step: int, findings: Findings) -> None:
    for key, value in env.state.items():
        findings.look("state", f"{key} before decision {step}", value, allowed=torch.inf)
    for key, value in root["observation"].items():
        findings.look("observation", f"{key} of decision {step}", value)


def _bits(value: Tensor) -> Tensor:
    """A NaN equals itself bit for bit."""
    return value.contiguous().view(torch.uint8)


# ---------------------------------------------------------------------- the update


def run_update(agent: Agent, update: Mapping[str, Any], findings: Findings) -> None:
    """Make the update again, from the weights and random generators that it began with."""
    for name, value in update["batch"].items():
        findings.look("batch", name, value)
    for name, value in named_tensors(update["agent"]):
        findings.look("weights", name, value)
    agent.load_state_dict(update["agent"])
    agent.set_frames(update["frames"])
    device = next(agent.policy.parameters()).device
    batch = TensorDict(dict(update["batch"]), update["batch_size"], device=device)
    torch.set_rng_state(update["random"]["cpu"].cpu())
    if device.type == "cuda" and "cuda" in update["random"]:
        torch.cuda.set_rng_state(update["random"]["cuda"].cpu(), device)
    with _Watch(agent, findings), _Origin(findings):
        found = agent.update(batch.unflatten_keys("/"))
    for name, value in found.items():
        findings.look("loss", name, value)


class _Watch(AbstractContextManager["_Watch"]):
    """Looks at what every module returns, and at every gradient as it is complete."""

    def __init__(self, agent: Agent, findings: Findings) -> None:
        self.findings = findings
        self.modules = dict(_modules(agent))
        self.names = {id(module): name for name, module in reversed(self.modules.items())}
        self._undo = ExitStack()

    def __enter__(self) -> _Watch:
        self._undo.callback(register_module_forward_hook(self._after_forward).remove)
        seen: set[int] = set()
        for name, module in self.modules.items():
            for own, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad and parameter.is_leaf and id(parameter) not in seen:
                    seen.add(id(parameter))
                    hook = self._after_backward(f"{name}.{own}")
                    handle = parameter.register_post_accumulate_grad_hook(hook)
                    self._undo.callback(handle.remove)
        return self

    def __exit__(self, *error: Any) -> None:
        self._undo.close()

    def _after_forward(self, module: nn.Module, given: Any, returned: Any) -> None:
        name = self.names.get(id(module), type(module).__name__)
        for place, value in named_tensors(_plain(returned)):
            # scores of what is masked are -inf
            shown = f"{name}: {place}" if place else name
            self.findings.look("network", shown, value, allowed=-torch.inf)

    def _after_backward(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self.findings.look("gradient", name, parameter.grad)


def _modules(agent: Agent) -> Iterator[tuple[str, nn.Module]]:
    """All modules of an agent, by the names that its attributes give them."""
    for name, value in vars(agent).items():
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                yield f"{name}.{inner}" if inner else name, module


def _plain(returned: Any) -> Any:
    """What a module returned, as mappings, lists and tensors."""
    if isinstance(returned, TensorDictBase):
        return {"/".join(key): value for key, value in _leaves(returned)}
    return returned


def _leaves(tensordict: TensorDictBase) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    for key, value in tensordict.items(True, True):
        yield (key,) if isinstance(key, str) else key, value


class _Origin(TorchDispatchMode):
    """Notes the first operation that makes a NaN where none goes in."""

    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self.findings = findings

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        sound = self.findings.origin is None and "empty" not in func.__name__
        sound = sound and not _has_nan((*args, *kwargs.values()))
        returned = func(*args, **kwargs)
        if sound and _has_nan((returned,)):
            self.findings.origin = f"{func} at {_asking()}"
        return returned


def _asking() -> str:
    """The innermost line that is not of a framework: ``module:line function``."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.partition(".")[0] not in _FRAMEWORKS:
            return f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def _has_nan(values: Any) -> bool:
    """Whether a tensor among arguments or results, lists of them included, has a NaN."""
    return any(
        tensor.is_floating_point() and bool(tensor.isnan().any())
        for _, tensor in named_tensors(values)
    )
