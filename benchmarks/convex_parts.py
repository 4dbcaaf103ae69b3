"""Compute the convex parts of the embedded shapes, and write the file that the package contains.

    python benchmarks/convex_parts.py

It uses a new, empty cache folder, so all parts are computed again (half an hour). The file is
replaced at the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from packing_env.files import whole_file
from packing_env.folders import cache_folder
from packing_env.items import shapes
from packing_env.physics import parts, read_settings
from packing_env.reference.solids import Solid

FILE = Path(parts.__file__).with_name("shapes.npz")


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    error = read_settings().parts_error
    for mesh in map(shapes.Shape.mesh, shapes.select()):
        solid = Solid(mesh.vertices.numpy(), mesh.faces.numpy())
        with patch.object(parts, "_shipped", dict):  # as if the package contained no parts
            convex = parts.convex_parts(solid, mesh.volume, error)
        print(f"{mesh.name}: {len(convex.hulls)} parts, {100 * convex.error:+.2f} % of the volume")
    cached = [np.load(file) for file in sorted((cache_folder() / "convex").glob("*.npz"))]
    arrays = {name: part[name] for part in cached for name in part.files}
    with whole_file(FILE) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    print(f"wrote {FILE}: {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
