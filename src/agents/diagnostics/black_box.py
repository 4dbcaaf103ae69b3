"""A broken update of a run that produced NaN or Inf: recorded while training, then retraced.

Recording costs next to nothing: references to the batches of the last updates, the states of the
random generators, and flags and counts that stay on the device until training stops. No copy of the
weights is made in advance: the recorded ones are those of the end. They are those before the broken
update only if every step since then was left out
(:class:`agents.algorithms.optimization.GatedAdam`). An agent with several optimizers or several
steps per update may have taken some of them, and sound updates may have followed; so the record
says how many steps each optimizer took. Those of other optimizers are not known.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.algorithms.states import named_tensors, tensors

FOLDER = "black_box"
"""Its folder inside that of the run."""
KIND = "packing black box"
"""Its kind in the manifest of that folder."""
STAGES = ("batch", "parameters", "network", "loss", "gradient")
"""The order in which a NaN or Inf spreads through an update."""
_KEPT = 8
"""Number of updates that are recorded."""
_FRAMEWORKS = ("torch", "torchrl", "tensordict")


@dataclass
class _Update:
    """The inputs of an update, the agent's numbers and steps before, and a flag on the device."""

    inputs: dict[str, Any]
    numbers: dict[str, float]
    taken: dict[str, Tensor]
    broken: Tensor | None = None


class BlackBox:
    """Recorder of the last updates; it changes nothing and reads nothing from the device.

    Args:
        agent: The learner.
        device: Where it learns.
        overwritten: Whether the next decisions overwrite the memory of a batch (rollouts): one copy
            is kept then, of the last batch.
    """

    def __init__(self, agent: Agent, device: torch.device, *, overwritten: bool) -> None:
        self.agent, self.device, self.overwritten = agent, device, overwritten
        self._updates: deque[_Update] = deque(maxlen=1 if overwritten else _KEPT)

    def before(self, batch: TensorDictBase, number: int, frames: int) -> None:
        """Record the inputs of update ``number``, with schedules at ``frames``."""
        if self.overwritten:
            self._updates.clear()  # its memory is released first
        inputs = {
            "number": number,
            "frames": frames,
            "batch": dict(named_tensors(batch.clone() if self.overwritten else batch)),
            "batch_size": list(batch.batch_size),
            "random": _random(self.device),
        }
        parts = {name: getattr(self.agent, name) for name in getattr(self.agent, "parts", ())}
        numbers = {name: part for name, part in parts.items() if isinstance(part, (int, float))}
        self._updates.append(_Update(inputs, numbers, _taken(self.agent)))

    def after(self, found: Mapping[str, Tensor]) -> None:
        """Record whether that update was broken; ``found`` is what it returned."""
        loss = found.get("loss", torch.zeros(()))
        broken = found["skipped"] if "skipped" in found else ~loss.isfinite().all()
        self._updates[-1].broken = broken

    def clear(self) -> None:
        """Forget everything: training continues from another state."""
        self._updates.clear()

    def contents(self) -> dict[str, Any]:
        """Return tensors and numbers of a broken update, or of the last one if none was.

        It is the first of the latest that broke in a row. Reads from the device. ``agent`` is the
        state of now, but for plain numbers; ``moved`` counts each optimizer's steps since then.
        """
        if not self._updates:
            return {}
        broken: list[_Update] = []
        for update in reversed(self._updates):
            if update.broken is not None and bool(update.broken.any()):
                broken.append(update)
            elif broken:
                break
        update = broken[-1] if broken else self._updates[-1]
        taken, now = update.taken, _taken(self.agent)
        state = {
            "agent": self.agent.state_dict() | update.numbers,
            "moved": {name: int(now[name] - before) for name, before in taken.items()},
        }
        return {"update": update.inputs | state}


def _taken(agent: Agent) -> dict[str, Tensor]:
    """Return the steps that each optimizer of an agent has taken, named after its attribute."""
    found: dict[str, Tensor] = {}
    for name, value in vars(agent).items():
        inner = value if isinstance(value, Mapping) else {"": value}
        for key, each in inner.items():
            if isinstance(each, GatedAdam):
                found[f"{name}.{key}" if key else name] = each.taken
    return found


