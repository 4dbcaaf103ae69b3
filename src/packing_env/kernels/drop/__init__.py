"""The operations `drop_height` and `update_drop_height`: rest heights of all placements."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_surfaces, check_tensor
from packing_env.kernels.drop import eager
from packing_env.kernels.layout import lattice_shape


def _empty(heightmap: Tensor, bottom: Tensor, stride: int, *chosen: Tensor | None) -> Tensor:
    like = chosen[0] if chosen and chosen[0] is not None else bottom
    return heightmap.new_empty(lattice_shape(heightmap, like, stride))


_DROP_HEIGHT = implement(
    "drop_height(Tensor heightmap, Tensor bottom, int stride, Tensor? which=None,"
    " Tensor? size=None) -> Tensor",
    __name__,
    fake=_empty,
    eager=eager.drop_height,
)


def drop_height(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    stride: int = 1,
    *,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
    backend: str | None = None,
) -> Float[Tensor, "B R Xs Ys"]:
    """Return the rest height of every placement on the lattice {0, stride, 2 stride, ...}.

    The rest height in metres is the maximum over the finite cells (u, v) of heightmap[x+u, y+v] -
    bottom[u, v]. It is +inf if one of these cells leaves the container, and for orientations
    without such cells. Huang et al., RA-L 2023, Eq. 1.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        stride: lattice step in cells.
        which: orientation r of row b has the lower surface bottom[which[b, r]]; a negative index
            means no surface.
        size: with `which`: cells (w, h) of each surface up to its last finite cell, 0 if there is
            none. They are not checked. They save a search that takes long for large windows.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    # Compiled kernels trust shapes and dtypes.
    check_surfaces(heightmap, bottom, stride, which, size)
    operation = select(_DROP_HEIGHT, backend, heightmap.device.type)
    z: Tensor = operation(heightmap, bottom, stride, which, size)
    return z


class DropHeights(NamedTuple):
    """Memory for maps that :func:`update_drop_height` keeps up to date.

    Attributes:
        heightmap: ``[B, X, Y]`` the heights to which the maps belong, metres.
        which: ``[B, R]`` the lower surfaces to which they belong, as for `drop_height`.
        z: ``[B, R, Xs, Ys]`` as from `drop_height`. A caller may set entries to +inf; these keep it
            until their row is computed in full.
    """

    heightmap: Float[Tensor, "B X Y"]
    which: Int[Tensor, "B R"]
    z: Float[Tensor, "B R Xs Ys"]

    @classmethod
    def new(cls, heightmap: Tensor, which: Tensor, stride: int) -> DropHeights:
        """Return memory in which no map is known yet."""
        # Outside inference mode; otherwise later updates could not write into it.
        with torch.inference_mode(False):
            z = torch.empty(lattice_shape(heightmap, which, stride), dtype=heightmap.dtype)
            none = torch.full(which.shape, -1, dtype=which.dtype)
            return cls(torch.zeros(heightmap.shape, dtype=heightmap.dtype), none, z)


def update_drop_height(
    known: DropHeights,
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "K U V"],
    stride: int,
    *,
    which: Int[Tensor, "B R"],
    size: Int[Tensor, "K 2"],
) -> Float[Tensor, "B R Xs Ys"]:
    """Compute `drop_height` from the maps of earlier heights, in place, on a CPU with numba.

    A surface that was there before keeps its map, except for placements whose window contains a
    cell that has risen. New surfaces are computed in full. So are rows in which a cell is lower
    than before, as after the start of another episode.

    Args:
        known: the maps of any earlier heights and surfaces; updated.
        heightmap: as for `drop_height`, and so are the following arguments.
        bottom: lower surfaces.
        stride: lattice step in cells.
        which: the surface of each orientation.
        size: cells of each surface.

    Returns:
        ``known.z``.
    """
    check_surfaces(heightmap, bottom, stride, which, size)
    check_tensor("known.heightmap", known.heightmap, torch.float32, heightmap.shape)
    check_tensor("known.which", known.which, torch.int64, which.shape)
    check_tensor("known.z", known.z, torch.float32, lattice_shape(heightmap, which, stride))
    update = import_module(f"{__name__}.update_numba").update_drop_height
    update(known, heightmap, bottom, stride, which, size)
    return known.z
