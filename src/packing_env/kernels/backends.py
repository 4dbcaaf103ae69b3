"""Chooses a backend for the hot operations: one public signature each, the same bits from each.

A backend is chosen once per device type and named in the log. The argument `backend`,
`set_backend` and the environment variable PACKING_KERNELS override the choice, in this order.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels import operators as triton_operators
from packing_env.kernels.drop import eager as drop_eager
from packing_env.kernels.support import eager

_LOGGER = logging.getLogger("packing_env.kernels")

ENVIRONMENT_VARIABLE = "PACKING_KERNELS"

torch.library.define(
    "packing_env::numba_drop_height",
    "(Tensor heightmap, Tensor bottom, int stride, Tensor? which=None, Tensor? size=None)"
    " -> Tensor",
)
torch.library.define(
    "packing_env::numba_com_hull",
    "(Tensor heightmap, Tensor bottom, Tensor z, Tensor com, float contact_tol, int stride,"
    " bool centres) -> Tensor",
)
torch.library.define(
    "packing_env::numba_support_count",
    "(Tensor heightmap, Tensor bottom, Tensor z, float contact_tol, int stride) -> Tensor",
)


@torch.library.impl("packing_env::numba_drop_height", "cpu")
def _numba_drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    from packing_env.kernels.drop import numba as drop_numba

    return drop_numba.drop_height(heightmap, bottom, stride, which, size)


@torch.library.impl("packing_env::numba_com_hull", "cpu")
def _numba_com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    from packing_env.kernels.support import hull_numba

    return hull_numba.com_hull(heightmap, bottom, z, com, contact_tol, stride, centres)


@torch.library.impl("packing_env::numba_support_count", "cpu")
def _numba_support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    from packing_env.kernels.support import numba as support_numba

    return support_numba.support_count(heightmap, bottom, z, contact_tol, stride)


@torch.library.register_fake("packing_env::triton_drop_height")
@torch.library.register_fake("packing_env::numba_drop_height")
def _fake_drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    like = bottom if which is None else which
    return heightmap.new_empty(eager.lattice_shape(heightmap, like, stride))


@torch.library.register_fake("packing_env::triton_com_hull")
@torch.library.register_fake("packing_env::numba_com_hull")
def _fake_com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    return z.new_empty(z.shape, dtype=torch.bool)


@torch.library.register_fake("packing_env::triton_support_count")
@torch.library.register_fake("packing_env::numba_support_count")
def _fake_support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    return z.new_empty(z.shape, dtype=torch.int32)


@dataclass(frozen=True)
class Backend:
    """One implementation of the hot operations."""

    drop_height: Callable[..., Tensor]
    com_hull: Callable[[Tensor, Tensor, Tensor, Tensor, float, int, bool], Tensor]
    support_count: Callable[[Tensor, Tensor, Tensor, float, int], Tensor]
    package: str | None = None
    """What must be installed for it; None for torch itself."""
    preferred_on: tuple[str, ...] = ()
    """Device types on which it is the default where its package is installed."""
    runs_on: tuple[str, ...] | None = None
    """Device types whose tensors it takes, beside meta tensors; None for all."""
    picks: bool = False
    """Whether its `drop_height` reads surfaces where they are; for others they are gathered."""
    complete: bool = True
    """Whether it has the other operations of this package as well; if not, they are eager."""


BACKENDS: dict[str, Backend] = {
    "eager": Backend(drop_eager.drop_height, eager.com_hull, eager.support_count),
    "numba": Backend(
        torch.ops.packing_env.numba_drop_height,
        torch.ops.packing_env.numba_com_hull,
        torch.ops.packing_env.numba_support_count,
        package="numba",
        preferred_on=("cpu",),
        runs_on=("cpu",),
        picks=True,
    ),
    "triton": Backend(
        torch.ops.packing_env.triton_drop_height,
        torch.ops.packing_env.triton_com_hull,
        torch.ops.packing_env.triton_support_count,
        package="triton",
        preferred_on=("cuda",),
        runs_on=triton_operators.DEVICES,
        complete=False,
    ),
}

_forced: str | None = None
_chosen: dict[str, str] = {}


def drop_height(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    stride: int = 1,
    *,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
    backend: str | None = None,
) -> Float[Tensor, "B R Xs Ys"]:
    """Rest height of every placement on the lattice {0, stride, 2 stride, ...}.

    The maximum over the finite cells (u, v) of heightmap[x+u, y+v] - bottom[u, v]; +inf where one
    of them leaves the container and for orientations without any. Metres.
    Huang et al., RA-L 2023, Eq. 1.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        stride: lattice step in cells.
        which: orientation r of row b has the lower surface bottom[which[b, r]]; none if negative.
        size: with `which`, cells (w, h) of each surface up to its last finite ones, 0 for none.
            They are believed, and spare a search that large windows feel.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    operations = _backend(backend, heightmap.device.type)
    if which is None or not operations.picks:
        bottom = bottom if which is None else _gather(bottom, which)
        check_maps(heightmap, bottom, stride)
        return operations.drop_height(heightmap, bottom, stride)
    check_maps(heightmap, bottom[None].expand(len(heightmap), *bottom.shape), stride)
    check_tensor("which", which, torch.int64, (len(heightmap), which.shape[-1]))
    if size is not None:
        check_tensor("size", size, torch.int64, (len(bottom), 2))
    return operations.drop_height(heightmap, bottom, stride, which, size)


def _gather(bottom: Float[Tensor, "K U V"], which: Int[Tensor, "B R"]) -> Float[Tensor, "B R U V"]:
    found = bottom[which.clamp(min=0)]
    return found.masked_fill_((which < 0)[..., None, None], torch.inf)


