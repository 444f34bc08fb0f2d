"""Used internals of uvicorn: the table of them, and that the installed release has them.

`frontend/http/fallback.py` and `frontend/http/server.py` inherit from classes that uvicorn may
change with any minor release, so `setup.cfg` bounds it from above. To raise the bound: read what
changed in uvicorn's `protocols/http/httptools_impl.py`, `protocols/http/flow_control.py` and
`server.py`, above all in the bodies of the methods below, which no test of signatures sees; then
run this file, `tests/local/test_anyhttp.py`, `tests/local/test_phases.py`, `tests/fuzz` and
`tests/serve` with the new release.
"""

import ast
import asyncio
import configparser
import importlib.metadata
import inspect
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from http_harness import Transport, request, scenario, uvicorn_config
from packaging.requirements import Requirement
from sources import ROOT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import Server, ServerState

FALLBACK: Final = ROOT / "frontend" / "http" / "fallback.py"
SERVER: Final = ROOT / "frontend" / "http" / "server.py"

PROTOCOL_METHODS: Final = {
    "__init__": ["config", "server_state", "app_state", "_loop"],
    "_unset_keepalive_if_required": [],
    "connection_lost": ["exc"],
    "connection_made": ["transport"],
    "data_received": ["data"],
    "on_body": ["body"],
    "on_header": ["name", "value"],
    "on_headers_complete": [],
    "on_message_begin": [],
    "on_message_complete": [],
    "on_response_complete": [],
    "shutdown": [],
}
PROTOCOL_USES: Final = {
    "__init__",
    "_unset_keepalive_if_required",
    "connection_lost",
    "connection_made",
    "cycle.scope",
    "cycle.disconnected",
    "cycle.default_headers",
    "cycle.keep_alive",
    "cycle.message_event",
    "cycle.receive",
    "cycle.response_complete",
    "cycle.response_started",
    "cycle.transport",
    "cycle.waiting_for_100_continue",
    "data_received",
    "flow.pause_reading",
    "flow.read_paused",
    "flow.write_paused",
    "headers",
    "loop",
    "on_body",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "parser",
    "pipeline",
    "scope",
    "server_state.default_headers",
    "shutdown",
    "timeout_keep_alive",
    "transport",
    "url",
}
SERVER_METHODS: Final = {
    "__init__": ["config"],
    "handle_exit": ["sig", "frame"],
    "main_loop": [],
    "on_tick": ["counter"],
    "serve": ["sockets"],
    "shutdown": ["sockets"],
    "startup": ["sockets"],
}
SERVER_USES: Final = {
    "__init__",
    "config.backlog",
    "handle_exit",
    "main_loop",
    "on_tick",
    "server_state.connections",
    "should_exit",
    "shutdown",
    "started",
    "startup",
}
OWNERS: Final = {"config", "cycle", "flow", "server_state"}
"""Attributes that hold uvicorn's own objects, of which attributes are used in turn."""


def uses(file: Path, base: str, instance: object) -> set[str]:
    """Return the members of an instance that a class in the file overrides or uses.

    The class inherits from `base`; the members are such as ``url`` and ``cycle.keep_alive``.
    """
    found = {chain for chain in _chains(file, base) if hasattr(instance, chain.partition(".")[0])}
    return found - OWNERS


def _chains(file: Path, base: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ClassDef) or base not in map(ast.unparse, node.bases):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield part.name
            elif isinstance(part, ast.Attribute):
                first, *names = ast.unparse(part).split(".")
                if first in ("self", "super()"):
                    yield ".".join(names[: 2 if names[0] in OWNERS else 1])


def parameters(method: Any) -> list[str]:
    return list(inspect.signature(method).parameters)[1:]


def in_a_request() -> HttpToolsProtocol:
    """A connection of uvicorn's own whose request's body is still to come."""
    loop = asyncio.get_running_loop()
    protocol = HttpToolsProtocol(uvicorn_config(), ServerState(), {}, loop)
    protocol.connection_made(Transport())
    protocol.data_received(request(b"{}")[:-1])
    return protocol


def test_the_installed_release_is_one_whose_internals_were_read() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"].split("\n")
    (allowed,) = (Requirement(line) for line in lines if line.startswith("uvicorn "))
    assert [one for one in allowed.specifier if one.operator == "<"], "no upper bound"
    installed = importlib.metadata.version("uvicorn")
    assert allowed.specifier.contains(installed), f"uvicorn {installed}: {__doc__}"


@pytest.mark.parametrize(
    ("owner", "expected"),
    [(HttpToolsProtocol, PROTOCOL_METHODS), (Server, SERVER_METHODS)],
    ids=["protocol", "server"],
)
def test_methods_have_their_former_parameters(owner: type, expected: dict[str, list[str]]) -> None:
    assert {name: parameters(getattr(owner, name)) for name in expected} == expected


@scenario
async def test_the_protocol_has_every_member_used_of_it() -> None:
    protocol = in_a_request()
    assert uses(FALLBACK, "HttpToolsProtocol", protocol) == PROTOCOL_USES
    for chain in PROTOCOL_USES:
        owner, _, name = chain.rpartition(".")
        assert hasattr(getattr(protocol, owner) if owner else protocol, name), chain
    assert type(protocol.scope) is dict
    assert type(protocol.headers) is list
    assert type(protocol.pipeline) is deque
    assert type(protocol.cycle.message_event) is asyncio.Event
    assert protocol.connections is protocol.server_state.connections
    assert protocol in protocol.connections
    assert STATUS_LINE[408].startswith(b"HTTP/1.1 408 ")


@scenario
async def test_the_server_has_every_member_used_of_it() -> None:
    server = Server(uvicorn_config())
    assert uses(SERVER, "Server", server) == SERVER_USES
    for chain in SERVER_USES:
        owner, _, name = chain.rpartition(".")
        assert hasattr(getattr(server, owner) if owner else server, name), chain
    assert hasattr(server.config, "http_protocol_class")
    assert hasattr(server.config, "timeout_graceful_shutdown")
    # Which `startup` makes, and the base class closes.
    assert "servers" in Server.shutdown.__code__.co_names


def test_a_use_that_is_not_in_the_table_is_found(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "class Own(Server):\n"
        "    def main_loop(self):\n"
        "        self._own = self.config.backlog, self.force_exit, super().run\n"
    )
    found = uses(file, "Server", Server(uvicorn_config()))
    assert found == {"main_loop", "config.backlog", "force_exit", "run"}
