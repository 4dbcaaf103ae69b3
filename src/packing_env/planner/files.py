"""The files of a plan, in one folder."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from packing_env.files import spreadsheet_cell
from packing_env.items import Mesh
from packing_env.items.inputs import OUTPUT, POSITIONS
from packing_env.items.meshes.mesh import UNITS
from packing_env.plan import Packing, PlacedItem, quaternion, save_plan
from packing_env.planner.result import Plan
from packing_env.render import image, save_glb, save_html, save_pdf, save_png, save_stl
from packing_env.render.solids import placed_solid

_ROW = 4
"""Number of containers in a row of the picture; up to this many are drawn in full size."""
_SMALLEST = 240
"""Smallest width of a container in the picture, pixels."""


def save(plan: Plan, folder: str | Path, *, size: int = 720, pdf: bool = False) -> list[Path]:
    """Write the files of a plan into a folder.

    The files are ``plan.json``, ``packed.stl``, ``positions.csv``, ``packed.png``, ``packed.html``
    and ``packed.glb``. Several containers give ``plan-1.json`` ... and ``packed-1.stl`` ...
    The files of an earlier plan are removed. Lengths in the CSV and STL files are in the plan's
    unit. Meshes made in memory are written to ``packed-mesh-1.ply``, ..., which the plan names;
    such files stay, since other plans may name them. If a file cannot be made, no file is written
    and an earlier plan stays.

    Args:
        plan: The plan; with no packed part only the CSV is written.
        folder: The folder; created if it is missing.
        size: Width and height of a container in the picture, pixels. More than four containers
            are drawn smaller, with as many pixels in all as four, but at least 240 pixels wide.
        pdf: Also write ``load.pdf``, the loading steps for printing
            (:func:`packing_env.render.save_pdf`).

    Returns:
        The files; the inputs of :func:`packing_env.plan.check_plan` come first.

    Raises:
        OSError: A file cannot be written.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".plan-", dir=place) as drafts:
        meshes, packings = _with_files(plan.containers, Path(drafts), place)
        files = _write(replace(plan, containers=packings), Path(drafts), size, pdf) + meshes
        for old in place.iterdir():
            if OUTPUT.fullmatch(old.name) and old.suffix != ".ply":
                old.unlink()
        return [file.replace(place / file.name) for file in files]


def _with_files(
    packings: Sequence[Packing], drafts: Path, place: Path
) -> tuple[list[Path], tuple[Packing, ...]]:
    """Write the meshes that no file holds; return the files and packings that name them."""
    files: dict[int, Path] = {}
    named = []
    for packing in packings:
        items = []
        for item in packing.items:
            if (mesh := item.mesh) is not None and not mesh.source.path:
                if id(mesh) not in files:
                    files[id(mesh)] = _write_mesh(mesh, drafts, place)
                source = str(place / files[id(mesh)].name)
                item = replace(item, source=source, unit="m", scale=1.0)
            items.append(item)
        named.append(replace(packing, items=tuple(items)))
    return list(dict.fromkeys(files.values())), tuple(named)


def _write_mesh(mesh: Mesh, drafts: Path, place: Path) -> Path:
    """Write a mesh under the first number at which no file is, or one with this content."""
    content = _ply(mesh)
    names = (f"packed-mesh-{number}.ply" for number in itertools.count(1))
    pairs = ((drafts / name, place / name) for name in names)
    draft = next(pair[0] for pair in pairs if all(_is_free(file, content) for file in pair))
    draft.write_bytes(content)
    return draft


def _is_free(file: Path, content: bytes) -> bool:
    if not os.path.lexists(file):
        return True
    size = file.stat().st_size if file.is_file() else -1
    return size == len(content) and file.read_bytes() == content


