"""The ``packing`` command; it imports torch and Hydra only where they are used."""

from __future__ import annotations

import argparse
import io
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from agents import __version__
from agents.cli.commands import COMMANDS, Argument, Command
from agents.config import imports
from agents.config.folders import config_folder, groups
from agents.loggers.plain_text import LogHandler, PlainFormatter, on_terminal, printable
from agents.training import process

_WIDTHS = (60, 100)
"""Smallest and largest number of characters in a line of help; without a terminal, the largest."""
_MANY = 4
"""Smallest number of options with a common prefix that the help folds."""
_MOST_IN_USAGE = 10
"""Largest number of arguments in the usage line of a command; more appear as [OPTIONS]."""
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
"""Topics that ``--info`` prints; the names are Hydra's."""
BAD_INPUT = 2
"""Exit code for an invalid request."""
INTERRUPTED = 130
"""Exit code for SIGINT while there is nothing to save yet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    process.tune()
    print_any_letter()
    os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")  # torchrl reads it on import
    handler = LogHandler()
    handler.setFormatter(PlainFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    options = _read(sys.argv[1:] if arguments is None else list(arguments))
    return guarded(lambda: _dispatch(options))


def print_any_letter() -> None:
    """Print letters outside the terminal's encoding as escape codes, as ``sys.stderr`` does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _read(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; settings and options may come in any order."""
    # 1. Name the command.
    arguments = _command_first(_asked_for_help(arguments))
    parser = _parser(arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        from packing_env.names import close_names

        near = close_names(command, COMMANDS)
        parser.error(f"unknown command {command!r}{near}; commands: {', '.join(COMMANDS)}")
    if command is not None:
        _check_options(parser, COMMANDS[command], arguments)
    # 2. Settings and options may be mixed; refuse anything else.
    options, rest = parser.parse_known_args(arguments)
    settings = not COMMANDS[options.command].arguments
    foreign = [word for word in rest if word.startswith("-") or not settings]
    if foreign:
        hint = _as_settings(rest[0], arguments, COMMANDS[options.command])
        parser.error(f"unrecognized arguments: {' '.join(foreign)}{hint}")
    # 3. If a command starts with words, turn them into settings.
    if settings:
        options.overrides += rest
    words = COMMANDS[options.command].words
    if words is not None:
        options.overrides = _load(words)([options.what, *options.overrides])
    return options


def _check_options(
    parser: argparse.ArgumentParser, command: Command, arguments: Sequence[str]
) -> None:
    """Refuse an unknown option of a command without settings; argparse would blame its value."""
    for word in arguments if command.arguments else ():
        name = word.partition("=")[0]
        if word == "--":
            break
        if name.startswith("--") and name not in _option_names(command):
            parser.error(f"unknown option {name}{_near_option(name, command)}")


def _option_names(command: Command) -> list[str]:
    names = [name for argument in _arguments(command) for name in argument.names]
    return ["--help", "--version", *(name for name in names if name.startswith("--"))]


def _near_option(word: str, command: Command) -> str:
    """Return ``"; did you mean --import?"`` for a misspelt option, or an empty string."""
    from packing_env.names import close_names

    near = close_names(word.partition("=")[0], _option_names(command))
    return near.replace(", did", "; did", 1)


def _asked_for_help(arguments: list[str]) -> list[str]:
    """Read ``help``, ``COMMAND help`` and an empty command line as ``--help``."""
    if arguments and "help" not in arguments[:2]:
        return arguments
    return [*(word for word in arguments if word != "help"), "--help"]


def _command_first(arguments: list[str]) -> list[str]:
    """Move each ``--import MODULE`` from before the command to behind the command."""
    place = 0
    while arguments[place:] and arguments[place].partition("=")[0] == "--import":
        place += 1 if "=" in arguments[place] else 2
    rest = arguments[place:]
    return [rest[0], *arguments[:place], *rest[1:]] if rest and rest[0] in COMMANDS else rest


def _as_settings(word: str, arguments: list[str], command: Command) -> str:
    """Return a hint on how to write ``--agent dqn``, the style of other programs, as a setting."""
    if command.arguments or not word.startswith("--"):
        return ""
    if near := _near_option(word, command):
        return near
    key, equals, value = word.lstrip("-").partition("=")
    following = [*arguments[arguments.index(word) + 1 :], "..."][0]
    key, value = key.replace("-", "_"), value if equals else following
    return f"; settings are KEY=VALUE without dashes: {key}={value}"


# ---------------------------------------------------------------------- the command line


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="packing",
        description="Pack boxes and parts of any shape, and train and compare agents that pack.",
        epilog="packing COMMAND --help lists what can be set.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in arguments if word in COMMANDS), None)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            usage=_usage(name, command),
            help=command.summary,
            description=textwrap.fill(
                command.description or f"{command.summary[0].upper()}{command.summary[1:]}.",
                _width(),
            ),
            epilog=_epilog(command) if name == named else None,
            formatter_class=_formatter,
            allow_abbrev=False,
        )
        for argument in _arguments(command) if name == named else ():
            sub.add_argument(*argument.names, **argument.options)
    return parser


def _usage(name: str, command: Command) -> str | None:
    """Return the usage line of a command with settings or many options; None for argparse's own."""
    if not command.arguments:
        what = "" if command.words is None else "WHAT "
        return f"packing {name} [OPTIONS] {what}[KEY=VALUE ...]"
    if len(command.arguments) <= _MOST_IN_USAGE:
        return None
    words = [argument for argument in command.arguments if not argument.names[0].startswith("-")]
    required = [argument for argument in command.arguments if argument.options.get("required")]
    options = "".join(f" {each.names[0]} {each.options['metavar']}" for each in required)
    places = " ".join(f"{each.options['metavar']} ..." for each in words)
    return f"packing {name} {places}{options} [OPTIONS]"


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=_width())


