"""Compilation with mypyc (RINGBATCH_COMPILE=1): rules that the sources keep for it."""

import ast
from collections.abc import Iterator
from configparser import ConfigParser

import pytest
from sources import ROOT, Module, assert_holds, breaks, imported, is_under, modules


def compiled() -> frozenset[str]:
    """The modules that mypyc compiles where it is asked to."""
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    packages = config["compiled"].items()
    return frozenset(
        f"ringbatch.{package}.{path}".replace("/", ".")
        for package, paths in packages
        for path in paths.split()
    )


COMPILED = compiled()


def can_be_compiled(module: Module) -> Iterator[str]:
    """Yield the faults that mypyc rejects, or accepts and then fails on at run time.

    Its compiler takes a name in a function for the type that it is bound to first, also where
    handlers of several exceptions bind it; looks in vain for the type of a field that is a
    memoryview; and has no weak references to its objects. It passes starred arguments to a base's
    method as if the tuple were the first that is left. An object of a class whose base is
    compiled, it refuses to make unless the class is compiled too. It makes a list of a generator
    expression, so that a function that stops early has had all of it computed. A default of None in
    the body of a class is not there at run time if the type is a protocol.
    """
    bases = {
        (alias.asname or alias.name): node.module
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and module.name not in COMPILED:
            for base in node.bases:
                if bases.get(ast.unparse(base).partition("[")[0]) in COMPILED:
                    yield f"line {node.lineno}: {node.name} inherits from a compiled class"
        elif module.name in COMPILED:
            yield from fails_compiled(node)
    for line, name in imported(module):
        if module.name in COMPILED and is_under(name, "weakref"):
            yield f"line {line}: weak references"


def fails_compiled(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        caught: dict[str, str] = {}
        for handler in ast.walk(node):
            if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                types = ast.unparse(handler.type)
                if caught.setdefault(handler.name, types) != types:
                    yield f"line {handler.lineno}: {handler.name} is also {caught[handler.name]}"
    elif isinstance(node, ast.ClassDef):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "memoryview":
                yield f"line {field.lineno}: a field that is a memoryview"
            if has_lost_default(field) and not makes_methods(node):
                yield f"line {field.lineno}: a default of None in the body of a class"
    elif isinstance(node, ast.Call):
        if is_starred_super(node):
            yield f"line {node.lineno}: starred arguments for a base's method"
        if any(isinstance(each, ast.GeneratorExp) for each in node.args) and not takes_all(node):
            yield f"line {node.lineno}: a generator expression, of which mypyc makes a list"


def has_lost_default(field: ast.stmt) -> bool:
    """Return whether a statement of a class gives an annotated attribute the default None."""
    value = field.value if isinstance(field, ast.AnnAssign) else None
    return isinstance(value, ast.Constant) and value.value is None


def makes_methods(node: ast.ClassDef) -> bool:
    """Return whether the methods of a class, which set the defaults, are made from its fields."""
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list) or any(
        ast.unparse(base) == "NamedTuple" for base in node.bases
    )


TAKES_ALL = {"deque", "dict", "frozenset", "list", "max", "min", "prod", "set", "sorted", "tuple"}
KEPT_LAZY = {"all", "any", "next", "sum"}
"""Functions whose generator expression mypyc compiles to a loop."""


def takes_all(call: ast.Call) -> bool:
    """Return whether it makes no difference to a call if a generator expression is a list."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "join"
    return ast.unparse(call.func) in TAKES_ALL | KEPT_LAZY


def is_starred_super(node: ast.AST) -> bool:
    """Return whether an expression calls a base's method with starred arguments."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("super().")
        and any(isinstance(argument, ast.Starred) for argument in node.args)
    )


def test_every_module_listed_to_be_compiled_exists() -> None:
    assert COMPILED
    assert COMPILED - {module.name for module in modules()} == set()


def test_modules_to_be_compiled_can_be() -> None:
    assert_holds(can_be_compiled)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "ringbatch.engine.worker.runner",
            "def f():\n try:\n  g()\n except A as e:\n  pass\n except B as e:\n  pass",
        ),
        ("ringbatch.engine.worker.runner", "class C(NamedTuple):\n    memory: memoryview"),
        ("ringbatch.engine.worker.runner", "@dataclass\nclass C:\n    memory: memoryview"),
        ("ringbatch.engine.worker.runner", "import weakref"),
        ("ringbatch.engine.worker.runner", "from weakref import ref"),
        (
            "ringbatch.engine.worker.runner",
            "class C(B):\n    def __init__(self, *own):\n        super().__init__(1, *own)",
        ),
        ("ringbatch.engine.worker.runner", "f(1, (a for a in b))"),
        ("ringbatch.engine.worker.runner", "c.f(a for a in b)"),
        ("ringbatch.engine.worker.runner", "class C:\n    a: P | None = None"),
        (
            "ringbatch.engine.models.model",
            "from ringbatch.engine.worker.json_codec import JsonCodec\n"
            "class C(JsonCodec):\n    pass",
        ),
        (
            "ringbatch.engine.models.model",
            "from ringbatch.engine.worker.runner import Codec as B\nclass C(B[int]):\n    pass",
        ),
    ],
)
def test_an_uncompilable_module_is_reported(name: str, source: str) -> None:
    assert breaks(can_be_compiled, name, source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "ringbatch.engine.worker.runner",
            "def f():\n try:\n  g()\n except A as e:\n  pass\n except B as b:\n  pass",
        ),
        ("ringbatch.engine.worker.runner", "class C(NamedTuple):\n    memory: memoryview | bytes"),
        (
            "ringbatch.engine.worker.runner",
            "class C(B):\n def __init__(self, own):\n  super().__init__(1, own)\n  f(*own)",
        ),
        ("ringbatch.engine.worker.runner", "f([a for a in b])\nany(a for a in b)"),
        ("ringbatch.engine.worker.runner", "', '.join(a for a in b)"),
        ("ringbatch.engine.worker.runner", "class C(NamedTuple):\n    a: P | None = None"),
        ("ringbatch.engine.worker.runner", "@dataclass\nclass C:\n    a: P | None = None"),
        ("ringbatch.engine.worker.runner", "class C:\n    a: bool = False\n    b: P | None"),
        ("ringbatch.engine.models.model", "f(a for a in b)"),
        (
            "ringbatch.engine.models.model",
            "import weakref\nclass C(NamedTuple):\n    m: memoryview",
        ),
        (
            "ringbatch.engine.worker.forwarder",
            "from ringbatch.engine.worker.json_codec import JsonCodec\n"
            "class C(JsonCodec):\n    pass",
        ),
    ],
)
def test_a_compilable_module_is_not_reported(name: str, source: str) -> None:
    assert not breaks(can_be_compiled, name, source)
