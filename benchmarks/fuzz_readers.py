"""Coverage-guided fuzzing of the readers of meshes and of cuboids (pip install atheris).

    python benchmarks/fuzz_readers.py [FORMAT ...] [--seconds 600] [--work DIR] [--out ...]

Each format is fuzzed in its own process, from small valid files. A reader may reject an input only
with `MeshError` or `SequenceError`; the first input that raises another error, takes more than 20 s
or exhausts the memory ends the process and is kept under `--work`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MESHES = ("stl", "obj", "off", "ply", "glb", "3mf", "urdf")
SEQUENCES = {
    "json": b'{"unit": "m", "sequences": [[[4, 3, 2], [1, 1, 1, 2], {"dims": [1, 2, 3]}]]}',
    "csv": b"sequence,dx,dy,dz,count,name\n0,4,3,2,2,a\n0,1,1,1,1,b\n\n1,2,2,2,1,c\n",
}
CHILD = "--inside"
SECONDS_PER_INPUT, MEBIBYTES, LENGTH = 20, 8192, 4096
# The memory limit applies to the whole process, in which atheris keeps about 10 KiB per input:
# 150,000 STL files filled 2 GiB. Without instrumentation, the same reader's memory did not grow.


def seeds(form: str) -> list[bytes]:
    """Return small valid files."""
    if form in SEQUENCES:
        return [SEQUENCES[form]]
    import trimesh

    box, ball = trimesh.creation.box((1, 2, 3)), trimesh.creation.icosphere(subdivisions=0)
    if form == "urdf":
        return [
            b'<robot name="r"><link name="a"><visual><geometry><box size="1 2 3"/></geometry>'
            b'</visual></link><link name="b"><collision><geometry><sphere radius="1"/></geometry>'
            b'</collision></link><joint name="j" type="fixed"><parent link="a"/><child link="b"/>'
            b'<origin xyz="0 0 1" rpy="0 0 0.5"/></joint></robot>'
        ]
    found = []
    for mesh in (box, ball):
        written: Any = mesh.export(file_type=form)
        found.append(written.encode() if isinstance(written, str) else written)
    if form in ("stl", "ply"):
        ascii_form = {
            "stl": {"file_type": "stl_ascii"},
            "ply": {"file_type": "ply", "encoding": "ascii"},
        }
        written = box.export(**ascii_form[form])
        found.append(written.encode() if isinstance(written, str) else written)
    return found


def reader(form: str, folder: Path) -> Callable[[bytes], None]:
    """Return a function that reads bytes as a file and suppresses the allowed errors."""
    from packing_env.generators.cuboids.files import read_loads
    from packing_env.generators.sequence_file import SequenceError
    from packing_env.items import MeshError, load_mesh

    read, allowed = (read_loads, SequenceError) if form in SEQUENCES else (load_mesh, MeshError)
    path = folder / f"input.{form}"

    def once(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(allowed):
            read(path)

    return once


def inside(form: str, arguments: list[str]) -> None:
    """Fuzz one format in this process until atheris ends it."""
    import atheris

    with atheris.instrument_imports(include=["packing_env.items.meshes", "packing_env.generators"]):
        import packing_env.generators.cuboids.files
        import packing_env.items.meshes.load  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        once = reader(form, Path(folder))
        atheris.Setup([sys.argv[0], *arguments], once)
        atheris.Fuzz()


def fuzz(form: str, seconds: int, work: Path) -> dict[str, Any]:
    """Fuzz one format from its seeds; return libFuzzer's counts and failures."""
    corpus, found = work / form / "corpus", work / form / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds(form)):
        (corpus / f"seed{number}").write_bytes(content)
    done = subprocess.run(
        [
            sys.executable, __file__, CHILD, form, str(corpus), f"-max_total_time={seconds}",
            f"-artifact_prefix={found}/", f"-timeout={SECONDS_PER_INPUT}",
            f"-rss_limit_mb={MEBIBYTES}", f"-max_len={LENGTH}", "-print_final_stats=1", "-seed=1",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (work / form / "log").write_text(done.stdout + done.stderr)
    counted = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    failed = sorted(path.name for path in found.iterdir())
    reason = re.search(r"Uncaught Python exception: ===\n(.*)", done.stdout + done.stderr)
    return {
        "seconds": seconds,
        "inputs": int(counted[1]) if counted else None,
        "branches_covered": int(covered[-1]) if covered else None,
        "exit_code": done.returncode,
        "failures": len(failed),
        "reason": reason[1] if reason else None,
    }


def main() -> None:
    """Fuzz every requested format, write the JSON."""
    if sys.argv[1:2] == [CHILD]:
        inside(sys.argv[2], sys.argv[3:])
        return
    from provenance import provenance, write_json

    formats = [*MESHES, *SEQUENCES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", help=f"of {', '.join(formats)}; default: all")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--work", type=Path, default=Path("runs/fuzz_readers"))
    parser.add_argument("--out", default="benchmarks/results/fuzz_readers.json")
    args = parser.parse_args()
    if set(args.formats) - set(formats):
        parser.error(f"formats are {', '.join(formats)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    report = {}
    for form in args.formats or formats:
        report[form] = fuzz(form, args.seconds, args.work)
        print(form, report[form], flush=True)
    args.work = None  # the location of the inputs is not part of the result
    write_json(args.out, provenance(args) | {"formats": report})


if __name__ == "__main__":
    main()
