"""System shared memory against a real server of two frontends, byte by byte, and its misuse."""

import json
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from open_files import open_files
from serve.client import Connection, Response, request
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.shm.layout import MAX_REGIONS
from ringbatch.shm.shm_objects import DIRECTORY

ADD = """
import time
from pathlib import Path
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2])]
def predict(x):
    while (x < 0).any() and not Path({gate!r}).exists():
        time.sleep(0.002)
    return x + 1
"""
ONE_TWO, TWO_THREE = struct.pack("<2f", 1, 2), struct.pack("<2f", 2, 3)
WAITS = struct.pack("<2f", -1, 2)
REGIONS = "/v2/systemsharedmemory"
PREFIX = f"rbtest_{os.getpid()}_"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a file without which the model does not answer to negative numbers."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def server(start_for_module: Start, gate: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    model = tmp_path_factory.mktemp("models") / "add.py"
    model.write_text(ADD.format(gate=str(gate)))
    paired = {"policy": "fixed", "max_batch_size": 2, "max_latency_ms": 20_000}
    return start_for_module(
        {"addone": {"path": str(model)}, "pair": {"path": str(model)} | paired},
        frontends=2,
        # Wide enough for what must not be opened all the same.
        shared_memory_prefixes=[PREFIX, "/ringbatch", "sem"],
    )


@pytest.fixture
def objects() -> Iterator[Callable[..., Path]]:
    """`objects(name, data)`: a shared memory object, whose key is its file's name."""

    def make(name: str, data: bytes = bytes(64)) -> Path:
        path: Path = DIRECTORY / f"{PREFIX}{name}"
        path.write_bytes(data)
        return path

    yield make
    for path in DIRECTORY.glob(f"{PREFIX}*"):
        path.unlink()


@pytest.fixture
def connections(server: Server) -> Iterator[list[Connection]]:
    """Connections, one to each frontend; afterwards no region is registered."""
    with ExitStack() as stack:
        yield one_to_each(server, stack)
        with Connection(server.port) as last:
            assert last.ask(request(f"{REGIONS}/unregister", b"")).status == 200


def one_to_each(server: Server, stack: ExitStack) -> list[Connection]:
    found: dict[int | None, Connection] = {}
    while len(found) < 2:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(3)]
        for connection in connections:
            # What the fast lane answers, so that it keeps the connection.
            assert connection.ask(infer({"data": [1, 2]})).status == 200
        owners = server.served_by([connection.port for connection in connections])
        assert None not in owners
        found = dict(zip(owners, connections, strict=True)) | found
    return list(found.values())


def post(connection: Connection, path: str, body: Any = None) -> Response:
    data = b"" if body is None else json.dumps(body).encode()
    return connection.ask(request(f"{REGIONS}{path}", data))


def get(connection: Connection, path: str) -> Response:
    return connection.ask(request(f"{REGIONS}{path}", method="GET"))


def register(connection: Connection, name: str, path: Path, size: int = 64, **more: int) -> None:
    body = {"key": f"/{path.name}", "byte_size": size} | more
    answer = post(connection, f"/region/{name}/register", body)
    assert (answer.status, answer.body) == (200, b""), answer.body


def place(region: str, size: int, offset: int = 0) -> dict[str, Any]:
    keys = {"shared_memory_region": region, "shared_memory_byte_size": size}
    return {"parameters": keys | ({"shared_memory_offset": offset} if offset else {})}


def infer(
    entry: dict[str, Any], output: dict[str, Any] | None = None, model: str = "addone"
) -> bytes:
    text: dict[str, Any] = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32"} | entry]}
    if output is not None:
        text["outputs"] = [{"name": "y"} | output]
    return request(f"/v2/models/{model}/infer", json.dumps(text).encode())


