"""The payload log of real servers: every exchange of mixed requests, read back and compared.

Tests frontend/http/kept_lane.py and frontend/grpc/kept_connection.py.
"""

import base64
import http.server
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import httpx
import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, request
from serve.figures import figures
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.secure import KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, SCHEMA

pytestmark = takes(20)

WaitUntil = Callable[..., Any]
REQUEST_TYPE = "org.kubeflow.serving.inference.request"
RESPONSE_TYPE = "org.kubeflow.serving.inference.response"
MODELS: dict[str, dict[str, Any]] = {"echo": {"path": "moody.py"}, "m": {"path": "matmul.py"}}
LIMIT = 1 << 20
WIDE = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [-1])]
outputs = [Tensor("y", "FP32", [1])]
def predict(x):
    return x.sum(axis=1, keepdims=True)
"""
LENGTH = "Inference-Header-Content-Length"


class Asked(NamedTuple):
    """A request as its client knows it."""

    request_id: str
    status: int
    body: bytes
    answer: bytes
    batch_id: str
    model: str


def v1(text: object) -> bytes:
    return json.dumps({"instances": [text]}).encode()


def v2(row: np.ndarray[Any, Any]) -> tuple[bytes, dict[str, str]]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, row.size]}
    sizes = {"binary_data_size": row.nbytes}
    text = json.dumps(
        {
            "inputs": [tensor | {"parameters": sizes}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    return text + row.tobytes(), {LENGTH: str(len(text))}


class Clients:
    """Clients of all kinds; each request has an id of its own.

    Attributes:
        asked: requests sent, by id.
    """

    def __init__(self, server: Server, headers: dict[str, str]) -> None:
        self.asked: dict[str, Asked] = {}
        base = f"http://127.0.0.1:{server.port}"
        self._port, self._headers = server.port, headers
        self._http = [
            httpx.Client(http1=not http2, http2=http2, base_url=base, timeout=60, verify=False)
            for http2 in (False, True)
        ]
        self._lane = Connection(server.port)
        self._stub = Stub(grpc_port(server))
        self._number = 0

    def close(self) -> None:
        for client in self._http:
            client.close()
        self._lane.close()
        self._stub.channel.close()

    def _id(self) -> str:
        self._number += 1
        return f"r{self._number}"

    def fast(self, model: str, body: bytes, **more: str) -> None:
        """Send a request in one piece, which the fast lane serves quickest."""
        name = self._id()
        path = f"/v1/models/{model}:predict"
        headers = {"X-Request-Id": name} | self._headers | more
        answer = self._lane.ask(request(path, body, headers=headers))
        batch = answer.json.get("batchId", "")
        self.asked[name] = Asked(name, answer.status, body, answer.body, batch, model)

    def ask_for_health(self) -> None:
        """Ask on the connection of `fast`, whose requests are over for the frontend then."""
        self._lane.ask(request("/v2/health/live", method="GET"))

    def post(self, path: str, body: bytes, model: str, *, http2: bool, **headers: str) -> None:
        """Send a request with a client that sends head and body apart."""
        name = self._id()
        own = {"X-Request-Id": name} | self._headers
        found = self._http[http2].post(
            path, content=body, headers=own | {n.replace("_", "-"): v for n, v in headers.items()}
        )
        self.asked[name] = Asked(name, found.status_code, body, found.content, "", model)

    def call(self, model: str, row: np.ndarray[Any, Any]) -> None:
        """Call ModelInfer."""
        name = self._id()
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, row.size]}
        data = infer_request(model, tensor, raw_input_contents=[row.tobytes()])
        metadata = [("x-request-id", name)]
        metadata += [(key.lower(), value) for key, value in self._headers.items()]
        end = self._stub.start(data, metadata=metadata)()
        status = 200 if end.code == "OK" else 404
        answer = end.response.SerializeToString() if end.response is not None else b""
        self.asked[name] = Asked(name, status, data, answer, end.batch_id, model)

    def stream(self, rows: int) -> None:
        """ModelStreamInfer: requests of one call, which has one id."""
        name = self._id()
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
        raw = [np.full(16, number, np.float32).tobytes() for number in range(rows)]
        sent = [infer_request("m", tensor, raw_input_contents=[one]) for one in raw]
        begin = self._stub.channel.stream_stream(f"/{INFERENCE_SERVICE}/ModelStreamInfer")
        metadata = [("x-request-id", name)]
        metadata += [(key.lower(), value) for key, value in self._headers.items()]
        kind = SCHEMA.services[INFERENCE_SERVICE]["ModelStreamInfer"].response
        got = [kind.FromString(data) for data in begin(iter(sent), metadata=metadata)]
        assert len(got) == rows
        for number, body in enumerate(sent):
            self.asked[f"{name}.{number}"] = Asked(name, 200, body, b"", "", "m")

    def ask_in_turn(self, number: int) -> None:
        """Send the request of one kind, chosen by its number."""
        row = np.full(16, number, np.float32)
        binary, length = v2(row)
        plain = {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": row.tolist()}
        as_json = json.dumps({"inputs": [plain]}).encode()
        large, its_length = v2(np.full(100_000, number, np.float32))
        kinds: list[Callable[[], None]] = [
            lambda: self.fast("echo", v1(number)),
            lambda: self.fast("m", b'{"instances": [["x"]]}'),
            lambda: self.fast("echo", v1("raise")),
            lambda: self.fast("none", v1(1)),
            lambda: self.fast("echo", b"{"),
            lambda: self.post("/v1/models/echo:predict", v1("é"), "echo", http2=False),
            lambda: self.post("/v1/models/echo:predict", v1(number), "echo", http2=True),
            lambda: self.post("/v2/models/m/infer", as_json, "m", http2=False),
            lambda: self.post("/v2/models/m/infer", as_json, "m", http2=True),
            lambda: self.post("/v2/models/m/infer", binary, "m", http2=False, **_as(length)),
            lambda: self.post("/v2/models/m/infer", binary, "m", http2=True, **_as(length)),
            lambda: self.post(
                "/v2/models/wide/infer", large, "wide", http2=False, **_as(its_length)
            ),
            lambda: self.post("/v1/models/echo:predict", bytes(LIMIT + 1), "echo", http2=False),
            lambda: self.call("m", row),
            lambda: self.call("none", row),
            lambda: self.call("wide", np.full(100_000, number, np.float32)),
        ]
        kinds[number % len(kinds)]()


def _as(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return every event, once all are written."""
    texts = [file.read_bytes() for file in sorted(folder.glob("log*"))]
    assert all(text.endswith(b"\n") for text in texts)
    return [json.loads(line) for text in texts for line in text.splitlines()]


