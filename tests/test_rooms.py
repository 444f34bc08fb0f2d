"""The rooms of the house: their sub-packages, the table of their imports, and no circle."""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import pytest
from sources import Module, assert_holds, breaks, folder_of, imported, is_under, modules, room_of

ARROWS = {
    "shm": "",
    "shm.host": "shm",
    "shm.snapshot": "shm",
    "bench": "",
    "bench.statistics": "",
    "bench.tuning": "",
    "bench.load": "shm bench.statistics",
    "bench.served": "shm shm.host",
    "bench.report": "bench.statistics bench.load bench.served",
    "bench.command": "shm bench.statistics bench.tuning bench.load bench.served bench.report",
    # The public names, for models and for programs on the same host.
    "engine": "shm engine.models engine.command",
    "engine.config": "shm shm.host",
    "engine.devices": "shm",
    "engine.models": "shm engine.devices",
    "engine.process": "shm shm.host engine.models",
    "engine.report": "shm shm.host shm.snapshot",
    "engine.ipc": "shm engine.config engine.process engine.models",
    "engine.runtimes.graphs": "shm engine.models",
    "engine.runtimes.trees": "shm engine.models",
    "engine.runtimes.torch": "shm shm.host engine.config engine.devices engine.models",
    "engine.runtimes.texts": "shm engine.models engine.runtimes.graphs engine.runtimes.torch",
    "engine.runtimes.upstreams": "shm shm.host engine.config engine.models",
    "engine.runtimes.ray": "shm shm.host engine.models",
    "engine.runtimes": (
        "shm engine.models engine.runtimes.graphs engine.runtimes.trees "
        "engine.runtimes.torch engine.runtimes.texts engine.runtimes.upstreams engine.runtimes.ray"
    ),
    "engine.collector": "shm shm.host engine.ipc engine.process",
    "engine.worker": (
        "shm shm.host engine.ipc engine.process engine.devices engine.models engine.runtimes"
    ),
    "engine.systemd": "shm shm.host",
    "engine.supervisor": (
        "shm shm.host engine.config engine.process engine.ipc engine.models engine.systemd"
    ),
    # Its model imports what models of users do.
    "engine.demo": "shm shm.host engine engine.config engine.report",
    "engine.doctor": (
        "shm shm.host engine.config engine.process engine.ipc engine.runtimes.texts "
        "engine.supervisor"
    ),
    "engine.command": (
        "shm shm.host engine.config engine.report engine.runtimes.ray engine.systemd "
        "engine.supervisor engine.demo engine.doctor bench.command bench.load"
    ),
    "frontend": (
        "shm frontend.codec frontend.client frontend.routes frontend.security frontend.access "
        "frontend.payloads frontend.server"
    ),
    # A program on the same host, which measures: the public names alone.
    "bench.client": "frontend bench.load",
    "frontend.codec": "shm",
    "frontend.security": "shm shm.host",
    "frontend.offload": "shm shm.host",
    "frontend.texts": "shm shm.host frontend.codec",
    "frontend.generation": "shm frontend.codec frontend.texts",
    "frontend.v1": "shm shm.host frontend.codec",
    "frontend.v2": "shm shm.host frontend.codec",
    "frontend.request": (
        "shm shm.host frontend.codec frontend.offload frontend.texts frontend.generation "
        "frontend.v1 frontend.v2"
    ),
    "frontend.client": "shm shm.host frontend.codec frontend.texts frontend.v1 frontend.v2",
    "frontend.load": "shm",
    "frontend.access": "shm shm.host frontend.codec frontend.request frontend.load",
    "frontend.payloads": "shm shm.host frontend.request frontend.access",
    "frontend.http": (
        "shm shm.host frontend.codec frontend.v1 frontend.request frontend.load frontend.security "
        "frontend.access frontend.payloads"
    ),
    "frontend.http2": "frontend.codec",
    "frontend.streams": ("shm frontend.codec frontend.http frontend.http2"),
    "frontend.grpc": (
        "shm shm.host frontend.codec frontend.offload frontend.texts frontend.v2 frontend.request "
        "frontend.load frontend.security frontend.access frontend.payloads frontend.http "
        "frontend.http2 "
        "frontend.streams"
    ),
    "frontend.page": "shm shm.snapshot frontend.http",
    "frontend.tracing": "shm shm.host",
    "frontend.metrics": (
        "shm shm.host shm.snapshot frontend.codec frontend.load frontend.security "
        "frontend.payloads frontend.http frontend.page frontend.tracing"
    ),
    "frontend.proxy": "shm shm.host frontend.request frontend.security frontend.http",
    "frontend.routes": (
        "shm shm.host frontend.codec frontend.v1 frontend.request frontend.client "
        "frontend.security frontend.http"
    ),
    "frontend.falcon": (
        "shm shm.host frontend.codec frontend.texts frontend.generation frontend.v2 "
        "frontend.request frontend.security frontend.http"
    ),
    "frontend.server": (
        "shm shm.host frontend.v2 frontend.request frontend.load frontend.security "
        "frontend.access frontend.payloads frontend.http frontend.falcon frontend.proxy "
        "frontend.routes frontend.streams"
    ),
}
"""Rooms that each room may import, from below upwards."""


