"""The tests of a module, the most special first: `python tests/where.py engine/collector/usage.py`.

A test file tests a module if it imports it, or names its path in the docstring of the file. If none
does, the tests of the modules that import it are listed.
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

from sources import (
    PACKAGES,
    ROOT,
    Module,
    folder_of,
    imported,
    module_name,
    modules,
    own_files,
    sources,
)

_PATH: Final = re.compile(rf"\b(?:{'|'.join(PACKAGES)})/[\w/]+\.py\b")


def path_of(module: Module) -> str:
    """Return a module's path in the tree, such as "engine/collector/usage.py"."""
    return _path(module.name)


def _path(name: str) -> str:
    _, package, *inner = name.split(".")
    path = folder_of(package).joinpath(*inner)
    file = path.with_suffix(".py")
    return str((file if file.exists() else path / "__init__.py").relative_to(ROOT))


def defines(module: Module) -> bool:
    """Return whether a module defines a function or a class; an `__init__.py` may only import."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) for node in module.tree.body)


@cache
def _paths() -> dict[str, str]:
    """Return the path of each product module, by its name."""
    return {name: _path(name) for name in map(module_name, sources())}


def imports(module: Module) -> set[str]:
    """Return the paths of the product modules that a file imports."""
    found, known = set[str](), _paths()
    for _, name in imported(module):
        while name and name not in known:
            name = name.rpartition(".")[0]
        found |= {known[name]} if name else set()
    return found


def modules_of(file: Module) -> set[str]:
    """Return the paths of the product modules that a test file imports, or names."""
    return imports(file) | set(_PATH.findall(ast.get_docstring(file.tree) or ""))


@cache
def _tests() -> dict[str, set[str]]:
    """Return the product modules of each test file; those with the fewest modules come first."""
    files = [p for name in ("tests", "bench") for p in own_files(ROOT / name, "test_*.py")]
    tested = {
        str(path.relative_to(ROOT)): modules_of(Module.parse(path.stem, path.read_text()))
        for path in files
        if not path.is_relative_to(folder_of("bench"))
    }
    return dict(sorted(tested.items(), key=lambda item: (len(item[1]), item[0])))


@cache
def _importers() -> dict[str, set[str]]:
    """Return the product modules that import each product module."""
    found: dict[str, set[str]] = {}
    for module in modules():
        for path in imports(module):
            found.setdefault(path, set()).add(path_of(module))
    return found


def named_by_tests() -> set[str]:
    """Return the paths that test files import or name, of modules that exist or not."""
    return set[str]().union(*_tests().values())


@cache
def files_for(path: str) -> dict[str, list[str]]:
    """Return the test files of a module: by its own path, or by those of modules that import it."""

    def own(path: str) -> list[str]:
        return [test for test, tested in _tests().items() if path in tested]

    if found := own(path):
        return {path: found}
    return {by: found for by in sorted(_importers().get(path, ())) if (found := own(by))}


def main(arguments: list[str]) -> int:
    """Print the test files of the modules, and return the exit status."""
    if not arguments:
        print(__doc__)
        return 2
    for argument in arguments:
        path = Path(argument).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else argument
        if name not in _paths().values():
            print(
                f"{argument} is no module of {', '.join(PACKAGES)}; give its path", file=sys.stderr
            )
            return 2
        for tested, tests in files_for(name).items():
            print(f"{name}:" if tested == name else f"{name}, by its use in {tested}:")
            print("".join(f"  {test}\n" for test in tests), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