def data_of(event: dict[str, Any]) -> bytes:
    if "data" in event:
        return json.dumps(event["data"]).encode()
    return base64.b64decode(event["data_base64"])


def metrics(server: Server) -> Counter[str]:
    """Counts of the payload log, summed over lanes and reasons."""
    text = httpx.get(
        f"http://127.0.0.1:{server.control_port}/metrics", timeout=60, verify=False
    ).text
    found: Counter[str] = Counter()
    for sample in figures(text):
        if "payload" in sample.name and sample.name.endswith("_total"):
            found[sample.name] += int(sample.value)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "payloads"
    found.mkdir()
    return found


@pytest.fixture
def serve(start: Start, tmp_path: Path, folder: Path) -> Callable[..., Server]:
    def make(**keys: Any) -> Server:
        (tmp_path / "wide.py").write_text(WIDE)
        key_file = write_private(tmp_path / "keys", f"{KEY}\n")
        keys = {"payload_log": str(folder / "log"), "payload_log_body_bytes": LIMIT} | keys
        return start(
            MODELS | {"wide": {"path": str(tmp_path / "wide.py")}},
            grpc_port=0,
            control_port=0,
            http2=True,
            max_request_bytes=LIMIT,
            api_keys_file=str(key_file),
            **{"frontends": 2} | keys,
        )

    return make


def check(asked: dict[str, Asked], found: list[dict[str, Any]]) -> None:
    """Compare events with what clients know, one by one."""
    requests = [event for event in found if event["type"] == REQUEST_TYPE]
    answers = [event for event in found if event["type"] == RESPONSE_TYPE]
    expected = Counter(one.request_id for one in asked.values())
    assert Counter(event["requestid"] for event in requests) == expected
    assert Counter(event["requestid"] for event in answers) == expected
    for event in (event for event in found if expected[event["requestid"]] == 1):
        one = asked[event["requestid"]]
        if one.status == 413:
            # Its client is refused by its head, and only a part has come.
            assert event["type"] == RESPONSE_TYPE or one.body.startswith(data_of(event))
        elif event["type"] == REQUEST_TYPE:
            assert event["bodybytes"] == str(len(one.body))
            _same(event, one.body)
        if event["type"] == RESPONSE_TYPE:
            assert event["statuscode"] == str(one.status)
            if one.answer:
                _same(event, one.answer)
        if one.batch_id:
            assert event["batchid"] == one.batch_id
        assert event.get("modelname", "none") == one.model or one.status in (404, 413)
        assert KEY not in json.dumps(event)


