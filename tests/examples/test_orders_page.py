"""The page on orders: every command prints what the page says, and every *yes* has an example.

A block after a sentence that names a file is that file. A comment after a command is a part of
its output. Indented lines are the output of the commands above them; ``...`` stands for the rest.
"""

import re
import shlex
from pathlib import Path

import pytest
from tests.examples.test_documented_python import ROOT

from agents.cli import main as cli

PAGE = (ROOT / "docs/how-to/orders.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```\w+\n.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(
    r"`([\w-]+\.\w+)`[^`\n]*:\n\n```(?:text|json)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
SECONDS = "2"
"""Longest search. The shown loads are found in less than half a second."""


def groups() -> list[tuple[list[str], list[str]]]:
    """Return the commands of each block, and the lines that they print."""
    found = []
    for text in re.split(r"^```bash\n", PAGE, flags=re.MULTILINE)[1:]:
        commands, _, rest = text.partition("\n```")
        shown = [line for line in BLOCK.sub("", rest).splitlines() if line.startswith("    ")]
        found.append((commands.splitlines(), [line for line in shown if "──" not in line]))
    return found


def plain(line: str) -> str:
    """Return a line without the parts that differ between machines."""
    line = re.sub(r"[\d,]+ packings? compared in \d+ s", "", line)
    return " ".join(line.split())


@pytest.mark.parametrize(
    ("commands", "shown"), groups(), ids=lambda lines: lines[0] if lines else "-"
)
def test_commands_print_what_the_page_says(
    commands: list[str],
    shown: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILE.findall(PAGE):
        Path(name).write_text(text, encoding="utf-8")
    printed: list[str] = []
    for command in commands:
        call, _, comment = command.partition("    # ")
        words = shlex.split(call)[1:]
        if words[0] == "pack":
            words += ["--seconds", SECONDS]
        code = cli.main(words)
        output = capsys.readouterr().out
        assert code == ("REFUSED" in output), command
        assert words[0] != "pack" or ", checked" in output, command
        assert comment in output, command
        printed += map(plain, output.splitlines())
    lines = iter(printed)  # the shown lines come in their order
    for line in map(plain, shown):
        start = line.removesuffix("...").rstrip()
        assert any(p == line or (start != line and p.startswith(start)) for p in lines), line


def section(anchor: str) -> str:
    """Return the code of the section with an anchor: its blocks and indented lines."""
    headings = list(re.finditer(r"^(#+) (.*)\n", BLOCK.sub(lambda m: "-" * len(m[0]), PAGE), re.M))
    anchors = [re.sub(r"[^\w -]", "", each[2]).lower().replace(" ", "-") for each in headings]
    number = anchors.index(anchor)
    rest = [each.start() for each in headings[number + 1 :]]
    text = PAGE[headings[number].end() : [*rest, len(PAGE)][0]]
    return "\n".join([*BLOCK.findall(text), *re.findall(r"^    .*", text, re.MULTILINE)])


ROWS = [
    [cell.strip() for cell in line.split("|")[1:3]]
    for line in PAGE.partition("## Compared with other tools")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| |")
]
assert ROWS, "the page has no table of features"


@pytest.mark.parametrize(("feature", "ours"), ROWS)
def test_every_yes_of_the_table_has_an_example(feature: str, ours: str) -> None:
    if ours == "no":
        return
    assert ours.startswith("[yes]("), "a yes links to its example"
    links = re.findall(r"\]\(([^)]+)\)", ours)
    pages = [link for link in links if not link.startswith("#")]
    assert all((ROOT / "docs/how-to" / page).is_file() for page in pages)
    code = "\n".join(section(link[1:]) for link in links if link.startswith("#"))
    missing = [word for word in re.findall(r"`([^`]+)`", ours) if word not in code]
    assert not missing
