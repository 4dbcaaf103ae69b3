"""Attacks on runs: foreign configurations, tampered checkpoints, killed saves.

    python benchmarks/attacks.py [foreign] [tampered] [kills] [--count N] [--work DIR] [--out ...]

- `foreign`: the configuration of a run is replaced, with correct hashes, by one that would call
  `os.mkdir` or unpickle a file. The call is put into every section, as a mapping, a list, a string
  or an interpolation. `packing train resume=RUN` must execute none of them.
- `tampered`: bytes of a checkpoint's files are flipped, cut off, added, or swapped with another
  checkpoint's. No such checkpoint may be loaded; the run must continue from the one before.
- `kills`: a process that only saves checkpoints is killed (SIGKILL) at a random moment. The newest
  complete checkpoint must be the last one that was reported, or the one being written.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from agents.cli.main import main as packing
from agents.training import checkpoint

COUNTS = {"foreign": 200, "tampered": 500, "kills": 500}
NOT_TAKEN = {"imports", "run_dir", "resume"}
"""Settings that are never taken from a run."""
RUN = [
    "items=example_cuboids", "items.extents=[[0.02,0.02,0.02],[0.04,0.02,0.02]]",
    "env.container=[0.08,0.08,0.06]", "env.cell=0.02", "env.num_items=6", "env.num_envs=4",
    "env.pool_size=24", "agent.batch_size=4", "network.channels=4", "replay.capacity=200",
    "trainer.warmup=16", "trainer.update_every=16", "trainer.log_every=32",
]  # fmt: skip


# ---------------------------------------------------------------------- foreign configurations


class Unpickled:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.marker,)


def make_run(folder: Path, *overrides: str) -> Path:
    """Train a tiny run with a checkpoint; return its folder."""
    command = ["train", *RUN, "trainer.frames=64", f"run_dir={folder}", *overrides]
    with contextlib.redirect_stdout(io.StringIO()):
        if packing(command):
            raise RuntimeError("the run that is to be attacked was not made")
    return folder


def rewrite(place: Path, config: Any) -> None:
    """Replace the configuration in a checkpoint, and correct the hashes."""
    meta = json.loads((place / checkpoint.META).read_text())
    (place / checkpoint.META).write_text(json.dumps({**meta, "config": config}))
    rehash(place)


def rehash(place: Path) -> None:
    """Write the hashes of a checkpoint's files, as they are now, into its manifest."""
    manifest = json.loads((place / checkpoint.MANIFEST).read_text())
    manifest["files"] = {
        name: checkpoint._fingerprint(place / name)
        for name in (checkpoint.TENSORS, checkpoint.META)
    }
    (place / checkpoint.MANIFEST).write_text(json.dumps(manifest))


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values inside a section that are not mappings."""
    if not isinstance(node, dict):
        yield path
        return
    for key, inner in node.items():
        yield from leaves(inner, (*path, key))


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of plain data with another value at a path."""
    if not path:
        return value
    return {**node, path[0]: replaced(node.get(path[0], {}), path[1:], value)}


def payloads(usual: Any, marker: Path, pickled: Path, chance: random.Random) -> dict[str, Any]:
    """Return values that a foreign run may have in place of a section; each would run code."""
    call = {"_target_": "os.mkdir", "path": str(marker)}
    load = {"_target_": "torch.load", "f": str(pickled), "weights_only": False}
    created = f"${{oc.create:{{_target_:os.mkdir,path:'{marker}'}}}}"
    leaf = chance.choice(list(leaves(usual)))
    deep: Any = load
    for _ in range(50):
        deep = [deep]
    inside = usual if isinstance(usual, dict) else {}
    return {
        "mapping": call,
        "unpickles": load,
        "list": [load],
        "list of lists": [[call]],
        "deep list": deep,
        "created": created,
        "created beside a name": f"{created} ${{seed}}",
        "from the environment": "${oc.env:HOME}",
        "leaf": replaced(usual, leaf, load),
        "leaf in a list": replaced(usual, leaf, [[call]]),
        "leaf created": replaced(usual, leaf, created),
        "another key": {**inside, "added": load},
        "positional": {**inside, "_target_": "os.mkdir", "_args_": [str(marker)]},
        "called target": {**inside, "_target_": load},
        "target by reference": {**inside, "_target_": "${name}", "path": str(marker)},
    }  # fmt: skip


