"""Extreme points of packed boxes; they replace corner points if there is no map of placements."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.proposals.places import by_height, indexed, item_sizes, packed


def extreme_points(scene: Scene) -> Proposals:
    """Propose every item in every orientation at the extreme points of the packed boxes.

    The order is: point (by z, y, x), item, orientation.
    """
    _, present = item_sizes(scene)
    point, real = points_of_boxes(scene.state["boxes"].long())
    x, y = (point[:, :, axis, None, None] for axis in (0, 1))
    return packed(scene, indexed(scene, x, y, real[:, :, None, None] & present[:, None]))


def points_of_boxes(
    boxes: Int[Tensor, "B N 6"],
) -> tuple[Int[Tensor, "B P 3"], Bool[Tensor, "B P"]]:
    """Return the origin and the extreme points of all boxes, ordered by z, y, x, and their mask.

    A box ``(x0 y0 z0 x1 y1 z1)`` has six points. ``(x1, y0, z0)`` is moved to smaller y, and to
    smaller z; ``(x0, y1, z0)`` to smaller x, and to smaller z; ``(x0, y0, z1)`` to smaller x, and
    to smaller y. Each point moves until it meets the wall, or the far side of a packed box that
    contains it along the two other axes (half-open: the lower end is included, the upper is not).
    The source is Crainic, Perboli and Tadei, INFORMS J. Computing, 2008. There only earlier boxes
    stop a point; here all boxes do.
    """
    # 1. The origin, and three corners of each box, each moved along two axes.
    x0, y0, z0, x1, y1, z1 = boxes.unbind(-1)
    origin = torch.zeros_like(boxes[:, :1, :3])
    points, real = [origin], [torch.ones_like(origin[..., 0]).bool()]
    for corner, axes in (((x1, y0, z0), (1, 2)), ((x0, y1, z0), (0, 2)), ((x0, y0, z1), (0, 1))):
        for axis in axes:
            points.append(_moved(torch.stack(corner, -1), axis, boxes))
            real.append(z1 > z0)
    # 2. Order by z, y, x; padding comes last.
    point, there = torch.cat(points, 1), torch.cat(real, 1)
    order = by_height(point, there)
    return point.gather(1, order[..., None].expand_as(point)), there.gather(1, order)


def _moved(point: Int[Tensor, "B N 3"], axis: int, boxes: Int[Tensor, "B N 6"]) -> Tensor:
    """Move points to smaller coordinates along an axis until they meet a box or the wall."""
    # 1. The boxes that contain the point along the two other axes.
    holds = torch.ones_like(point[:, :, :1]).bool()
    for other in range(3):
        if other != axis:
            at = point[:, :, None, other]
            holds = holds & (boxes[:, None, :, other] <= at) & (at < boxes[:, None, :, other + 3])
    # 2. The nearest far side of these boxes, or the wall at 0.
    far = boxes[:, None, :, axis + 3]
    stops = torch.where(holds & (far <= point[:, :, None, axis]), far, 0).amax(-1)
    return torch.cat((point[..., :axis], stops[..., None], point[..., axis + 1 :]), -1)
