"""V2 against a real server: in one batch with V1, and the same over every way into the server."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve.client import Connection, Response, fast, instances, request
from serve.server import Server, Start

LIMIT = 1 << 16
HEADER = "Inference-Header-Content-Length"
DOUBLE = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "{datatype}", {shape})]
outputs = [Tensor("y", "{datatype}", {shape})]
def predict(x):
    return x + x
"""
ADD_AND_COUNT = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2]), Tensor("rows", "INT64", [])]
def predict(x):
    return x + 1, np.full(len(x), len(x))
"""
ECHO_ALL = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [-1])]
def predict(n, s):
    return n, s
"""
X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("models")

    def file(name: str, source: str) -> str:
        path: Path = folder / f"{name}.py"
        path.write_text(source)
        return str(path)

    return start_for_module(
        {
            "add": {
                "path": file("add", ADD_AND_COUNT),
                "policy": "fixed",
                "max_batch_size": 4,
                "max_latency_ms": 20_000,
            },
            "half": {"path": file("half", DOUBLE.format(datatype="FP16", shape=[2]))},
            "brain": {"path": file("brain", DOUBLE.format(datatype="BF16", shape=[2]))},
            "echo": {"path": file("echo", ECHO_ALL), "max_batch_size": 2},
            "untyped": {"path": "moody.py"},
        },
        max_request_bytes=LIMIT,
        frontends=2,
    )


def target(model: str) -> str:
    return f"/v2/models/{model}/infer"


def infer_request(model: str, text: Any, data: bytes = b"") -> bytes:
    body = json.dumps(text).encode()
    headers = {HEADER: str(len(body))} if data else {}
    return request(target(model), body + data, headers=headers)


def tensor(name: str, array: Any, datatype: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(np.shape(array)), "datatype": datatype, **more}


def as_json(row: Sequence[float]) -> dict[str, Any]:
    return {"inputs": [tensor("x", [row], "FP32", data=row)]}


def as_binary(row: Sequence[float]) -> tuple[dict[str, Any], bytes]:
    data = np.array(row, "<f4").tobytes()
    entry = tensor("x", [row], "FP32", parameters={"binary_data_size": len(data)})
    return {"inputs": [entry], "parameters": {"binary_data_output": True}}, data


def ask_at_once(port: int, requests: Sequence[bytes]) -> list[Response]:
    """The answers to requests that are all sent before the first is answered."""
    answers: list[Response | None] = [None] * len(requests)

    def ask(index: int) -> None:
        with Connection(port) as connection:
            answers[index] = connection.ask(requests[index])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [answer for answer in answers if answer is not None]
    assert len(found) == len(requests)
    return found


def test_requests_of_both_protocols_and_all_forms_share_one_batch(server: Server) -> None:
    raw = request(target("add"), np.array(X[3], "<f4").tobytes(), headers={HEADER: "0"})
    # The batch holds 4 and would wait 20 s for less: that all come at once shows they are one.
    v1, v2_json, v2_binary, v2_raw = ask_at_once(
        server.port,
        [
            fast("add", instances(X[0])),
            infer_request("add", as_json(X[1])),
            infer_request("add", *as_binary(X[2])),
            raw,
        ],
    )
    batch = v1.json["batchId"]
    assert {answer.headers["x-batch-id"] for answer in (v2_json, v2_binary, v2_raw)} == {batch}
    assert v1.json["predictions"] == [{"y": [2.0, 3.0], "rows": 4}]
    y, rows = v2_json.json["outputs"]
    assert (y["data"], rows["data"]) == ([4.0, 5.0], [4])
    for answer, row in ((v2_binary, X[2]), (v2_raw, X[3])):
        size = int(answer.headers[HEADER.lower()])
        assert [o["shape"] for o in json.loads(answer.body[:size])["outputs"]] == [[1, 2], [1]]
        assert np.frombuffer(answer.body[size : size + 8], "<f4").tolist() == [v + 1 for v in row]
        assert np.frombuffer(answer.body[size + 8 :], "<i8").tolist() == [4]
    model = server.status().models["add"]
    assert (model.requests, model.batches) == (4, {"full": 1})


def chunked(model: str, body: bytes, header: str | None) -> bytes:
    text = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
    headers = {"Transfer-Encoding": "chunked"} | ({} if header is None else {HEADER: header})
    return request(target(model), text + b"0\r\n\r\n", headers=headers)


def plain(model: str, body: bytes, header: str | None) -> bytes:
    return request(target(model), body, headers={} if header is None else {HEADER: header})


def versioned(model: str, body: bytes, header: str | None) -> bytes:
    path = f"/v2/models/{model}/versions/1/infer"
    return request(path, body, headers={} if header is None else {HEADER: header})


WAYS: dict[str, Callable[[str, bytes, str | None], bytes]] = {
    "plain": plain,
    "versioned": versioned,
    "chunked": chunked,
}
NUMBERS = np.array([[1, -2], [1 << 62, 0], [-(1 << 62), 7]])
STRINGS = [["ab", ""], ["é", "x" * 100], ["", "y"]]


def echo_as_json(binary: bool) -> bytes:
    entries = [
        tensor("n", NUMBERS, "INT64", data=NUMBERS.tolist()),
        tensor("s", STRINGS, "BYTES", data=STRINGS),
    ]
    parameters = {"binary_data_output": binary}
    return json.dumps({"id": "é", "inputs": entries, "parameters": parameters}).encode()


