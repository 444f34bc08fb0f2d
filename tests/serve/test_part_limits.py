"""Limits of answers in parts on a real engine: to the first part and between two, on every way in.

A row that pauses waits for a file of the test, and the limit is far below the test's patience. So
no test depends on how fast the host is.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from dev_shm import takes
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from serve.steps_client import TIMEOUT_S, reasons, samples, v1_body, v2_body
from serve.test_grpc_parts import Stream as GrpcStream
from text_generators import write_generator
from tiers import first_of

from ringbatch.frontend import Client, DeadlineExceeded

pytestmark = takes(30)

WaitUntil = Callable[..., Any]
LIMIT_S: Final = 0.3
LIMITS: Final = {"first_part_timeout_s": LIMIT_S, "part_gap_timeout_s": LIMIT_S}
BY_SETTING: Final = f"first_part_timeout_s = {LIMIT_S}", f"part_gap_timeout_s = {LIMIT_S}"
BY_REQUEST: Final = (
    f"the {LIMIT_S} s to the first part that it asked for",
    f"the {LIMIT_S} s between two parts that it asked for",
)
FIRST: Final = "X-First-Part-Timeout"
GAP: Final = "X-Part-Gap-Timeout"
PATIENCE_S: Final = 40
"""The timeout of every request: far beyond the limits of its parts."""
STALL_S: Final = 2
GATED: Final = """
from pathlib import Path
GATE = Path(__file__).with_name("open")
plain = step
def step(states):
    while any(row.count == 2 for row in states) and not GATE.exists():
        time.sleep(PAUSE_S)
    return plain(states)
