"""MkDocs hooks: pages and data that live outside ``docs/``.

Markdown files link to ``../benchmarks/results/x.json``, ``../examples/x.py`` and
``../CONTRIBUTING.md``, which works in a checkout. The site gets copies of these files, and the
links are shortened to reach them; a link to a missing file fails the strict build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
DATA = (
    "benchmarks/results/*.json",
    "benchmarks/results/*.png",
    "examples/*.py",
    "examples/*.ipynb",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to."""
    for name, uri in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    for pattern in DATA:
        for path in sorted(ROOT.glob(pattern)):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links that leave ``docs/``, and those of the pages from the top of the repository."""
    uri = page.file.src_uri
    if uri in PAGES.values():
        return markdown.replace("](docs/", "](")
    up = "../" * uri.count("/")
    for name, target in PAGES.items():
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{target}")
    outside = rf"\]\({re.escape(up)}\.\./(benchmarks/results|examples)/"
    return re.sub(outside, rf"]({up}\1/", markdown)