def echo_as_binary(short: int = 0) -> tuple[bytes, str]:
    texts = [text.encode() for row in STRINGS for text in row]
    strings = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    numbers = NUMBERS.astype("<i8").tobytes()
    entries = [
        tensor("s", STRINGS, "BYTES", parameters={"binary_data_size": len(strings)}),
        tensor("n", NUMBERS, "INT64", parameters={"binary_data_size": len(numbers)}),
    ]
    text = json.dumps({"inputs": entries}).encode()
    return text + (strings + numbers)[: len(strings + numbers) - short], str(len(text))


def floats(size: int, output_binary: bool = True) -> tuple[bytes, str]:
    entry = {"name": "x", "shape": [1, 2], "parameters": {"binary_data_size": 4}}
    text = json.dumps(
        {
            "inputs": [entry | {"datatype": "FP16"}],
            "parameters": {"binary_data_output": output_binary},
        }
    ).encode()
    return text + bytes.fromhex("003c00c0")[:size], str(len(text))


CASES: dict[str, tuple[str, bytes, str | None, int]] = {
    "json": ("echo", echo_as_json(False), None, 200),
    "json-to-binary": ("echo", echo_as_json(True), None, 200),
    "binary": ("echo", *echo_as_binary(), 200),
    "half": ("half", *floats(4), 200),
    "raw": ("brain", bytes.fromhex("803f4940"), "0", 200),
    "short": ("echo", *echo_as_binary(short=1), 400),
    "half-as-json": ("half", *floats(4, output_binary=False), 400),
    "raw-too-long": ("brain", bytes(5), "0", 400),
    "raw-of-two-inputs": ("echo", bytes(8), "0", 400),
    "header-is-no-number": ("half", floats(4)[0], "-1", 400),
    "no-json": ("echo", b"nope", None, 400),
    "untyped": ("untyped", echo_as_json(False), None, 400),
    "unknown": ("nope", echo_as_json(False), None, 404),
    "too-long": ("echo", b" " * (LIMIT + 1), None, 413),
}


@pytest.mark.parametrize("case", CASES)
def test_every_way_into_the_server_gives_the_same_answer(server: Server, case: str) -> None:
    model, body, header, status = CASES[case]
    answers = []
    for way in ("plain", "versioned", "chunked"):
        if case == "too-long" and way == "chunked":
            continue  # it ends before it is sent
        if case == "unknown" and way == "versioned":
            continue
        with Connection(server.port) as connection:
            connection.send(WAYS[way](model, body, header))
            answers.append(connection.receive())
    for answer in answers:
        assert answer.status == status
        assert (answer.body, answer.headers["content-type"]) == (
            answers[0].body,
            answers[0].headers["content-type"],
        )
        assert answer.headers.get(HEADER.lower()) == answers[0].headers.get(HEADER.lower())
        assert ("x-batch-id" in answer.headers) == (status == 200)
        if status != 200:
            assert answer.error


def test_a_plain_request_stays_on_the_fast_lane(server: Server) -> None:
    before = server.status().frontends["handed_over"]
    with Connection(server.port) as connection:
        for _ in range(3):
            for case in ("json", "json-to-binary", "binary", "half", "raw", "short"):
                model, body, header, status = CASES[case]
                assert connection.ask(plain(model, body, header)).status == status
    assert server.status().frontends["handed_over"] == before


def test_values_come_back_as_they_went(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(plain("echo", echo_as_json(False), None))
        numbers, strings = answer.json["outputs"]
        assert list(answer.json) == ["id", "model_name", "model_version", "outputs"]
        assert answer.json["id"] == "é"
        assert (numbers["shape"], strings["shape"]) == ([3, 2], [3, 2])
        assert numbers["data"] == NUMBERS.reshape(-1).tolist()
        assert strings["data"] == [text for row in STRINGS for text in row]
        half = connection.ask(plain(*CASES["half"][:3]))
        assert half.body.endswith(np.array([2, -4], "<f2").tobytes())
        brain = connection.ask(plain(*CASES["raw"][:3]))
        assert brain.body.endswith(bytes.fromhex("0040c940"))


def test_v1_and_v2_answer_on_one_connection(server: Server) -> None:
    with Connection(server.port) as connection:
        for _ in range(3):
            values = {"n": [[5]], "s": [["a"]]}
            v1 = connection.ask(fast("echo", json.dumps({"inputs": values}).encode()))
            assert v1.json["outputs"] == values
            assert connection.ask(plain("echo", echo_as_json(False), None)).status == 200


def test_documents_are_served(server: Server) -> None:
    with Connection(server.port) as connection:
        metadata = connection.ask(request("/v2/models/half", method="GET")).json
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP16", "shape": [-1, 2]}]
        index = connection.ask(request("/v2/repository/index", b"{}")).json
        assert {entry["state"] for entry in index} == {"READY"}
        assert connection.ask(plain(*CASES["half"][:3])).status == 200
        (stats,) = connection.ask(request("/v2/models/half/stats", method="GET")).json[
            "model_stats"
        ]
        assert stats["inference_count"] >= 1


def test_without_models_of_texts_there_are_no_such_paths(server: Server) -> None:
    with Connection(server.port) as connection:
        for path in ("/info", "/health"):
            assert connection.ask(request(path, method="GET")).status == 404
        for path in ("/embed", "/v1/embed", "/v2/embed"):
            assert connection.ask(request(path, b"{}")).status == 404
