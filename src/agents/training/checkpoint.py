"""Checkpoints: folders of tensors and JSON, written completely or not at all, read without pickle.

``tensors.pt`` holds tensors, numbers, strings, lists and mappings
(``torch.load(weights_only=True)``); ``meta.json`` holds the description. Processes that learn
together also write their own parts, ``rank-00001.pt`` and so on. ``manifest.json`` is written last
and holds the size and SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from agents import process_group
from agents.nested import walk
from agents.process_group import all_do, leads
from packing_env import files
from packing_env.envs.checks import check_device

_LOGGER = logging.getLogger("agents.training.checkpoint")

FORMAT = "packing checkpoint"
VERSION = 1
TENSORS, META, MANIFEST = "tensors.pt", "meta.json", "manifest.json"
FOLDER = "checkpoints"
"""Name of the folder of a run's checkpoints; each is a folder named by its number of frames."""
FAILED = "failed-"
"""Prefix of the name of a checkpoint with NaN or infinite weights."""
PRETRAINED = Path(__file__).parents[1] / "pretrained"
"""The folder of the policies in the package; they are named ``pretrained/NAME``."""
POLICY_ONLY = "policy_only"
"""Entry in the description of a checkpoint that holds only the policy's parameters."""
RANKS = "ranks"
"""Entry in the description: the number of processes that wrote the checkpoint."""
MAX_JSON = 2**24
"""Largest manifest or description that is read, in bytes."""
DRAFT, OLD = ".draft-", ".old-"
"""Prefixes in the name of a folder while it is written, and while it is replaced."""
_PART = re.compile(r"rank-\d{5,}\.pt")
_UNREADABLE = (
    UnpicklingError, zipfile.BadZipFile, AttributeError, EOFError, IndexError, KeyError,
    OverflowError, RecursionError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors that torch raises for a file that is not an archive of tensors."""
_PLAIN = (Tensor, int, float, str, dict, list, tuple, type(None))
"""Types of the values of a state."""


class CheckpointError(ValueError):
    """A checkpoint cannot be read or written; the message names the path and the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory: its folder, the saved state, and its description."""

    path: Path
    state: dict[str, Any]
    meta: dict[str, Any]


def check_state(state: Mapping[str, Any], owner: str) -> None:
    """Raise a CheckpointError if a state holds something that :func:`load` would not read."""
    for path, value in walk(state, separator="/"):
        if not isinstance(value, _PLAIN):
            raise CheckpointError(
                f"{path} in the state of {owner} is a {type(value).__name__}; state_dict() must "
                "return tensors, numbers, strings, lists and mappings of them"
            )


def save(
    run: str | Path,
    frames: int,
    state: Mapping[str, Any],
    meta: Mapping[str, Any],
    *,
    failed: bool = False,
) -> Path:
    """Write a checkpoint into ``RUN/checkpoints/<frames>`` and return that folder.

    Processes that learn together call this, each with its own state. ``failed`` states go to
    ``failed-<frames>``; :func:`find` returns such a folder only if it is named explicitly. After a
    crash, the previous checkpoint is still there, next to a draft that the next save removes.

    Raises:
        CheckpointError: The folder cannot be written.
    """
    folder = Path(run) / FOLDER
    target = folder / f"{FAILED if failed else ''}{frames:012d}"
    write(target, state, {**meta, "frames": frames, RANKS: process_group.processes()})
    if leads():
        _sweep(folder)
    return target


def write(target: Path, state: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON into the folder ``target``, completely or not at all.

    Processes that learn together write it together, each with its own state; ``meta`` is that of
    rank 0.

    Args:
        target: An existing folder is replaced.
        state: Tensors, numbers, strings, lists and mappings.
        meta: Description of the state.

    Raises:
        CheckpointError: The folder cannot be written.
    """
    # A draft next to the target is on the same disk, so it can be moved in one step.
    draft = target.with_name(f"{DRAFT}{target.name}")
    own = draft / part(process_group.rank())

    def begin() -> None:
        if leads():
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)

    def put() -> None:
        try:
            with own.open("wb") as file:  # torch hides why a write failed if it opens the file
                torch.save(tree_map_only(Tensor, _own_memory, dict(state)), file)
        except RuntimeError as error:
            cause = error.__context__
            raise cause if isinstance(cause, OSError) else error from None
        _sync(own)

    def finish() -> None:
        if leads():
            _write_json(draft / META, meta)
            # The manifest comes last: a folder without it is not a checkpoint.
            files = {part(rank): json.loads(text) for rank, text in enumerate(fingerprints)}
            files[META] = _fingerprint(draft / META)
            _write_json(draft / MANIFEST, {"format": FORMAT, "version": VERSION, "files": files})
            _sync(draft)
            _move(draft, target)
            _sync(target.parent)

    # All processes take each step together; if one fails, all fail.
    try:
        all_do(begin)
        all_do(put)
        fingerprints = process_group.texts(json.dumps(_fingerprint(own)))
        all_do(finish)
    except (OSError, RuntimeError) as error:
        if leads():
            shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(f"{target}: the checkpoint cannot be written ({error})") from error