def imports_by_the_table(module: Module) -> list[str]:
    """A module imports its own room, and of the others those that the table names."""
    allowed = {module.room, *ARROWS.get(module.room, "").split()}
    return [
        f"line {line}: {module.room} imports {name}"
        for line, name in imported(module)
        if is_under(name, "ringbatch") and name.count(".") > 1 and room_of(name) not in allowed
    ]


def test_no_module_imports_against_the_table() -> None:
    assert_holds(lambda module: iter(imports_by_the_table(module)))


def test_the_table_names_every_room_and_no_other() -> None:
    assert set(ARROWS) == {module.room for module in modules()}


def test_the_table_allows_nothing_that_nobody_does() -> None:
    used: dict[str, set[str]] = {room: set() for room in ARROWS}
    for module in modules():
        for _, name in imported(module):
            if is_under(name, "ringbatch") and name.count(".") > 1:
                used[module.room].add(room_of(name))
    unused = {room: set(ARROWS[room].split()) - used[room] for room in ARROWS}
    assert {room: rooms for room, rooms in unused.items() if rooms} == {}


def test_every_arrow_points_to_a_room_above_it_in_the_table() -> None:
    rooms = list(ARROWS)
    for room, targets in ARROWS.items():
        # The top of a package re-exports its public names, from any of its rooms.
        if room not in ("engine", "frontend"):
            assert all(rooms.index(target) < rooms.index(room) for target in targets.split())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ringbatch.engine.worker.runner", "from ringbatch.engine.collector import batching"),
        ("ringbatch.shm.ring", "from ringbatch.shm.host.process import log_to_stderr"),
        ("ringbatch.frontend.v1.request", "def f():\n    import ringbatch.frontend.v2.request"),
    ],
)
def test_an_import_against_the_table_is_reported(name: str, source: str) -> None:
    assert breaks(lambda module: iter(imports_by_the_table(module)), name, source)


def circle(sources: Iterable[Module]) -> list[str]:
    """Return modules of which each imports the next, inside functions too, and the last the first;
    none if there is no such circle."""
    found = {module.name: module for module in sources}
    imports = {
        name: {
            target
            for _, full in imported(module)
            if (target := full if full in found else full.rpartition(".")[0]) in found
        }
        for name, module in found.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_have_no_circle() -> None:
    assert circle(modules()) == []


def test_a_circle_of_imports_is_reported() -> None:
    one = Module.parse("ringbatch.shm.one", "from ringbatch.shm import two")
    two = Module.parse("ringbatch.shm.two", "def f():\n    from ringbatch.shm.one import x")
    assert set(circle([one, two])) == {one.name, two.name}


@pytest.mark.parametrize("room", [room for room in ARROWS if "." in room])
def test_a_room_names_its_inputs_its_outputs_and_the_file_to_read_first(room: str) -> None:
    package, *names = room.split(".")
    text = " ".join(folder_of(package).joinpath(*names, "__init__.py").read_text().split())
    assert all(word in text for word in ("Enters: ", "Leaves: ", "Read first: "))
    beginning = text.partition("Read first: ")[2].partition('"""')[0]
    stems = re.findall(r"(\w+)\.py", beginning)
    folder = folder_of(package).joinpath(*names)
    assert [stem for stem in stems if not (folder / f"{stem}.py").exists()] == []
