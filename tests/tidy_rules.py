"""The shape of the code as rules: each takes a module, as a syntax tree, and yields what it finds
wrong; the tables say where something is allowed."""

import ast
import sys
from collections.abc import Iterator
from typing import TypeGuard

from sources import Module, calls, imported, is_under

MAX_LINES = 500
MAX_ATTRIBUTES = 29
LONG_TABLES = {
    "docs/generator/error_forms.py": "a row for each error message",
    "docs/generator/setting_groups.py": "a row for each setting",
    "tests/model/check.py": "rows of configurations and controls",
    "tests/tidy_rules.py": "rows of module names",
}
"""Files beside the packages that are longer, because most of their lines are a table."""

PURE_MODULES = (
    "ringbatch.bench.load.answers",
    "ringbatch.bench.load.arrivals",
    "ringbatch.bench.load.exchange",
    "ringbatch.bench.load.grpc_call",
    "ringbatch.bench.load.http1",
    "ringbatch.bench.load.http2",
    "ringbatch.bench.load.infer_message",
    "ringbatch.bench.load.outcome",
    "ringbatch.bench.load.target",
    "ringbatch.bench.command.settings",
    "ringbatch.bench.report",
    "ringbatch.bench.served.metrics",
    "ringbatch.bench.served.signature",
    "ringbatch.bench.statistics",
    "ringbatch.bench.tuning",
    "ringbatch.engine.config.addresses",
    "ringbatch.frontend.access.sampling",
    "ringbatch.frontend.codec.request_ids",
    "ringbatch.engine.config.serving",
    "ringbatch.engine.config.payload_logging",
    "ringbatch.frontend.payloads.exchange",
    "ringbatch.frontend.payloads.events",
    "ringbatch.frontend.payloads.settings",
    "ringbatch.engine.config.batched",
    "ringbatch.engine.config.chained",
    "ringbatch.engine.supervisor.chains",
    "ringbatch.shm.account",
    "ringbatch.shm.chain",
    "ringbatch.engine.config.upstream_rules",
    "ringbatch.engine.collector.backlog",
    "ringbatch.engine.collector.batching",
    "ringbatch.engine.collector.usage",
    "ringbatch.engine.supervisor.change_plan",
    "ringbatch.engine.supervisor.model_diff",
    "ringbatch.engine.supervisor.scaling",
    "ringbatch.engine.supervisor.scaling_queue",
    "ringbatch.shm.scalings",
    "ringbatch.shm.host.logfmt",
    "ringbatch.engine.collector.cost_estimate",
    "ringbatch.engine.collector.batch_time_average",
    "ringbatch.engine.collector.local_or_remote",
    "ringbatch.engine.config.worker_places",
    "ringbatch.engine.worker.bisect",
    "ringbatch.engine.config.declared_tensors",
    "ringbatch.engine.doctor.case",
    "ringbatch.engine.doctor.cpu_checks",
    "ringbatch.engine.doctor.credential_checks",
    "ringbatch.engine.doctor.engine_checks",
    "ringbatch.engine.doctor.facts",
    "ringbatch.engine.doctor.findings",
    "ringbatch.engine.doctor.kernel_checks",
    "ringbatch.engine.doctor.limit_checks",
    "ringbatch.engine.doctor.memory_checks",
    "ringbatch.engine.doctor.report",
    "ringbatch.engine.doctor.software_checks",
    "ringbatch.engine.demo.report",
    "ringbatch.engine.command.completion",
    "ringbatch.engine.command.examples",
    "ringbatch.engine.command.manual",
    "ringbatch.engine.command.usage",
    "ringbatch.engine.config.definitions",
    "ringbatch.engine.config.dimensions",
    "ringbatch.engine.supervisor.model_versions",
    "ringbatch.engine.collector.health",
    "ringbatch.engine.config.kinds",
    "ringbatch.engine.config.limit_messages",
    "ringbatch.engine.models.ray_place",
    "ringbatch.engine.models.runtime_options",
    "ringbatch.engine.process.role_commands",
    "ringbatch.engine.process.role_events",
    "ringbatch.engine.process.cpu_plan",
    "ringbatch.engine.runtimes.trees.releases",
    "ringbatch.engine.runtimes.upstreams.predictions",
    "ringbatch.engine.process.respawn",
    "ringbatch.engine.systemd.units",
    "ringbatch.engine.config.settings",
    "ringbatch.engine.config.shape_rules",
    "ringbatch.shm.engine_name",
    "ringbatch.engine.ipc.shaping",
    "ringbatch.engine.runtimes.upstreams.v2_messages",
    "ringbatch.engine.supervisor.shm_names_check",
    "ringbatch.engine.supervisor.hang_detection",
    "ringbatch.frontend.codec.model_address",
    "ringbatch.frontend.security.accounts",
    "ringbatch.frontend.security.api_keys",
    "ringbatch.frontend.security.cors",
    "ringbatch.frontend.client.arrays",
    "ringbatch.frontend.codec.bytes_tensor",
    "ringbatch.frontend.codec.classification",
    "ringbatch.frontend.http.content_coding",
    "ringbatch.frontend.falcon.docs_page",
    "ringbatch.frontend.v1.request_context",
    "ringbatch.frontend.v1.forwarded",
    "ringbatch.frontend.grpc.answer",
    "ringbatch.frontend.grpc.answer_blocks",
    "ringbatch.frontend.grpc.call_head",
    "ringbatch.frontend.streams.answer_head",
    "ringbatch.frontend.streams.connection_clocks",
    "ringbatch.frontend.streams.rest_head",
    "ringbatch.frontend.grpc.message_reader",
    "ringbatch.frontend.http.body_budget",
    "ringbatch.frontend.http2",
    "ringbatch.frontend.http2.bodies",
    "ringbatch.frontend.http2.connection",
    "ringbatch.frontend.http2.control_frames",
    "ringbatch.frontend.http2.frames",
    "ringbatch.frontend.http2.header_decoder",
    "ringbatch.frontend.http2.header_reader",
    "ringbatch.frontend.http2.header_rules",
    "ringbatch.frontend.http2.header_text",
    "ringbatch.frontend.http2.outgoing",
    "ringbatch.frontend.http2.flood_budget",
    "ringbatch.frontend.http2.stream",
    "ringbatch.frontend.grpc.message_head_cache",
    "ringbatch.frontend.grpc.messages",
    "ringbatch.frontend.grpc.reflection",
    "ringbatch.frontend.grpc.request",
    "ringbatch.frontend.grpc.status",
    "ringbatch.frontend.http.head",
    "ringbatch.frontend.http.head_reader",
    "ringbatch.frontend.load.slowdown",
    "ringbatch.frontend.load.orca_report",
    "ringbatch.frontend.load.rolling_window",
    "ringbatch.frontend.load.haproxy_weight",
    "ringbatch.frontend.codec.defaults",
    "ringbatch.frontend.codec.request_context",
    "ringbatch.frontend.codec.json_to_tensor",
    "ringbatch.frontend.v1.json_values",
    "ringbatch.frontend.falcon.openapi",
    "ringbatch.frontend.falcon.openapi_tensors",
    "ringbatch.frontend.falcon.openapi_texts",
    "ringbatch.frontend.codec.grpc_codes",
    "ringbatch.frontend.codec.limit_messages",
    "ringbatch.frontend.codec.model_list",
    "ringbatch.frontend.codec.outcome",
    "ringbatch.frontend.codec.payload",
    "ringbatch.frontend.codec.ragged",
    "ringbatch.frontend.codec.parse_cache",
    "ringbatch.frontend.http.phases",
    "ringbatch.frontend.page.history",
    "ringbatch.shm.model_readiness",
    "ringbatch.frontend.codec.rendering",
    "ringbatch.frontend.codec.request_timeout",
    "ringbatch.frontend.codec.result_sizes",
    "ringbatch.frontend.codec.server_timing",
    "ringbatch.frontend.codec.tensor_to_json",
    "ringbatch.frontend.texts.bodies",
    "ringbatch.frontend.texts.openai",
    "ringbatch.frontend.texts.classifying",
    "ringbatch.frontend.texts.cohere",
    "ringbatch.frontend.texts.reranking",
    "ringbatch.frontend.texts.rows",
    "ringbatch.frontend.texts.scores",
    "ringbatch.frontend.texts.tei",
    "ringbatch.frontend.texts.vectors",
    "ringbatch.frontend.v1.answer",
    "ringbatch.frontend.v1.request",
    "ringbatch.frontend.v2.protocol",
    "ringbatch.frontend.v2.answer",
    "ringbatch.frontend.v2.request_context",
    "ringbatch.frontend.v2.documents",
    "ringbatch.frontend.v2.converted_input",
    "ringbatch.frontend.v2.input",
    "ringbatch.frontend.v2.model_configuration",
    "ringbatch.frontend.v2.server_settings",
    "ringbatch.frontend.request.load_override",
    "ringbatch.frontend.v2.shared_memory",
    "ringbatch.frontend.v2.request",
    "ringbatch.frontend.v2.signature",
    "ringbatch.frontend.v2.request_text_cache",
    "ringbatch.frontend.v2.offloaded_answers",
    "ringbatch.frontend.v2.rendering",
    "ringbatch.frontend.v2.requested_outputs",
    "ringbatch.shm.host.key_headers",
    "ringbatch.shm.brain_floats",
    "ringbatch.shm.latency_breakdown",
    "ringbatch.shm.counters",
    "ringbatch.shm.descriptors",
    "ringbatch.shm.model_metric_words",
    "ringbatch.shm.readiness",
    "ringbatch.shm.upstream_words",
    "ringbatch.shm.errors",
    "ringbatch.shm.extents",
    "ringbatch.shm.forward_envelope",
    "ringbatch.shm.frame",
    "ringbatch.shm.host.json_text",
    "ringbatch.shm.host.messages",
    "ringbatch.shm.layout",
    "ringbatch.shm.model_spec",
    "ringbatch.shm.ragged",
    "ringbatch.shm.region",
    "ringbatch.shm.ring",
    "ringbatch.shm.slot",
    "ringbatch.shm.default_values",
    "ringbatch.shm.tensor",
    "ringbatch.shm.time_buckets",
    "ringbatch.shm.request_context",
    "ringbatch.shm.texts",
    "ringbatch.shm.tuples",
)
ROLE_TOPS = (
    "ringbatch.engine.__main__",
    "ringbatch.engine.collector.collector",
    "ringbatch.engine.doctor.examination",
    "ringbatch.engine.process.fork_server",
    "ringbatch.engine.supervisor.loop",
    "ringbatch.engine.worker.role",
    "ringbatch.frontend.offload.role",
    "ringbatch.frontend.request.gateway",
    "ringbatch.frontend.request.pipeline",
    "ringbatch.frontend.request.task",
    "ringbatch.frontend.request.tokenizing",
    "ringbatch.frontend.client.calls",
    "ringbatch.frontend.grpc.connection",
    "ringbatch.frontend.grpc.service",
    "ringbatch.frontend.grpc.streams",
    "ringbatch.frontend.http2.connection",
    "ringbatch.frontend.page.live",
    "ringbatch.frontend.streams.served_connection",
    "ringbatch.frontend.streams.served_stream",
    # Of threads.
    "ringbatch.shm.host.background",
)
FOR_ITS_PROCESS = ("ringbatch.frontend.client.", "ringbatch.frontend.v1.json_values")
"""They raise their errors to the program that they are a part of."""
CALLERS_OF_MODELS = (
    "ringbatch.engine.models.model",
    "ringbatch.engine.runtimes.ray.actor",
    "ringbatch.engine.worker.cost_splitting",
    "ringbatch.engine.worker.forwarder",
    "ringbatch.engine.worker.runner",
    "ringbatch.engine.runtimes.sklearn",
    "ringbatch.engine.worker.tensors",
    "ringbatch.engine.worker.warmup",
    # As a user's own application is.
    "ringbatch.frontend.routes.loading",
    "ringbatch.frontend.http.answering",
    # What models log, they make themselves.
    "ringbatch.shm.host.log_handler",
)
PRINTERS = (
    "ringbatch.bench.command.main",
    "ringbatch.bench.command.tune",
    "ringbatch.engine.command.cli",
    "ringbatch.engine.command.actors",
    "ringbatch.engine.command.check",
    "ringbatch.engine.command.handover",
    "ringbatch.engine.command.reload",
    "ringbatch.engine.command.units",
    "ringbatch.engine.demo.*",
    "ringbatch.engine.doctor.examination",
    "ringbatch.engine.report.listing",
    "ringbatch.engine.supervisor.frontends",
)