def _random(device: torch.device) -> dict[str, Tensor]:
    """Return the states of an update's random generators; all of them are in host memory."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found


# ---------------------------------------------------------------------- retracing


@dataclass(frozen=True)
class Finding:
    """A tensor with NaN or infinite values.

    Attributes:
        stage: One of :data:`STAGES`.
        name: Of the tensor.
        nan: Number of NaN values.
        infinite: Number of infinite values.
        size: Number of values.
        first: Index of the first such value.
    """

    stage: str
    name: str
    nan: int
    infinite: int
    size: int
    first: tuple[int, ...]


@dataclass
class Findings:
    """The non-finite tensors of an update.

    Attributes:
        checked: Number of tensors by stage.
        found: Those with NaN or infinite values, in the order of the update.
        origin: The first operation that made NaN from finite values, and the line that called it.
    """

    checked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    found: list[Finding] = field(default_factory=list)
    origin: str | None = None

    def check(self, stage: str, name: str, value: Any, *, allowed: float | None = None) -> None:
        """Check a tensor; ``allowed`` is an infinity that has a meaning there."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return
        self.checked[stage] += 1
        value = value.detach()
        broken = ~value.isfinite()
        if allowed is not None:
            broken &= value != allowed
        if bool(broken.any()):
            nan, count = int(value.isnan().sum()), int(broken.sum())
            first = tuple(broken.nonzero()[0].tolist())
            self.found.append(Finding(stage, name, nan, count - nan, value.numel(), first))

    @property
    def first(self) -> Finding | None:
        """The first by stage, and within a stage the first in the order of the update."""
        return min(self.found, key=lambda each: STAGES.index(each.stage), default=None)


def retrace(agent: Agent, update: Mapping[str, Any]) -> Findings:
    """Repeat a recorded update with its random draws, and check every tensor on the way.

    Args:
        agent: Made as that of the run; it takes over the recorded state.
        update: Recorded by :class:`BlackBox`.
    """
    findings = Findings()
    for name, value in update["batch"].items():
        findings.check("batch", name, value)
    for name, value in named_tensors(update["agent"]):
        findings.check("parameters", name, value)
    agent.load_state_dict(update["agent"])
    agent.set_frames(update["frames"])
    device = next(agent.policy.parameters()).device
    batch = TensorDict(dict(update["batch"]), update["batch_size"], device=device)
    torch.set_rng_state(update["random"]["cpu"].cpu())
    if device.type == "cuda" and "cuda" in update["random"]:
        torch.cuda.set_rng_state(update["random"]["cuda"].cpu(), device)
    with _checked(agent, findings), _Origin(findings):
        found = agent.update(batch.unflatten_keys("/"))
    for name, value in found.items():
        findings.check("loss", name, value)
    return findings


@contextmanager
def _checked(agent: Agent, findings: Findings) -> Iterator[None]:
    """Check the outputs of every module, and every gradient once it is complete."""
    names: dict[int, str] = {}

    def check_outputs(module: nn.Module, given: Any, returned: Any) -> None:
        name = names.get(id(module), type(module).__name__)
        for place, value in named_tensors(returned):
            label = f"{name}: {place}" if place else name
            findings.check("network", label, value, allowed=-torch.inf)  # masked scores

    def check_gradient(name: str, weight: Tensor) -> None:
        findings.check("gradient", name, weight.grad)

    with ExitStack() as undo:
        undo.callback(register_module_forward_hook(check_outputs).remove)
        for name, module in _modules(agent):
            if names.setdefault(id(module), name) != name:
                continue  # shared by two attributes
            for own, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad and parameter.is_leaf:
                    check = partial(check_gradient, f"{name}.{own}")
                    undo.callback(parameter.register_post_accumulate_grad_hook(check).remove)
        yield


def _modules(agent: Agent) -> Iterator[tuple[str, nn.Module]]:
    """Yield all modules of an agent, named after its attributes."""
    for name, value in vars(agent).items():
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                yield f"{name}.{inner}" if inner else name, module


class _Origin(TorchDispatchMode):
    """Notes the first operation that makes NaN from inputs without NaN."""

    def __init__(self, findings: Findings) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.findings = findings

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watched = self.findings.origin is None and "empty" not in func.__name__
        sound = watched and not _has_nan((args, kwargs))
        returned = func(*args, **(kwargs or {}))
        if sound and _has_nan(returned):
            self.findings.origin = f"{func} at {_calling_line()}"
        return returned


def _calling_line() -> str:
    """Return the innermost line outside of the frameworks: ``module:line function``."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.partition(".")[0] not in _FRAMEWORKS:
            return f"{module}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "an unknown line"


def _has_nan(values: Any) -> bool:
    """Return True if a tensor among arguments or results, lists included, has a NaN."""
    return any(t.is_floating_point() and bool(t.isnan().any()) for t in tensors(values))