def _ply(mesh: Mesh) -> bytes:
    """Return a mesh in metres, in double precision: reading it gives equal vertices."""
    faces = np.zeros(len(mesh.faces), [("number", "u1"), ("corners", "<i4", 3)])
    faces["number"], faces["corners"] = 3, mesh.faces
    axes = "".join(f"property double {axis}\n" for axis in "xyz")
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(mesh.vertices)}\n{axes}"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    vertices = mesh.vertices.numpy().astype("<f8")
    return header.encode() + vertices.tobytes() + faces.tobytes()


def _write(plan: Plan, place: Path, size: int, pdf: bool) -> list[Path]:
    packings = plan.containers
    numbers = [f"-{n}" for n in range(1, len(packings) + 1)] if len(packings) > 1 else [""]
    plans = [place / f"plan{n}.json" for n in numbers[: len(packings)]]
    for path, packing in zip(plans, packings, strict=True):
        save_plan(path, packing)
    table = place / POSITIONS
    text = positions(plan)  # Excel needs a mark to read letters beyond ASCII
    table.write_text(text, encoding="utf-8" if text.isascii() else "utf-8-sig")
    if not packings:
        return [table]
    solids = [place / f"packed{n}.stl" for n in numbers]
    for path, packing in zip(solids, packings, strict=True):
        save_stl(path, packing, unit=plan.unit)
    picture, page, scene = (place / f"packed.{kind}" for kind in ("png", "html", "glb"))
    if len(packings) > _ROW:  # drawing takes time in proportion to the pixels
        size = min(size, max(_SMALLEST, round(size * math.sqrt(_ROW / len(packings)))))
    save_png(picture, _side_by_side([image(packing, size) for packing in packings]))
    save_html(page, packings, title=f"{plan.num_packed} packed parts")
    save_glb(scene, packings)
    sheets = [place / "load.pdf"] * pdf
    for path in sheets:
        save_pdf(path, packings, unit=plan.unit)
    return [*plans, table, picture, page, scene, *sheets, *solids]


def positions(plan: Plan) -> str:
    """Return a CSV of the packed parts with bounding boxes and motions, in the plan's unit.

    ``p_container = rotate(q, p_file) + t``, with the file converted to the plan's unit. On a
    pallet, positions are measured from the corner of the deck; they are negative where a box
    reaches over its edge. An apostrophe is put before names that a spreadsheet would read as a
    formula.
    """
    text = io.StringIO()
    unit = plan.unit
    lengths = ("x", "y", "z", "dx", "dy", "dz", "tx", "ty", "tz")
    names = ["container_name", "name", "file"]
    header = ["container", "order", *names, *(f"{each}_{unit}" for each in lengths)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*header, "qw", "qx", "qy", "qz", "support", "weight_kg"])
    for number, packing in enumerate(plan.containers, 1):
        for item in packing.items:
            cells = _numbers(item, packing, UNITS[unit])
            texts = [spreadsheet_cell(t) for t in (packing.name, item.name, item.source)]
            weight = item.handling.get("weight", "")
            numbers = (f"{c:.9g}" for c in cells)
            writer.writerow([number, item.order + 1, *texts, *numbers, weight])
    return text.getvalue()


def _numbers(item: PlacedItem, packing: Packing, metres: float) -> Iterator[float]:
    corners = placed_solid(item, packing.cell).placed().reshape(-1, 3)
    low, high = corners.min(0), corners.max(0)
    deck = np.array([*packing.constraints.get("overhang", (0.0, 0.0)), 0.0])
    lengths = np.concatenate((low - deck, high - low, item.translation - deck))
    yield from lengths.round(9) / metres + 0.0
    yield from quaternion(item.rotation)
    yield item.support_ratio


def _side_by_side(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Join pictures of one size into rows; leave empty places white."""
    columns = min(_ROW, len(pictures))
    blank = np.full_like(pictures[0], 255)
    padded = [*pictures, *[blank] * (-len(pictures) % columns)]
    rows = [np.concatenate(padded[i : i + columns], 1) for i in range(0, len(padded), columns)]
    return np.concatenate(rows)
