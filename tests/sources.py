"""The sources as syntax trees, and rules over them.

A rule takes a module and yields what it found wrong. Each has two tests: that nothing in the
packages breaks it, and that snippets which do break it are reported.
"""

import ast
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("shm", "engine", "frontend", "bench")


def folder_of(package: str) -> Path:
    """Return the folder of a package; the modules of bench/ lie deeper, beside its scripts."""
    return ROOT / "bench" / "ringbatch" / "bench" if package == "bench" else ROOT / package


@dataclass(frozen=True)
class Module:
    """Source file of a module.

    Attributes:
        name: as it is imported, such as ``ringbatch.shm.ring``.
        source: its text.
        tree: its syntax tree.
    """

    name: str
    source: str
    tree: ast.Module

    @classmethod
    def parse(cls, name: str, source: str) -> "Module":
        return cls(name, source, ast.parse(source))

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, which many rules look at and which take longer to find."""
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name.split(".")[1]

    @property
    def room(self) -> str:
        """The sub-package, such as ``engine.worker``; of what lies in none, the package."""
        return room_of(self.name)

    @property
    def stem(self) -> str:
        return self.name.split(".")[-1]


def room_of(name: str) -> str:
    """The room of a module or of what is in it, by its full name."""
    _, package, *rest = name.split(".")
    room, folder = package, folder_of(package)
    for inner in rest:
        folder /= inner
        if not (folder / "__init__.py").is_file():
            break
        room += f".{inner}"
    return room


Rule = Callable[[Module], Iterator[str]]


def module_name(path: Path) -> str:
    package = next(name for name in PACKAGES if path.is_relative_to(folder_of(name)))
    parts = (package, *path.relative_to(folder_of(package)).with_suffix("").parts)
    return ".".join(["ringbatch", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def own_files(folder: Path, pattern: str = "*.py") -> list[Path]:
    """Return a folder's files without those of others, as in bench/.peers."""
    return sorted(
        path
        for path in folder.rglob(pattern)
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in folder_of(package).rglob("*.py"))


@functools.cache
def _modules_by_path() -> dict[Path, Module]:
    return {path: Module.parse(module_name(path), path.read_text()) for path in sources()}


def modules() -> tuple[Module, ...]:
    return tuple(_modules_by_path().values())


def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree; those of the packages are parsed once."""
    module = _modules_by_path().get(path)
    return ast.parse(path.read_text()) if module is None else module.tree


def assert_holds(rule: Rule) -> None:
    found = [f"{module.name}: {fault}" for module in modules() for fault in rule(module)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def breaks(rule: Rule, name: str, source: str) -> bool:
    return bool(list(rule(Module.parse(name, source))))


def is_under(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported, wherever it stands.

    ``from a.b import c`` gives ``a.b.c``, as `c` may be a module; a relative import keeps its dots.
    """
    for node in _statements(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield each statement at any depth; expressions, most of a tree, hold no statements."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        for field in ("finalbody", "orelse", "handlers", "cases", "body"):
            inner = getattr(node, field, ())
            # A lambda's and a conditional expression's are expressions.
            todo += reversed(inner) if isinstance(inner, list) else ()


def calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call with the plain name of the callee: ``print``, ``suppress``, ``load``."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                yield node, called.id
            elif isinstance(called, ast.Attribute):
                yield node, called.attr
