"""Blocks of the README and of the documentation that are not Python.

Orders are read, lines of ``packing`` that take files are carried out, the other lines are composed
(``tests/conf/test_documented_commands.py``). What is not executed is named here, with the reason.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.conf.test_documented_commands import PAGES, ROOT
from tests.examples.test_documented_python import BRACKET

from agents.cli import main as cli
from packing_env.generators import CuboidSequences
from packing_env.kernels import stability_rules
from packing_env.plan import check_foreign
from packing_env.planner import read_containers, read_parts

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_EXECUTED = {
    "make": "sets up an environment of its own; what CI does on a fresh checkout",
    "pip": "installs; tests/test_packaging.py installs the wheel",
    ".venv/bin/pre-commit": "changes the hooks of the checkout",
    "python": "starts a benchmark, which takes minutes",
    "torchrun": "needs several devices; tests/agents/training starts two processes",
}
"""First words of command lines, and why no test types them."""
LAYOUT = re.compile(r"<-|├── |──▶")
"""Blocks that draw folders, layers and the loop of a step; other tests hold what they show."""


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page, match[2])
        for page in PAGES
        for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
        if match[1] == language
    ]


def lines() -> list[tuple[str, list[str]]]:
    """Page and words of each command line."""
    shown = (
        (page, shlex.split(line, comments=True))
        for page, block in blocks("bash")
        for line in block.replace("\\\n", " ").splitlines()
    )
    return [(page, words) for page, words in shown if words]


def order_of(page: str) -> str:
    found = [text for where, text in blocks("text") if where == page and "quantity" in text]
    return found[0] if found else order_of("docs/how-to/own-parts.md")


@pytest.fixture
def folder(elsewhere: Path) -> Path:
    """A folder with the files that the lines name."""
    (elsewhere / "my_parts").mkdir()
    for name in ("my_parts/bracket", "bracket", "lid", "base", "a", "b"):
        (elsewhere / f"{name}.stl").write_text(BRACKET, encoding="utf-8")
    page = (ROOT / "docs/how-to/own-parts.md").read_text("utf-8")
    export = page.split("This is `export.csv`:\n\n```text\n")[1].split("```")[0]
    (elsewhere / "export.csv").write_text(export, encoding="utf-8")
    return elsewhere


def test_every_block_has_a_language_that_is_tested() -> None:
    languages = {m[1] for page in PAGES for m in BLOCK.finditer((ROOT / page).read_text("utf-8"))}
    assert languages == {"bash", "json", "python", "text", "yaml"}
    indented = [p for p in PAGES if re.search(r"^[ \t]+```", (ROOT / p).read_text("utf-8"), re.M)]
    assert not indented  # the patterns of these tests would miss them


def test_every_line_is_carried_out_or_named() -> None:
    words = {words[0] for _, words in lines()}
    assert words == {"packing", *NOT_EXECUTED}
    scripts = {words[1] for _, words in lines() if words[0] == "python"}
    assert all((ROOT / script).is_file() for script in scripts)


ORDERS = "docs/how-to/orders.md"
"""tests/examples/test_orders_page.py runs its commands."""
PACKED = {
    " ".join(words[1:]): (page, words)
    for page, words in lines()
    if words[1] in ("pack", "nest") and "--import" not in words and page != ORDERS
}
"""Each order once, whatever the number of pages; tests of packages run those with --import."""


@pytest.mark.parametrize(
    ("page", "words"),
    list(PACKED.values()),
    ids=lambda value: value if isinstance(value, str) else " ".join(value[2:5]),
)
def test_a_documented_order_is_packed_and_holds(
    page: str, words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "order.csv").write_text(order_of(page), encoding="utf-8")
    containers = [text for where, text in blocks("text") if where == page and "cost" in text]
    (folder / "containers.csv").write_text("".join(containers[:1]), encoding="utf-8")
    coarse = ["--cell", "20mm"] if words[1] == "nest" else []
    assert cli.main([*words[1:], "--seconds", "0.2", *coarse]) == 0
    assert "checked" in capsys.readouterr().out
    files = {file.name for file in Path(f"{words[1]}ed").iterdir()}
    assert {"packed.html", "packed.glb"} < files
    assert files & {"plan.json", "plan-1.json"}


@pytest.mark.usefixtures("folder")
def test_a_documented_line_that_needs_no_run() -> None:
    words = ["items", "items=meshes", "items.paths=my_parts", "items.unit=mm"]
    assert words in [words[1:] for _, words in lines()]
    assert cli.main(words) == 0


@pytest.mark.parametrize(("page", "text"), blocks("text"), ids=lambda text: text.partition("\n")[0])
def test_a_block_of_text_says_what_the_program_reads(page: str, text: str, folder: Path) -> None:
    if LAYOUT.search(text):
        return
    if text.startswith("def "):
        rule: dict[str, Any] = dict(vars(stability_rules))
        lines = text.replace("{...,", "{**RULES,")
        exec(compile(lines, page, "exec"), rule)
        assert len(rule["RULES"]) == len(stability_rules.RULES) + 1
        return
    if text.startswith(("import ", "with ")):
        compile(text, page, "exec")  # a program that runs beside another package
        return
    Path("order.csv").write_text(re.sub(r" +#.*", "", text), encoding="utf-8")
    if text.startswith(("TYPE,", "large-box")):
        assert check_foreign(Path("order.csv"))
    elif "cost" in text:
        assert len(read_containers("order.csv")) == len(text.splitlines()) - 1
    elif "CBM" in text:
        columns = {"Wt per pc (lb)": "weight", "CBM": ""}
        assert len(read_parts("order.csv", columns=columns)) == len(text.splitlines()) - 1
    elif text.startswith("sequence"):
        assert CuboidSequences("order.csv") is not None
    else:
        assert len(read_parts("order.csv", "mm")) == len(text.splitlines()) - 1
