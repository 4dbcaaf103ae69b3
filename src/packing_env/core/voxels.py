"""Geometry ``"voxels"``: items are sets of voxels that may lie anywhere in the container.

An item in one orientation is the set of voxels ``voxels [U, V, W]`` (True = solid), from the lower
corner of its bounding box. A placement is the voxel of the container at which this corner lies:
``(x, y, layer)``. Nothing falls: powder holds the items.
:mod:`packing_env.reference.voxel_episode` specifies this geometry.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.cuboids.boxes import metres
from packing_env.core.ground import Ground, Landing, Maps, Resting
from packing_env.core.heightmap import window_index
from packing_env.core.orientation import Placement, num_orientations
from packing_env.types import Catalogue, PackingParams, ParameterError, State


class VoxelGround(Ground):
    """The rules of geometry ``"voxels"``."""

    description = "voxels"

    @staticmethod
    def begin(batch: int, params: PackingParams, device: torch.device) -> State:
        """Return ``occupied [B, X, Y, Z]``, all False."""
        shape = (batch, *params.grid, params.layers)
        return {"occupied": torch.zeros(shape, dtype=torch.bool, device=device)}

    @staticmethod
    def prepare(catalogue: Catalogue, params: PackingParams) -> Catalogue:
        """Return the catalogue with properties of its voxels.

        ``voxel_size [M, R, 3]`` are the extents in voxels, ``voxel_faces [M, R, 3, 2]`` the numbers
        of voxels in the outermost layer on the two sides of each axis, and ``voxel_surface [M, R]``
        the number of faces that no voxel of the item covers, at least 1.

        Raises:
            ParameterError: The catalogue has no voxels.
        """
        if "voxel_size" in catalogue:
            return catalogue
        if "voxels" not in catalogue:
            raise ParameterError(
                "geometry='voxels' needs a catalogue with voxels; build it with voxels=True, as in "
                "Catalogue.from_meshes(..., voxels=True)"
            )
        voxels = catalogue["voxels"]
        sizes, faces = [], []
        surface = torch.zeros_like(catalogue["orientation_mask"], dtype=torch.int64)
        for axis in (2, 3, 4):
            # Cross-sections: the number of voxels at each position along the axis.
            others = tuple({2, 3, 4} - {axis})
            section = voxels.sum(others)
            position = torch.arange(1, section.shape[-1] + 1, device=voxels.device)
            size = torch.where(section > 0, position, 0).amax(-1)
            last = section.gather(-1, (size - 1).clamp(min=0)[..., None])
            sizes.append(size)
            faces.append(torch.cat((section[..., :1], last), -1))
            # Each run of voxels along the axis begins and ends with a face.
            edge = torch.zeros_like(voxels.narrow(axis, 0, 1))
            framed = torch.cat((edge, voxels, edge), axis).int()
            surface += framed.diff(dim=axis).abs().sum((2, 3, 4))
        return {
            **catalogue,
            "voxel_size": torch.stack(sizes, -1),
            "voxel_faces": torch.stack(faces, -2).int(),
            "voxel_surface": surface.clamp(min=1),
        }

    def legal_on_floor(self) -> Bool[Tensor, "M R"]:
        """Return which orientations fit into the empty container."""
        size = self.prepare(self.catalogue, self.params)["voxel_size"]
        container = size.new_tensor(self.params.pitches)
        return self.catalogue["orientation_mask"] & (size <= container).all(-1)

    def empty_maps(
        self, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"], on_floor: Bool[Tensor, "M R"]
    ) -> Maps:
        """Return :meth:`maps` of an empty container, without running a kernel.

        Every placement inside is legal, and an item touches only the container's sides.
        """
        legal = (there[..., None] & on_floor[item_id])[..., None, None, None]
        contact = torch.zeros_like(legal, dtype=torch.int32)
        for axis, length in enumerate(self.params.pitches):
            # Placements along this axis: inside, and at the lower or the upper side.
            at = torch.arange(length, device=item_id.device)
            room = length - self.catalogue["voxel_size"][item_id][..., axis, None]
            low, high = self.catalogue["voxel_faces"][item_id][..., axis, :].unbind(-1)
            touching = (at == 0) * low[..., None] + (at == room) * high[..., None]
            shape = [*item_id.shape, -1, 1, 1, 1]
            shape[axis + 3] = length
            legal = legal & (at <= room).view(shape)
            contact = contact + touching.view(shape)
        return _with_heights(legal, torch.where(legal, contact, 0), self.params)

    def maps(self, state: State, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"]) -> Maps:
        """Return legality and contact of all placements (:func:`kernels.voxel_places`)."""
        items, count = self.prepare(self.catalogue, self.params), num_orientations(self.catalogue)
        which = item_id[..., None] * count + torch.arange(count, device=item_id.device)
        legal, contact = kernels.voxel_places(
            state["occupied"],
            torch.where(there[..., None], which, -1).flatten(1),
            items["voxels"].flatten(0, 1),
            items["voxel_size"].flatten(0, 1),
            removable=self.params.removable,
        )
        planes = (item_id.shape[1], count)
        return _with_heights(legal.unflatten(1, planes), contact.unflatten(1, planes), self.params)

    def at_rest(self, state: State, item_id: Int[Tensor, " B"], placement: Placement) -> Resting:
        """Return the height of a placement; the powder holds every item, so all are stable.

        ``support_ratio`` is the share of the footprint's columns whose lowest voxel lies on an
        occupied voxel or on the floor.
        """
        # 1. The lowest voxel of each column of the item.
        part = self.catalogue["voxels"][item_id, placement.orientation]
        lowest = (part & (part.int().cumsum(-1) == 1)).flatten(1)
        # 2. The voxel below each of them; the floor counts as occupied.
        floor = torch.ones_like(state["occupied"][..., :1])
        below = torch.cat((floor, state["occupied"][..., :-1]), -1).flatten(1)
        held = below.gather(1, _window(placement, part.shape[1:], self.params)) & lowest
        ratio = held.sum(1).double() / lowest.sum(1).clamp(min=1).double()
        z = metres(_layer(placement), self.params)
        return Resting(z, torch.ones_like(placement.valid), ratio)

    def commit(self, state: State, item: Landing) -> State:
        """Return ``occupied`` with the item's voxels, and the tops of its columns."""
        # 1. Add the voxels. Indices outside the container are clamped; the item has no voxel there.
        part = self.catalogue["voxels"][item.item_id, item.placement.orientation]
        part = part & item.carried[:, None, None, None]
        index = _window(item.placement, part.shape[1:], self.params)
        taken = state["occupied"].flatten(1).int().scatter_add(1, index, part.flatten(1).int()) > 0
        occupied = taken.view_as(state["occupied"])
        # 2. The top of a column is above its highest occupied voxel.
        layers = torch.arange(1, self.params.layers + 1, device=occupied.device)
        top = torch.where(occupied, layers, 0).amax(-1)
        return {"occupied": occupied, "heightmap": metres(top, self.params)}


def _layer(placement: Placement) -> Int[Tensor, " B"]:
    assert placement.layer is not None, "a placement in geometry='voxels' needs a layer"
    return placement.layer


def _window(placement: Placement, shape: torch.Size, params: PackingParams) -> Int[Tensor, "B UVW"]:
    """Return the flat indices of the container's voxels from a placement on, clamped."""
    corner = (placement.x, placement.y, _layer(placement))
    return window_index(params.pitches, corner, shape)[0]


def _with_heights(legal: Tensor, contact: Tensor, params: PackingParams) -> Maps:
    """Return the maps, with the height of each layer where a placement is legal, else +inf."""
    z = metres(torch.arange(params.layers, device=legal.device), params)
    return Maps(torch.where(legal, z, torch.inf), legal, contact)