def test_t18_on_every_frontend_after_registration_on_any(
    server: Server, connections: list[Connection], objects: Callable[..., Path]
) -> None:
    path = objects("in0", ONE_TWO + bytes(56))
    register(connections[0], "r0", path, offset=0)
    shown = [{"name": "r0", "key": f"/{path.name}", "offset": 0, "byte_size": 64}]
    with ExitStack() as stack:
        fresh = one_to_each(server, stack)  # one above has left the fast lane
        before = server.status().frontends["handed_over"]
        for connection in fresh:
            path.write_bytes(ONE_TWO + bytes(56))
            answer = connection.ask(infer(place("r0", 8), place("r0", 8, 32)))
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert answer.body == (
                b'{"model_name":"addone","model_version":"1","outputs":'
                b'[{"name":"y","datatype":"FP32","shape":[1,2]}]}'
            )
            assert path.read_bytes() == ONE_TWO + bytes(24) + TWO_THREE + bytes(24)
        assert server.status().frontends["handed_over"] == before
    for connection in connections:
        assert get(connection, "/status").json == shown
        assert get(connection, "/region/r0/status").json == shown
    assert post(connections[1], "/region/r0/unregister").body == b""
    assert post(connections[0], "/region/r0/unregister").status == 200
    for connection in connections:
        assert get(connection, "/status").json == []
        assert connection.ask(infer(place("r0", 8))).status == 404


def test_inputs_and_outputs_mix_with_the_usual_ones(
    connections: list[Connection], objects: Callable[..., Path]
) -> None:
    path = objects("in0", ONE_TWO + bytes(56))
    register(connections[1], "r0", path, size=60, offset=4)
    usual = {"data": [1, 2]}
    for connection in connections:
        answer = connection.ask(infer(usual, place("r0", 16, 12)))
        assert answer.status == 200, answer.body
        assert path.read_bytes()[16:24] == TWO_THREE
        answer = connection.ask(infer(place("r0", 8, 12)))
        assert answer.json["outputs"][0]["data"] == [3.0, 4.0]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None, int, str]] = {
    "unknown-region": (place("r9", 8), None, 404, 'no shared memory region "r9"'),
    "unknown-region-of-output": ({"data": [1, 2]}, place("r9", 8), 404, '"r9"'),
    "beyond": (place("r0", 8, 60), None, 400, 'not within shared memory region "r0"'),
    "output-beyond": (place("r0", 8), place("r0", 8, 60), 400, "not within shared memory"),
    "output-too-small": (place("r0", 8), place("r0", 4), 400, "more than the 4 of shared"),
    "input-too-small": (place("r0", 4), None, 400, "has 4 bytes of shared memory"),
    "negative": (place("r0", 8, -1), None, 400, "not a whole number from 0"),
    "huge": (place("r0", (1 << 64) - 1), None, 400, "not a whole number from 0"),
    "huge-offset": (place("r0", 8, (1 << 64) - 1), None, 400, "not a whole number from 0"),
    "no-size": ({"parameters": {"shared_memory_region": "r0"}}, None, 400, "has no shared"),
    "with-data": (place("r0", 8) | {"data": [1, 2]}, None, 400, "has data as well"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_forbidden_request_is_refused(
    connections: list[Connection], objects: Callable[..., Path], case: str
) -> None:
    entry, output, status, text = CASES[case]
    path = objects("in0", ONE_TWO + bytes(56))
    register(connections[0], "r0", path)
    for connection in connections:
        answer = connection.ask(infer(entry, output))
        assert answer.status == status
        assert text in answer.error
        assert connection.ask(infer(place("r0", 8), place("r0", 8, 8))).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"key": "/other", "byte_size": 8}, 400),
        ({"key": f"/{PREFIX}none", "byte_size": 8}, 404),
        ({"key": f"/{PREFIX}in0/../x", "byte_size": 8}, 400),
        ({"key": f"/../../etc/{PREFIX}", "byte_size": 8}, 400),
        ({"key": "ringbatch/../x", "byte_size": 8}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": 65}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": 8, "offset": 60}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": (1 << 64) - 1}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": -8}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": 8, "offset": -1}, 400),
        ({"key": f"/{PREFIX}in0", "byte_size": 8, "offset": (1 << 64) - 1}, 400),
        ({"key": f"/{PREFIX}in0"}, 400),
        ({"byte_size": 8}, 400),
        ([], 400),
        (None, 400),
    ],
)
def test_a_forbidden_registration_is_refused(
    connections: list[Connection], objects: Callable[..., Path], body: Any, status: int
) -> None:
    objects("in0")
    answer = post(connections[0], "/region/r/register", body)
    assert answer.status == status
    assert answer.error
    assert get(connections[0], "/status").json == []
    assert get(connections[0], "/region/r/status").status == 404