STARTERS = {
    "Thread",
    "Timer",
    "start_new_thread",
    "ThreadPoolExecutor",
    "ProcessPoolExecutor",
    "run_in_executor",
    "to_thread",
    "create_task",
    "ensure_future",
    "TaskGroup",
}
OWN_BACKGROUND = {
    # The module for all others.
    "ringbatch.shm.host.background": {"Thread", "run_in_executor", "create_task"},
    # It cannot log, and guards its loop itself.
    "ringbatch.shm.host.log_handler": {"Thread"},
    # In a program's process. Another thread takes the place of one that fails.
    "ringbatch.frontend.client.channel": {"Thread"},
    # Each piece of work has a future that somebody waits for.
    "ringbatch.frontend.request.offload_process": {"ThreadPoolExecutor"},
    "ringbatch.frontend.request.queue": {"run_in_executor"},
    "ringbatch.frontend.texts.tokenizing": {"ThreadPoolExecutor"},
    # One call or request each: the task ends it, in words, whatever happens.
    "ringbatch.frontend.grpc.calls": {"create_task"},
    "ringbatch.frontend.grpc.streams": {"create_task"},
    "ringbatch.frontend.streams.served_stream": {"create_task"},
    # Waited for at once.
    "ringbatch.frontend.proxy.pass_through": {"ensure_future"},
    "ringbatch.frontend.routes.mounted": {"ensure_future"},
    # Of a measurement, which waits for them.
    "ringbatch.bench.client.calls": {"Thread"},
}
"""Who starts threads and tasks itself, and which, beside `ringbatch.shm.host.background`."""