"""
"""Behind the model of `write_generator`: each answer pauses behind two tokens."""


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_generator(tmp_path_factory.mktemp("generators") / "texts")
    with (folder / "model.py").open("a") as model:
        model.write(GATED)
    return folder


@pytest.fixture(scope="module")
def server(start_for_module: Start, generator: Path) -> Server:
    # A row that pauses keeps the other places of its worker waiting, so each has a worker.
    model = {"path": "pausing.py", "max_batch_size": 4, "timeout_s": PATIENCE_S}
    model["batch_timeout_s"] = PATIENCE_S
    texts = {"path": str(generator), "batch_timeout_s": PATIENCE_S}
    return start_for_module(
        {
            "pausing": model,
            "limited": model | LIMITS,
            "single": model | {"max_batch_size": 1},
            "texts": texts | {"part_gap_timeout_s": LIMIT_S},
            "filling": {"path": "filling.py", "max_batch_size": 4, "stream_stall_s": STALL_S},
        },
        frontends=1,
        http2=True,
        grpc_port=0,
        control_port=0,
        lane_bytes=1 << 22,
    )


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """The file that rows wait for; it is there when the test has ended."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@contextmanager
def events(
    server: Server, path: str, body: Any, headers: dict[str, str], **client: Any
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the status of an answer, and its JSON or that of its events."""
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False, **client) as asking,
        asking.stream(
            "POST",
            f"http://127.0.0.1:{server.port}{path}",
            json=body,
            headers={"Accept": "text/event-stream", **headers},
        ) as answer,
    ):
        if answer.headers["content-type"] != "text/event-stream":
            yield answer.status_code, [json.loads(answer.read())]
            return
        lines = [line for line in answer.iter_lines() if line.startswith("data: {")]
        yield answer.status_code, [json.loads(line.removeprefix("data: ")) for line in lines]


def bodies(model: str, text: str) -> dict[str, tuple[str, Any]]:
    """Return the path and body of a request for events in each protocol."""
    return {
        "v1": (f"/v1/models/{model}:predict", v1_body(text)),
        "v2": (f"/v2/models/{model}/infer", v2_body(text)),
        "generate": (f"/v2/models/{model}/generate_stream", {"text": text}),
    }


@pytest.mark.parametrize("origin", ["setting", "request"])
@pytest.mark.parametrize("lane", ["fast", "http2"])
@pytest.mark.parametrize("way", ["v1", "v2", "generate"])
def test_events_have_limits(server: Server, gate: Path, way: str, lane: str, origin: str) -> None:
    asked = {} if origin == "setting" else {FIRST: f"{LIMIT_S}", GAP: f"{LIMIT_S}"}
    model, words = ("pausing", BY_REQUEST) if asked else ("limited", BY_SETTING)
    versions = {"http1": lane == "fast", "http2": lane == "http2"}
    path, body = bodies(model, f"0 {gate} 99")[way]
    with events(server, path, body, asked, **versions) as (status, (answer,)):
        assert status == 504
        assert answer == {"error": f"no part of the answer came within {words[0]}"}
    gate.touch()
    another = gate.with_name("another")
    path, body = bodies(model, f"2 {another} 99")[way]
    with events(server, path, body, asked, **versions) as (status, (*parts, last)):
        assert status == 200
        assert len(parts) == 2
        assert last == {"error": f"no further part of the answer came within {words[1]}"}
    another.touch()


@pytest.mark.parametrize("way", ["v2", "generate"])
def test_events_have_limits_by_parameters(server: Server, gate: Path, way: str) -> None:
    asked = {"first_part_timeout_s": LIMIT_S, "part_gap_timeout_s": f"{LIMIT_S}"}
    path, body = bodies("pausing", f"0 {gate} 99")[way]
    # Of a header and a parameter, the shorter one counts.
    with events(server, path, body | {"parameters": asked}, {FIRST: "30"}) as (status, (answer,)):
        assert status == 504
        assert answer == {"error": f"no part of the answer came within {BY_REQUEST[0]}"}
    gate.touch()
    another = gate.with_name("another")
    path, body = bodies("pausing", f"2 {another} 99")[way]
    with events(server, path, body | {"parameters": asked}, {GAP: "30"}) as (_, (*parts, last)):
        assert len(parts) == 2
        assert last == {"error": f"no further part of the answer came within {BY_REQUEST[1]}"}
    another.touch()
    wrong = {"parameters": {"part_gap_timeout_s": -1}}
    with events(server, path, body | wrong, {}) as (status, (answer,)):
        assert status == 400
        words = 'parameter "part_gap_timeout_s" is -1, not a number of seconds above 0'
        assert answer == {"error": words}


@pytest.mark.parametrize("header", [FIRST, GAP])
def test_a_limit_that_is_none_is_refused(server: Server, header: str) -> None:
    for versions in ({"http1": True}, {"http1": False, "http2": True}):
        for path, body in bodies("pausing", "1").values():
            with events(server, path, body, {header: "soon"}, **versions) as (status, (answer,)):
                assert status == 400
                words = f'{header} is "soon", not a number of seconds above 0'
                assert answer == {"error": words}


def test_a_row_that_is_late_leaves_with_its_reason(
    server: Server, gate: Path, wait_until: WaitUntil
) -> None:
    before, late = reasons(server), samples(server)["ringbatch_lane_timeouts_total"]
    path, body = bodies("limited", f"1 {gate} 99")["v1"]
    with events(server, path, body, {}) as (_, (_, last)):
        assert "no further part" in last["error"]
    gate.touch()
    wait_until(lambda: reasons(server)["deadline"] == before["deadline"] + 1, "the row has left")
    assert samples(server)["ringbatch_lane_timeouts_total"] == late + 1


def test_a_request_that_is_late_before_it_has_a_place_is_not_begun(
    server: Server, gate: Path, wait_until: WaitUntil
) -> None:
    path, body = bodies("single", f"1 {gate} 99")["v1"]
    with ThreadPoolExecutor(1) as threads:
        begun = samples(server)["pausing_begun_total"]
        long = threads.submit(asked_once, server, path, body, {GAP: "10"})
        wait_until(
            lambda: samples(server)["pausing_begun_total"] == begun + 1, "it has the only place"
        )
        with events(server, path, v1_body("1"), {FIRST: f"{LIMIT_S}"}) as (status, (answer,)):
            assert status == 504
            assert answer["error"].endswith(BY_REQUEST[0])
        gate.touch()
        assert "no further part" not in str(long.result()[-1])
    # What comes behind it has its turn, and the one that was late had none.
    with events(server, path, v1_body("1"), {}) as (status, _):
        assert status == 200
    assert samples(server)["pausing_begun_total"] == begun + 2


def asked_once(server: Server, path: str, body: Any, headers: dict[str, str]) -> list[Any]:
    """Read the first events of an answer, and leave."""
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False) as asking,
        asking.stream(
            "POST",
            f"http://127.0.0.1:{server.port}{path}",
            json=body,
            headers={"Accept": "text/event-stream", **headers},
        ) as answer,
    ):
        found = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == 3:
                break
        return found


def test_a_request_for_one_answer_has_no_limits(server: Server, gate: Path) -> None:
    path, body = bodies("limited", f"1 {gate} 3")["v1"]
    with ThreadPoolExecutor(1) as threads:
        whole = threads.submit(once, server, path, body)
        with events(server, path, bodies("limited", f"1 {gate} 3")["v1"][1], {}) as (_, (*_, last)):
            assert "came within" in last["error"]
        gate.touch()
        assert whole.result()["predictions"] == [[0, 1, 2]]


@pytest.mark.parametrize("origin", ["setting", "metadata", "parameters"])
def test_streams_of_grpc_have_limits(server: Server, gate: Path, origin: str) -> None:
    asked = {FIRST.lower(): "0.3", GAP.lower(): "0.3"} if origin == "metadata" else None
    parameters = dict.fromkeys(LIMITS, "0.3") if origin == "parameters" else None
    model, words = ("limited", BY_SETTING) if origin == "setting" else ("pausing", BY_REQUEST)
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        stream = GrpcStream(client, headers=asked)
        _ask(client, model, f"2 {gate} 99", parameters)
        for _ in range(2):
            assert stream.next()[1] is None
        error = stream.next()[1]
        assert error.message() == f"no further part of the answer came within {words[1]}"
        gate.touch()
        another = gate.with_name("another")
        _ask(client, model, f"0 {another} 99", parameters)
        error = stream.next()[1]
        assert error.message() == f"no part of the answer came within {words[0]}"
        another.touch()
        if origin == "parameters":
            _ask(client, model, "1", {"part_gap_timeout_s": "soon"})
            error = stream.next()[1]
            assert "not a number of seconds above 0" in error.message()
        stream.close()


def _ask(
    client: triton.InferenceServerClient, model: str, text: str, parameters: Any = None
) -> None:
    tensor = triton.InferInput("text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()]], object))
    client.async_stream_infer(model, [tensor], parameters=parameters)


@pytest.mark.parametrize("origin", ["setting", "request"])
def test_a_client_s_streams_have_limits(server: Server, gate: Path, origin: str) -> None:
    asked: dict[str, Any] = {} if origin == "setting" else {**LIMITS}
    model, words = ("pausing", BY_REQUEST) if asked else ("limited", BY_SETTING)
    with Client(server.pid) as client:
        parts = client.stream(model, {"text": np.array([[f"2 {gate} 99"]], object)}, **asked)
        assert [next(parts).tolist() for _ in range(2)] == [[[0]], [[1]]]
        with pytest.raises(DeadlineExceeded, match=words[1]):
            next(parts)
        gate.touch()
        another = gate.with_name("another")
        parts = client.stream(model, {"text": np.array([[f"0 {another} 99"]], object)}, **asked)
        with pytest.raises(DeadlineExceeded, match=words[0]):
            next(parts)
        another.touch()
        # Where nothing is late, nothing ends.
        found = [*client.stream(model, {"text": np.array([["3"]], object)}, **asked)]
        assert len(found) == 3


def test_completions_have_limits_where_they_are_streamed(server: Server, generator: Path) -> None:
    gate = generator / "open"
    body: dict[str, Any] = {"model": "texts", "prompt": "abc", "max_tokens": 4}
    path = "/v1/completions"
    try:
        with events(server, path, body | {"stream": True}, {}) as (status, (*parts, last)):
            assert status == 200
            assert "".join(part["choices"][0]["text"] for part in parts) == "ab"
            assert last["error"]["message"].endswith(BY_SETTING[1])
        gate.touch()
        with events(server, path, body | {"stream": True}, {FIRST: "9", GAP: "9"}) as (_, parts):
            assert "".join(part["choices"][0]["text"] for part in parts) == "abca"
        gate.unlink()
        with ThreadPoolExecutor(1) as threads:
            # One answer has none, though its tokens come by and by.
            whole = threads.submit(once, server, path, body)
            asked = {FIRST: f"{LIMIT_S}"}
            with events(server, path, body | {"stream": True}, asked) as (_, (*_, last)):
                assert "came within" in last["error"]["message"]
            gate.touch()
            assert whole.result()["choices"][0]["text"] == "abca"
    finally:
        gate.touch()


def once(server: Server, path: str, body: Any) -> Any:
    address = f"http://127.0.0.1:{server.port}{path}"
    answer = httpx.post(address, json=body, timeout=TIMEOUT_S, trust_env=False, verify=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def head(lane: str, body: bytes) -> bytes:
    """A request for events of the model that fills its clients, on a way of HTTP/1.1."""
    lines = [
        "POST /v1/models/filling:predict HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        "Accept: text/event-stream",
    ]
    if lane == "fast":
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body
    lines.append("Transfer-Encoding: chunked")
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return "\r\n".join([*lines, "", ""]).encode() + chunk


@contextmanager
def filled(server: Server, lane: str) -> Iterator[Callable[[int], bytes]]:
    """A request whose answer nobody reads but by the function that is yielded."""
    body = json.dumps(v1_body("1")).encode()
    if lane == "http2":
        with (
            httpx.Client(
                timeout=TIMEOUT_S, trust_env=False, http1=False, http2=True, verify=False
            ) as asking,
            asking.stream(
                "POST",
                f"http://127.0.0.1:{server.port}/v1/models/filling:predict",
                content=body,
                headers={"Accept": "text/event-stream"},
            ) as answer,
        ):
            pieces = answer.iter_bytes()
            yield lambda _most: next(pieces, b"")
        return
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(TIMEOUT_S)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall(head(lane, body))
        yield raw.recv


@pytest.mark.parametrize("lane", first_of(["fast", "fallback", "http2"], 1))
def test_a_client_that_reads_nothing_loses_its_row(
    server: Server, lane: str, wait_until: WaitUntil
) -> None:
    ended, stalled = reasons(server), samples(server)["ringbatch_lane_stalled_total"]
    with filled(server, lane) as read:
        wait_until(
            lambda: samples(server)["ringbatch_lane_stalled_total"] == stalled + 1,
            "its answer has ended",
        )
        wait_until(
            lambda: reasons(server)["cancelled"] == ended["cancelled"] + 1, "its row has left"
        )
        found = b""
        while b"stream_stall_s = 2" not in found:
            piece = read(1 << 16)
            assert piece, "the last event is an error"
            found = found[-100:] + piece


@pytest.mark.parametrize("lane", ["fast", "fallback"])
def test_a_client_that_reads_slowly_but_steadily_keeps_its_row(server: Server, lane: str) -> None:
    before = samples(server)["ringbatch_lane_stalled_total"]
    ends_s = time.monotonic() + 3 * STALL_S
    with filled(server, lane) as read:
        while time.monotonic() < ends_s:
            assert read(1 << 12)
            time.sleep(0.05)
    assert samples(server)["ringbatch_lane_stalled_total"] == before
