"""Exit codes, and errors that become one line for the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

BAD_INPUT = 2
"""Exit code for an impossible request."""
INTERRUPTED = 130
"""Exit code of SIGINT where there is nothing to save yet."""


def guarded(run: Callable[[], int]) -> int:
    """Return the exit code of ``run``; print an error that is meant for the user as one line."""
    try:
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, stops()):
            print(error)
            return 0
        if (reason := _user_error(error)) is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"packing: {reason}", file=sys.stderr)
        return BAD_INPUT


def stops() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a command that was stopped on request and has saved its state."""
    from agents.training.evaluate import StoppedError

    return (StoppedError,)


def _user_error(error: Exception) -> BaseException | None:
    """Return the error whose message is written for the user; None for a fault of the program."""
    from hydra.errors import InstantiationException

    from agents.config.folders import ConfigError
    from agents.training.capture import CaptureError
    from agents.training.checkpoint import CheckpointError
    from agents.training.runs import RunFolderError
    from packing_env.generators import GeneratorError
    from packing_env.items import CatalogueError, MeshError
    from packing_env.plan import PlanError
    from packing_env.types import ParameterError

    if isinstance(error, InstantiationException):
        cause = error if error.__cause__ is None else error.__cause__
        return cause if isinstance(cause, (ValueError, OSError, ImportError)) else None
    ours = (
        CaptureError, CatalogueError, CheckpointError, ConfigError, GeneratorError, MeshError,
        ParameterError, PlanError, RunFolderError,
    )  # fmt: skip
    return error if isinstance(error, ours) else None