def _same(event: dict[str, Any], body: bytes) -> None:
    if "data" in event:
        assert event["data"] == json.loads(body)
    else:
        assert data_of(event) == body


def run(server: Server, count: int, wait_until: WaitUntil, folder: Path) -> None:
    clients = Clients(server, bearer())
    try:
        for number in range(count):
            clients.ask_in_turn(number)
        clients.stream(8)
    finally:
        clients.close()
    sent, expected = "ringbatch_payload_events_sent_total", 2 * len(clients.asked)
    wait_until(lambda: metrics(server)[sent] >= expected, "all are written")
    check(clients.asked, lines(folder))
    found = metrics(server)
    assert found[sent] == expected
    assert found["ringbatch_payload_events_dropped_total"] == 0
    assert found["ringbatch_lane_payloads_lost_total"] == 0


def test_every_exchange_is_kept_once_and_whole(
    serve: Callable[..., Server], folder: Path, wait_until: WaitUntil
) -> None:
    server = serve(payload_log_headers=["user-agent"], payload_log_attributes=["namespace=n"])
    run(server, 64, wait_until, folder)
    assert all(event["namespace"] == "n" for event in lines(folder))
    known = len(lines(folder))
    url = f"http://127.0.0.1:{server.port}/v2/models/wide"
    got = httpx.get(f"{url}/generate_stream?x=1&x=2", headers=bearer(), timeout=60)
    # Nothing is asked of a model by these.
    httpx.get(f"{url}/ready", headers=bearer(), timeout=60)
    httpx.get(f"http://127.0.0.1:{server.port}/generate_stream", headers=bearer(), timeout=60)
    wait_until(lambda: len(lines(folder)) > known, "the query is kept")
    asked, answered = lines(folder)[known:]
    assert {asked["type"], answered["type"]} == {REQUEST_TYPE, RESPONSE_TYPE}
    if asked["type"] == RESPONSE_TYPE:
        asked, answered = answered, asked
    assert asked["requestid"] == answered["requestid"] == got.headers["x-request-id"]
    assert (asked["modelname"], asked["data"]) == ("wide", {"x": [1, 2]})
    assert data_of(answered) == got.content
    assert server.stop() == 0
    assert len(lines(folder)) == known + 2


@exhaustive
def test_ten_thousand_mixed_requests_are_read_back_from_files_that_are_renamed(
    serve: Callable[..., Server], folder: Path, wait_until: WaitUntil
) -> None:
    server = serve(payload_log_file_bytes=64 << 20, payload_log_files=100)
    run(server, 10_000, wait_until, folder)
    assert len(list(folder.iterdir())) > 2


@exhaustive
def test_the_last_exchanges_are_written_before_the_engine_ends(
    serve: Callable[..., Server], folder: Path
) -> None:
    server = serve()
    clients = Clients(server, bearer())
    for number in range(32):
        clients.ask_in_turn(number)
    clients.close()
    assert server.stop() == 0
    check(clients.asked, lines(folder))


@exhaustive
def test_waiting_events_outlive_the_process_that_writes(
    serve: Callable[..., Server], folder: Path, wait_until: WaitUntil
) -> None:
    server, log = serve(), folder / "log"
    os.kill(server.role("control"), signal.SIGSTOP)
    clients = Clients(server, bearer())
    for _ in range(20):
        clients.fast("echo", v1("x"))
    clients.close()
    # Frontends pass these events on while no process takes them.
    os.kill(server.role("control"), signal.SIGKILL)
    # Its last line may be half written.
    wait_until(lambda: log.read_bytes().count(b"\n") >= 40, "the next one has written them")
    check(clients.asked, lines(folder))


def test_events_that_a_killed_frontend_had_gathered_are_counted(
    serve: Callable[..., Server], folder: Path, wait_until: WaitUntil
) -> None:
    server = serve(frontends=1)
    asked, killed = 0, {0}

    def adds_up() -> bool:
        found = metrics(server)
        lost = 2 * found["ringbatch_lane_payloads_lost_total"]
        return found["ringbatch_payload_events_sent_total"] + lost == 2 * asked

    # On a busy machine it may pass them on before it is killed.
    for _ in range(10):
        wait_until(lambda: frontend_of(server) not in killed, "one serves")
        clients, frontend = Clients(server, bearer()), frontend_of(server)
        for _ in range(3):
            clients.fast("echo", v1("x"))
        clients.ask_for_health()
        os.kill(frontend, signal.SIGKILL)
        killed.add(frontend)
        clients.close()
        asked += len(clients.asked)
        wait_until(adds_up, "every event is written or counted")
        if lost := metrics(server)["ringbatch_lane_payloads_lost_total"]:
            break
    assert lost > 0
    assert (folder / "log").read_bytes().count(b"\n") == 2 * (asked - lost)