def test_a_name_is_registered_once(
    connections: list[Connection], objects: Callable[..., Path]
) -> None:
    path = objects("in0")
    register(connections[0], "r0", path)
    for connection in connections:
        answer = post(connection, "/region/r0/register", {"key": path.name, "byte_size": 8})
        assert (answer.status, "registered already" in answer.error) == (400, True)


def test_nothing_of_the_engine_s_own_can_be_named(
    server: Server, connections: list[Connection]
) -> None:
    own = server.names()
    assert {name.partition(".")[0] for name in own} == {"ringbatch", "sem"}
    for name in own:
        for key in (name, f"/{name}"):
            body = {"key": key, "byte_size": 8}
            answer = post(connections[0], "/region/r/register", body)
            assert answer.status == 400
            assert "may use" in answer.error
            assert "/dev/shm" not in answer.error


def a_link(path: Path) -> None:
    path.symlink_to(DIRECTORY / f"{PREFIX}in0")


def a_link_to_the_engine(path: Path) -> None:
    path.symlink_to(next(DIRECTORY.glob("ringbatch.*")))


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [a_link, a_link_to_the_engine, a_pipe, a_folder])
def test_an_invalid_object_is_as_good_as_absent(
    connections: list[Connection], objects: Callable[..., Path], make: Callable[[Path], None]
) -> None:
    objects("in0")
    odd = DIRECTORY / f"{PREFIX}odd"
    make(odd)
    try:
        answer = post(connections[0], "/region/r/register", {"key": odd.name, "byte_size": 8})
    finally:
        odd.rmdir() if odd.is_dir() and not odd.is_symlink() else odd.unlink()
    assert answer.status == 404
    assert answer.error == (
        f'there is no shared memory object "{odd.name}" that this server could open'
    )


def test_an_object_made_shorter_costs_its_own_request_and_no_process(
    server: Server, connections: list[Connection], objects: Callable[..., Path]
) -> None:
    pids = sorted(server.living())
    path = objects("in0", ONE_TWO + bytes(1 << 14))
    register(connections[0], "r0", path, 1 << 14)
    for connection in connections:
        assert connection.ask(infer(place("r0", 8), place("r0", 8, 8192))).status == 200
    os.truncate(path, 4)
    for connection in connections:
        for output in (None, place("r0", 8, 8192)):
            for entry in (place("r0", 8), {"data": [1, 2]}):
                if output is None and "data" in entry:
                    continue
                answer = connection.ask(infer(entry, output))
                assert answer.status == 400
                assert "register the region again" in answer.error
        assert connection.ask(infer({"data": [1, 2]})).status == 200
    assert path.stat().st_size == 4
    assert sorted(server.living()) == pids


def test_a_request_on_its_way_is_not_disturbed_by_the_end_of_its_region(
    server: Server,
    connections: list[Connection],
    objects: Callable[..., Path],
    gate: Path,
    wait_until: Callable[..., object],
) -> None:
    path = objects("in0", WAITS + bytes(56))
    register(connections[0], "r0", path)
    with Connection(server.port) as connection:
        answered = server.status().frontends["requests"] + 1
        connection.send(infer(place("r0", 8), place("r0", 8, 8)))
        wait_until(
            lambda: server.status().frontends["requests"] >= answered, "the request in its slot"
        )
        for other in connections:
            assert post(other, "/unregister").status == 200
            assert get(other, "/status").json == []
        gate.touch()
        assert connection.receive().status == 200
    gate.unlink()
    assert path.read_bytes()[8:16] == struct.pack("<2f", 0, 3)


