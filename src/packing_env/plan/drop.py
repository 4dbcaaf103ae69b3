"""The exact vertical distance from a solid to those below it, and where they touch.

Seen from above, two triangles overlap in a polygon. The distance between the triangles is linear
over it, so it is smallest at a corner of the polygon. Pairs of triangles are found on a grid of
buckets. A pair is skipped if the heights in its bucket show that it cannot be closer than the
closest pair so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

CONTACT = 1e-4
"""Metres; two solids that are closer than this touch."""
_BLOCK = 1 << 15
"""Number of pairs of triangles that are processed at once."""
_MOST_BUCKETS = 64
"""Largest number of buckets along each side of an item."""


class Drop(NamedTuple):
    """The fall of an item.

    Attributes:
        distance: Metres to the solids below; negative if the item is inside one of them.
        contacts: ``[C, 3]`` contact points, given at their position before the fall: points of the
            item's underside that come within :data:`CONTACT` of another solid. Only the corners of
            their hull, seen from above, are kept.
    """

    distance: float
    contacts: np.ndarray


class Ground:
    """The triangles on which items may fall.

    Args:
        container: ``(X, Y, H)`` metres.
        boxes: Lower corners and sides of pre-placed boxes, metres.
    """

    def __init__(self, container: Sequence[float], boxes: Sequence[Sequence[float]]) -> None:
        x, y, _ = container
        self._parts = [_Part(_rectangle(-x, -y, 0.0, 3 * x, 3 * y))]
        for left, front, z, dx, dy, dz in boxes:
            self._parts.append(_Part(_rectangle(left, front, z + dz, dx, dy)))

    def put(self, triangles: np.ndarray) -> None:
        """Add the triangles ``[T, 3, 3]`` of an item."""
        self._parts.append(_Part(triangles))

    def drop(self, triangles: np.ndarray, narrow: float) -> Drop:
        """Return how far an item ``[T, 3, 3]`` falls, and where it touches.

        Args:
            triangles: The triangles of its surface.
            narrow: Metres; two triangles whose overlap, seen from above, is a strip no wider than
                this pass each other.
        """
        body = _Part(triangles)
        near = np.concatenate([part.near(body) for part in self._parts])
        pairs = _Pairs(_slopes(triangles, narrow), _slopes(near, narrow), narrow)
        least = pairs.least(float(body.low[2]))
        return Drop(least, hull(pairs.contacts(least + CONTACT)))


class _Part:
    """Triangles ``[T, 3, 3]`` with their bounds."""

    def __init__(self, triangles: np.ndarray) -> None:
        self.triangles = triangles
        self.lows, self.highs = triangles.min(1), triangles.max(1)
        self.low, self.high = self.lows.min(0), self.highs.max(0)

    def near(self, body: _Part) -> np.ndarray:
        """Return the triangles whose bounds, seen from above, overlap those of the body."""
        if (self.low[:2] >= body.high[:2]).any() or (self.high[:2] <= body.low[:2]).any():
            return self.triangles[:0]
        there = (self.lows[:, :2] < body.high[:2]) & (self.highs[:, :2] > body.low[:2])
        return self.triangles[there.all(1)]


def _rectangle(x: float, y: float, z: float, dx: float, dy: float) -> np.ndarray:
    a, b, c, d = (x, y, z), (x + dx, y, z), (x + dx, y + dy, z), (x, y + dy, z)
    return np.array([(a, b, c), (a, c, d)], np.float64)


class _Slopes(NamedTuple):
    """Triangles that are not vertical, with corners counter-clockwise from above.

    Attributes:
        corners: ``[T, 3, 3]``.
        rise: ``[T, 2]`` change of z per metre along x and y.
    """

    corners: np.ndarray
    rise: np.ndarray

    def heights(self, which: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return the heights ``[P, K]`` of triangles ``[P]`` over points ``[P, K, 2]``."""
        corners = self.corners[which]
        away = points - corners[:, :1, :2]
        z = corners[:, :1, 2] + (away * self.rise[which][:, None]).sum(-1)
        low, high = corners[..., 2].min(1), corners[..., 2].max(1)
        return np.asarray(np.clip(z, low[:, None], high[:, None]))


def _slopes(triangles: np.ndarray, narrow: float) -> _Slopes:
    """Return the triangles whose projections from above are wider than ``narrow``.

    The others can be skipped: on a closed surface their edges also belong to neighbours.
    """
    one, two = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    normal = np.cross(one, two)
    sides = triangles - np.roll(triangles, 1, 1)
    longest = np.sqrt((sides[..., :2] ** 2).sum(-1)).max(1)
    wide = np.abs(normal[:, 2]) > narrow * longest
    corners, normal = triangles[wide], normal[wide]
    corners = np.where(normal[:, None, 2:] < 0, corners[:, ::-1], corners)
    return _Slopes(corners, -normal[:, :2] / normal[:, 2:])