def part(rank: int) -> str:
    """Return the name of the file in which a process writes its part of a checkpoint."""
    return f"rank-{rank:05d}.pt" if rank else TENSORS


def rotate(run: str | Path, keep: int | None, best: str | None = None) -> None:
    """Remove all checkpoints of a run except the newest ``keep``, the best, and failed ones."""
    # 1. Choose the checkpoints to keep: the newest, and the best by their descriptions.
    saves = _numbered(Path(run) / FOLDER)
    if keep is None:
        return
    kept_saves = set(saves[-max(keep, 1) :])
    scores = {path: score for path in saves if (score := _score(path, best)) is not None}
    if scores:
        kept_saves.add(max(scores, key=lambda path: (scores[path], path)))
    # 2. Remove the other checkpoints.
    for path in set(saves) - kept_saves:
        gone = path.with_name(f"{DRAFT}{path.name}")
        path.rename(gone)  # atomic, so that a partly removed folder never counts as a checkpoint
        shutil.rmtree(gone, ignore_errors=True)


def _score(path: Path, name: str | None) -> float | None:
    """Return the metric that :func:`rotate` compares; None if it is missing or damaged."""
    if name is None:
        return None
    try:
        # A damaged description must not stop the run that is being saved.
        value = _read_json(path / META).get("metrics", {}).get(name.removeprefix("-"))
    except CheckpointError:
        return None
    sign = -1 if name.startswith("-") else 1
    return sign * value if isinstance(value, (int, float)) else None


def _numbered(folder: Path, prefix: str = "") -> list[Path]:
    return sorted(path for path in folder.glob(f"{prefix}[0-9]*") if (path / MANIFEST).is_file())


