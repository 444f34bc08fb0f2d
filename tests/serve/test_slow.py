"""Slow requests: the explanations in the header and in the log."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from dev_shm import takes
from serve.client import Connection, Response, chunked, instances, predict_target, request
from serve.grpc_stub import Stub, infer_request
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE
from ringbatch.shm.engines import only
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import RequestRecord, slowest

pytestmark = takes(30)

SLOW_S: Final = 0.8
LEAST_S: Final = 0.99 * SLOW_S
"""Least of a phase that is as long: what is beside it takes some of the same milliseconds."""
RETRY_S: Final = 0.39
"""Least of a retry, for which a worker loads 0.4 s."""
LARGE_BYTES: Final = 6_000_000
PHASES: Final = ("read", "wait", "queue", "gather", "run", "scatter", "write", "take")
Logged = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def server(start_for_module: Start, free_port_factory: Callable[[], int]) -> Server:
    usual = {"path": "slow.py", "workers": 1, "timeout_s": 30}
    fixed = {"policy": "fixed", "max_latency_ms": SLOW_S * 1000}
    return start_for_module(
        {
            "slow": usual,
            "waiting": {**usual, **fixed, "max_batch_size": 8},
            "pairs": {**usual, **fixed, "max_batch_size": 2},
            "agent": {**usual, "kserve_errors": True},
            "matmul": {"path": "matmul.py"},
        },
        access_log="all",
        log_format="json",
        lane_bytes=7 << 20,
        client_lanes=0,
        grpc_port=free_port_factory(),
    )


@pytest.fixture
def logged(server: Server, wait_until: Callable[..., Any]) -> Logged:
    """`logged(id)`: what the log says of the request with that id. A slow one is kept as well."""

    def find(request_id: str) -> dict[str, Any] | None:
        for line in server.stderr.rpartition("\n")[0].splitlines():
            if f'"id": "{request_id}"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        return None

    def logged(request_id: str) -> dict[str, Any]:
        found: dict[str, Any] = wait_until(lambda: find(request_id), f"{request_id} in the log")
        if found["ms"] > SLOW_S * 500:
            (kept,) = (each for each in among_slowest() if each.request_id == request_id)
            assert kept.found.cause(kept.instances) == found["cause"]
            assert kept.found.total == pytest.approx(found["ms"] * 1e6, rel=1e-3)
            assert kept.code == found["status"]
        return found

    def among_slowest() -> list[RequestRecord]:
        segment = Segment.attach(only(server.process.pid))
        try:
            return slowest(segment, time.monotonic_ns(), 1 << 10)
        finally:
            segment.detach()

    return logged


def asked(model: str, request_id: str, *values: Any) -> bytes:
    headers = {"X-Request-Id": request_id, "X-Server-Timing": "1"}
    return request(predict_target(model), instances(*values), headers=headers)


def timings(answer: Response) -> dict[str, float]:
    """The durations of the header, in milliseconds."""
    found = re.findall(r"([a-z]+);dur=([0-9.]+)", answer.headers["server-timing"])
    return {name: float(ms) for name, ms in found}


def expect_blame(
    answer: Response,
    line: dict[str, Any],
    cause: str,
    phase: str,
    took_s: float,
    least_s: float = LEAST_S,
) -> None:
    """Header and log blame the same. Their figures add up to a time that the client saw, and that
    has the delay within it."""
    times = timings(answer)
    total = times.pop("total")
    assert "copy" not in times, "no device has the model"
    assert "copy_ms" not in line
    assert max(times, key=lambda name: times[name]) == phase
    assert sum(times.values()) == pytest.approx(total, abs=0.01)
    assert least_s * 1000 <= times[phase] <= total <= took_s * 1000
    assert line["cause"] == cause
    own = [line[f"{name}_ms"] for name in PHASES if f"{name}_ms" in line]
    assert sum(own) == pytest.approx(line["ms"], abs=0.01)
    # When the header is made, the answer is still to be written.
    assert line["ms"] >= total - 0.01
    assert line[f"{phase}_ms"] == max(own)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.port) as made:
        # So that what is measured is no first request.
        made.ask(asked("slow", "first", 0))
        yield made


def timed(connection: Connection, text: bytes) -> tuple[Response, float]:
    began_s = time.monotonic()
    answer = connection.ask(text)
    return answer, time.monotonic() - began_s


def test_the_model(connection: Connection, logged: Logged) -> None:
    answer, took_s = timed(connection, asked("slow", "model", SLOW_S))
    line = logged("model")
    expect_blame(answer, line, "run", "run", took_s)
    assert (line["batch"], line["reason"]) == (answer.json["batchId"], "idle")
    assert (line["status"], line["model"], line["protocol"]) == (200, "slow", "v1")
    assert (line["instances"], line["batch_size"], line["attempts"]) == (1, 1, 1)
    assert line["client"] == f"127.0.0.1:{connection.port}"
    assert line["bytes_out"] == len(answer.body)
    assert line["bytes_in"] == len(instances(SLOW_S))


def test_the_queue(connection: Connection, logged: Logged) -> None:
    answer, took_s = timed(connection, asked("waiting", "queue", 0))
    line = logged("queue")
    expect_blame(answer, line, "queue", "queue", took_s)
    assert line["reason"] == "latency"


def test_a_long_neighbour(server: Server, connection: Connection, logged: Logged) -> None:
    with Connection(server.port) as other:
        other.send(asked("pairs", "neighbour", SLOW_S))
        answer, took_s = timed(connection, asked("pairs", "beside", 0))
        other.receive()
    line = logged("beside")
    expect_blame(answer, line, "batch", "run", took_s)
    assert (line["batch_size"], line["instances"], line["reason"]) == (2, 1, "full")
    assert logged("neighbour")["batch"] == line["batch"]


def test_a_retry_after_a_crash(server: Server, connection: Connection, logged: Logged) -> None:
    (server.config.parent / "armed").touch()
    answer, took_s = timed(connection, asked("slow", "retry", "die"))
    assert answer.status == 200
    line = logged("retry")
    assert (line["reason"], line["attempts"]) == ("retry", 2)
    expect_blame(answer, line, "retry", "queue", took_s, RETRY_S)
    assert "closed for retry, 2 attempts" in answer.headers["server-timing"]


@pytest.mark.parametrize("way", ["fast", "chunked"])
def test_a_slow_upload(connection: Connection, logged: Logged, way: str) -> None:
    text = asked("slow", f"upload-{way}", "a" * 1000)
    if way == "chunked":
        ids = f"X-Request-Id: upload-{way}\r\nX-Server-Timing: 1\r\n\r\n".encode()
        text = chunked("slow", instances("a" * 1000)).replace(b"\r\n\r\n", b"\r\n" + ids, 1)
    began_s = time.monotonic()
    connection.send(text[:-200])
    threading.Event().wait(SLOW_S)
    answer = connection.ask(text[-200:])
    took_s = time.monotonic() - began_s
    expect_blame(answer, logged(f"upload-{way}"), "read", "read", took_s)


def test_a_slow_reader(server: Server, logged: Logged) -> None:
    """The header is written before anybody can know."""
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        reader.connect(("127.0.0.1", server.port))
        began_s = time.monotonic()
        reader.sendall(asked("slow", "reader", "large"))
        left = LARGE_BYTES - len(reader.recv(1))
        # On a busy machine the answer is long in coming, and then this reader is slower still.
        threading.Event().wait(max(3 * SLOW_S, 2 * (time.monotonic() - began_s)))
        while left > 0:
            left -= len(reader.recv(1 << 20))
        line = logged("reader")
        took_s = time.monotonic() - began_s
    assert line["cause"] == "take"
    assert SLOW_S * 1000 < line["take_ms"] < line["ms"] < took_s * 1000
    assert line["bytes_out"] > LARGE_BYTES
    own = [line[f"{name}_ms"] for name in PHASES if f"{name}_ms" in line]
    assert sum(own) == pytest.approx(line["ms"], abs=0.01)


def test_an_unanswered_request_is_logged_with_its_known_fields(
    server: Server, connection: Connection, logged: Logged
) -> None:
    with Connection(server.port) as other:
        other.send(asked("slow", "gone", SLOW_S))
        other.close()
    line = logged("gone")
    assert (line["status"], line["model"], line["message"]) == (499, "slow", "request failed")


@pytest.mark.parametrize("spelling", [predict_target("slow"), "/v1/models/slow%3Apredict", "/nope"])
def test_every_answer_has_the_id_that_was_sent_or_one_of_its_own(
    server: Server, spelling: str
) -> None:
    with Connection(server.port) as connection:
        sent = connection.ask(request(spelling, instances(0), headers={"X-Request-Id": "mine"}))
        assert sent.headers["x-request-id"] == "mine"
        made = {
            connection.ask(request(spelling, body)).headers["x-request-id"]
            for body in (instances(0), b"{", b"")
        }
        assert len(made) == 3
        for bad in ("a b", "x" * 129, "\xe9"):
            text = request(spelling, instances(0), headers={"X-Request-Id": bad})
            assert connection.ask(text).headers["x-request-id"] not in made | {bad}


@pytest.mark.parametrize(
    "path", ["/v1/models/nope:predict", "/v2/models/nope/versions/3/infer", "/nope"]
)
def test_the_log_has_the_target_of_a_request_for_an_absent_model(
    server: Server, logged: Logged, path: str
) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(path, instances(0)))
    line = logged(answer.headers["x-request-id"])
    assert (line["status"], line["target"]) == (404, f"POST {path}")


def test_bytes_that_are_no_request_get_an_id_too(server: Server, logged: Logged) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(b"nonsense\r\n\r\n")
    assert answer.status == 400
    assert logged(answer.headers["x-request-id"])["status"] == 400


@exhaustive
def test_ten_thousand_ids_do_no_harm(server: Server, logged: Logged) -> None:
    with Connection(server.port) as connection:
        for start in range(0, 10_000, 50):
            names = [f"many-{number}" for number in range(start, start + 50)]
            connection.send(b"".join(asked("slow", name, 0) for name in names))
            answers = [connection.receive() for _ in names]
            assert [answer.headers["x-request-id"] for answer in answers] == names
    assert logged("many-9999")["status"] == 200


def test_no_header_or_path_of_a_client_makes_a_line_of_its_own(
    server: Server, logged: Logged
) -> None:
    forged = '{"id": "forged", "message": "request answered"}'
    with Connection(server.port) as connection:
        connection.send(request("/%0A" + "%7B%22id%22%3A%22forged%22", b"", method="GET"))
        answer = connection.receive()
        connection.ask(request("/v1/models/slow:predict", b"{", headers={"X-Request-Id": forged}))
    line = logged(answer.headers["x-request-id"])
    assert (line["status"], line["target"]) == (404, 'GET /\n{"id":"forged"')
    ids = [json.loads(text).get("id") for text in server.stderr.splitlines()]
    assert "forged" not in ids


def test_a_failure_is_a_warning_and_says_for_which_model(server: Server, logged: Logged) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(asked("slow", "bad", {"no": "list"})[:-2] + b"}}")
        assert answer.status == 400
        connection.ask(asked("nobody", "unknown", 1))
    bad, unknown = logged("bad"), logged("unknown")
    assert (bad["model"], bad["status"], bad["level"]) == ("slow", 400, "info")
    assert (unknown["status"], "model" in unknown) == (404, False)


def test_a_failure_that_its_client_reads_as_200_is_logged_as_a_failure(
    connection: Connection, logged: Logged
) -> None:
    answer = connection.ask(asked("agent", "agent", -1.0))
    assert answer.status == 200
    assert answer.json["predictions"] is None
    line = logged("agent")
    assert (line["status"], line["level"], line["message"]) == (500, "warning", "request failed")


def test_over_grpc_id_and_times_are_in_the_trailing_metadata(
    server: Server, logged: Logged
) -> None:
    found = re.search(r"serving gRPC on 127.0.0.1:(\d+)", server.stdout)
    assert found is not None
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
    data = infer_request("matmul", tensor, raw_input_contents=[bytes(64)])
    sent = (("x-request-id", "over-grpc"), ("x-server-timing", "1"))
    with Stub(int(found[1])) as stub:
        call = stub.channel.unary_unary(f"/{INFERENCE_SERVICE}/ModelInfer")
        _, ended = call.with_call(data, metadata=sent, wait_for_ready=True)
        metadata = dict(ended.trailing_metadata())
        _, unasked = call.with_call(data)
        assert {*dict(unasked.trailing_metadata())} == {"x-request-id"}
    assert metadata["x-request-id"] == "over-grpc"
    assert re.search(r"queue;dur=.*run;dur=.*total;dur=", metadata["server-timing"])
    line = logged("over-grpc")
    assert (line["protocol"], line["model"], line["status"]) == ("grpc", "matmul", 200)
    assert line["bytes_in"] == len(data)


@exhaustive
def test_by_default_the_log_has_the_unusually_slow_requests(
    start: Start, wait_until: Callable[..., Any]
) -> None:
    server = start({"slow": {"path": "slow.py"}}, frontends=1)
    with Connection(server.port) as connection:
        for number in range(3):
            assert connection.ask(asked("slow", f"quick-{number}", 0.01)).status == 200
        assert connection.ask(asked("slow", "slow", 1.2)).status == 200
    wait_until(lambda: "request answered id=slow " in server.stderr, "the slow one in the log")
    assert "quick" not in server.stderr
    assert "cause=run" in server.stderr
