"""The shape of the code as rules: each takes a module, as a syntax tree, and yields what it finds
wrong; the tables beside it say where something is allowed."""

import ast
import sys
from collections.abc import Iterator
from typing import TypeGuard

from sources import Module, calls, imported, is_under
from tidy_tables import (
    BANNED_IMPORTS,
    CALLERS_OF_MODELS,
    FOR_ITS_PROCESS,
    IMPURE_IMPORTS,
    MAX_ATTRIBUTES,
    MAX_BODY_LINES,
    MAX_LINES,
    ORDERING,
    OWN_BACKGROUND,
    PRINTERS,
    PURE_MODULES,
    ROLE_TOPS,
    SHM_THIRD_PARTY,
    STARTERS,
    VAGUE_NAMES,
)


def imports_point_downwards(module: Module) -> Iterator[str]:
    """`shm` imports neither of the others and nothing foreign; those two meet only in memory.

    `bench` imports `shm` alone; `bench.client`, a program that uses the engine, the Client too."""
    for line, name in imported(module):
        if name.startswith("."):
            yield f"line {line}: a relative import, {name}"
        elif module.package == "bench" and not bench_may_import(module.room, name):
            yield f"line {line}: bench imports {name}"
        elif module.package == "engine" and is_under(name, "ringbatch.frontend"):
            yield f"line {line}: engine imports {name}"
        elif module.package == "frontend" and is_under(name, "ringbatch.engine"):
            yield f"line {line}: frontend imports {name}"
        elif module.package == "shm" and not shm_may_import(name):
            yield f"line {line}: shm imports {name}"


def bench_may_import(room: str, name: str) -> bool:
    """Return whether a module of bench may import a name.

    The benchmark is a client: of what it measures it knows only the rooms below. One of its rooms
    is a program that imports the public names, as programs do.
    """
    public = (
        room == "bench.client" and name.count(".") == 2 and is_under(name, "ringbatch.frontend")
    )
    return (
        public
        or not is_under(name, "ringbatch")
        or any(is_under(name, package) for package in ("ringbatch.bench", "ringbatch.shm"))
    )


def is_a_script(source: str) -> bool:
    """True for a source that does something if it is run as ``__main__``."""
    tests = [ast.unparse(node.test) for node in ast.parse(source).body if isinstance(node, ast.If)]
    return "__name__ == '__main__'" in tests


def shm_may_import(name: str) -> bool:
    top = name.split(".")[0]
    return (
        is_under(name, "ringbatch.shm") or top in sys.stdlib_module_names or top in SHM_THIRD_PARTY
    )


def imports_nothing_banned(module: Module) -> Iterator[str]:
    """Yield imports of bare package names, of object serialisation and of the resource tracker."""
    for line, name in imported(module):
        for banned, reason in BANNED_IMPORTS.items():
            if is_under(name, banned):
                yield f"line {line}: {name}: {reason}"
    for call, _ in calls(module):
        for keyword in call.keywords:
            allowed = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg == "allow_pickle" and not allowed:
                yield f"line {call.lineno}: allow_pickle"


AS_GOOD_AS_PURE = (*PURE_MODULES, ORDERING)


def pure_stays_pure(module: Module) -> Iterator[str]:
    """A pure module knows no time, chance, process or file, nor a module that does."""
    if module.name not in PURE_MODULES:
        return
    for line, name in imported(module):
        if name.split(".")[0] in IMPURE_IMPORTS:
            yield f"line {line}: a pure module imports {name}"
        elif is_under(name, "ringbatch") and not any(
            is_under(name, pure) for pure in AS_GOOD_AS_PURE
        ):
            yield f"line {line}: a pure module imports {name}, which is not listed as pure"
    for call, called in calls(module):
        if called in ("open", "input", "print") and isinstance(call.func, ast.Name):
            yield f"line {call.lineno}: a pure module calls {called}()"


def catches_everything_only_where_anything_can_come(module: Module) -> Iterator[str]:
    """Yield the handlers of all exceptions outside the top of a role and calls of a model's code.

    A model is somebody else's code, so that anything may come. Elsewhere the expected errors are
    named. A handler that undoes something and raises again is allowed.
    """
    if module.name in ROLE_TOPS + CALLERS_OF_MODELS:
        return
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and swallows_all(node):
            yield f"line {node.lineno}: catches everything"
    for call, called in calls(module):
        if called == "suppress" and any(map(names_all, call.args)):
            yield f"line {call.lineno}: suppresses everything"


def swallows_all(handler: ast.ExceptHandler) -> bool:
    catches_all = handler.type is None or names_all(handler.type)
    return catches_all and not always_raises_again(handler)


def always_raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    leaves = (ast.Return, ast.Break, ast.Continue)
    return (
        isinstance(last, ast.Raise)
        and last.exc is None
        and not any(isinstance(node, leaves) for node in ast.walk(handler))
    )


def names_all(caught: ast.expr) -> bool:
    """Return whether an expression names `Exception` or `BaseException`, alone or in a tuple."""
    return any(
        isinstance(node, ast.Name) and node.id in ("Exception", "BaseException")
        for node in ast.walk(caught)
    )