def _sweep(folder: Path) -> None:
    """Remove drafts, and replaced checkpoints whose replacement exists."""
    for draft in folder.glob(f"{DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)
    for old in folder.glob(f"{OLD}*"):
        if (folder / old.name.removeprefix(OLD)).exists():
            shutil.rmtree(old, ignore_errors=True)


def _own_memory(value: Tensor) -> Tensor:
    """Clone a view of a larger tensor, because ``torch.save`` would write its whole storage."""
    own = value.untyped_storage().nbytes() <= value.numel() * value.element_size()
    return value if own else value.clone()


def pretrained() -> list[str]:
    """Return the names of the policies in the package."""
    return sorted(path.parent.name for path in PRETRAINED.glob(f"*/{MANIFEST}"))


def find(path: str | Path, *, warn: bool = True) -> Path:
    """Return the newest intact checkpoint of a run; if ``path`` is a checkpoint, return it.

    ``pretrained/NAME`` is a policy of the package, unless such a folder exists here. With ``warn``,
    a damaged newer checkpoint causes a warning.

    Raises:
        CheckpointError: There is no intact checkpoint.
    """
    path = Path(path)
    # 1. A checkpoint itself, or a policy of the package.
    if path.is_file():
        raise CheckpointError(
            f"{path}: a checkpoint is a folder with {MANIFEST}; single files (.pt, .pkl) are "
            "never read, because a pickle can run code"
        )
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir():
        known = pretrained()
        if path.parts[:1] != (PRETRAINED.name,):
            near = f", did you mean {PRETRAINED.name}/{path}?" if str(path) in known else ";"
            what = f"there is no such folder{near} name a run or a checkpoint"
            raise CheckpointError(f"{path}: {what}")
        if path.name not in known:
            names = ", ".join(f"{PRETRAINED.name}/{name}" for name in known)
            raise CheckpointError(f"{path}: there is no such policy; the package contains {names}")
        return PRETRAINED / path.name
    # 2. Find the newest checkpoint of a run whose files match its manifest.
    inner = path if path.name == FOLDER else path / FOLDER
    saves = _numbered(inner)
    cut_off = _numbered(inner, OLD)  # a crash between the two moves of a save leaves this folder
    defects = []
    for candidate in (*reversed(saves), *reversed(cut_off)):
        try:
            _verify(candidate)
        except CheckpointError as error:
            defects.append(str(error))
            continue
        if defects and warn:
            _warn_once(f"{defects[0]}; using {candidate} instead")
        return candidate
    # 3. Otherwise report the defect of the newest one.
    if saves:
        raise CheckpointError(f"{defects[0]}; no checkpoint of the run is intact")
    raise CheckpointError(f"{path}: no checkpoint there; name a run folder that has {FOLDER}/")


@cache
def _warn_once(message: str) -> None:  # the checkpoint of a run is looked up several times
    _LOGGER.warning(message)


def read_meta(path: str | Path) -> dict[str, Any]:
    """Read the description of the newest checkpoint under ``path``, without its tensors."""
    folder = find(path)
    _verify(folder)
    return _read_json(folder / META)


def load(path: str | Path, device: torch.device | str = "cpu", *, rank: int = 0) -> Checkpoint:
    """Read the newest checkpoint under ``path``: check hashes, then read tensors, never a pickle.

    Args:
        path: A run, a checkpoint, or another folder that :func:`write` made.
        device: Device of the tensors.
        rank: Rank of the process whose state is read.

    Raises:
        CheckpointError: The folder is not a checkpoint, is incomplete or altered, or holds
            something other than tensors and plain values.
    """
    folder = find(path)
    _verify(folder, {TENSORS, META, part(rank)})
    device = check_device(device)
    state = _tensors(folder / TENSORS, device)
    # Rank 0 wrote the agent, which is equal in all processes.
    if rank:
        state = {"agent": state.get("agent"), **_tensors(folder / part(rank), device)}
    return Checkpoint(folder, state, _read_json(folder / META))


def _tensors(path: Path, device: torch.device | str) -> dict[str, Any]:
    """Read a file of tensors and plain values; anything else raises a CheckpointError."""
    try:
        # Check the archive first; then torch reads tensors and plain values only.
        _check_archive(path)
        state = torch.load(path, map_location=device, weights_only=True)
    except _UNREADABLE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"{path}: holds something other than tensors and plain values, so it was not read "
            f"({reason})"
        ) from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: not a mapping of states")
    return state


def _check_archive(path: Path) -> None:
    # For older formats, torch uses another reader.
    if not zipfile.is_zipfile(path):
        raise UnpicklingError("not an archive of torch.save")
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise UnpicklingError("compressed; torch.save does not compress")


def _verify(folder: Path, names: Set[str] | None = None) -> None:
    """Raise a CheckpointError unless files match the manifest; None means all of its files."""
    # 1. Check the manifest itself.
    manifest = _read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: not a {FORMAT}")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{folder}: a checkpoint of version {manifest.get('version')}; this program reads "
            f"{VERSION}"
        )
    files = manifest.get("files")
    needed = names or {TENSORS, META}
    if not isinstance(files, dict) or not needed <= set(files):
        raise CheckpointError(f"{folder / MANIFEST}: does not list {', '.join(sorted(needed))}")
    # 2. Compare every file with the manifest. Check the names too, because they become paths.
    for name in sorted(names or files):
        if name not in needed and not _PART.fullmatch(name):
            raise CheckpointError(f"{folder / MANIFEST}: lists {name!r}, which no checkpoint has")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: {name} is missing; the checkpoint is incomplete")
        if _fingerprint(folder / name) != files[name]:
            raise CheckpointError(
                f"{folder / name}: truncated or altered since it was written (its hash differs "
                "from the manifest's)"
            )


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _sync(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = files.parse_json(files.read_text(path, MAX_JSON))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return content


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move(draft: Path, target: Path) -> None:
    """Move the draft to its place; if the target exists, move it away first, then remove it."""
    # A crash between the two moves leaves the old folder, which ``find`` accepts.
    old = target.with_name(f"{OLD}{target.name}")
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)
