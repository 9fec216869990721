"""The structure of the code in numbers: files, lines, names, cycles, and what an image passes through.

    python -m benchmarks.structure [SRC ...] [--no-run]

SRC is the folder of a package, by default src/tophit; of several, such as another checkout's, the columns stand side
by side in one Markdown table. What is counted:

- lines of code: without blank lines, comments and docstrings;
- names used twice: of files, __init__.py and __main__.py left out;
- cycles: strongly connected components of the package's top-level modules and sub-packages, by their import
  statements, those in functions too, those under ``if TYPE_CHECKING`` not. The package's own __init__.py is one of
  them; it is imported by what imports a name from it that is no module;
- the way of an image (:mod:`benchmarks.way`): distinct functions and methods of the package that are called, and the
  files they stand in. Lambdas, comprehensions, what ``dataclass`` and others generate, and calls while a module is
  imported do not count. "Train" is the whole command ``tophit train head --data FOLDER`` on 48 images, until the
  head is trained and tested. "Search" is one ``POST /search`` with an uploaded picture, in the server and in the
  processes that decode for it, without the server's start. ``--no-run`` leaves both out.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from benchmarks.way import Function, functions_of_searching, functions_of_training

_SHORT = 40
_NO_NAMES = ("__init__.py", "__main__.py")
_NO_CODE = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
)
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Source:
    """One file of a package: its path in it, its text and its syntax tree."""

    path: Path
    text: str
    syntax: ast.Module

    @property
    def lines(self) -> int:
        """All its lines."""
        return len(self.text.splitlines())


def read_sources(package: Path) -> list[Source]:
    """Return the Python files of a package, sorted by path."""
    found: list[Source] = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path.relative_to(package), text, ast.parse(text)))
    return found


def code_lines(source: Source) -> int:
    """Return the number of lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in _NO_CODE and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(source.syntax)))


def _docstring_lines(syntax: ast.Module) -> Iterator[int]:
    for node in ast.walk(syntax):
        if isinstance(node, _WITH_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def shared_names(sources: list[Source]) -> dict[str, int]:
    """Return the file names that are used more than once, and how often."""
    counts = Counter(source.path.name for source in sources if source.path.name not in _NO_NAMES)
    return {name: count for name, count in sorted(counts.items()) if count > 1}


def imports_of_units(sources: list[Source], package: str) -> dict[str, set[str]]:
    """Return which top-level modules and sub-packages each of them imports; the package itself has its own name."""
    units = {_unit_of(source.path, package) for source in sources}
    graph: dict[str, set[str]] = {unit: set() for unit in sorted(units)}
    for source in sources:
        unit = _unit_of(source.path, package)
        for name in _imported_names(source, package):
            _, _, below = name.partition(".")
            first = below.partition(".")[0]
            graph[unit].add(first if first in units else package)
    return {unit: others - {unit} for unit, others in graph.items()}


def _unit_of(path: Path, package: str) -> str:
    if len(path.parts) > 1:
        return path.parts[0]
    return package if path.stem == "__init__" else path.stem


def _imported_names(source: Source, package: str) -> Iterator[str]:
    """Yield the full names, such as package.module.name, that a file imports from its own package."""
    for node in _nodes_that_run(source.syntax):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = _start_of(node, source.path, package)
            names = [f"{start}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name == package or name.startswith(f"{package}."))


def _start_of(node: ast.ImportFrom, path: Path, package: str) -> str:
    """Return the absolute name of the module that an import statement starts at."""
    if not node.level:
        return node.module or ""
    parents = [package, *path.parent.parts]
    kept = parents[: len(parents) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, but for the bodies of ``if TYPE_CHECKING``."""
    yield node
    children = node.orelse if _is_type_checking(node) else ast.iter_child_nodes(node)
    for child in children:
        yield from _nodes_that_run(child)


def _is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of two or more nodes that all reach each other, largest first.

    >>> cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    [['a', 'b', 'c']]
    """
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {
        frozenset(other for other in graph if other in reached[node] and node in reached[other]) for node in graph
    }
    return sorted((sorted(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found, waiting = set(graph[start]), list(graph[start])
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def measure(package: Path, run: bool) -> dict[str, str]:
    """Return every measure of a package by its name."""
    sources = read_sources(package)
    names = shared_names(sources)
    circles = cycles(imports_of_units(sources, package.name))
    measures = {
        "Python files": f"{len(sources):,}",
        "lines": f"{sum(source.lines for source in sources):,}",
        "lines of code": f"{sum(map(code_lines, sources)):,}",
        f"files under {_SHORT} lines": str(sum(source.lines < _SHORT for source in sources)),
        "file names used twice or more": str(len(names)),
        "files of such names": str(sum(names.values())),
        "such names": ", ".join(f"{name} {count}" for name, count in names.items()) or "none",
        "package cycles": str(len(circles)),
        "packages in cycles": str(sum(map(len, circles))),
        "the cycles": "; ".join(" ".join(circle) for circle in circles) or "none",
    }
    if run:
        measures |= _described("train a head from a folder", functions_of_training(package))
        measures |= _described("search by an uploaded picture", functions_of_searching(package))
    return measures


def _described(way: str, calls: set[Function]) -> dict[str, str]:
    files = {call.file for call in calls}
    return {f"{way}: files": str(len(files)), f"{way}: functions": str(len(calls))}


def to_markdown(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table with a row a measure and a column a package."""
    lines = [["measure", *columns], ["---", *("---:" for _ in columns)]]
    first = next(iter(columns.values()))
    lines += [[name, *(column[name] for column in columns.values())] for name in first]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", type=Path, default=[Path("src/tophit")], metavar="SRC")
    parser.add_argument("--no-run", action="store_true", help="leave out what needs running: the way of an image")
    arguments = parser.parse_args()
    for package in arguments.packages:
        if not (package / "__init__.py").is_file():
            parser.error(f"{package} is no package: there is no __init__.py in it.")
    print(to_markdown({str(path): measure(path.resolve(), not arguments.no_run) for path in arguments.packages}))


if __name__ == "__main__":
    main()