def _width() -> int:
    least, most = _WIDTHS
    return max(least, min(most, shutil.get_terminal_size((most, 24)).columns))


def _arguments(command: Command) -> Iterator[Argument]:
    yield from command.arguments
    yield Argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="a package of yours, imported first",
    )  # fmt: skip
    if command.arguments:
        return
    if command.words is not None:
        yield Argument("what", metavar="WHAT", help="what to measure, see below")
    yield Argument("overrides", nargs="*", metavar="KEY=VALUE", help=argparse.SUPPRESS)
    yield Argument(
        "--config-dir", action="append", default=[], type=Path, metavar="DIR",
        help="a folder of your own YAML files, with the same groups",
    )  # fmt: skip
    yield Argument("--cfg", choices=["job"], help="print the configuration and stop")
    yield Argument("--resolve", action="store_true", help="with --cfg: replace ${...} by values")
    yield Argument(
        "--info", nargs="?", const="all", choices=INFO, metavar="WHAT",
        help="print how Hydra composes the configuration, and stop",
    )  # fmt: skip
    if command.sweeps:
        yield Argument(
            "-m", "--multirun", action="store_true", help="run every combination of the values"
        )


def _epilog(command: Command) -> str:
    lines: list[str] = []
    if command.words is not None:
        subjects = sorted((config_folder() / "bench").glob("*.yaml"))
        lines.append("WHAT (bench.KEY=VALUE sets its options):")
        for path in subjects:
            lines += _wrapped(f"  {path.stem:<11}{_first_comment(path)}")
        lines.append("")
    if command.groups:
        options = groups()
        lines.append("groups, as in GROUP=OPTION (and GROUP.KEY=VALUE; --cfg job prints all keys):")
        for name in command.groups:
            lines += _wrapped(f"  {name:<11}{', '.join(_folded(options.get(name, [])))}")
        lines.append("")
    return "\n".join([*lines, "examples:", *(f"  {example}" for example in command.examples)])


def _folded(names: Sequence[str]) -> list[str]:
    """Return names; several names with a common prefix become one: ``learn_{dqn, ppo}``."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(name.partition("_")[0], []).append(name)
    folded = []
    for prefix, members in families.items():
        if len(members) < _MANY:
            folded += members
            continue
        rest = _folded([name.removeprefix(f"{prefix}_") for name in members])
        folded.append(f"{prefix}_{{{', '.join(rest)}}}")
    return folded


def _wrapped(entry: str) -> list[str]:
    return textwrap.wrap(entry, _width(), subsequent_indent=" " * 13, break_on_hyphens=False)


def _first_comment(path: Path) -> str:
    """Return the first comment of a YAML file that is not a directive of Hydra."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = (line for line in lines if line.startswith("# ") and not line.startswith("# @"))
    return next(comments, "").removeprefix("# ")


# ---------------------------------------------------------------------- running a command


def _dispatch(options: argparse.Namespace) -> int:
    command = COMMANDS[options.command]
    if options.imports or imports.imported():
        imports.import_packages(options.imports)
    if command.arguments:
        return int(_load(command.run)(options))
    # 1. Check the keys and names alone, so that a typo does not wait for torch to be imported.
    from agents.config import keys

    folders = [*options.config_dir, *imports.conf_folders()]
    request = keys.Request(options.command, options.overrides, folders)
    sweeps = getattr(options, "multirun", False)
    if options.info is not None:
        keys.show_info(request, options.info, sweeps=sweeps)
        return 0
    if sweeps:
        from agents.cli.sweep import sweep

        return sweep(request, _load(command.run), guarded)
    valid, own = keys.composed(request.command, request.overrides, request.folders)
    # 2. Check the values, and run.
    run: Callable[..., int] = _load(command.run)
    from agents.config.compose import checked

    config = checked(valid, own, request.overrides, request.folders)
    if options.cfg:
        from omegaconf import OmegaConf

        print(OmegaConf.to_yaml(config, resolve=options.resolve), end="")
        return 0
    return run(config, request)


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


# ---------------------------------------------------------------------- errors


def guarded(run: Callable[[], int]) -> int:
    """Return the exit code of ``run``; print an error that is meant for the user as one line."""
    try:
        return run()
    except KeyboardInterrupt:
        print("packing: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except process.StoppedError as error:
        print(error)
        return 0
    except Exception as error:
        if (reason := _user_error(error)) is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(on_terminal(f"packing: {printable(str(reason))}", sys.stderr), file=sys.stderr)
        return BAD_INPUT


def _user_error(error: Exception) -> BaseException | None:
    """Return the error whose message is meant for the user; None for a bug in the program.

    Errors for the user are those of our own classes, values that a constructor refuses, and YAML
    files that cannot be read.
    """
    yaml = sys.modules.get("yaml")
    if yaml is not None and isinstance(error, yaml.YAMLError):
        return type(error)(" ".join(str(error).split()))
    hydra = sys.modules.get("hydra.errors")
    if hydra is not None and isinstance(error, hydra.InstantiationException):
        cause = error.__cause__ or error
        return cause if isinstance(cause, (ValueError, OSError, ImportError)) else None
    ours = type(error).__module__.partition(".")[0] in ("agents", "packing_env")
    return error if ours else None
