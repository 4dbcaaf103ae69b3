"""Every ``packing ...`` line of documents, help and scripts can be given as it stands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conf.composed import composed

from agents.cli.main import COMMANDS, _read
from agents.config.compose import expand
from agents.config.folders import groups
from agents.config.grids import expanded

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in DOCS))
SCRIPT = "benchmarks/page.sh"
"""The commands that measure what docs/benchmarks.md shows."""
LINK = re.compile(r"\]\(([^)#]+)")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(
    r"^\s*(?:[#$]\s*)?(?:(?:\S*/)?packing|torchrun .*-m agents\.cli)\s+(?=[a-z])(.*)$"
)
"""A command line; in YAML files it stands in a comment."""
SEED = re.compile(r"seed=\d+")
"""A setting that no other key depends on: lines that differ in it are composed once."""

EXPERIMENTS = {f"experiment={name}" for name in groups()["experiment"]}
"""Settings that tests/conf/test_configuration.py composes."""


def in_blocks(page: str) -> Iterator[str]:
    """Lines of a page's code blocks, or of a script; continued lines are joined."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in [text] if page.endswith(".sh") else FENCE.findall(text):
        yield from block.replace("\\\n", " ").splitlines()


def shown() -> list[tuple[str, str]]:
    """Return the place of each command line, and its arguments."""
    lines = [(page, line) for page in (*PAGES, SCRIPT) for line in in_blocks(page)]
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        lines += [(path.name, line) for line in text.splitlines() if line.startswith("#")]
    found = [(where, SHOWN.match(line)) for where, line in lines]
    texts = [(where, match[1]) for where, match in found if match]
    helped = [example for command in COMMANDS.values() for example in command.examples]
    texts += [("help", example.removeprefix("packing ")) for example in helped]
    first = {text.partition(" #")[0].strip(): (where, text) for where, text in texts[::-1]}
    return list(first.values())[::-1]


def of_a_package(text: str) -> bool:
    """Whether a line imports a package of the user: tests/agents/cli/test_imports.py runs them."""
    return "--import my_pkg" in text


def configurations(text: str) -> int:
    """How many configurations a command line makes; of a sweep, the first and last are composed."""
    options = _read(shlex.split(text, comments=True))
    if COMMANDS[options.command].arguments:
        return 1  # takes no settings
    jobs = [options.overrides]
    if getattr(options, "multirun", False):  # extras bring launchers and sweepers with settings
        own = [text for text in options.overrides if not text.startswith(("hydra/", "hydra."))]
        jobs = list(expand(expanded(own)))
    for job in (jobs[0], jobs[-1])[: len(jobs)]:
        others = [word for word in job if not SEED.fullmatch(word)]
        if not (len(others) == 1 and others[0] in EXPERIMENTS):
            composed(options.command, others, options.config_dir)
    return len(jobs)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_outside_docs_exist(page: str) -> None:
    """``make docs`` checks the links of the pages under ``docs/``."""
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (ROOT / link).exists()]


def test_the_readme_shows_every_command() -> None:
    texts = [text for where, text in shown() if where == "README.md"]
    assert {text.split()[0] for text in texts} == set(COMMANDS)


@pytest.mark.parametrize(("where", "text"), shown(), ids=lambda value: value.partition("  ")[0])
def test_a_shown_command_composes(where: str, text: str) -> None:
    if ":" in text and where.endswith(".yaml"):  # "packing train: what this file is"
        text = text.partition(":")[0]
    assert of_a_package(text) or configurations(text) >= 1
