"""Folders and files that only this user can change: caches, and writing without following links."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINKS


class FolderError(OSError):
    """A folder or a file may belong to someone else; the message names it and the remedy."""


# ---------------------------------------------------------------------- caches


def cache_folder() -> Path:
    """Return `packing_env` in the user's cache folder ($XDG_CACHE_HOME, or ~/.cache).

    A relative $XDG_CACHE_HOME is ignored, as its specification demands; it would mean a folder in
    the working directory.

    Raises:
        FolderError: The user has no home folder.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "packing_env"
    try:
        return Path("~/.cache").expanduser() / "packing_env"
    except RuntimeError as error:  # a user without an account entry, in a container
        raise FolderError(
            "there is no home folder for a cache; set XDG_CACHE_HOME to a folder of your own"
        ) from error


def own(*names: str) -> Path:
    """Return a folder below :func:`cache_folder`; create it if it is missing.

    Only this user can enter the folder and its parents up to the cache (mode 0700), because it may
    hold machine code or pickles, which run when they are read.

    Raises:
        FolderError: One of these folders is a link, belongs to another user, or cannot be created.
    """
    place = cache_folder()
    for folder in (place, *(place.joinpath(*names[: n + 1]) for n in range(len(names)))):
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            status = folder.lstat()
        except OSError as error:
            reason = "is a link" if folder.is_symlink() else f"cannot be made ({error.strerror})"
            raise _refused(folder, reason) from error
        if not stat.S_ISDIR(status.st_mode):
            raise _refused(folder, "is a link")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise _refused(folder, "belongs to another user")
        if stat.S_IMODE(status.st_mode) != 0o700:
            try:
                folder.chmod(0o700)
            except OSError as error:  # read-only, or a file system without modes
                reason = f"cannot be made private ({error.strerror})"
                raise _refused(folder, reason) from error
    return place.joinpath(*names)


def _refused(folder: Path, reason: str) -> FolderError:
    return FolderError(
        f"{folder} {reason} and is not used as a cache; remove it, or set XDG_CACHE_HOME to a "
        f"folder of your own"
    )


# ---------------------------------------------------------------------- below a folder


def open_below(folder: Path, name: str | PurePath, flags: int) -> int:
    """Open a regular file below a folder without following a link at any level.

    Args:
        folder: The folder; the path to it may contain links.
        name: Relative path of the file.
        flags: Flags of ``os.open``.

    Returns:
        The descriptor.

    Raises:
        FolderError: The name is empty, a level is a link, or the file has a second name (a hard
            link).
        OSError: The file cannot be opened.
    """
    *levels, last = _parts(name)
    with _entered(folder, levels) as (at, place):
        path = place / last
        if path.is_symlink():
            raise _is_link(path)
        flags |= _NO_LINKS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(path, flags) if at is None else os.open(last, flags, 0o666, dir_fd=at)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise FolderError(
            f"{path} is not a regular file, or has another name (a hard link); replace it by a copy"
        )
    return handle


def make_below(folder: Path, name: str | PurePath) -> Path:
    """Return the path of a file below a folder; create folders between, but follow no link.

    Raises:
        FolderError: The name is empty, or a folder is a link.
        OSError: A folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    *levels, last = _parts(name)
    with _entered(folder, levels, make=True) as (_, place):
        return place / last


def _parts(name: str | PurePath) -> Sequence[str]:
    parts = PurePath(name).parts
    if not parts:
        raise FolderError(f"{str(name)!r} is not the name of a file")
    return parts


@contextlib.contextmanager
def _entered(
    folder: Path, levels: Sequence[str], *, make: bool = False
) -> Iterator[tuple[int | None, Path]]:
    """Yield the descriptor of an inner folder (None where unsupported) and its path."""
    works = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd
    at = os.open(folder, _FOLDER & ~_NO_LINKS) if works else None
    place = folder
    try:
        for level in levels:
            place /= level
            if place.is_symlink():
                raise _is_link(place)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(place) if at is None else os.mkdir(level, dir_fd=at)
            if at is not None:
                inner = os.open(level, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
        yield at, place
    finally:
        if at is not None:
            os.close(at)


def _is_link(path: Path) -> FolderError:
    return FolderError(
        f"{path} is a link, but a run writes only into its own folder: remove the link"
    )


def check_links(folder: Path) -> None:
    """Raise a FolderError if a link at any level below a folder leads out of the folder."""
    inside = folder.resolve()
    for place, names, others in os.walk(folder):
        for path in (Path(place, name) for name in (*names, *others)):
            if not path.is_symlink():
                continue
            try:
                leads_out = not path.resolve().is_relative_to(inside)
            except (OSError, RuntimeError):  # a circle of links
                leads_out = True
            if leads_out:
                raise _is_link(path)
