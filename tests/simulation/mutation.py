"""Defects of the engine: a text replaced by another, or a statement that comes too late.

Where a change of the engine moves that text, the mutant says so and is to be written anew.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Mutant:
    """Mutation: in the method, property or function of that name, `right` becomes `wrong`."""

    owner: type | ModuleType
    method: str
    right: str
    wrong: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Plant the defect in the engine."""
        found = getattr(self.owner, self.method)
        function = inspect.unwrap(getattr(found, "fget", found))
        source = textwrap.dedent(inspect.getsource(function))
        where = f"{self.owner.__name__}.{self.method}"
        assert source.count(self.right) == 1, f"{where} has no single {self.right!r} any more"
        with patch.object(self.owner, self.method, _compiled(function, self._changed(source))):
            yield

    def _changed(self, source: str) -> str:
        return source.replace(self.right, self.wrong)


@dataclass(frozen=True)
class Late:
    """Mutation of order: in the method of that name, a statement moves behind another of its block.

    Each statement is named by its beginning, spelled as `ast.unparse` does.
    """

    owner: type
    method: str
    delayed: str
    behind: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Plant the defect in the engine."""
        function = inspect.unwrap(getattr(self.owner, self.method))
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        moved = [self._moved(block) for block in _blocks(tree)]
        where = f"{self.owner.__name__}.{self.method}"
        assert moved.count(True) == 1, f"{where} has no {self.delayed!r} before {self.behind!r}"
        with patch.object(self.owner, self.method, _compiled(function, ast.unparse(tree))):
            yield

    def _moved(self, block: list[ast.stmt]) -> bool:
        texts = [ast.unparse(statement) for statement in block]
        early = [number for number, text in enumerate(texts) if text.startswith(self.delayed)]
        late = [number for number, text in enumerate(texts) if text.startswith(self.behind)]
        if len(early) != 1 or len(late) != 1 or early > late:
            return False
        block.insert(late[0], block.pop(early[0]))
        return True


@dataclass(frozen=True)
class Several:
    """Several changes together, where each alone is made good by the others."""

    changes: tuple[Mutant, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Plant the defects in the engine."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.applied())
            yield


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _compiled(function: Callable[..., Any], source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    # The annotations of a method may name its own class.
    exec(f"from __future__ import annotations\n{source}", function.__globals__, names)
    (changed,) = (made for made in names.values() if callable(made) or isinstance(made, property))
    result: Callable[..., Any] = changed
    return result