IMPURE_IMPORTS = {
    "asyncio",
    "mmap",
    "multiprocessing",
    "os",
    "posix_ipc",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
}
BANNED_IMPORTS = {
    "engine": "a bare import makes a second copy of every class",
    "frontend": "a bare import makes a second copy of every class",
    "shm": "a bare import makes a second copy of every class",
    "marshal": "no Python object crosses between processes",
    "pickle": "no Python object crosses between processes",
    "shelve": "no Python object crosses between processes",
    "multiprocessing.shared_memory": "its resource tracker unlinks live segments",
}
SHM_THIRD_PARTY = {"numpy", "posix_ipc"}
VAGUE_NAMES = {"common", "helpers", "misc", "utils"}


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
    """It is a client, and knows nothing of what it measures but what is below that. One room is a
    program that imports what programs do, which are public names."""
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
    """No bare package names, no object serialisation, no resource tracker."""
    for line, name in imported(module):
        for banned, reason in BANNED_IMPORTS.items():
            if is_under(name, banned):
                yield f"line {line}: {name}: {reason}"
    for call, _ in calls(module):
        for keyword in call.keywords:
            allowed = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg == "allow_pickle" and not allowed:
                yield f"line {call.lineno}: allow_pickle"


def pure_stays_pure(module: Module) -> Iterator[str]:
    """A pure module knows no time, chance, process or file, nor a module that does."""
    if module.name not in PURE_MODULES:
        return
    for line, name in imported(module):
        if name.split(".")[0] in IMPURE_IMPORTS:
            yield f"line {line}: a pure module imports {name}"
        elif is_under(name, "ringbatch") and not any(is_under(name, pure) for pure in PURE_MODULES):
            yield f"line {line}: a pure module imports {name}, which is not listed as pure"
    for call, called in calls(module):
        if called in ("open", "input", "print") and isinstance(call.func, ast.Name):
            yield f"line {call.lineno}: a pure module calls {called}()"


