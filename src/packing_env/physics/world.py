"""The bodies of a packed container in MuJoCo: its items, fixed boxes, floor and walls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packing_env import extras
from packing_env.physics.parts import convex_parts
from packing_env.physics.settings import PhysicsSettings
from packing_env.plan import Packing, PlacedItem, PlanError, quaternion
from packing_env.plan.solids import cut_wedges, solid_of
from packing_env.reference.solids import Solid

SIZE = 0.4
"""Longest side of the scaled container, metres."""
TIMESTEP = 0.002
"""Seconds."""
_WALL = 0.05
_UPWARD = 0.3
"""A contact carries an item if the vertical part of its unit normal is at least this."""
_STIFF = {"solref": (2 * TIMESTEP, 1.0), "solimp": (0.95, 0.99, 0.001, 0.5, 2.0)}
"""Contacts yield by about 10 micrometres under an item's own weight."""


def load_mujoco() -> Any:
    """Import MuJoCo.

    Raises:
        MissingPackageError: MuJoCo or manifold3d is not installed.
    """
    extras.check("manifold3d", "simulations of meshes")
    return extras.require("mujoco", "simulations")


class World:
    """A container in MuJoCo; its items are absent until they are placed.

    Attributes:
        solids: The items' solids, each in its own frame, metres of the plan.
        centres: Their centres of mass ``[3]``.
        scale: Simulated metres per metre of the plan.
        start: ``[N, 7]`` centres of mass and quaternions in the plan, simulated metres.
        reach: ``[N]`` largest distance of a point of an item from its centre of mass.
        placed: ``[N]`` bool.
        parts_error: Largest error of the volume of an item's convex parts, as a share of the
            volume.

    Raises:
        PlanError: The solid of an item cannot be read.
    """

    def __init__(self, packing: Packing, settings: PhysicsSettings, plan: Path) -> None:
        # 1. Describe the container and its items, and compile the model.
        self.mujoco = load_mujoco()
        self.settings, self.parts_error = settings, 0.0
        self.scale = SIZE / max(packing.container)
        self.clearance = settings.clearance * packing.pitch * self.scale
        spec = self.mujoco.MjSpec()
        self._set_options(spec.option)
        self._add_container(spec, packing)
        self.solids = [solid_of(item, plan) for item in packing.items]
        self.centres = [solid.centre for solid in self.solids]
        for item, solid in zip(packing.items, self.solids, strict=True):
            self._add_item(spec, item, solid)
        self.model = spec.compile()
        self.data = self.mujoco.MjData(self.model)
        self._kept = self.mujoco.mjtState.mjSTATE_INTEGRATION
        # 2. Store the items' poses in the plan, and take the items out.
        count = len(self.solids)
        self.placed = np.zeros(count, bool)
        pairs = zip(self.solids, self.centres, strict=True)
        away = [np.linalg.norm(solid.vertices - centre, axis=1) for solid, centre in pairs]
        self.reach = np.array([distance.max() for distance in away]) * self.scale
        self._first = self.model.nbody - count
        body = self.model.geom_bodyid - self._first
        self._geoms = [np.nonzero(body == index)[0] for index in range(count)]
        self.start = self.poses.copy()
        for index in range(count):
            self._set_present(index, False)

    # ------------------------------------------------------------------ building

    def _set_options(self, option: Any) -> None:
        mujoco = self.mujoco
        option.timestep = TIMESTEP
        option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.impratio = 10.0

    def _add_container(self, spec: Any, packing: Packing) -> None:
        """Add floor or deck, fixed boxes, cut edges, and walls of three times the height."""
        # 1. The floor, or a deck, beyond which nothing supports items; then the pre-placed boxes.
        kinds = self.mujoco.mjtGeom
        floor = {"type": kinds.mjGEOM_PLANE, "size": (0, 0, 1)}
        if overhang := packing.constraints.get("overhang"):
            middle = np.array(packing.container[:2]) / 2
            sides, centre = (middle - np.array(overhang)) * self.scale, middle * self.scale
            floor = {
                "type": kinds.mjGEOM_BOX, "size": (*sides, _WALL), "pos": (*centre, -_WALL)
            }  # fmt: skip
        spec.worldbody.add_geom(**floor, **self._surface())
        for box in packing.constraints.get("preplaced", ()):
            corner, half = np.array(box[:3]) * self.scale, np.array(box[3:]) * self.scale / 2
            place = {"type": kinds.mjGEOM_BOX, "pos": corner + half, "size": half}
            spec.worldbody.add_geom(**place, **self._surface())
        if not self.settings.walls:
            return
        # 2. The walls, then a wedge for each cut edge.
        x, y, h = (side * self.scale for side in packing.container)
        for pos, size in (
            ((-_WALL, y / 2, 1.5 * h), (_WALL, y, 1.5 * h)),
            ((x + _WALL, y / 2, 1.5 * h), (_WALL, y, 1.5 * h)),
            ((x / 2, -_WALL, 1.5 * h), (x, _WALL, 1.5 * h)),
            ((x / 2, y + _WALL, 1.5 * h), (x, _WALL, 1.5 * h)),
        ):
            spec.worldbody.add_geom(type=kinds.mjGEOM_BOX, pos=pos, size=size, **self._surface())
        for number, wedge in enumerate(cut_wedges(packing)):
            name = f"cut {number}"
            spec.add_mesh(name=name, uservert=(wedge * self.scale).ravel())
            spec.worldbody.add_geom(type=kinds.mjGEOM_MESH, meshname=name, **self._surface())

    def _surface(self) -> dict[str, Any]:
        sliding, rolling = self.settings.friction, self.settings.rolling
        return {"friction": (sliding, rolling, rolling), "condim": 6 if rolling else 3, **_STIFF}

    def _add_item(self, spec: Any, item: PlacedItem, solid: Solid) -> None:
        """Add a body whose frame is at the item's centre of mass, turned as in the plan."""
        centre, pose = self.centres[item.order], self.pose_of(item)
        body = spec.worldbody.add_body(pos=pose[:3], quat=pose[3:], gravcomp=1.0)
        body.add_freejoint()
        body.explicitinertial, body.ipos = True, (0, 0, 0)
        body.mass = self.settings.density * item.volume * self.scale**3
        if solid.extent is None:
            surface = self._add_parts(spec, body, item, solid)
        else:
            surface = solid.vertices[solid.faces]
            sides = np.asarray(solid.extent) * self.scale / 2
            level = np.abs(item.rotation[2]) < 0.5  # the axes that are not vertical
            size = np.maximum(sides - level * self.clearance, sides / 2)
            body.add_geom(type=self.mujoco.mjtGeom.mjGEOM_BOX, size=size, **self._surface())
        inertia = _inertia((surface - centre) * self.scale, body.mass)
        body.fullinertia = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]

    def _add_parts(self, spec: Any, body: Any, item: PlacedItem, solid: Solid) -> np.ndarray:
        """Add the convex parts of a solid to its body; return their triangles ``[T, 3, 3]``."""
        parts = convex_parts(solid, item.volume, self.settings.parts_error)
        self.parts_error = max(self.parts_error, abs(parts.error))
        for number, hull in enumerate(parts.hulls):
            name = f"{item.order}/{number}"
            corners = np.unique(hull.reshape(-1, 3), axis=0)
            spec.add_mesh(
                name=name, uservert=((corners - self.centres[item.order]) * self.scale).ravel()
            )
            kind = self.mujoco.mjtGeom.mjGEOM_MESH
            body.add_geom(type=kind, meshname=name, **self._surface())
        return np.concatenate(parts.hulls)

    def pose_of(self, item: PlacedItem) -> np.ndarray:
        """Return ``[7]`` the centre of mass and the quaternion of an item in the plan."""
        centre = item.rotation @ self.centres[item.order] + item.translation
        return np.concatenate((centre * self.scale, quaternion(item.rotation)))

    # ------------------------------------------------------------------ running

    @property
    def state(self) -> np.ndarray:
        """A copy of all poses and velocities, from which the simulation can go on."""
        state = np.empty(self.mujoco.mj_stateSize(self.model, self._kept))
        self.mujoco.mj_getState(self.model, self.data, state, self._kept)
        return state

    def take_out(self, index: int, state: np.ndarray) -> None:
        """Return to a :attr:`state` in which an item was not placed."""
        self._set_present(index, False)
        self.placed[index] = False
        self.mujoco.mj_setState(self.model, self.data, state, self._kept)

    @property
    def poses(self) -> np.ndarray:
        """``[N, 7]`` centres of mass and quaternions, simulated metres."""
        return self.data.qpos.reshape(-1, 7)

    @property
    def turns(self) -> np.ndarray:
        """``[N, 3, 3]`` rotations from the solids' frames to the container's."""
        return self.data.xmat[self._first :].reshape(-1, 3, 3)

    @property
    def speeds(self) -> np.ndarray:
        """``[N]`` upper bound on the speed of any point of each item, m/s."""
        speed = self.data.qvel.reshape(-1, 6)
        turning = np.linalg.norm(speed[:, 3:], axis=1)
        return np.asarray(np.linalg.norm(speed[:, :3], axis=1) + turning * self.reach)

    def place(self, items: Sequence[int], random: np.random.Generator) -> None:
        """Put items at their poses in the plan, with a small random velocity (``jolt``)."""
        for index in items:
            self._set_present(index, True)
            self.placed[index] = True
            speed = random.uniform(-1.0, 1.0, 6) * self.settings.jolt
            speed[2], speed[3:] = 0.0, speed[3:] / self.reach[index]
            self.poses[index] = self.start[index]
            self.data.qvel[6 * index : 6 * index + 6] = speed

    def lower(self, index: int) -> None:
        """Lower a placed item, without turning it, until it touches something below."""
        # It moves down at a constant speed, without weight. At the end it is released with a random
        # velocity.
        body, speed = self._first + index, self.settings.lower_speed
        motion = self.data.qvel[6 * index : 6 * index + 6]
        release = motion.copy()
        steps = round(self.start[index, 2] / speed / TIMESTEP)
        self.model.body_gravcomp[body] = 1.0
        for _ in range(steps):
            self.poses[index, 3:] = self.start[index, 3:]
            motion[:] = 0.0, 0.0, -speed, 0.0, 0.0, 0.0
            self.run(1)
            if self._touches_below(index):
                break
        motion[:] = release
        self.model.body_gravcomp[body] = 0.0

    def _touches_below(self, index: int) -> bool:
        """Return whether a contact of an item pushes the item up."""
        contact = self.data.contact
        pairs = np.isin(contact.geom, self._geoms[index])
        # normals point from the first to the second geom
        upward = np.where(pairs[:, 1], contact.frame[:, 2], -contact.frame[:, 2])
        return bool((pairs.any(1) & (upward > _UPWARD)).any())

    def _set_present(self, index: int, present: bool) -> None:
        """Switch contacts and weight of an item on or off."""
        self.model.geom_contype[self._geoms[index]] = present
        self.model.geom_conaffinity[self._geoms[index]] = present
        self.model.body_gravcomp[self._first + index] = not present

    def run(self, steps: int) -> None:
        """Advance by a number of time steps."""
        self.mujoco.mj_step(self.model, self.data, nstep=steps)
        if not np.isfinite(self.data.qpos).all():
            raise PlanError("the simulation diverged; is an item inside another one?")


def _inertia(triangles: np.ndarray, mass: float) -> np.ndarray:
    """Return the inertia ``[3, 3]`` of a solid about the origin, given its surface and its mass.

    The surface consists of triangles ``[T, 3, 3]``. A tetrahedron with corners 0, a, b, c and s = a
    + b + c has the second moments V / 20 (a a^T + b b^T + c c^T + s s^T).
    """
    a, b, c = np.moveaxis(triangles, 1, 0)
    volumes = np.einsum("fi,fi->f", a, np.cross(b, c)) / 6.0
    moments = np.zeros((3, 3))
    for vector in (a, b, c, a + b + c):
        moments += np.einsum("f,fi,fj->ij", volumes, vector, vector) / 20.0
    inertia = np.trace(moments) * np.eye(3) - moments
    return np.asarray(inertia * (mass / volumes.sum()))
