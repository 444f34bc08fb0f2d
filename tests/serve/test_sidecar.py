"""Batching in front of a model server, as its clients see it, and as the server does."""

import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dev_shm import takes
from model_files import ROWS, expected
from model_server import Answer, Asked, ModelServer, answer_json, running
from serve import before_server
from serve.before_server import ask
from serve.client import Closed, Connection, Response, fast, instances, request
from serve.secure import KEY, write_private
from serve.server import SMALL, Server, Start
from tiers import exhaustive, only

from ringbatch.shm.host.key_headers import KEY_HEADERS
from ringbatch.shm.shm_objects import remove_dead_engines

pytestmark = takes(30)

behind, as_new, prompt = before_server.behind, before_server.as_new, before_server.prompt

CAP = 4
HELD = {"policy": "fixed", "max_batch_size": CAP, "max_latency_ms": 60_000}
"""A batch that is not full would wait longer than any test."""
PATH = "/v1/models/any:predict"


@pytest.fixture(scope="module")
def sidecar(start_for_module: Start, behind: ModelServer) -> Server:
    model = {"path": behind.url, "forward_headers": ["authorization", "x-tenant"], "workers": 2}
    return start_for_module({"model": model | HELD}, sidecar=True)


def post(body: Any, path: str = PATH, **headers: str) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(path, text, headers={k.replace("_", "-"): v for k, v in headers.items()})


def ask_at_once(server: Server, *requests: bytes) -> list[Response]:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in requests]
        for connection, one in zip(connections, requests, strict=True):
            connection.send(one)
        return [connection.receive() for connection in connections]


def echo(asked: Asked) -> Answer:
    """Predictions that are the instances, character for character."""
    text = asked.body.decode()
    start = text.index('"instances":') + len('"instances":')
    inner = text[start : text.rindex("]") + 1]
    return Answer(b'{"predictions":' + inner.encode() + b"}")


def fails(status: int, body: bytes, **headers: str) -> Callable[[Asked], Answer]:
    return lambda _asked: Answer(body, status, tuple(headers.items()))


def test_requests_become_one_batch_and_text_stays_text(
    sidecar: Server, behind: ModelServer
) -> None:
    behind.respond = echo
    bodies = [
        b'{"instances": [123456789012345678901234567890]}',
        b'{"instances":[{"b": 6.0, "a": 1e2}, "\xc3\xa9"]}',
        b'{"instances":[-0.50]}',
    ]
    answers = ask_at_once(sidecar, *map(post, bodies))
    assert [answer.status for answer in answers] == [200] * 3
    (asked,) = behind.predictions
    assert len(asked.json["instances"]) == CAP
    texts = [answer.body.partition(b'"predictions":')[2] for answer in answers]
    assert texts == [
        b"[123456789012345678901234567890]}",
        b'[{"b": 6.0, "a": 1e2},"\xc3\xa9"]}',
        b"[-0.50]}",
    ]
    assert len({answer.json["batchId"] for answer in answers}) == 1


def test_requests_that_differ_in_headers_path_or_members_share_no_batch(
    sidecar: Server, behind: ModelServer
) -> None:
    """Two of each kind fill a batch; a batch with one of each would fill earlier."""
    behind.respond = echo
    kinds: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
        "plain": (PATH, {}, {}),
        "query": (f"{PATH}?a=b&c=%20", {}, {}),
        "member": (PATH, {"signature_name": "s"}, {}),
        "header": (PATH, {}, {"x_tenant": "t"}),
        "model": ("/v1/models/other:predict", {}, {}),
        "version": ("/v1/models/any/versions/2:predict", {}, {}),
        "encoded": ("/v1/models/any%3Apredict", {}, {}),
    }
    asked = [
        post({"instances": [kind, kind], **members}, path, **headers)
        for kind, (path, members, headers) in kinds.items()
    ]
    again = [asked[0].replace(b"\r\n", b"\r\nX-Other: t\r\n", 1), *asked[1:]]
    answers = ask_at_once(sidecar, *asked, *again)
    assert [answer.json["predictions"] for answer in answers] == [[kind] * 2 for kind in kinds] * 2
    seen = {
        one.json["instances"][0]: (one.target, one.values("x-tenant"), one.json)
        for one in behind.predictions
    }
    assert seen == {
        kind: (path, list(headers.values()), {"instances": [kind] * CAP, **members})
        for kind, (path, members, headers) in kinds.items()
    }
    assert all(not one.values("x-other") for one in behind.predictions)