def catches_everything_only_where_anything_can_come(module: Module) -> Iterator[str]:
    """At the top of a role, and around a model, which is somebody else's code.

    Elsewhere the errors that are expected are named. To undo and raise again is no catch.
    """
    if module.name in ROLE_TOPS + CALLERS_OF_MODELS:
        return
    for node in ast.walk(module.tree):
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
    """Whether an expression names `Exception` or `BaseException`, alone or in a tuple."""
    return any(
        isinstance(node, ast.Name) and node.id in ("Exception", "BaseException")
        for node in ast.walk(caught)
    )


def passes_no_words_of_libraries_on(module: Module) -> Iterator[str]:
    """What a frontend raises of another's error has words of its own: a library's may tell of what
    is not the client's, such as addresses in memory. Where a text of the client's is no JSON is.
    """
    if not module.name.startswith("ringbatch.frontend.") or module.name.startswith(FOR_ITS_PROCESS):
        return
    own = {node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
    own |= {
        name.rpartition(".")[2] for _, name in imported(module) if name.startswith("ringbatch.")
    }
    for node in ast.walk(module.tree):
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
    """Whether something is the text of the error of that name: in braces, or by `str`."""
    if isinstance(node, ast.FormattedValue):
        return isinstance(node.value, ast.Name) and node.value.id == name
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("str", "repr"):
        return False
    return any(isinstance(arg, ast.Name) and arg.id == name for arg in node.args)


def prints_only_where_a_person_reads(module: Module) -> Iterator[str]:
    """Everything else goes through the log."""
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


def says_what_it_is(module: Module) -> Iterator[str]:
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


def has_a_name_that_says_something(module: Module) -> Iterator[str]:
    """What is in `utils`? Everything, so nothing is found there."""
    if module.stem.strip("_") in VAGUE_NAMES:
        yield "name it after what it does"


def keeps_attributes_quick(module: Module) -> Iterator[str]:
    """CPython keeps up to 29 attributes of an object beside it (SHARED_KEYS_MAX_SIZE), more in a
    dictionary, where each look at one takes a fifth longer; slots have no such limit."""
    for node in ast.walk(module.tree):
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
    for node in ast.walk(module.tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = list(map(ast.unparse, node.elts))
            if words[:2] == ["sys.executable", "'-m'"]:
                yield f"line {node.lineno}: python -m without -P"


def leaves_threads_and_tasks_to_background(module: Module) -> Iterator[str]:
    """A thread or task that ends by an error takes what it does away for good, and nobody sees it.
    `ringbatch.shm.host.background` has the process end, or the next turn come."""
    own = OWN_BACKGROUND.get(module.name, set())
    for call, called in calls(module):
        if called in STARTERS - own:
            yield f"line {call.lineno}: {called}(), not by shm.host.background"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and "Thread" in map(last_name, node.bases):
            yield f"line {node.lineno}: {node.name} is a Thread"


def arms_timers_before_anything_fails(module: Module) -> Iterator[str]:
    """A callback that has the loop call it again does so first: after an error it would not."""
    for node in ast.walk(module.tree):
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