def foreign_configurations(
    usual: dict[str, Any], marker: Path, pickled: Path, chance: random.Random
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and configurations: every payload in every section, in random order."""
    forgeries = [
        (f"{section}: {kind}", {**usual, "name": "os.mkdir", section: payload})
        for section in sorted(usual.keys() - NOT_TAKEN)
        for kind, payload in payloads(usual[section], marker, pickled, chance).items()
    ]
    chance.shuffle(forgeries)
    yield from forgeries


def attack_with_configurations(work: Path, count: int, chance: random.Random) -> dict[str, Any]:
    """Resume runs with foreign configurations; return how often each outcome occurred."""
    honest, run = make_run(work / "honest"), work / "run"
    command = ["train", f"resume={run}", "trainer.frames=96"]
    marker, pickled = work / "executed", work / "object.pt"
    pickled.write_bytes(pickle.dumps(Unpickled(str(marker))))
    usual = checkpoint.load(honest).meta["config"]
    ends: Counter[str] = Counter()
    names = []
    configurations = foreign_configurations(usual, marker, pickled, chance)
    for _, (name, config) in zip(range(count), configurations, strict=False):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(honest, run)
        rewrite(checkpoint.find(run), config)
        ends[end := attempt(command)] += 1
        if marker.exists():
            marker.rmdir()
            ends["executed"] += 1
        if end != "refused":
            names.append(f"{name}: {end}")
    return {"configurations": sum(ends.values()) - ends["executed"], "executed": ends["executed"],
            "refused": ends["refused"], "otherwise": names}  # fmt: skip


def attempt(command: list[str]) -> str:
    """Return how a command ended: refused, accepted, or the name of an unexpected error."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return "refused" if packing(command) == 2 else "accepted"
        except Exception as error:  # the report names it
            return type(error).__name__


# ---------------------------------------------------------------------- tampered checkpoints


def tamper(run: Path, chance: random.Random) -> str:
    """Change a file of a run's newest checkpoint; return how."""
    older, newest = sorted((run / checkpoint.FOLDER).iterdir())
    name = chance.choice((checkpoint.TENSORS, checkpoint.META, checkpoint.MANIFEST))
    path = newest / name
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    kind = chance.choice(("flipped", "cut off", "added", "swapped", "removed", "emptied", "link"))
    if kind == "flipped":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "cut off":
        del data[at:]
    elif kind == "added":
        data[at:at] = chance.randbytes(chance.randint(1, 64))
    elif kind == "swapped":
        data[:] = (older / name).read_bytes()
    elif kind == "emptied":
        data.clear()
    path.unlink()
    if kind == "link":
        path.symlink_to("/dev/zero")
    elif kind != "removed":
        path.write_bytes(data)
    return f"{name} {kind}"


def attack_with_tampered_files(work: Path, count: int, chance: random.Random) -> dict[str, Any]:
    """Tamper with the newest checkpoint of two; return which one is loaded."""
    run = work / "tampered"
    ends: Counter[str] = Counter()
    names = []
    for _ in range(count):
        shutil.rmtree(run, ignore_errors=True)
        for frames in (1, 2):
            part = torch.randn(64, generator=torch.Generator().manual_seed(frames))
            checkpoint.save(run, frames, {"part": part, "frames": frames}, {"metrics": {}})
        newest = checkpoint.load(run)
        how = tamper(run, chance)
        loaded = checkpoint.load(run)
        frames = loaded.state["frames"]
        part = torch.randn(64, generator=torch.Generator().manual_seed(frames))
        whole = torch.equal(loaded.state["part"], part) and loaded.meta["frames"] == frames
        if not whole:
            end = "altered"
        elif frames == 1:
            end = "the one before"
        else:  # a change of white space or of an escape in JSON keeps the content
            end = "unchanged" if loaded.meta == newest.meta else "altered"
        ends[end] += 1
        names += [how] if end != "the one before" else []
    return {"files": count, "altered_and_loaded": ends["altered"],
            "the_one_before_was_loaded": ends["the one before"],
            "said_the_same": ends["unchanged"], "otherwise": names}  # fmt: skip


def attack_with_kills(work: Path, count: int, chance: random.Random) -> dict[str, Any]:
    """Kill saves; see `survive.py`."""
    from survive import kill_saves

    return kill_saves(work, chance, count)


PARTS = {
    "foreign": attack_with_configurations,
    "tampered": attack_with_tampered_files,
    "kills": attack_with_kills,
}


def main() -> None:
    """Run the requested parts, write the JSON; parts that are not requested keep their results."""
    from provenance import provenance, write_json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--count", type=int, help="attacks of each part; default: 200, 500, 500")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("runs/attacks"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/attacks.json"))
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    if set(args.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = json.loads(args.out.read_text()) if args.out.is_file() else {}
    report = {part: found[part] for part in PARTS if part in found}
    work, out = args.work.absolute(), args.out
    args.work = args.out = None  # locations are not part of the result
    for part in args.parts:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        report[part] = PARTS[part](work, args.count or COUNTS[part], random.Random(args.seed))
        print(part, report[part], flush=True)
        write_json(out, provenance(args) | report)


if __name__ == "__main__":
    main()
