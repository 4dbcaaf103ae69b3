"""Style of the source: sizes, circles, what a folder says of itself, and plain words.

Run on part of the tree: ``python .ci/house.py src/agents/training``; `make lint` runs it on all of
`src`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_FILES = 12
MANY_PARAMETERS = (
    "Catalogue.from_meshes",
    "PackingEnv.__init__",
    "nest",
    "pack",
)
"""Public constructors and functions whose keywords users name one by one."""
TOP_LEVELS = (
    "packing_env", "packing_env/kernels", "packing_env/plan", "packing_env/planner", "agents",
)  # fmt: skip

VERBS = frozenset((ROOT / ".ci" / "imperatives.txt").read_text(encoding="utf-8").split())
RIDDLES = re.compile(
    r"\b(no numbers? (any more|are)|(that|which) (is|are) none|held against|anew"
    r"|nobody asked|begins? anew|what is seen of|of its own accord|so many of|said plainly|likewise"
    r"|what cannot be played)\b",
    re.IGNORECASE,
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_files(*folders: Path) -> list[Path]:
    """Return the Python files of some folders and files; by default of all of `src`."""
    found: list[Path] = []
    for folder in folders or (SOURCE,):
        found += [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    return found


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def is_property(node: ast.AST) -> bool:
    """Return whether a function is decorated as a property."""
    names = [ast.unparse(d).rpartition(".")[2] for d in getattr(node, "decorator_list", [])]
    return any("property" in name for name in names)


def file_sizes(paths: list[Path]) -> Iterator[str]:
    """Yield files of too many lines."""
    for path in paths:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            yield f"{path.relative_to(ROOT)}: {lines} lines"


def function_sizes(paths: list[Path]) -> Iterator[str]:
    """Lines without docstring and comments; the reference program is read as a specification."""
    for path in paths:
        if "reference" in path.parts:
            continue
        text = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.FunctionDef):
                continue
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node):
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            body = text[node.lineno : node.end_lineno]
            lines -= sum(line.lstrip().startswith("#") for line in body)
            if lines > MAX_FUNCTION_LINES:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines"


def parameters(paths: list[Path]) -> Iterator[str]:
    """Yield functions of too many parameters, except kernels and their hosts."""
    for path in paths:
        if "kernels" in path.parts or path.stem.endswith("triton"):
            continue
        tree = parse(path)
        owner = {
            node: f"{scope.name}."
            for scope in ast.walk(tree)
            if isinstance(scope, ast.ClassDef)
            for node in scope.body
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            name, given = f"{owner.get(node, '')}{node.name}", node.args
            names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            count = len([n for n in names if n not in ("self", "cls")])
            if count > MAX_PARAMETERS and name not in MANY_PARAMETERS:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {name} has {count} parameters"


def first_lines(paths: list[Path]) -> Iterator[str]:
    """Yield first lines that are no imperative of a function, or no noun phrase of a class."""
    for path in paths:
        for node in ast.walk(parse(path)):
            if not isinstance(node, _DOCUMENTED) or not (text := ast.get_docstring(node)):
                continue
            line = text.splitlines()[0]
            where = f"{path.relative_to(ROOT)}:{node.body[0].lineno}"
            word = re.sub(r"\W.*", "", line.strip("`*_ :"))
            if isinstance(node, ast.FunctionDef) and not is_property(node) and word not in VERBS:
                yield f"{where}: not imperative: {line}"
            elif re.match(r"(What|Whether|The same|Likewise|How|Where|When|As)\b", line):
                yield f"{where}: not a noun phrase: {line}"


def riddles(paths: list[Path]) -> Iterator[str]:
    """Yield lines with phrases that once had to be read twice."""
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if RIDDLES.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def folder_words(paths: list[Path]) -> Iterator[str]:
    """A package says in at most three lines what lives there."""
    for path in paths:
        if path.name != "__init__.py" or path.parent.parent.name == "kernels":
            continue  # an operation's __init__ is its signature
        text = ast.get_docstring(parse(path))
        summary = (text or "").split("\n\n")[0]
        if not text or len(summary.splitlines()) > 3:
            yield f"{path.relative_to(ROOT)}: no summary of at most three lines"


def module_name(path: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TABLE_OF_COMMANDS = "agents.cli.commands"


def import_graph() -> dict[str, set[str]]:
    """Modules that each module imports, also inside functions; ``TYPE_CHECKING`` too.

    A string that names a module, as ``import_module`` and ``declare`` take it, counts as an import.
    Only the table of the subcommands names those that carry them out, which may read the table.
    """
    modules = {module_name(path): path for path in python_files()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        tree = parse(path)
        if name != TABLE_OF_COMMANDS:
            graph[name] |= {m for m in named_in_strings(tree, name) if m in modules and m != name}
        for node in ast.walk(tree):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                found = [i if i in modules else node.module for i in inner]
            graph[name] |= {f for f in found if f in modules and f != name}
    return graph


def named_in_strings(tree: ast.AST, here: str) -> Iterator[str]:
    """Yield the modules in strings ``module:function``, and in arguments of ``import_module``.

    A module without dots lies in the folder of the string; ``__name__`` is its own name.
    """
    imported = [
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        for argument in node.args
    ]
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else here for part in node.values]
            text = "".join(parts)
        module = text.partition(":")[0]
        if re.fullmatch(r"\w[\w.]*:\w+", text) or node in imported:
            yield module if "." in module else f"{here}.{module}"


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found


def room_graph(graph: dict[str, set[str]], package: str) -> dict[str, set[str]]:
    """The folders directly under a package, and which of them import which."""

    def room(name: str) -> str | None:
        parts = name.split(".")
        return ".".join(parts[:2]) if parts[0] == package and len(parts) > 1 else None

    rooms: dict[str, set[str]] = {}
    for name, others in graph.items():
        if (here := room(name)) is not None:
            targets = {room(other) for other in others} - {None, here}
            rooms.setdefault(here, set()).update(t for t in targets if t is not None)
    return rooms


CHECKS = {
    "file sizes": file_sizes,
    "function sizes": function_sizes,
    "parameters": parameters,
    "first lines": first_lines,
    "riddles": riddles,
    "folders": folder_words,
}


def layout() -> Iterator[str]:
    """Circles of imports, between modules and between folders, and the sizes of top levels."""
    graph = import_graph()
    for name, found in (
        ("src", graph),
        *((package, room_graph(graph, package)) for package in ("packing_env", "agents")),
    ):
        yield from (
            f"{name}: {' -> '.join(circle)} import in a circle" for circle in circles(found)
        )
    for folder in TOP_LEVELS:
        count = len(list((SOURCE / folder).glob("*.py")))
        if count > MAX_FILES:
            yield f"src/{folder}: {count} files, at most {MAX_FILES}"


def main() -> None:
    """Print every problem of the files named on the command line, or of all."""
    chosen = python_files(*(Path(name).resolve() for name in sys.argv[1:]))
    problems = [line for check in CHECKS.values() for line in check(chosen)]
    problems += [] if sys.argv[1:] else layout()
    sys.stdout.write("\n".join([*problems, f"{len(problems)} problems", ""]))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
