"""Reading of foreign files (regular ones, up to a size), and atomic writing of our own."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import stat
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from packing_env.names import plain_name

MAX_BYTES = 2**28
"""Largest mesh file that is read, in bytes."""
MAX_TEXT = 2**26
"""Largest size of a text file (sequences, plans, meshes in text formats) that is read, in bytes."""

_MERGE, _NULL = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:null"


def read_bytes(path: str | Path, at_most: int | None = MAX_BYTES) -> bytes:
    """Read a regular file; refuse pipes, which could wait forever, and devices without an end.

    Args:
        path: The file, or a link to one.
        at_most: Largest size of the file in bytes; None means no limit.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger.
    """
    place = Path(path)
    try:
        status = place.stat()
    except ValueError as error:  # a zero byte, or half of a character
        raise OSError(f"not a path ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    with place.open("rb") as file:
        if at_most is None:
            return file.read()
        data = file.read(at_most + 1) if status.st_size <= at_most else b""
    size = max(status.st_size, len(data))
    if size > at_most:
        from packing_env.memory import human  # imports torch

        raise OSError(f"it has {human(size)}, but at most {human(at_most)} are read")
    return data


@contextlib.contextmanager
def finished_first() -> Iterator[None]:
    """Handle Ctrl-C only at the end of a block; a second Ctrl-C is handled at once."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    pressed = []

    def note(number: int, frame: Any) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        usual(signal.SIGINT, None)


def split_item(path: str | Path) -> tuple[Path, int | None]:
    """Split ``plate.3mf#2`` into the file and the number of an item of its build, from 1 on."""
    match = re.fullmatch(r"(.*\.3mf)#([1-9]\d*)", str(path), re.IGNORECASE | re.DOTALL)
    if match is None or Path(path).exists():
        return Path(path), None
    return Path(match[1]), int(match[2])


def read_text(path: str | Path, at_most: int = MAX_TEXT, encoding: str = "utf-8") -> str:
    """Read a regular text file.

    Raises:
        OSError: See :func:`read_bytes`.
        UnicodeDecodeError: The file is not text.
    """
    return read_bytes(path, at_most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def reason(error: Exception) -> str:
    """Return the reason why a file cannot be read or written, without the error number."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error)


def delimiter(text: str) -> str:
    """Return the separator of CSV: a semicolon, tab or bar if the first line has one, else a comma.

    Spreadsheets write semicolons if numbers have a decimal comma.
    """
    first = text.lstrip("\n").partition("\n")[0]
    return next((mark for mark in ";\t|" if mark in first), ",")


_FORMULA = re.compile(r"(^|[;,|])(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def spreadsheet_cell(value: Any) -> Any:
    """Return the value of a CSV cell; text is changed so that it starts no row and no formula.

    ``'`` is put before text that a spreadsheet would read as a formula. This includes text after a
    separator, because a spreadsheet may split the cell there. The separator that it expects depends
    on the country.
    """
    if not isinstance(value, str):
        return value
    text = plain_name(value)
    try:
        float(text)
    except ValueError:
        return _FORMULA.sub(r"\1'", text)
    return text


def parse_json(text: str | bytes, **numbers: Any) -> Any:
    """Parse JSON.

    Args:
        text: The text.
        **numbers: ``parse_int`` and ``parse_float``, which read numbers.

    Raises:
        ValueError: The text is not JSON, an object repeats a key, or lists and objects are nested
            too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, **numbers)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = [key for key, number in Counter(key for key, _ in pairs).items() if number > 1]
        raise ValueError(f"{', '.join(twice)} is given twice in one entry")
    return values


def parse_yaml(text: str, *, as_texts: bool = False) -> Any:
    """Parse YAML.

    Args:
        text: The text.
        as_texts: Whether to keep numbers and words such as ``on`` as texts. Otherwise YAML reads
            010 as 8.

    Raises:
        ValueError: The text is not YAML, a mapping repeats a key, or lists and mappings are nested
            too deeply.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key in (key for key, _ in node.value if key.tag != _MERGE):
                if str(key.value) in seen:
                    line = key.start_mark.line + 1
                    raise ValueError(f"line {line}: {key.value} is given twice in one entry")
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    if as_texts:
        Loader.yaml_implicit_resolvers = {
            letter: [each for each in resolvers if each[0] in (_MERGE, _NULL)]
            for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not YAML: {error or 'nested too deeply'}") from error


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Write a file atomically: yield a draft, which is renamed on success and deleted on failure.

    Args:
        path: The file; an existing file stays unchanged until the draft replaces it.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        yield draft
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