def test_no_frontend_keeps_an_object_whose_region_is_gone(
    server: Server,
    connections: list[Connection],
    objects: Callable[..., Path],
    wait_until: Callable[..., object],
) -> None:
    path = objects("in0", ONE_TWO + bytes(56))

    def holders() -> int:
        targets = (target for pid in server.living() for target in open_files(pid).values())
        return sum(path.name in target for target in targets)

    register(connections[0], "r0", path)
    for connection in connections:
        for model in ("addone", "addone/versions/1"):  # the fast lane, and Falcon
            answers = [
                connection.ask(infer(place("r0", 8), place("r0", size), model)) for size in (8, 4)
            ]
            assert [answer.status for answer in answers] == [200, 400]
    assert holders() == 2
    assert post(connections[0], "/region/r0/unregister").status == 200
    wait_until(lambda: holders() == 0, "none has it open")


def test_a_bad_output_fails_alone_in_its_batch(
    connections: list[Connection], objects: Callable[..., Path]
) -> None:
    register(connections[0], "r0", objects("in0", ONE_TWO + bytes(56)))
    # The batch holds two and would wait 20 s for less.
    good, bad = connections
    good.send(infer(place("r0", 8), place("r0", 8, 8), "pair"))
    bad.send(infer(place("r0", 8), place("r0", 4, 16), "pair"))
    answers = [connection.receive() for connection in connections]
    assert [answer.status for answer in answers] == [200, 400]
    assert answers[0].headers["x-batch-id"] == answers[1].headers["x-batch-id"]


def test_the_number_of_regions_is_bounded(
    connections: list[Connection], objects: Callable[..., Path]
) -> None:
    path = objects("in0")
    body = json.dumps({"key": path.name, "byte_size": 8}).encode()
    statuses = []
    for number in range(1000):
        target = f"{REGIONS}/region/r{number}/register"
        answer = connections[number % 2].ask(request(target, body))
        statuses.append(answer.status)
    assert statuses == [200] * MAX_REGIONS + [503] * (1000 - MAX_REGIONS)
    assert "unregister some first" in answer.error
    assert answer.headers["retry-after"] == "1"
    assert len(get(connections[0], "/status").json) == MAX_REGIONS


def test_a_frontend_that_takes_the_place_of_a_dead_one_knows_the_regions(
    server: Server,
    connections: list[Connection],
    objects: Callable[..., Path],
    wait_until: Callable[..., object],
) -> None:
    register(connections[0], "r0", objects("in0", ONE_TWO + bytes(56)))
    dead = server.serves(connections[0].port)
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: dead not in server.living(), "it is dead")
    with ExitStack() as stack:
        for connection in one_to_each(server, stack):
            assert server.serves(connection.port) != dead
            assert connection.ask(infer(place("r0", 8))).status == 200


def test_methods_are_those_of_the_extension(connections: list[Connection]) -> None:
    for path, right in (
        ("/status", "GET"),
        ("/region/r/status", "GET"),
        ("/region/r/register", "POST"),
        ("/region/r/unregister", "POST"),
        ("/unregister", "POST"),
    ):
        wrong = "POST" if right == "GET" else "GET"
        answer = connections[0].ask(request(f"{REGIONS}{path}", b"", method=wrong))
        assert answer.status == 405
        assert right in answer.headers["allow"]


@exhaustive
def test_where_it_is_off_it_says_so(start: Start, objects: Callable[..., Path]) -> None:
    server = start({"m": {"path": "matmul.py"}})
    path = objects("in0")
    body = json.dumps({"key": path.name, "byte_size": 8}).encode()
    text = b'{"inputs":[{"name":"x","shape":[1,16],"datatype":"FP32","parameters":'
    text += b'{"shared_memory_region":"r","shared_memory_byte_size":64}}]}'
    with Connection(server.port) as connection:
        for asked in (
            request("/v2/models/m/infer", text),
            request(f"{REGIONS}/status", method="GET"),
            request(f"{REGIONS}/region/r/status", method="GET"),
            request(f"{REGIONS}/region/r/register", body),
            request(f"{REGIONS}/region/r/unregister", b""),
            request(f"{REGIONS}/unregister", b""),
        ):
            answer = connection.ask(asked)
            assert answer.status == 501
            assert "[server] shared_memory_prefixes switches it on" in answer.error
        metadata = connection.ask(request("/v2", method="GET")).json
        assert "system_shared_memory" not in metadata["extensions"]
