"""Fine-tuning: a new run that starts with the weights of a trained agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from agents.algorithms.base import Agent
from agents.config import checks
from agents.config.folders import ConfigError
from agents.config.keys import Request
from agents.config.saved import adopt
from agents.policies.policy_wrapper import LinearSchedule
from agents.training.checkpoint import Checkpoint, CheckpointError, load

_TASK = ("container", "cell", "action_mode", "orientations", "stability", "num_visible")
"""Options of ``env`` whose change is reported."""
_MOST = 4
"""Number of tensors that a message names."""


def source(
    config: DictConfig, request: Request, *, resumes: bool
) -> tuple[DictConfig, Checkpoint | None]:
    """Load ``warm_start.checkpoint``; return it, and the configuration with its network.

    A network that the command line sets has priority. A run that resumes keeps its own weights, so
    nothing is loaded for it.

    Raises:
        CheckpointError: There is no intact checkpoint.
        ConfigError: The checkpoint is that of another agent.
    """
    if resumes or config.warm_start.get("checkpoint") is None:
        return config, None
    # 1. Check the agent.
    saved = load(str(config.warm_start.checkpoint), device=config.device)
    trained = saved.meta.get("agent")
    if config.agent["_target_"] != trained:
        names = names_of(trained, request.folders)
        raise ConfigError(
            f"warm_start.checkpoint={config.warm_start.checkpoint} holds {trained}, but agent is "
            f"{config.agent['_target_']}; set agent={names[0] if names else 'NAME'}"
        )
    # 2. Take the network over.
    trained_config = saved.meta.get("config", {})
    sections = [] if config.get("network") is None else ["network"]
    return adopt(config, trained_config, sections, request.overrides, request.folders), saved


def names_of(agent: Any, folders: Sequence[Path]) -> list[str]:
    """Return the options of the group ``agent`` whose ``_target_`` is ``agent``."""
    paths = checks.files("agent", folders)
    return [path.stem for path in paths if checks.load(path)["_target_"] == agent]


def carry_over(agent: Agent, saved: Checkpoint) -> tuple[int, list[str]]:
    """Copy the weights of a checkpoint into an agent, wherever name and shape are equal.

    Weights are all parameters, and the policy's buffers, such as running means of a normaliser.
    Optimizers, counters and schedules stay as they are, and targets become equal to the networks.

    Returns:
        The number of tensors that were copied, and a description of each of the others.

    Raises:
        CheckpointError: No tensor fits.
    """
    # 1. Copy what fits.
    copied, others = 0, []
    for part, name, own in _weights(agent):
        there: Any = saved.state
        for key in ("agent", part, name):
            there = there.get(key) if isinstance(there, Mapping) else None
        if isinstance(there, Tensor) and there.shape == own.shape:
            own.data.copy_(there)
            copied += 1
        elif own.requires_grad or part == "policy":  # other tensors are targets
            others.append(f"{name} (saved: {_size(there)}, here: {_size(own)})")
    if not copied:
        raise CheckpointError(f"{saved.path}: no weight fits this agent: {_listed(others)}")
    # 2. Copy the networks to their targets.
    getattr(agent, "copy_to_targets", lambda: None)()
    return copied, others


def from_config(config: DictConfig, agent: Agent, saved: Checkpoint) -> str:
    """Copy the weights, and return a text on what is carried over and what is not."""
    copied, others = carry_over(agent, saved)
    lines = [
        f"warm start: {copied} of {copied + len(others)} tensors are carried over from "
        f"{saved.path}; optimizer, counters and replay start from the beginning"
    ]
    if others:
        lines.append(f"not carried over, so they start at random: {_listed(others)}")
    if changes := list(_changes(config, saved.meta.get("config", {}))):
        lines.append(f"the weights were trained on another task: {'; '.join(changes)}")
    return "\n".join(lines)


def misfits(module: nn.Module, state: Any) -> str:
    """Describe the tensors of a state whose name or shape is not that of a module's tensor."""
    if not isinstance(state, Mapping):
        return "its weights are missing"
    own = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    there = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    sizes = [(name, *(_size(each.get(name)) for each in (there, own))) for name in there | own]
    return _listed([f"{name} (saved: {a}, here: {b})" for name, a, b in sizes if a != b])


def _weights(agent: Agent) -> Iterator[tuple[str, str, Tensor]]:
    """Yield part, name and tensor of everything to carry over; shared tensors come once."""
    seen = set()
    for part in getattr(agent, "parts", ("policy",)):
        module = getattr(agent, part)
        if not isinstance(module, nn.Module):
            continue
        scheduled = set(_schedules(module))
        for name, value in module.state_dict(keep_vars=True).items():
            # Buffers of losses are settings and geometry; those of a policy may be learned.
            learned = isinstance(value, nn.Parameter) or part == "policy"
            if not isinstance(value, Tensor) or not learned or name in scheduled:
                continue
            if value.data_ptr() not in seen or not value.numel():
                seen.add(value.data_ptr())
                yield part, name, value


def _schedules(module: nn.Module) -> Iterator[str]:
    for path, inner in module.named_modules():
        for each in vars(inner).values():
            if isinstance(each, LinearSchedule):
                for suffix in ("", "_start", "_end"):
                    yield f"{path}.{each.name}{suffix}".lstrip(".")


def _changes(config: DictConfig, saved: Mapping[str, Any]) -> Iterator[str]:
    own = OmegaConf.to_container(config, resolve=False)
    assert isinstance(own, dict)
    env = saved.get("env") if isinstance(saved.get("env"), Mapping) else {}
    for name in _TASK:
        there, here = (env or {}).get(name), own["env"].get(name)
        if there != here:
            yield f"env.{name} was {there} and is now {here}"
    for section in ("items", "generator", "reward"):
        if section in saved and saved[section] != own.get(section):
            yield f"{section} differs"


def _size(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "missing"
    return " x ".join(str(side) for side in value.shape) or "one number"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more
