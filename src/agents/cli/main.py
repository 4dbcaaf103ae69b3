"""The ``packing`` command."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.cli.commands import COMMANDS, Command
from agents.training import process

if TYPE_CHECKING:
    from omegaconf import DictConfig

BAD_INPUT = 2
"""Exit code where what was asked for is impossible."""
INTERRUPTED = 130
"""Exit code of SIGINT where there is nothing to save yet."""


@dataclass(frozen=True)
class Request:
    """A command line, read.

    Attributes:
        command: Name of the subcommand.
        overrides: Its ``key=value`` arguments.
        folders: Folders of further YAML files.
    """

    command: str
    overrides: list[str]
    folders: list[Path]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    process.tune()
    os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")  # torchrl's own, read on import
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("packing_env.kernels.compiler").setLevel(logging.INFO)
    options = _read(sys.argv[1:] if arguments is None else list(arguments))
    return _guarded(lambda: _dispatch(options))


def _read(arguments: list[str]) -> argparse.Namespace:
    """The command line; settings and options may come in any order."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    settings = COMMANDS[options.command].arguments is None
    foreign = [word for word in rest if word.startswith("-") or not settings]
    if foreign:
        parser.error(f"unrecognized arguments: {' '.join(foreign)}")
    if settings:
        options.overrides += rest
    words = COMMANDS[options.command].words
    if words is not None:
        options.overrides = _named(words)([options.what, *options.overrides])
    return options


def _guarded(run: Callable[[], int]) -> int:
    """The exit code of ``run``; errors made for the user become one line."""
    from hydra.errors import InstantiationException

    try:
        return run()
    except InstantiationException as error:
        cause = error.__cause__ if error.__cause__ is not None else error
        if not isinstance(cause, (ValueError, OSError, ImportError)):
            raise
        return _refuse(cause)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _stops() as error:
        print(error)
        return 0
    except _our_errors() as error:
        return _refuse(error)


def _stops() -> tuple[type[Exception], ...]:
    """How a command ends that was asked to stop and has saved what there is."""
    from agents.training.evaluate import StoppedError

    return (StoppedError,)


def _our_errors() -> tuple[type[Exception], ...]:
    """Errors whose message is written for the user."""
    from agents.config.checks import ConfigError
    from agents.training.capture import CaptureError
    from agents.training.checkpoint import CheckpointError
    from agents.training.runs import RunFolderError
    from packing_env.generators import GeneratorError
    from packing_env.items import CatalogueError, MeshError
    from packing_env.plan import PlanError
    from packing_env.types import ParameterError

    return (
        CaptureError,
        CatalogueError,
        CheckpointError,
        ConfigError,
        GeneratorError,
        MeshError,
        ParameterError,
        PlanError,
        RunFolderError,
    )


def _refuse(error: BaseException) -> int:
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    print(f"packing: {error}", file=sys.stderr)
    return BAD_INPUT


# ---------------------------------------------------------------------- the command line


