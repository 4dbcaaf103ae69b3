"""Your own parts (mesh files, generated shapes, boxes) and the plan of a packed container.

python examples/04_own_items.py [FOLDER_OR_FILES ... in mm]
On the command line: packing train items=meshes items.paths=FOLDER items.unit=mm
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import packing_env as pe
from agents import heuristics
from packing_env.items import Catalogue, load_mesh, mesh_from_arrays
from packing_env.plan import save_plan


def outline(path: Path) -> Path:
    """Write a sample part, an L-shaped extrusion, as an STL file in mm."""
    corners = [(0, 0), (9, 0), (9, 3), (3, 3), (3, 7), (0, 7)]
    vertices = [(x / 100, y / 100, z) for z in (0.0, 0.025) for x, y in corners]
    cap = [(3, 4, 5), (3, 5, 0), (3, 0, 1), (3, 1, 2)]  # around the inner corner
    faces = [(c, b, a) for a, b, c in cap] + [(a + 6, b + 6, c + 6) for a, b, c in cap]
    for a, b in zip(range(6), (1, 2, 3, 4, 5, 0), strict=True):
        faces += [(a, b, b + 6), (a, b + 6, a + 6)]
    mesh = mesh_from_arrays(np.array(vertices), np.array(faces), name="angle")
    lines = ["solid angle"]
    for face in mesh.faces.tolist():
        lines += ["facet normal 0 0 0", "outer loop"]
        lines += [f"vertex {' '.join(f'{1e3 * c:.4f}' for c in mesh.vertices[i])}" for i in face]
        lines += ["endloop", "endfacet"]
    path.write_text("\n".join([*lines, "endsolid angle"]))
    return path


def main(paths: Sequence[str] = (), num_envs: int = 4) -> float:
    folder = Path(tempfile.mkdtemp())
    files = [Path(p) for p in paths] or [outline(folder / "angle.stl")]

    # Files are checked for NaN, holes, flipped faces and wrong units; repairs give a warning.
    if files[0].is_file():
        mesh = load_mesh(files[0], unit="mm")
        print(f"{files[0].name}: {mesh.volume * 1e6:.1f} cm3, warnings: {mesh.warnings or 'none'}")

    # Every item becomes a set of heightmaps; here 24 orientations and two scales each.
    container = (0.24, 0.24, 0.20)
    options = {"cell": 0.01, "container": container, "orientations": "pi/2", "scales": (0.8, 1.0)}
    catalogue = Catalogue.from_meshes(files, unit="mm", **options)
    print(f"{len(catalogue)} rows, {catalogue.num_orientations} distinct orientations at most")

    env = pe.make_env(
        "irregular", num_envs=num_envs, items=catalogue, container=container, num_items=60
    )
    # or without building a catalogue: items={"source": "meshes", "paths": [...], "unit": "mm"}
    # or boxes: items={"source": "cuboids", "extents": [[0.1, 0.1, 0.05]]}
    policy = heuristics.build("heightmap_minimization", env)
    root = env.reset()
    while not root["done"].all():
        root = env.step_mdp(env.step(policy(root)))
    plan = save_plan(folder / "plan.json", env, row=0)
    print(f"{len(plan['items'])} parts, {plan['utilization']:.1%} full: {folder / 'plan.json'}")
    return plan["utilization"]


if __name__ == "__main__":
    main(sys.argv[1:])