def passes_no_words_of_libraries_on(module: Module) -> Iterator[str]:
    """Yield the errors of frontends that repeat a library's text.

    A library's text may name things that are not the client's, such as addresses in memory. So an
    error raised for another error has words of its own, except where the client's text is no JSON.
    """
    if not module.name.startswith("ringbatch.frontend.") or module.name.startswith(FOR_ITS_PROCESS):
        return
    own = {node.name for node in module.nodes if isinstance(node, ast.ClassDef)}
    own |= {
        name.rpartition(".")[2] for _, name in imported(module) if name.startswith("ringbatch.")
    }
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
            caught = set(map(last_name, parts_of(node.type))) - own - {"JSONDecodeError"}
            for raised in (part for part in ast.walk(node) if isinstance(part, ast.Raise)):
                if caught and any(is_text_of(part, node.name) for part in ast.walk(raised)):
                    yield f"line {raised.lineno}: passes on the text of {', '.join(sorted(caught))}"


def parts_of(caught: ast.expr) -> list[ast.expr]:
    return caught.elts if isinstance(caught, ast.Tuple) else [caught]


def last_name(expression: ast.expr) -> str:
    return ast.unparse(expression).rpartition(".")[2]


def is_text_of(node: ast.AST, name: str) -> bool:
    """Return whether an expression is that error's text: in braces, or by `str` or `repr`."""
    if isinstance(node, ast.FormattedValue):
        return isinstance(node.value, ast.Name) and node.value.id == name
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("str", "repr"):
        return False
    return any(isinstance(arg, ast.Name) and arg.id == name for arg in node.args)


def prints_only_where_a_person_reads(module: Module) -> Iterator[str]:
    """Yield calls of `print` in modules whose output no person reads; these use the log."""
    if any(matches(module.name, pattern) for pattern in PRINTERS):
        return
    for call, called in calls(module):
        if called == "print" and isinstance(call.func, ast.Name):
            yield f"line {call.lineno}: print()"


def matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def is_short_enough_to_read(module: Module) -> Iterator[str]:
    """A file that grew beyond this has more than one idea in it."""
    lines = len(module.source.splitlines())
    if lines > MAX_LINES:
        yield f"{lines} lines, more than {MAX_LINES}"


def has_functions_short_enough_to_read(module: Module) -> Iterator[str]:
    """Yield functions that take more than a screen, so that a reader forgets how they began."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            described = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
            lines = (node.end_lineno or 0) - node.body[int(described)].lineno + 1
            if lines > MAX_BODY_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines, over {MAX_BODY_LINES}"


def has_its_docstrings(module: Module) -> Iterator[str]:
    """Module, public classes and public functions have a docstring."""
    if not has_docstring(module.tree):
        yield "the module has no docstring"
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            public = not node.name.startswith("_")
            if public and not has_docstring(node):
                yield f"line {node.lineno}: {node.name} has no docstring"


def has_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> bool:
    return bool((ast.get_docstring(node) or "").strip())


def has_a_particular_name(module: Module) -> Iterator[str]:
    """Yield a fault if a module's name, such as `utils`, says nothing of its contents."""
    if module.stem.strip("_") in VAGUE_NAMES:
        yield "name it after what it does"


def uses_its_private_names(module: Module) -> Iterator[str]:
    """A private name at the top of a module is read in that module, or it is a left-over."""
    loaded = {
        node.id
        for node in module.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for node in module.tree.body:
        for name in names_of(node):
            if name.startswith("_") and not name.startswith("__") and name not in loaded:
                yield f"line {node.lineno}: nothing uses {name}"


def names_of(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=places):
            yield from (place.id for place in places if isinstance(place, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def keeps_attributes_quick(module: Module) -> Iterator[str]:
    """CPython keeps up to 29 attributes of an object beside it (SHARED_KEYS_MAX_SIZE), more in a
    dictionary, where each look at one takes a fifth longer; slots have no such limit."""
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and "__slots__" not in map(ast.unparse, targets(node)):
            count = len({found.attr for found in ast.walk(node) if is_stored_on_self(found)})
            if count > MAX_ATTRIBUTES:
                yield f"line {node.lineno}: {node.name} has {count} attributes and no __slots__"


def targets(node: ast.ClassDef) -> Iterator[ast.expr]:
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            yield from statement.targets


def is_stored_on_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    )


def starts_python_away_from_the_folder(module: Module) -> Iterator[str]:
    """`python -m` looks for modules in the working directory first, where a user's json.py or
    tokenize.py takes the place of the standard library's; -P has it look elsewhere."""
    for node in module.nodes:
        if isinstance(node, ast.List | ast.Tuple):
            words = list(map(ast.unparse, node.elts))
            if words[:2] == ["sys.executable", "'-m'"]:
                yield f"line {node.lineno}: python -m without -P"


def leaves_threads_and_tasks_to_background(module: Module) -> Iterator[str]:
    """A thread or task that ends by an error takes what it does away for good, and nobody sees it.
    `background` and `background_tasks` have the process end, or the next turn come."""
    own = OWN_BACKGROUND.get(module.name, set())
    for call, called in calls(module):
        if called in STARTERS - own:
            yield f"line {call.lineno}: {called}(), not by shm.host.background"
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and "Thread" in map(last_name, node.bases):
            yield f"line {node.lineno}: {node.name} is a Thread"


def arms_timers_before_anything_fails(module: Module) -> Iterator[str]:
    """A callback that has the loop call it again does so first: after an error it would not."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef):
            first = 1 if has_docstring(node) else 0
            for statement in node.body[first + 1 :]:
                if any(arms(call, node.name) for call in ast.walk(statement)):
                    yield f"line {statement.lineno}: {node.name} has itself called again too late"


def arms(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) in ("call_later", "call_at")
        and name in map(last_name, node.args)
    )
