"""What a benchmark is: jobs that bring rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from omegaconf import DictConfig, OmegaConf

from agents.bench.timing import Clock
from agents.config.compose import compose, parse
from packing_env import kernels

if TYPE_CHECKING:
    from agents.cli.main import Request


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        case: What was measured: names and numbers that tell it from the others.
        values: What came out; the unit is the end of a value's name.
    """

    case: dict[str, Any]
    values: dict[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """What was not measured, and why."""

    case: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Job:
    """A part of a benchmark, shown by its name while it runs."""

    name: str
    case: dict[str, Any]
    work: Callable[[], Iterable[Row | LeftOut]]


class Benchmark(Protocol):
    """What ``conf/bench/<name>.yaml`` builds.

    Attributes:
        columns: The values that the console shows, with their headings.
        measures: Whether the numbers are of this machine.
    """

    columns: Mapping[str, str]
    measures: bool

    def jobs(self, session: Session) -> Sequence[Job]:
        """What is to be done, in this order."""
        ...


@dataclass
class Session:
    """What a benchmark works with.

    Attributes:
        config: Of the command.
        request: The command line.
        clock: Times.
        configurations: Every configuration that was measured besides ``config``, by name.
        notes: What else is to be said, a line each.
    """

    config: DictConfig
    request: Request
    clock: Clock
    configurations: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _variants: dict[str, DictConfig] = field(default_factory=dict)

    def variant(self, **choices: str | None) -> DictConfig:
        """The configuration with some choices in place of the command line's.

        Args:
            **choices: Values by key, two underscores for a dot; ``None`` leaves a key alone.
        """
        chosen = {key.replace("__", "."): v for key, v in choices.items() if v is not None}
        if not chosen:
            return self.config
        name = " ".join(f"{key}={value}" for key, value in chosen.items())
        if name not in self._variants:
            kept = [
                override.input_line or ""
                for override in parse(self.request.overrides)
                if override.key_or_group not in chosen
            ]
            overrides = [*kept, *(f"{key}={value}" for key, value in chosen.items())]
            config = compose(self.request.command, overrides, self.request.folders)
            self._variants[name] = config
            self.configurations[name] = OmegaConf.to_container(config, resolve=True)
        return self._variants[name]

    def chosen(self, key: str) -> bool:
        """Whether the command line sets a key."""
        return any(override.key_or_group == key for override in parse(self.request.overrides))


def runnable_kernels(device_type: str) -> list[str]:
    """Backends that are installed and made for a device type."""
    return kernels.available_backends(device_type)


@contextmanager
def using(kernel: str | None) -> Iterator[str | None]:
    """Inside, the hot operations come from one backend; ``None``: from the usual one."""
    if kernel is None:
        yield None
        return
    kernels.set_backend(kernel)
    try:
        yield kernel
    finally:
        kernels.set_backend(None)