class _Pairs:
    """Pairs of one triangle of the body and one of the ground that overlap, seen from above."""

    def __init__(self, body: _Slopes, ground: _Slopes, narrow: float) -> None:
        self.body, self.ground, self.narrow = body, ground, narrow
        low, high = body.corners.min((0, 1))[:2], body.corners.max((0, 1))[:2]
        count = np.sqrt(len(body.corners) + len(ground.corners)) / 2
        self.side = int(np.clip(count, 1, _MOST_BUCKETS))
        self.low, self.pitch = low, (high - low) / self.side
        self.over = self._entries(body, -1.0)
        self.under = self._entries(ground, 1.0)
        cells = self.side**2
        self.floor, self.ceiling = np.full(cells, np.inf), np.full(cells, -np.inf)
        np.minimum.at(self.floor, self.over.bucket, self.over.bound)
        np.maximum.at(self.ceiling, self.under.bucket, self.under.bound)

    def _entries(self, slopes: _Slopes, sign: float) -> _Entries:
        """Return the triangles in each bucket that they overlap, with their bound on z there."""
        flat = (slopes.corners[..., :2] - self.low) / self.pitch
        first = np.clip(np.floor(flat.min(1) - 1e-9).astype(int), 0, self.side - 1)
        last = np.clip(np.floor(flat.max(1) + 1e-9).astype(int), 0, self.side - 1)
        span = last - first + 1
        which = np.repeat(np.arange(len(span)), span.prod(1))
        start = np.cumsum(span.prod(1)) - span.prod(1)
        local = np.arange(len(which)) - start[which]
        deep = span[which, 1]
        at = first[which] + np.stack((local // deep, local % deep), 1)
        ends = np.array([(i, j) for i in (-1e-9, 1 + 1e-9) for j in (-1e-9, 1 + 1e-9)])
        places = self.low + (at[:, None] + ends) * self.pitch
        bound = sign * (sign * slopes.heights(which, places)).max(1)
        bucket = at[:, 0] * self.side + at[:, 1]
        order = np.argsort(bucket, kind="stable")
        return _Entries(which[order], bucket[order], bound[order])

    def least(self, most: float) -> float:
        """Return the smallest distance, or ``most`` if that is smaller."""
        nearest = self.floor - self.ceiling
        order = np.argsort(nearest)
        begin, size = 0, 1
        while begin < len(order) and nearest[order[begin]] < most:
            chosen = np.zeros(len(order), bool)
            chosen[order[begin : begin + size]] = True
            for body, ground in self._candidates(chosen, most):
                shared, gaps = self._shared(body, ground)
                wide = _width(shared[..., :2]) > self.narrow
                most = min(most, float(gaps[wide].min(initial=np.inf)))
            begin, size = begin + size, 2 * size
        return most

    def contacts(self, most: float) -> np.ndarray:
        """Return corners ``[C, 3]`` of the parts of the body's triangles closer than ``most``."""
        contacts = [np.zeros((0, 3))]
        for body, ground in self._candidates(self.floor - self.ceiling <= most, most):
            shared, gaps = self._shared(body, ground)
            wide = _width(shared[..., :2]) > self.narrow
            touching = wide & (gaps.min(1) <= most)
            shared, gaps = shared[touching], gaps[touching]
            near, there = _cut(np.concatenate((shared, gaps[..., None]), -1), most - gaps)
            contacts.append(near[there][..., :3].reshape(-1, 3))
        return np.concatenate(contacts)

    def _candidates(
        self, chosen: np.ndarray, most: float
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of pairs of triangles that may be closer than ``most`` in a bucket."""
        over = self.over.of(chosen & (self.floor - self.ceiling <= most))
        under = self.under.of(chosen & (self.floor - self.ceiling <= most))
        over = over.select(over.bound - self.ceiling[over.bucket] <= most)
        under = under.select(self.floor[under.bucket] - under.bound <= most)
        first = np.searchsorted(under.bucket, over.bucket, side="left")
        count = np.searchsorted(under.bucket, over.bucket, side="right") - first
        ends = np.cumsum(count)
        total, seen = int(ends[-1]) if len(ends) else 0, np.zeros(0, np.int64)
        for start in range(0, total, 16 * _BLOCK):
            number = np.arange(start, min(start + 16 * _BLOCK, total))
            row = np.searchsorted(ends, number, side="right")
            other = first[row] + number - (ends - count)[row]
            near = over.bound[row] - under.bound[other] <= most
            body, ground = over.which[row[near]], under.which[other[near]]
            beside = self._beside(body, ground)
            keys = np.unique(body[~beside] * len(self.ground.corners) + ground[~beside])
            keys = keys[~np.isin(keys, seen)]
            seen = np.concatenate((seen, keys))
            for part in np.split(keys, range(_BLOCK, len(keys), _BLOCK)):
                yield np.divmod(part, len(self.ground.corners))

    def _beside(self, body: np.ndarray, ground: np.ndarray) -> np.ndarray:
        """Return for which pairs the bounds, seen from above, share no more than a narrow strip."""
        one, two = self.body.corners[body][..., :2], self.ground.corners[ground][..., :2]
        shared = np.minimum(one.max(1), two.max(1)) - np.maximum(one.min(1), two.min(1))
        return np.asarray((shared <= self.narrow).any(1))

    def _shared(self, body: np.ndarray, ground: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the overlaps ``[P, K, 3]`` on the body's triangles, and the distances there.

        Corners are repeated as padding; if a pair does not overlap, all corners are equal.
        """
        shared, under = self.body.corners[body], self.ground.corners[ground]
        for i in range(3):
            start, end = under[:, i, :2], under[:, (i + 1) % 3, :2]
            side, away = end - start, shared[..., :2] - start[:, None]
            turn = side[:, None, 0] * away[..., 1] - side[:, None, 1] * away[..., 0]
            shared, there = _cut(shared, turn)
            shared = np.where(there[:, None, None], shared, shared[:, :1])
        return shared, shared[..., 2] - self.ground.heights(ground, shared[..., :2])


class _Entries(NamedTuple):
    """Triangles by bucket, sorted, with a bound on the height of each in its bucket."""

    which: np.ndarray
    bucket: np.ndarray
    bound: np.ndarray

    def select(self, which: np.ndarray) -> _Entries:
        """Return the entries at some indices."""
        return _Entries(self.which[which], self.bucket[which], self.bound[which])

    def of(self, buckets: np.ndarray) -> _Entries:
        """Return the entries whose buckets are in a mask."""
        return self.select(buckets[self.bucket])


def _cut(polygons: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut off the parts of convex polygons ``[P, K, D]`` on which a linear function is negative.

    ``depth [P, K]`` holds the values of the function at the corners.

    Returns:
        ``[P, K + 1, D]``, with corners repeated as padding, and whether anything of each polygon
        remains.
    """
    ahead, after = np.roll(polygons, -1, 1), np.roll(depth, -1, 1)
    inside = depth >= 0.0
    crosses = inside != (after >= 0.0)
    share = np.where(crosses, depth, 0.0) / np.where(crosses, depth - after, 1.0)
    met = polygons + share[..., None] * (ahead - polygons)
    count, corners = polygons.shape[:2]
    remains = np.stack((inside, crosses), 2).reshape(count, 2 * corners)
    both = np.stack((polygons, met), 2).reshape(count, 2 * corners, polygons.shape[2])
    place = np.cumsum(remains, 1)
    number = place[:, -1]
    # Corner k of the result is the k-th corner that remains; the last corner is repeated.
    rank = np.minimum(np.arange(1, corners + 2), np.maximum(number, 1)[:, None])
    index = (place[:, None, :] < rank[..., None]).sum(-1)
    index = np.minimum(index, 2 * corners - 1)
    return np.take_along_axis(both, index[..., None], 1), number > 0


def _width(polygons: np.ndarray) -> np.ndarray:
    """Return approximate widths of convex polygons ``[P, K, 2]``: area divided by length."""
    flat = polygons - polygons[:, :1]
    ahead = np.roll(flat, -1, 1)
    area = np.abs((flat[..., 0] * ahead[..., 1] - flat[..., 1] * ahead[..., 0]).sum(1)) / 2
    length = np.linalg.norm(np.ptp(polygons, axis=1), axis=1)
    return np.asarray(area / np.maximum(length, 1e-300))


def hull(points: np.ndarray) -> np.ndarray:
    """Return the corners of the hull of points ``[C, 3]``, seen from above, counter-clockwise.

    Coordinates are rounded to nanometres. The test on which side of a line a point lies is exact.
    """
    flat, first = np.unique(np.rint(points[:, :2] * 1e9), axis=0, return_index=True)
    if len(first) < 3:
        return points[first]
    places = [(int(x), int(y)) for x, y in flat]  # sorted by x, then y
    order = list(range(len(places)))
    return points[first[[*_chain(places, order), *_chain(places, order[::-1])]]]


def _chain(places: list[tuple[int, int]], order: list[int]) -> list[int]:
    """Return one side of the hull of sorted points without its last point (Andrew, IPL 1979)."""
    chain: list[int] = []
    for index in order:
        x, y = places[index]
        while len(chain) > 1:
            (ax, ay), (bx, by) = places[chain[-2]], places[chain[-1]]
            if (bx - ax) * (y - ay) > (by - ay) * (x - ax):
                break
            chain.pop()
        chain.append(index)
    return chain[:-1]
