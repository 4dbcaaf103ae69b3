"""Interface of a benchmark: a list of jobs, each of which yields rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig, OmegaConf

from agents.bench.measure.timing import Clock
from agents.config.compose import Request, compose, parse
from packing_env import kernels


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        case: Names and numbers that identify the measurement among the others.
        values: Results; a name ends with its unit.
    """

    case: dict[str, Any]
    values: dict[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """A measurement that was skipped, and the reason."""

    case: dict[str, Any]
    reason: str


Rows = Iterator[Row | LeftOut]


@dataclass(frozen=True)
class Job:
    """Part of a benchmark; the progress bar shows its name, or else the values of its case."""

    case: dict[str, Any]
    work: Callable[[], Iterable[Row | LeftOut]]
    name: str = ""

    @property
    def title(self) -> str:
        """Text of the progress bar."""
        return self.name or " ".join(str(value) for value in self.case.values() if value)


class Benchmark(Protocol):
    """Object that ``conf/bench/<name>.yaml`` builds.

    Attributes:
        columns: Values that the console shows, with their headings.
        measures: True if the numbers depend on this machine; the table then ends with the
            hardware and versions.
    """

    columns: ClassVar[Mapping[str, str]]
    measures: ClassVar[bool] = True

    def jobs(self, session: Session) -> Sequence[Job]:
        """Return the jobs in the order in which they run."""
        ...


@dataclass
class Session:
    """Configuration, command line and clock that the jobs of one run share.

    Attributes:
        config: Configuration of the command.
        request: Command line.
        clock: Timer.
        configurations: Every further configuration that was measured, by name.
        notes: Lines printed below the table.
    """

    config: DictConfig
    request: Request
    clock: Clock
    configurations: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _variants: dict[str, DictConfig] = field(default_factory=dict)

    def variant(self, **choices: Any) -> DictConfig:
        """Return the configuration with some values changed; they override the command line.

        Args:
            **choices: Values by key, with two underscores for a dot; ``None`` leaves a key alone.
        """
        chosen = {key.replace("__", "."): v for key, v in choices.items() if v is not None}
        if not chosen:
            return self.config
        changes = [f"{key}={value}" for key, value in chosen.items()]
        name = " ".join(changes)
        if name not in self._variants:
            given = parse(self.request.overrides)
            kept = [each.input_line or "" for each in given if each.key_or_group not in chosen]
            config = compose(self.request.command, [*kept, *changes], self.request.folders)
            self._variants[name] = config
            self.configurations[name] = OmegaConf.to_container(config, resolve=True)
        return self._variants[name]

    def chosen(self, key: str) -> bool:
        """Return True if the command line sets a key."""
        return any(override.key_or_group == key for override in parse(self.request.overrides))


def check_choices(
    key: str, given: Sequence[str], known: Iterable[str], *, required: bool = False
) -> None:
    """Raise ValueError if a setting names something unknown, or nothing where one is required."""
    known = tuple(known)
    if any(name not in known for name in given) or (required and not given):
        raise ValueError(f"{key}={list(given)}: choose from {', '.join(known)}")


def at_least(least: int, key: str, value: Any) -> int:
    """Return a setting of the benchmark as an integer; raise ValueError if it is too small."""
    if not isinstance(value, (int, float)) or value < least:
        raise ValueError(f"bench.{key}={value} must be at least {least}")
    return int(value)


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Run the hot operations on one backend inside the block."""
    kernels.set_backend(kernel)
    try:
        yield
    finally:
        kernels.set_backend(None)