def _parser() -> argparse.ArgumentParser:
    import packing_env

    parser = argparse.ArgumentParser(
        prog="packing",
        description="Packing irregular 3D items: train agents, compare them, look at the result.",
        epilog="packing COMMAND --help says what can be set.",
    )
    parser.add_argument("--version", action="version", version=packing_env.__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        _add(commands, name, command)
    return parser


def _add(commands: argparse._SubParsersAction, name: str, command: Command) -> None:
    sub = commands.add_parser(
        name,
        help=command.summary,
        description=f"{command.summary.capitalize()}.",
        epilog=_Epilog(command),
        formatter_class=_HelpFormatter,
    )
    if command.arguments is not None:
        _named(command.arguments)(sub)
        return
    if command.words is not None:
        sub.add_argument("what", metavar="WHAT", help="what is measured, see below")
    sub.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, see below")
    sub.add_argument(
        "--config-dir",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a folder of your own YAML files, with the same groups",
    )
    sub.add_argument("--cfg", choices=["job"], help="print the configuration and stop")
    if command.sweeps:
        sub.add_argument("-m", "--multirun", action="store_true", help="run every combination")


_WIDTH = 100
"""Characters in a line of help."""


class _Epilog(str):
    """Help that reads the configuration's folders only when it is shown."""

    __slots__ = ("command",)

    def __new__(cls, command: Command) -> _Epilog:
        made = super().__new__(cls, command.summary)
        made.command = command
        return made

    def text(self) -> str:
        """Groups with their options, and examples."""
        lines = ["examples:", *(f"  {example}" for example in self.command.examples)]
        return "\n".join([*self._subjects(), *self._groups(), *lines])

    def _subjects(self) -> list[str]:
        """What WHAT may be, with the first comment of its file."""
        if self.command.words is None:
            return []
        from agents.config.compose import config_folder

        lines = ["WHAT (bench.KEY=VALUE sets what it takes):"]
        for path in sorted((config_folder() / "bench").glob("*.yaml")):
            said = next(
                line for line in path.read_text(encoding="utf-8").splitlines()
                if line.startswith("# ") and not line.startswith("# @")
            )  # fmt: skip
            lines.append(f"  {path.stem:<11}{said.removeprefix('# ')}")
        return [*lines, ""]

    def _groups(self) -> list[str]:
        if not self.command.groups:
            return []
        from agents.config.compose import groups

        found = groups()
        lines = ["groups, as in GROUP=OPTION (and GROUP.KEY=VALUE; --cfg job prints every key):"]
        for name in self.command.groups:
            listed = f"  {name:<11}{', '.join(found.get(name, []))}"
            lines += textwrap.wrap(listed, _WIDTH, subsequent_indent=" " * 13)
        return [*lines, ""]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def add_text(self, text: str | None) -> None:
        super().add_text(text.text() if isinstance(text, _Epilog) else text)


def _dispatch(options: argparse.Namespace) -> int:
    command = COMMANDS[options.command]
    if command.arguments is not None:
        return _named(command.run)(options)
    from agents.config import compose as composition

    request = Request(options.command, options.overrides, options.config_dir)
    if getattr(options, "multirun", False):
        return _sweep(request, command)
    config = composition.compose(request.command, request.overrides, request.folders)
    if options.cfg:
        from omegaconf import OmegaConf

        print(OmegaConf.to_yaml(config, resolve=True), end="")
        return 0
    return _named(command.run)(config, request)


def _named(place: str) -> Callable[..., Any]:
    """The function at ``module:function``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _sweep(request: Request, command: Command) -> int:
    """Let Hydra run every combination, once each of them is known to be possible.

    The first that fails, or is asked to stop, ends it.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig

    from agents.config import compose as composition

    jobs = list(composition.expand(request.overrides))
    for job in jobs:
        composition.compose(request.command, job, request.folders)
    run: Callable[[DictConfig, Request], int] = _named(command.run)
    codes: list[int] = []
    stops: list[BaseException] = []

    def noted(config: DictConfig, asked: Request) -> int:
        try:
            return run(config, asked)
        except (*_stops(), KeyboardInterrupt) as stop:
            stops.append(stop)
            raise

    def task(config: DictConfig) -> None:
        overrides = list(HydraConfig.get().overrides.task)
        composition.finish(config, overrides)
        config.run_dir = HydraConfig.get().runtime.output_dir
        asked = Request(request.command, overrides, request.folders)
        codes.append(_guarded(lambda: noted(config, asked)))
        if codes[-1] or stops:
            raise SystemExit(codes[-1])

    before = sys.argv
    folder = str(composition.config_folder())
    sys.argv = ["packing", "--multirun", *composition.search_path(request.folders)]
    sys.argv += request.overrides
    try:
        hydra.main(folder, request.command, version_base=composition.HYDRA_VERSION)(task)()
    except KeyboardInterrupt as stop:  # between two jobs
        stops.append(stop)
    except SystemExit:
        if not (stops or any(codes)):
            raise
    finally:
        sys.argv = before
    if stops:
        print(f"the sweep was stopped in job {len(codes)} of {len(jobs)}")
        return 0
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