def test_several_batches_are_under_way_over_connections_that_are_kept(
    sidecar: Server, behind: ModelServer, wait_until: Any
) -> None:
    behind.gate.clear()
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(sidecar.port)) for _ in range(2 * CAP)]
        for connection in connections:
            connection.send(post({"instances": [[1, 2, 3]]}))
        wait_until(lambda: behind.under_way == 2, "two batches are under way")
        behind.gate.set()
        assert [connection.receive().status for connection in connections] == [200] * 2 * CAP
    assert [len(one.json["instances"]) for one in behind.predictions] == [CAP, CAP]


def test_a_request_of_more_than_a_batch_is_answered_whole(
    sidecar: Server, behind: ModelServer
) -> None:
    rows = np.concatenate([ROWS, ROWS[:1]])
    (answer,) = ask(sidecar, post({"instances": rows.tolist()}))
    np.testing.assert_allclose(answer.json["predictions"], expected(rows), rtol=1e-6)
    assert [len(one.json["instances"]) for one in behind.predictions] == [CAP, CAP]


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (fails(503, b"busy"), 503, b'{"error":"busy"}'),
        (fails(429, b'{"error":"slow down","n":1}'), 429, b'{"error":"slow down","n":1}'),
        (fails(404, b"<html>"), 404, b'{"error":"<html>"}'),
        (fails(302, b"", location="/x"), 502, b"answered 302, but only 200 is an answer"),
        (fails(200, b"<html><h1>Hello</h1>"), 502, b"<html><h1>Hello</h1>"),
        (fails(200, b'{"error":"oops"}'), 502, b"without `predictions`"),
        (fails(200, b'{"predictions":[1,2]}'), 502, b"2 predictions for 1 instances"),
        (fails(200, b"\x1f\x8b", **{"content-encoding": "gzip"}), 502, b"content encoding gzip"),
    ],
)
def test_a_failure_of_the_server_has_its_own_words_or_ours(
    prompt: Server, behind: ModelServer, answer: Any, status: int, body: bytes
) -> None:
    behind.respond = answer
    (found,) = ask(prompt, post({"instances": [1]}))
    assert found.status == status
    assert body in found.body
    assert found.headers["content-type"] == "application/json"
    assert "x-batch-id" in found.headers
    behind.reset()
    (good,) = ask(prompt, post({"instances": [[1, 2, 3]]}))
    assert good.status == 200


REFUSED = {
    **{
        str(status): (answer_json({"error": "no"}, status), status)
        for status in (400, 413, 422, 500)
    },
    "not-json": (Answer(b'{"predictions":[NaN]}'), 502),
    "left-out": (Answer(b'{"predictions":[]}'), 502),
}


