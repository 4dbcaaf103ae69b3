"""Cuboids: recognised among the rows of a catalogue, or made from their sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.items.inputs import CatalogueError, numbered
from packing_env.items.meshes.surface import widened
from packing_env.items.rasterization import CELL_MARGIN, window_cells
from packing_env.items.rotations import QUARTER_TURN, quarter_turn_plan, source_axes
from packing_env.items.rows import COM_STEPS, Grid, MemoryEstimate, windows

VOLUME_TOLERANCE = 1e-5
"""Relative difference that is allowed between a cuboid's volume and that of its cells (rounding).
"""


def check_boxes(
    extents: Sequence[Sequence[float | int]] | Tensor, rotations: Tensor
) -> Float[Tensor, "M 3"]:
    """Return the extents of `Catalogue.from_cuboids` in their unit; raise unless they are valid."""
    boxes = torch.from_numpy(widened(torch.as_tensor(extents).cpu().numpy()))
    if boxes.numel() == 0:
        raise CatalogueError("no cuboids given; extents must be [M, 3]")
    if boxes.ndim != 2 or boxes.shape[1] != 3:
        raise CatalogueError(f"extents must be [M, 3], got {tuple(boxes.shape)}")
    invalid = (~(torch.isfinite(boxes) & (boxes > 0)).all(1)).nonzero().flatten().tolist()
    if invalid:
        sides = boxes[invalid[0]].tolist()
        raise CatalogueError(f"cuboid {invalid[0]} has extents {sides}; they must be positive")
    if not bool(((rotations == 0) | (rotations.abs() == 1)).all()):
        raise CatalogueError(
            "cuboids need axis-aligned orientations: 'pi/2', 'cuboid', 'yaw' or 'none'"
        )
    return boxes


def check_upright(
    upright: Sequence[Sequence[bool | int]] | Tensor | None, count: int
) -> Bool[Tensor, "M 3"]:
    """Return which sides may stand vertically; None means all."""
    if upright is None:
        return torch.ones(count, 3, dtype=torch.bool)
    flags = torch.as_tensor(upright).cpu().to(torch.bool)
    if flags.shape != (count, 3):
        raise CatalogueError(
            f"upright must be [{count}, 3] flags that say which sides (x, y, z) of each cuboid "
            f"may stand vertically, got {tuple(flags.shape)}"
        )
    flat = (~flags.any(1)).nonzero().flatten().tolist()
    if flat:
        raise CatalogueError(f"upright allows no side of cuboid {flat[0]}; allow at least one")
    return flags


def cuboid_names(boxes: Float[Tensor, "M 3"], names: Sequence[str] | None) -> list[str]:
    """Give each box a unique name; the default is its extents."""
    if names is None:
        names = ["x".join([f"{side:g}" for side in box]) for box in boxes.tolist()]
    if len(names) != len(boxes):
        raise CatalogueError(
            f"names has {len(names)} entries for {len(boxes)} cuboids; give one name each"
        )
    return numbered(names)


def whole_cuboids(items: Mapping[str, Tensor], cell: float) -> Int[Tensor, "M R D"]:
    """Return the sides (w, h, d) in cells of whole-cell cuboids; D is 0 if any row is not one.

    A cuboid is recognised by its maps: a full rectangle from 0 to a constant height of whole cells,
    with the volume of these cells. Heights are compared as float32, so `d * cell` equals the height
    in every formula of the rules. Padding gets (0, 0, 0); lengths are metres.
    """
    top, bottom, size, mask, volume = (
        items[name] for name in ("top", "bottom", "size", "orientation_mask", "volume")
    )
    sides = torch.zeros(*mask.shape, 3, dtype=torch.int32)
    for row in range(len(mask)):  # for most catalogues of meshes, the first row decides
        inside = windows(size[row], top.shape[2:])
        height = top[row].amax((1, 2))
        expected = torch.where(inside, height[:, None, None], -torch.inf)
        flat = (bottom[row] == torch.where(inside, 0.0, torch.inf)) & (top[row] == expected)
        levels = (height.double() / cell).round().nan_to_num(0.0, 0.0, 0.0)
        whole = (height == (levels * cell).float()) & (levels >= 1)
        cells = torch.cat([size[row].double(), levels[:, None]], 1)
        boxed = cells.prod(1) * cell**3
        full = (boxed - volume[row]).abs() <= VOLUME_TOLERANCE * boxed
        if not bool((flat.all((1, 2)) & whole & full | ~mask[row]).all()):
            return sides[..., :0]
        sides[row] = torch.where(mask[row][:, None], cells, 0.0).to(torch.int32)
    return sides


def cuboid_tensors(
    boxes: Float[Tensor, "M 3"],
    rotations: Float[Tensor, "R 3 3"],
    upright: Bool[Tensor, "M 3"],
    grid: Grid,
    *,
    maps: bool,
) -> dict[str, Tensor]:
    """Make the tensors of a catalogue of boxes, by their extents in metres.

    With maps, the tensor `cuboid` is missing; `whole_cuboids` computes it.

    Raises:
        CatalogueError: The maps do not fit into memory; or, without maps, an extent is not a whole
            multiple of the cell.
    """
    if not maps:
        _check_whole(boxes, grid.cell)
    # 1. Sides, window, origin and centre of mass of every box in every orientation.
    axes = source_axes(rotations)
    cells = window_cells(boxes / grid.cell)
    sides = cells[:, axes]
    heights = boxes[:, axes[:, 2]] if maps else sides[..., 2].double() * grid.cell
    offsets = _offsets(boxes, cells, rotations, grid.cell)
    centres = torch.einsum("rij,mj->mri", rotations, boxes / 2.0) + offsets
    com = (centres[..., :2] * (COM_STEPS / grid.cell)).round().to(torch.int64)
    # 2. Sort the orientations: those that are allowed, fit, and repeat no other come first.
    distinct = _distinct_fitting(sides[..., :2], heights.float(), upright[:, axes[:, 2]], grid)
    order = distinct.int().argsort(dim=1, descending=True, stable=True)
    order = order[:, : max(1, int(distinct.sum(1).max()))]
    mask = distinct.gather(1, order)

    def chosen(values: Tensor) -> Tensor:
        index = order[..., None].expand(-1, -1, values.shape[2])
        return values.gather(1, index) * mask[..., None]

    # 3. The tensors; padding has no window and a peak above every lid.
    size, volume = chosen(sides[..., :2]), boxes.prod(1)
    peak = torch.where(mask, heights.float().gather(1, order), torch.inf)
    top = bottom = torch.zeros(*mask.shape, 0, 0)
    if maps:
        top, bottom = _maps(size, peak, grid)
    first = torch.where(mask[:, 0], order[:, 0], 0)
    identity = torch.eye(3, dtype=torch.float64)
    tensors = {
        "top": top,
        "bottom": bottom,
        "size": size,
        "peak": peak,
        "com": chosen(com),
        "volume": volume,
        "extent": boxes.gather(1, axes[first]),
        "orientation_mask": mask,
        "rotation": torch.where(mask[..., None, None], rotations[order], identity),
        "offset": chosen(offsets),
        "volume_reliable": torch.ones(len(boxes), dtype=torch.bool),
    }
    return tensors if maps else tensors | {"cuboid": chosen(sides).to(torch.int32)}


def _check_whole(boxes: Float[Tensor, "M 3"], cell: float) -> None:
    cells = boxes / cell
    off = ((cells - cells.round()).abs() > CELL_MARGIN) | (cells.round() < 1)
    broken = off.any(1).nonzero().flatten().tolist()
    if broken:
        sides = " x ".join(f"{side:g}" for side in boxes[broken[0]].tolist())
        raise CatalogueError(
            f"cuboid {broken[0]} measures {sides} m, not whole multiples of the step of {cell:g} m "
            f"({len(broken)} of {len(boxes)} cuboids); use a finer unit, or geometry='maps'"
        )


def _distinct_fitting(
    size: Int[Tensor, "M R 2"],
    peak: Float[Tensor, "M R"],
    allowed: Bool[Tensor, "M R"],
    grid: Grid,
) -> Bool[Tensor, "M R"]:
    """Mark the orientations that are allowed, are not too wide, and repeat no other."""
    width, depth = grid.cells
    distinct = (allowed & (size[..., 0] <= width) & (size[..., 1] <= depth)).mT.contiguous()
    key = torch.cat([size.double(), peak[..., None].double()], 2).transpose(0, 1).contiguous()
    for r in range(1, len(key)):
        distinct[r] &= ~(distinct[:r] & (key[:r] == key[r]).all(-1)).any(0)
    return distinct.mT


def _maps(
    size: Int[Tensor, "M R 2"], peak: Float[Tensor, "M R"], grid: Grid
) -> tuple[Tensor, Tensor]:
    """Return the upper and lower surfaces of cuboids, all in windows of the largest size."""
    memory = MemoryEstimate(len(size), grid)
    memory.add(size.shape[1], size.flatten(0, 1))
    memory.check()
    inside = windows(size, size.flatten(0, 1).amax(0).clamp(min=1).tolist())
    top = torch.where(inside, peak[..., None, None], -torch.inf)
    return top, torch.where(inside, 0.0, torch.inf)


def cuboid_voxels(top: Float[Tensor, "M R U V"], grid: Grid) -> Bool[Tensor, "M R U V W"]:
    """Return the voxels of cuboids, given their upper surfaces, up to one layer above the lid."""
    layers = torch.arange(grid.layers + 1, device=top.device)
    height = window_cells(top.clamp(min=0.0) / grid.cell)
    return layers < torch.where(torch.isfinite(top), height, 0)[..., None]


def _offsets(
    boxes: Float[Tensor, "M 3"],
    cells: Int[Tensor, "M 3"],
    rotations: Float[Tensor, "R 3 3"],
    cell: float,
) -> Float[Tensor, "M R 3"]:
    """Compute the position of the source's origin in each window, as in `ItemMaps.rotated`."""
    base, turns = quarter_turn_plan(rotations)
    turn = torch.tensor(QUARTER_TURN, dtype=torch.float64)
    axes = source_axes(rotations)
    offsets = []
    for b, k in zip(base, turns, strict=True):
        offset = (-(boxes @ rotations[b].mT)).clamp(min=0.0)
        window = cells[:, axes[b, :2]].flip(1).double() * cell  # after one quarter turn
        for step in range(k):
            offset = offset @ turn.mT
            offset[:, 0] += window[:, step % 2]
        offsets.append(offset)
    return torch.stack(offsets, 1)
