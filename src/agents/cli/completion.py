"""The subcommand ``completion``: shell completion of commands, groups, options and keys.

It runs whenever the user presses Tab, so it imports nothing heavy. Groups are folders; keys are
read from their YAML files.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.cli.commands import COMMANDS
from agents.config.folders import config_folder, groups

SCRIPTS = {
    "bash": """# packing completion bash >> ~/.bashrc
_packing() {
  local IFS=$'\\n' words=("${COMP_LINE:0:COMP_POINT}")
  COMPREPLY=($(packing completion words "${words[@]}" 2>/dev/null))
  local current="${COMP_LINE:0:COMP_POINT}"; current="${current##* }"
  local dropped="${current%"${COMP_WORDS[COMP_CWORD]}"}"
  [[ "${COMP_WORDS[COMP_CWORD]}" == "=" ]] && dropped="$current"
  COMPREPLY=("${COMPREPLY[@]#"$dropped"}")
  [[ "${COMPREPLY[0]}" == *= || "${COMPREPLY[0]}" == *. ]] && compopt -o nospace
}
complete -o default -F _packing packing
""",
    "zsh": """# packing completion zsh >> ~/.zshrc
_packing() {
  local found=("${(@f)$(packing completion words "$LBUFFER" 2>/dev/null)}")
  compadd -S '' -- $found
}
compdef _packing packing
""",
    "fish": """# packing completion fish > ~/.config/fish/completions/packing.fish
complete -c packing -f -a '(packing completion words (commandline -cp))'
""",
}
"""The script that each shell runs at its start."""
_KEY = re.compile(r"^(\s*)([a-z]\w*):")


def completion(options: argparse.Namespace) -> int:
    """Print the script of a shell, or the completions of a line."""
    if options.shell == "words":
        print("\n".join(completions(" ".join(options.line))))
    else:
        print(SCRIPTS[options.shell], end="")
    return 0


def completions(line: str) -> list[str]:
    """Return the completions of the last word of a command line up to the cursor.

    Args:
        line: The command line, which begins with ``packing``. After a space the last word is empty.
    """
    *before, current = line.split(" ")
    named = next((word for word in before[1:] if word in COMMANDS), None)
    if named is None:
        words = list(COMMANDS)
    elif COMMANDS[named].arguments:
        words = [name for a in COMMANDS[named].arguments for name in a.names if name[0] == "-"]
    else:
        words = list(_settings(named, before, current))
    return sorted({word for word in words if word.startswith(current)})


def _settings(command: str, before: Sequence[str], current: str) -> Iterator[str]:
    """Yield groups, the options of a group that is being chosen, and keys of sections."""
    # 1. An option of a group that is being chosen.
    known = groups()
    name, chosen, _ = current.partition("=")
    if chosen:
        yield from (f"{name}={option}" for option in known.get(name, ()))
        return
    # 2. Groups, and keys of the command.
    listed = [group for group in COMMANDS[command].groups if group in known]
    yield from (f"{group}=" for group in listed)
    section, dot, _ = current.partition(".")
    top = config_folder() / f"{command}.yaml"
    if not dot:
        yield from (f"{key}=" for key in _keys(top) if key not in ("defaults", "hydra", *listed))
        yield from (f"{group}." for group in listed)
        return
    # 3. Keys of a section, from the option that is chosen for it.
    options = dict(word.split("=", 1) for word in before if "=" in word)
    option = (
        options.get(section) or _default(top, section) or next(iter(known.get(section, [])), "")
    )
    folder = config_folder() / section
    keys = [key for name in ("_base", option) for key in _keys(folder / f"{name}.yaml")]
    own = dict.fromkeys(keys)  # each once
    yield from (f"{section}.{key}=" for key in [*own, *_keys(top, section)] if key != "defaults")


def _keys(path: Path, section: str = "") -> list[str]:
    """Return the keys at the top of a YAML file, or of one of its sections."""
    if not path.is_file():
        return []
    inside, keys = not section, []
    for line in path.read_text(encoding="utf-8").splitlines():
        key = _KEY.match(line)
        if key is None:
            continue
        if not key[1]:
            inside = not section or key[2] == section
        if inside and bool(key[1]) == bool(section):
            keys.append(key[2])
    return keys


def _default(top: Path, group: str) -> str:
    match = re.search(rf"^\s*- {re.escape(group)}: (\w+)", top.read_text(encoding="utf-8"), re.M)
    return match[1] if match else ""