@pytest.mark.parametrize(("refusal", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_an_instance_that_the_server_cannot_bear_costs_its_own_request_alone(
    prompt: Server, behind: ModelServer, wait_until: Any, refusal: Answer, status: int
) -> None:
    def respond(asked: Asked) -> Answer:
        return refusal if "bad" in asked.json["instances"] else echo(asked)

    behind.respond = respond
    behind.gate.clear()
    before = published(prompt)
    with ExitStack() as stack:
        # Two batches keep both workers busy, so that the others wait for each other.
        connections = [stack.enter_context(Connection(prompt.port)) for _ in range(7)]
        for index, connection in enumerate(connections[:2]):
            connection.send(post({"instances": ["first"]}))
            wait_until(lambda count=index + 1: behind.under_way == count, "a batch is under way")
        for word, connection in zip(["a", "b", "bad", "c", "d"], connections[2:], strict=True):
            connection.send(post({"instances": [word]}))
        wait_until(lambda: published(prompt) == before + len(connections), "all others wait")
        behind.gate.set()
        answers = [connection.receive() for connection in connections]
    assert [answer.status for answer in answers] == [200] * 4 + [status] + [200] * 2
    assert answers[4].error == "no" or status == 502


def published(server: Server) -> int:
    """Requests that have come so far."""
    return server.status().frontends["requests"]


@exhaustive
def test_a_server_that_is_away_is_reported_and_met_again(
    start: Start, free_port_factory: Callable[[], int]
) -> None:
    port = free_port_factory()
    server = start({"m": {"path": f"http://127.0.0.1:{port}", "workers": 1}}, sidecar=True)
    predict, other, ready = ask(
        server,
        post({"instances": [1]}),
        request("/other", method="GET"),
        request("/v2/health/ready", method="GET"),
    )
    assert (predict.status, other.status, ready.status) == (503, 503, 502)
    assert predict.error == other.error == "the model server cannot be reached: connection refused"
    assert predict.headers["retry-after"] == "1"
    assert "not ready" in ready.error
    with running(port):
        again = ask(
            server,
            post({"instances": [[1, 2, 3]]}),
            request("/other", method="GET"),
            request("/v2/health/ready", method="GET"),
        )
    assert [answer.status for answer in again] == [200, 404, 200]


@exhaustive
@pytest.mark.parametrize(
    ("limit", "words"),
    only(
        {
            "timeout_s": ({"timeout_s": 1}, r".* in time|no answer came within timeout_s = 1"),
            "batch_timeout_s": (
                {"batch_timeout_s": 1},
                r".* did not answer in time: batch_timeout_s = 1",
            ),
        },
        "batch_timeout_s",
    ),
)
def test_a_server_that_is_slow_is_given_up_and_the_next_request_is_served(
    start: Start, behind: ModelServer, wait_until: Any, limit: dict[str, int], words: str
) -> None:
    behind.gate.clear()
    server = start({"m": {"path": behind.url, "workers": 1} | limit}, sidecar=True)
    (late,) = ask(server, post({"instances": [[1, 2, 3]]}))
    assert late.status == 504
    assert re.fullmatch(words, late.error), late.error
    behind.gate.set()
    wait_until(lambda: ask(server, post({"instances": [[1, 2, 3]]}))[0].status == 200, "an answer")
    assert server.status().collector["workers_hung"] == 0


@pytest.mark.parametrize(
    ("status", "ready"), [(200, 200), (404, 200), (405, 200), (400, 502), (503, 502)]
)
def test_both_must_be_ready(prompt: Server, behind: ModelServer, status: int, ready: int) -> None:
    behind.respond = fails(status, b"")
    probes = (
        request("/v2/health/ready", method="GET"),
        request("/", method="GET", headers={"User-Agent": "kube-probe/1.31"}),
    )
    assert [answer.status for answer in ask(prompt, *probes)] == [ready, ready]
    assert [one.target for one in behind.asked] == ["/v2/health/ready"] * 2


@exhaustive
def test_a_gone_clients_request_to_the_server_is_given_up(start: Start) -> None:
    arrived, ended = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while b"/slow" not in connection.recv(1 << 16):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            arrived.set()
            assert connection.recv(1) == b""
            ended.set()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = start({"m": {"path": url, "workers": 1}}, sidecar=True)
        with Connection(server.port) as connection:
            connection.send(request("/slow", method="GET"))
            arrived.wait()
        ended.wait()
        thread.join()


def test_an_answer_that_breaks_off_breaks_off_here_too(start: Start) -> None:
    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                data = connection.recv(1 << 16)
                if b"/broken" in data:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = start({"m": {"path": url, "workers": 1}}, sidecar=True)
        with Connection(server.port) as connection:
            connection.send(request("/broken", method="GET"))
            with pytest.raises(Closed):
                connection.receive()
        predict, other = ask(server, post({"instances": [1]}), request("/x", method="GET"))
        assert (predict.status, other.status) == (502, 502)
        assert predict.error == "the model server closed the connection without an answer"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@exhaustive
def test_a_served_model_and_the_rest_of_its_server_are_one(
    start: Start, behind: ModelServer
) -> None:
    """``ringbatch serve http://...``: our documents and models are ours, all else is its own."""
    tensors = {"path": f"{behind.url}/v2/models/linear", "protocol": "v2"}
    server = start({"linear": {"path": behind.url}, "tensors": tensors})
    row = [[1.0, 2.0, 3.0]]
    v2 = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": row}]}
    answers = ask(
        server,
        fast("linear", instances(*row)),
        fast("tensors", instances(*row)),
        post(v2, "/v2/models/tensors/infer"),
        post(v2, "/v2/models/linear/infer"),
        request("/v1/models", method="GET"),
        request("/v1/models/linear:explain", b"{}"),
        request("/elsewhere", method="GET"),
    )
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 200, 404, 404]
    want = expected(np.array(row, np.float32))
    for answer in answers[:2]:
        np.testing.assert_allclose(answer.json["predictions"], want, rtol=1e-6)
    for answer in answers[2:4]:
        np.testing.assert_allclose([answer.json["outputs"][0]["data"]], want, rtol=1e-6)
    assert answers[4].json["models"] == ["linear", "tensors"]
    assert [one.target for one in behind.asked][-2:] == ["/v1/models/linear:explain", "/elsewhere"]


def test_the_agents_command_line_serves(
    tmp_path: Path, behind: ModelServer, free_port_factory: Callable[[], int]
) -> None:
    """KServe writes all but the port, the host and the frontends; the probe is the server's own."""
    port = free_port_factory()
    words = f"--enable-batcher --max-batchsize 2 --max-latency 60000 --port {port}"
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1}
    server = Server(
        tmp_path,
        *f"{words} --component-port {behind.port} --probe-period -1 --frontends 1".split(),
        *("--host", "127.0.0.1"),
        *SMALL[:2],
        command="sidecar",
        environment={"SERVING_READINESS_PROBE": json.dumps(probe), "SERVING_LOGGING_LEVEL": "info"},
    )
    try:
        server.wait_ready()
        one, other = ask_at_once(server, *[post({"instances": [[1, 2, 3]]})] * 2)
        assert one.json["batchId"] == other.json["batchId"]
        assert "--probe-period does nothing here" in server.stderr
        behind.reset()
        queue = request("/healthz", method="GET", headers={"K-Network-Probe": "queue"})
        kubelet = request("/", method="GET", headers={"User-Agent": "kube-probe/1.31"})
        drain = request("/wait-for-drain", method="GET")
        for status, ready in ((200, 200), (404, 502), (503, 502)):
            behind.respond = fails(status, b"")
            assert [one.status for one in ask(server, queue, kubelet)] == [ready, ready]
        assert {one.target for one in behind.asked} == {"/healthz"}
        assert ask(server, drain)[0].status == 503
        assert behind.asked[-1].target == "/wait-for-drain"
    finally:
        server.kill()
        remove_dead_engines()


@exhaustive
def test_the_keys_of_the_server_in_front_are_not_passed_on(
    start: Start, behind: ModelServer, tmp_path: Path
) -> None:
    behind.respond = lambda _asked: Answer(b'{"predictions":[1]}')
    keys = write_private(tmp_path / "keys", KEY)
    model = {"path": behind.url, "forward_headers": ["authorization", "x-tenant"], "workers": 1}
    server = start({"model": model}, sidecar=True, api_keys_file=str(keys))
    sent = {"authorization": f"Bearer {KEY}", "x_api_key": KEY, "x_tenant": "t"}
    passed = request("/anything", headers={k.replace("_", "-"): v for k, v in sent.items()})
    answers = ask(server, post({"instances": [1]}, **sent), passed, post({"instances": [1]}))
    assert [answer.status for answer in answers] == [200, 200, 401]
    assert len(behind.predictions) == 2
    for asked in behind.predictions:
        assert [asked.values(name) for name in (*KEY_HEADERS, "x-tenant")] == [[], [], ["t"]]