def frontend_of(server: Server) -> int:
    """The frontend for HTTP; 0 if there is none now."""
    titles = server.titles().items()
    return next((pid for title, pid in titles if re.match(r"ringbatch: frontend \d", title)), 0)


def test_a_body_is_cut_off_and_a_sample_is_drawn(
    serve: Callable[..., Server], folder: Path, wait_until: WaitUntil
) -> None:
    server = serve(payload_log_body_bytes=10, payload_log_sample=0.25, payload_log_mode="request")
    clients = Clients(server, bearer())
    for _ in range(400):
        clients.fast("echo", v1("a long text"))
    clients.close()
    server.stop()
    found = lines(folder)
    assert 40 <= len(found) <= 170
    assert {event["type"] for event in found} == {REQUEST_TYPE}
    body = v1("a long text")
    assert {(event["bodybytes"], data_of(event)) for event in found} == {
        (str(len(body)), body[:10])
    }


class Sink(http.server.BaseHTTPRequestHandler):
    """A receiver of events; it may be slow, or end each connection without an answer."""

    protocol_version = "HTTP/1.1"
    got: ClassVar[list[dict[str, str]]] = []
    pause_s: ClassVar[float] = 0.0
    gone: ClassVar[bool] = False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.gone:
            self.close_connection = True
            return
        time.sleep(self.pause_s)
        self.got.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Receiver:
    """A receiver on a port of its own, from now on until `close`."""

    def __init__(self, port: int = 0) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Sink)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    Sink.got, Sink.pause_s, Sink.gone = [], 0.0, False
    found = Receiver()
    yield found
    found.close()


def test_a_receiver_gets_an_event_for_each_with_the_clients_own_id(
    serve: Callable[..., Server], receiver: Receiver, wait_until: WaitUntil
) -> None:
    server = serve(payload_log=f"http://127.0.0.1:{receiver.port}/events")
    clients = Clients(server, bearer())
    clients.fast("echo", v1("a"), **{"Ce-Id": "mine"})
    clients.post("/v1/models/echo:predict", v1("b"), "echo", http2=False, ce_id="too")
    clients.close()
    wait_until(lambda: len(Sink.got) == 4, "all are there")
    assert Counter(event["ce-id"] for event in Sink.got) == {"mine": 2, "too": 2}
    assert {event["ce-source"] for event in Sink.got} == {"/ringbatch/ringbatch"}


@exhaustive
def test_a_receiver_that_is_slow_or_gone_costs_events_and_no_answer(
    serve: Callable[..., Server], receiver: Receiver, wait_until: WaitUntil
) -> None:
    server = serve(payload_log=f"http://127.0.0.1:{receiver.port}/")
    clients = Clients(server, bearer())
    Sink.pause_s = 0.05
    for number in range(300):
        clients.ask_in_turn(number)
    Sink.gone = True
    for number in range(300):
        clients.ask_in_turn(number)
    complaint = "payloads: not all are taken at payload_log"
    wait_until(lambda: complaint in server.stderr, "an event is given up")
    Sink.pause_s, Sink.gone = 0.0, False
    try:
        for number in range(300):
            clients.ask_in_turn(number)
        expected = 2 * len(clients.asked)

        def adds_up() -> bool:
            found = metrics(server)
            lost = 2 * found["ringbatch_lane_payloads_lost_total"]
            sent = found["ringbatch_payload_events_sent_total"]
            return sent + found["ringbatch_payload_events_dropped_total"] + lost == expected

        wait_until(adds_up, "every event is sent or counted", 300)
        found = metrics(server)
        assert len(Sink.got) >= found["ringbatch_payload_events_sent_total"]
        assert found["ringbatch_payload_events_dropped_total"] >= 1
        assert server.stderr.count(complaint) == 1
    finally:
        clients.close()
    statuses = Counter(one.status for one in clients.asked.values())
    assert set(statuses) <= {200, 400, 404, 413, 500}
