"""Forms of the messages that the code gives its request errors, read from its syntax trees."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from documents.pages import ROOT

UNKNOWN: Final = "..."


class Message(NamedTuple):
    """A form of message, with the class of its error and its place."""

    error: str
    form: str
    place: str


def messages(classes: Mapping[str, type]) -> Iterator[Message]:
    """Yield the form of every message that frontends and shared memory make of these classes.

    A text that comes from elsewhere is left out.
    """
    paths = [path for room in ("frontend", "shm") for path in sorted((ROOT / room).rglob("*.py"))]
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}
    everywhere = {name: node for tree in trees.values() for name, node in _constants(tree)}
    for place, tree in trees.items():
        known = everywhere | dict(_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                form = re.sub(r"(\.\.\.)+", UNKNOWN, _form(node.args[0], known))
                if node.func.id in classes and form != UNKNOWN:
                    yield Message(node.func.id, form, f"{place}:{node.lineno}")


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _form(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_form(part, known) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(
            known.get(name), ast.Constant
        ):
            return _form(known[name], known)
        case ast.Name(id=name) if isinstance(known.get(name), ast.Constant | ast.JoinedStr):
            return _form(known[name], known)
    return UNKNOWN
