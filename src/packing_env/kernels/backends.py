"""The choice of a kernel backend: all backends have the same signatures and return the same bits.

Kernels of networks, in `agents`, use the same choice, but they sum in another order.

A backend is chosen once per device type and named in the log. The argument `backend` of an
operation, `set_backend` and the environment variable PACKING_KERNELS override the choice, in this
order. To add a backend, add it to :data:`BACKENDS`, and write a module per operation,
``kernels/<operation>/<name>.py``. If a backend lacks an operation, the eager one runs.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from packing_env.kernels.operators import declare

_LOGGER = logging.getLogger("packing_env.kernels")

ENVIRONMENT_VARIABLE = "PACKING_KERNELS"

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
"""True if Triton's interpreter was chosen before the start; it also takes CPU tensors."""

_COMPILING = [0.0]


def compile_seconds(more: float = 0.0) -> float:
    """Return the seconds that this process has spent compiling kernels, after adding ``more``."""
    _COMPILING[0] += more
    return _COMPILING[0]


def clock() -> float:
    """Return the time in seconds, without the time in which kernels were compiled."""
    return time.perf_counter() - compile_seconds()


class KernelError(RuntimeError):
    """A kernel cannot be compiled or started; the message names it and the cause."""


@dataclass(frozen=True)
class Backend:
    """A backend of the operations.

    Attributes:
        package: Required package; None for torch itself.
        preferred_on: Device types on which it is the default if its package is installed.
        runs_on: Device types whose tensors it accepts, in addition to meta tensors; None for all.
    """

    package: str | None = None
    preferred_on: tuple[str, ...] = ()
    runs_on: tuple[str, ...] | None = None


BACKENDS: dict[str, Backend] = {
    "eager": Backend(),
    "numba": Backend("numba", preferred_on=("cpu",), runs_on=("cpu",)),
    "triton": Backend(
        "triton", preferred_on=("cuda",), runs_on=("cuda", "cpu") if INTERPRETING else ("cuda",)
    ),
}

Implementations = dict[str, Callable[..., Any]]
"""The functions of one operation by backend."""

_operations: dict[str, Implementations] = {}

_forced: str | None = None
_chosen: dict[str, str] = {}


def implement(
    schema: str,
    package: str,
    *,
    fake: Callable[..., Any],
    eager: Callable[..., Any],
) -> Implementations:
    """Declare an operation for every backend that has a file for it, and return its functions.

    The operator of a backend is ``torch.ops.packing_env.<backend>_<operation>``, and calls the
    function ``<operation>`` of ``<package>.<backend>``.

    Args:
        schema: the operation in the notation of :func:`packing_env.kernels.operators.declare`.
        package: folder of the operation, its ``__name__``.
        fake: see `declare`.
        eager: the operation in plain torch.
    """
    name = schema.partition("(")[0]
    implementations: Implementations = {"eager": eager}
    for backend, properties in BACKENDS.items():
        module = f"{package}.{backend}"
        if properties.runs_on is not None and importlib.util.find_spec(module) is not None:
            targets = dict.fromkeys(properties.runs_on, f"{module}:{name}")
            implementations[backend] = declare(f"{backend}_{schema}", **targets, fake=fake)
    _operations[name] = implementations
    return implementations


def select(
    implementations: Implementations, backend: str | None, device_type: str
) -> Callable[..., Any]:
    """Return the function of the requested backend, or of the one chosen for this device.

    If the backend lacks the operation, the eager function is returned.
    """
    name = resolve(backend, device_type)
    return implementations[name if name in implementations else "eager"]


def is_compiled_for(device_type: str) -> bool:
    """Return True if this device uses the operations that exist only for numba on the CPU."""
    return device_type == "cpu" and resolve(None, device_type) == "numba"


def available_backends(device_type: str = "cpu") -> list[str]:
    """Return the names of the backends for a device type whose packages are installed.

    Triton is a backend of the CPU if TRITON_INTERPRET=1 was set before the start.
    """
    return [
        name
        for name, backend in BACKENDS.items()
        if _is_installed(backend) and _takes(backend, device_type)
    ]


def set_backend(name: str | None) -> None:
    """Use this backend on every device from now on; None returns to the default choice.

    Functions that torch.compile has already traced keep the backend that was used then. Existing
    environments keep their engine; build them again to change it.

    Raises:
        ValueError: no such backend, or its package is not installed.
    """
    global _forced
    if name is not None:
        _check(name)
    _forced = name
    _chosen.clear()


def backend_for(device_type: str) -> str:
    """Return the name of the backend used on a device type ("cpu", "cuda", "meta")."""
    if device_type not in _chosen:
        name, reason = _choose(device_type)
        _chosen[device_type] = name
        has = [operation for operation, backends in _operations.items() if name in backends]
        if name != "eager" and len(has) < len(_operations):
            reason += f"; eager for all operations except {', '.join(has)}"
        _LOGGER.info("kernels on %s: %s (%s)", device_type, name, reason)
    return _chosen[device_type]


def give_up(device_type: str, error: Exception) -> None:
    """Run every operation on a device type eagerly from now on; one log line says why.

    Raises:
        Exception: the error itself, if the backend was requested by name.
    """
    if _forced or os.environ.get(ENVIRONMENT_VARIABLE):
        raise error
    _chosen[device_type] = "eager"
    _LOGGER.warning("kernels on %s: eager, without fused steps: %s", device_type, error)


def resolve(name: str | None, device_type: str) -> str:
    """Return the name of the backend to use: the given one, or the choice for the device.

    The choice is made while tracing, so that a compiled graph uses one backend.

    Raises:
        ValueError: no such backend, its package is not installed, or it does not run on the device.
    """
    if name is None:
        return backend_for(device_type)
    _check(name, device_type)
    return name


# torch.compiler.assume_constant_result does only this, but first imports the whole compiler.
# Without that, commands that compile nothing start in about half the time.
resolve._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _choose(device_type: str) -> tuple[str, str]:
    """Return the backend for a device type, and why."""
    variable = os.environ.get(ENVIRONMENT_VARIABLE)
    for name, by in ((_forced, "set_backend"), (variable, ENVIRONMENT_VARIABLE)):
        if name:
            _check(name, device_type)
            return name, f"set by {by}"
    for name, backend in BACKENDS.items():
        if device_type in backend.preferred_on:
            if _is_installed(backend):
                return name, f"{backend.package} is installed"
            return "eager", f"{backend.package} is not installed"
    return "eager", "the only one for this device"


def _check(name: str, device_type: str | None = None) -> None:
    """Raise unless a backend exists, is installed and runs on the device."""
    if name not in BACKENDS:
        raise ValueError(f"unknown kernel backend {name!r}: choose from {', '.join(BACKENDS)}")
    if not _is_installed(BACKENDS[name]):
        raise ValueError(
            f"kernel backend {name!r} needs the package {BACKENDS[name].package!r}: "
            f"install it or choose from {', '.join(available_backends(device_type or 'cpu'))}"
        )
    if device_type is not None and not _takes(BACKENDS[name], device_type):
        raise ValueError(
            f"kernel backend {name!r} does not run on {device_type}: "
            f"choose from {', '.join(available_backends(device_type))}"
        )


def _takes(backend: Backend, device_type: str) -> bool:
    return backend.runs_on is None or device_type in (*backend.runs_on, "meta")


def _is_installed(backend: Backend) -> bool:
    return backend.package is None or importlib.util.find_spec(backend.package) is not None
