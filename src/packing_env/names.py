"""Names: as plain text, in short lists, and suggestions for unknown names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line ends, characters that change the direction of text, and lone surrogates
(these cannot be written).
"""


def plain_name(text: str) -> str:
    r"""Replace characters that are not text by their codes, such as ``\r`` or ``\x1b``.

    A byte of a file name that is not UTF-8 is also replaced by its code: ``pi\xe8ce``.
    """
    return _CONTROLS.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # the code point by which Python marks such a byte
        return f"\\x{number - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode("ascii")


def listed(names: Sequence[str], most: int = 4) -> str:
    """Join names with commas; of more than ``most``, only the first, with the number of others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


SYNONYMS = {
    "learning_rate": "lr",
    "discount": "gamma",
    "hidden_size": "channels",
    "total_timesteps": "frames",
    "timesteps": "frames",
    "total_frames": "frames",
    "epochs": "frames",
    "buffer_size": "capacity",
    "n_envs": "num_envs",
    "n_items": "num_items",
    "tau": "target_rate",
    "container_size": "container",
    "bin_size": "container",
    "cell_size": "cell",
    "plan_path": "plan",
    "output": "out",
}
"""Names in other libraries, and our names for them."""


def close_names(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean ...?"`` with the nearest known names, or an empty string."""
    distinct = list(dict.fromkeys(known))
    section, _, last = name.rpartition(".")
    elsewhere = difflib.get_close_matches(last.lower(), SYNONYMS, n=1, cutoff=0.9)  # also misspelt
    near = _ending(SYNONYMS[elsewhere[0]], section, distinct) if elsewhere else []
    if not near:
        lower = {key.lower(): key for key in reversed(distinct)}
        matches = difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.6)
        near = [lower[key] for key in matches]
    if not near and len(last) > 2:
        near = _ending(last, section, distinct)
        near = near or [key for key in distinct if key.lower().startswith(last.lower())][:3]
    return f", did you mean {' or '.join(near)}?" if near else ""


def _ending(last: str, section: str, known: list[str]) -> list[str]:
    """Return up to three names that end in this part, or only the one in the same section."""
    endings = [key for key in known if key.rpartition(".")[2] == last]
    own = f"{section}.{last}" if section else last
    return [own] if own in endings else endings[:3]