def com_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    contact_tol: float,
    stride: int = 1,
    *,
    centres: bool = False,
    backend: str | None = None,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Whether the centre of mass lies over the convex hull of the supporting cells' squares.

    A cell supports iff heightmap - bottom >= z - contact_tol in float32. Of all corners of
    supporting squares, slope = dy/|dx| is taken from the centre of mass (1/64-cell integers,
    float64; 2^20 dy where dx = 0), separately for the corners left (dx <= 0) and right (dx >= 0)
    of it. Stable iff there are corners on both sides, max_left + max_right >= 0 and
    min_left + min_right <= 0: the boundary counts as stable. False where z is +inf.

    With `centres`, the same of the supporting cells' centres, whose hull may be a segment or a
    point.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        z: what `drop_height` returned, or +inf for placements that do not matter.
        com: centre of mass (x, y) from the window's lower corner, in 1/64 cell.
        contact_tol: metres by which a supporting cell may miss contact.
        stride: lattice step in cells.
        centres: take the hull of the cells' centres, not of their squares.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    check_maps(heightmap, bottom, stride)
    check_tensor("z", z, torch.float32, eager.lattice_shape(heightmap, bottom, stride))
    check_tensor("com", com, torch.int64, (*bottom.shape[:2], 2))
    operations = _backend(backend, heightmap.device.type)
    return operations.com_hull(heightmap, bottom, z, com, contact_tol, stride, centres)


def support_count(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    contact_tol: float,
    stride: int = 1,
    *,
    backend: str | None = None,
) -> Int[Tensor, "B R Xs Ys"]:
    """How many footprint cells support each placement, int32; 0 where z is +inf.

    A cell supports iff heightmap - bottom >= z - contact_tol in float32.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        z: what `drop_height` returned, or +inf for placements that do not matter.
        contact_tol: metres by which a supporting cell may miss contact.
        stride: lattice step in cells.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    check_maps(heightmap, bottom, stride)
    check_tensor("z", z, torch.float32, eager.lattice_shape(heightmap, bottom, stride))
    operations = _backend(backend, heightmap.device.type)
    return operations.support_count(heightmap, bottom, z, contact_tol, stride)


def available_backends(device_type: str = "cpu") -> list[str]:
    """Names of the backends for a device type whose packages are installed.

    Triton's is among those for the CPU where TRITON_INTERPRET=1 was set before the start.
    """
    return [
        name
        for name, backend in BACKENDS.items()
        if _is_installed(backend) and _takes(backend, device_type)
    ]


def set_backend(name: str | None) -> None:
    """Use this backend on every device from now on; None returns to the default choice.

    Functions that torch.compile has traced keep the backend they were traced with.

    Raises:
        ValueError: no such backend, or its package is not installed.
    """
    global _forced
    if name is not None:
        _check(name)
    _forced = name
    _chosen.clear()


def backend_for(device_type: str) -> str:
    """Name of the backend used on a device type ("cpu", "cuda", "meta")."""
    if device_type not in _chosen:
        name, reason = _choose(device_type)
        _chosen[device_type] = name
        if not BACKENDS[name].complete:
            reason += "; eager for all but drop_height, com_hull and support_count"
        _LOGGER.info("kernels on %s: %s (%s)", device_type, name, reason)
    return _chosen[device_type]


def _choose(device_type: str) -> tuple[str, str]:
    """Backend for a device type, and why."""
    if _forced is not None:
        _check(_forced, device_type)
        return _forced, "set by set_backend"
    wanted = os.environ.get(ENVIRONMENT_VARIABLE)
    if wanted:
        _check(wanted, device_type)
        return wanted, f"set by {ENVIRONMENT_VARIABLE}"
    for name, backend in BACKENDS.items():
        if device_type in backend.preferred_on:
            if _is_installed(backend):
                return name, f"{backend.package} is installed"
            return "eager", f"{backend.package} is not installed"
    return "eager", "the only one for this device"


@torch.compiler.assume_constant_result
def _resolve(name: str | None, device_type: str) -> str:
    """The backend's name, resolved while tracing so that a compiled graph holds one backend."""
    if name is None:
        return backend_for(device_type)
    _check(name, device_type)
    return name


def _backend(name: str | None, device_type: str) -> Backend:
    return BACKENDS[_resolve(name, device_type)]


def _check(name: str, device_type: str | None = None) -> None:
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


def check_maps(heightmap: Tensor, bottom: Tensor, stride: int) -> None:
    """The compiled kernels trust shapes and dtypes, so every backend checks them alike."""
    if stride < 1:
        raise ValueError(f"stride is a number of cells, at least 1, not {stride}")
    for name, tensor in (("heightmap", heightmap), ("bottom", bottom)):
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} should be torch.float32, not {tensor.dtype}")
    if heightmap.dim() != 3 or bottom.dim() != 4 or heightmap.shape[0] != bottom.shape[0]:
        raise ValueError(
            "heightmap should be [B, X, Y] and bottom [B, R, U, V] with the same B, not "
            f"{list(heightmap.shape)} and {list(bottom.shape)}"
        )


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Likewise of another argument."""
    if tensor.dtype != dtype:
        raise TypeError(f"{name} should be {dtype}, not {tensor.dtype}")
    if tensor.shape != shape:
        raise ValueError(f"{name} should have shape {list(shape)}, not {list(tensor.shape)}")


def _takes(backend: Backend, device_type: str) -> bool:
    return backend.runs_on is None or device_type in (*backend.runs_on, "meta")


def _is_installed(backend: Backend) -> bool:
    return backend.package is None or importlib.util.find_spec(backend.package) is not None
