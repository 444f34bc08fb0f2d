"""V2 on Falcon and on the fast lane, over a lane whose engine is a few lines of numpy."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from falcon.testing import ASGIConductor, Result
from segment_fixture import Array, local_segment, pack, spec, unpack
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S, FastLaneSettings
from ringbatch.frontend.http.head import HeadReader
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.engine_port import BatchMark, EnginePort, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE
from ringbatch.shm.model_counters import Accounts, ModelCounters, Spent
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import PART, Reason, Status
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.tensor import Tensor

MAX_REQUEST_BYTES = 4096
SLOTS = 8
TIMEOUT_NS = 30_000_000_000

Function = Callable[..., list[Array]]


def minus_two(x: Array) -> list[Array]:
    """A model that refuses what a test says it should: NaN where the input is negative."""
    return [np.where(x < 0, np.nan, x + 1).astype("<f4")]


def long_texts(s: Array) -> list[Array]:
    return [np.array([text * 3000 for text in s], object)]


MODELS: list[tuple[ModelSpec, Function]] = []


def model(name: str, function: Function, inputs: Any, outputs: Any, **more: Any) -> None:
    index = len(MODELS)
    given = spec(index, inputs, outputs, name=name, timeout_ns=TIMEOUT_NS, **more)
    MODELS.append((given, function))


model("addone", minus_two, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=2)
model("echo", lambda s: [s], [Tensor("s", "BYTES", [])], [Tensor("s", "BYTES", [])])
model("long", long_texts, [Tensor("s", "BYTES", [])], [Tensor("t", "BYTES", [])])
model(
    "sum",
    lambda a, b: [a + b, a - b],
    [Tensor("a", "INT64", [-1]), Tensor("b", "INT64", [-1])],
    [Tensor("sum", "INT64", [-1]), Tensor("diff", "INT64", [-1])],
)
model("untyped", lambda: [], [], [])
model("loading", lambda x: [x], [Tensor("x", "FP32", [])], [Tensor("x", "FP32", [])])
model("silent", lambda x: [x], [Tensor("x", "FP32", [])], [Tensor("x", "FP32", [])])


class Harness:
    """A service on a lane, and an engine that answers whatever is submitted."""

    def __init__(self) -> None:
        specs = [given for given, _ in MODELS]
        self.segment = local_segment(*specs, slots=SLOTS, lane_bytes=64 * PAGE)
        words, layout = self.segment.words, self.segment.layout
        for given in specs:
            if given.name != "loading":
                words[layout.model(given.index) + ModelWords.READY] = 1
                words[layout.model(given.index) + ModelWords.SERVED] = 1
        words[HeaderWords.RING_COLLECTOR] = 1
        self._loop = asyncio.get_running_loop()
        self.lane = Lane(self.segment, 0, self._ring)
        self.gateway = Gateway(self.lane, self._loop)
        self.service = Service(self.segment, self.gateway, time.monotonic_ns)
        self.app = create_app(self.service, MAX_REQUEST_BYTES)
        self._port = EnginePort(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(words, layout.submission_ring(0), layout.slots)
        self._batch = 0

    def counters(self, name: str) -> ModelCounters:
        layout = self.segment.layout
        return Accounts(self.segment.words, layout).of(self.service.model(name).spec.account)

    def _ring(self) -> None:
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        requests = [self._port.read(ref & ~PART) for ref in self._submitted.take()]
        for request in requests:
            assert request is not None
            if MODELS[request.model][0].name != "silent":
                self._answer(request)
        self._port.flush()
        self._loop.call_soon(self.gateway.collect)

    def _answer(self, request: Request) -> None:
        self._batch += 1
        mark = BatchMark(self._batch, request.rows, Reason.IDLE, 0)
        given, function = MODELS[request.model]
        start = request.request_offset
        payload = bytes(self.segment.memory[start : start + request.request_bytes])
        arrays = function(*unpack(given.inputs, request.rows, payload))
        result, _ = pack(given.outputs, arrays)
        if len(result) > request.result_capacity:
            self._port.answer(request.ref, Status.RESULT_TOO_LARGE, len(result), mark, 0)
            return
        start = request.result_offset
        self.segment.memory[start : start + len(result)] = result
        self._port.answer(request.ref, Status.OK, len(result), mark, 0)

    def close(self) -> None:
        self.gateway.close()


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.came = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        self.came.set()

    def is_closing(self) -> bool:
        return False


async def over_fast_lane(harness: Harness, target: str, body: bytes, header: str | None) -> Any:
    """Status, headers and body of an answer; the request must not be handed over."""
    state = ServerState()

    def handed_over() -> None:
        raise AssertionError("handed over")

    settings = FastLaneSettings(
        predictions=harness.service,
        heads=HeadReader(MAX_REQUEST_BYTES),
        response_heads=ResponseHeads(state),
        idle_timeout_s=60,
        count_hand_over=handed_over,
        stopping=lambda: False,
        leaving=lambda: False,
        close_grace_s=lambda: CLOSE_GRACE_S,
        budget=BodyBudget.of(MAX_REQUEST_BYTES),
        recorder=recording(AccessSettings(), harness.service.engine, "f")[0],
    )
    transport = Transport()
    lane = FastLane(settings, Config(harness.app), state, {}, asyncio.get_running_loop())
    lane.connection_made(transport)
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    if header is not None:
        lines.append(f"Inference-Header-Content-Length: {header}")
    request = "\r\n".join([*lines, "", ""]).encode() + body
    answers = []
    for pieces in ([request], [request], [request[:70], request[70:]]):
        transport.written = b""
        transport.came.clear()
        for piece in pieces:
            lane.data_received(piece)
        await transport.came.wait()
        answers.append(parsed(transport.written))
    lane.connection_lost(None)
    assert all(without_batch(answer) == without_batch(answers[0]) for answer in answers)
    return answers[0]


def parsed(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, body


def without_batch(answer: Any) -> Any:
    status, headers, body = answer
    kept = {"content-type", "content-length", "inference-header-content-length", "retry-after"}
    named = {key: value for key, value in headers.items() if key in kept}
    return status, named, "x-batch-id" in headers, body


async def over_falcon(harness: Harness, target: str, body: bytes, header: str | None) -> Any:
    headers = {} if header is None else {"Inference-Header-Content-Length": header}
    async with ASGIConductor(harness.app) as conductor:
        got: Result = await conductor.simulate_post(target, body=body, headers=headers)
    return got.status_code, dict(got.headers), got.content


def with_harness(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test that takes a stage on a loop of its own."""

    async def on_harness(**given: Any) -> None:
        harness = Harness()
        try:
            await test(harness, **given)
        finally:
            harness.close()

    def run(**given: Any) -> None:
        asyncio.run(on_harness(**given))

    run.__name__ = test.__name__
    return run


async def infer(
    harness: Harness, target: str, body: bytes, header: str | None = None, *, fast: bool = True
) -> tuple[int, dict[str, str], bytes]:
    """An answer, which is the same on both ways."""
    answer: tuple[int, dict[str, str], bytes]
    answer = await over_falcon(harness, target, body, header)
    if fast:
        other = await over_fast_lane(harness, target, body, header)
        assert without_batch(other) == without_batch(answer)
    return answer


ONE_TWO = bytes.fromhex("0000803f00000040")
X = b'"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32",'
AS_JSON = b'{"id":"42",' + X + b'"data":[[1.0,2.0]]}]}'
AS_BINARY = (
    b"{" + X + b'"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}'
)
TARGET = "/v2/models/addone/infer"

CASES: dict[str, tuple[str, bytes, str | None, int]] = {
    "json": (TARGET, AS_JSON, None, 200),
    "binary": (TARGET, AS_BINARY + ONE_TWO, "134", 200),
    "raw": (TARGET, ONE_TWO, "0", 200),
    "query": (TARGET + "?a=b", AS_JSON, None, 200),
    "split": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[5,2],"datatype":"FP32","data":[1,2,3,4,5,6,7,8,9,0]}]}',
        None,
        200,
    ),
    "two-inputs": (
        "/v2/models/sum/infer",
        b'{"inputs":[{"name":"b","shape":[1,3],"datatype":"INT64","data":[1,2,3]},'
        b'{"name":"a","shape":[1,3],"datatype":"INT64","data":[[4,5,6]]}],'
        b'"outputs":[{"name":"diff"},{"name":"sum","parameters":{"binary_data":true}}]}',
        None,
        200,
    ),
    "no-instances": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[0,2],"datatype":"FP32","data":[]}]}',
        None,
        200,
    ),
    "large-answer": (
        "/v2/models/long/infer",
        b'{"inputs":[{"name":"s","shape":[2],"datatype":"BYTES","data":["ab","c"]}]}',
        None,
        200,
    ),
    "no-json": (TARGET, b"nope", None, 400),
    "empty": (TARGET, b"", None, 400),
    "header-beyond-the-body": (TARGET, AS_BINARY + ONE_TWO, "143", 400),
    "header-missing": (TARGET, AS_BINARY + ONE_TWO, None, 400),
    "short": (TARGET, AS_BINARY + ONE_TWO[:-1], "134", 400),
    "nan-as-json": (TARGET, AS_JSON.replace(b"1.0", b"-1.0"), None, 400),
    "unknown-model": ("/v2/models/nope/infer", AS_JSON, None, 404),
    "untyped-model": ("/v2/models/untyped/infer", AS_JSON, None, 400),
    "shared-memory": (
        TARGET,
        b"{" + X + b'"parameters":{"shared_memory_region":"r"}}]}',
        None,
        501,
    ),
    "model-not-ready": (
        "/v2/models/loading/infer",
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        None,
        503,
    ),
    "too-large": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[20,2],"datatype":"FP32","data":%b}]}'
        % json.dumps([1] * 40).encode(),
        None,
        413,
    ),
    "timeout": (
        "/v2/models/silent/infer",
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],'
        b'"parameters":{"timeout":1}}',
        None,
        504,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_give_the_same_answer(case: str) -> None:
    target, body, header, status = CASES[case]

    @with_harness
    async def run(harness: Harness) -> None:
        got = await infer(harness, target, body, header)
        assert got[0] == status, got
        if status != 200:
            assert got[1]["content-type"] == "application/json"
            (text,) = json.loads(got[2]).values()
            assert list(json.loads(got[2])) == ["error"]
            assert text
            assert ("retry-after" in got[1]) == (status == 503)
        assert ("x-batch-id" in got[1]) == (
            (status == 200 and case != "no-instances") or case == "nan-as-json"
        )

    run()


@with_harness
async def test_the_vectors_of_the_protocol_hold(harness: Harness) -> None:
    text = (
        b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
        b'"shape":[1,2],"parameters":{"binary_data_size":8}}]}'
    )
    for body, header in ((AS_BINARY + ONE_TWO, "134"), (ONE_TWO, "0")):
        status, headers, answer = await infer(harness, TARGET, body, header)
        assert (status, answer) == (200, text + bytes.fromhex("0000004000004040"))
        assert headers["content-type"] == "application/octet-stream"
        assert headers["inference-header-content-length"] == "136"
        assert headers["content-length"] == "144"
    for target in (TARGET, "/v2/models/addone/versions/1/infer"):
        status, headers, answer = await infer(harness, target, AS_JSON, fast=target == TARGET)
        assert (status, headers["content-length"]) == (200, "127")
        assert answer == (
            b'{"id":"42","model_name":"addone","model_version":"1","outputs":[{"name":"y",'
            b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
        )


@with_harness
async def test_a_split_request_is_joined_in_order(harness: Harness) -> None:
    target, body, header, _ = CASES["split"]
    got = await infer(harness, target, body, header)
    (output,) = json.loads(got[2])["outputs"]
    assert output["shape"] == [5, 2]
    assert output["data"] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 1]


@with_harness
async def test_outputs_come_in_the_order_and_form_they_are_asked_for(harness: Harness) -> None:
    target, body, header, _ = CASES["two-inputs"]
    _, headers, answer = await infer(harness, target, body, header)
    size = int(headers["inference-header-content-length"])
    diff, total = json.loads(answer[:size])["outputs"]
    assert (diff["name"], diff["data"]) == ("diff", [3, 3, 3])
    assert (total["name"], total["parameters"]) == ("sum", {"binary_data_size": 24})
    assert np.frombuffer(answer[size:], "<i8").tolist() == [5, 7, 9]


@pytest.mark.parametrize("header", ["-1", "abc", "+5", "1_2", "1, 2", "9" * 30, "0x5"])
def test_a_header_that_is_no_length_is_refused(header: str) -> None:
    @with_harness
    async def run(harness: Harness) -> None:
        got = await infer(harness, TARGET, AS_JSON, header, fast=False)
        assert got[0] == 400
        assert "Inference-Header-Content-Length" in json.loads(got[2])["error"]

    run()


@pytest.mark.parametrize("version", ["2", "01", "latest", "a" * 5000])
@pytest.mark.parametrize("rest", ["", "/ready", "/stats", "/infer"])
def test_there_is_no_other_version(version: str, rest: str) -> None:
    @with_harness
    async def run(harness: Harness) -> None:
        method = "POST" if rest == "/infer" else "GET"
        target = f"/v2/models/addone/versions/{version}{rest}"
        async with ASGIConductor(harness.app) as conductor:
            got = await conductor.simulate_request(
                method, target, body=AS_JSON if rest == "/infer" else None
            )
        assert got.status_code == 404
        assert 'model "addone" has version "1"' in got.json["error"]
        assert len(got.json["error"]) < 300

    run()


def read(target: str, method: str = "GET", **more: Any) -> Result:
    found: list[Result] = []

    @with_harness
    async def run(harness: Harness) -> None:
        counters = harness.counters("sum")
        counters.dispatched((60, 90, 100), 100, Reason.FULL, 30)
        counters.dispatched((0,), 100, Reason.RETRY, 10)
        counters.ran(3, 30, Spent(5, 200, 7, 2, 0))
        counters.ran(1, 10, Spent(1, 100, 2, 0, 1))
        tally = harness.service.model("sum").tallies[Protocol.GRPC]
        for _ in range(4):
            tally.answered(1000, 10)
        tally.ended(504, 50)
        async with ASGIConductor(harness.app) as conductor:
            found.append(await conductor.simulate_request(method, target, **more))

    run()
    return found[0]


@pytest.mark.parametrize("path", ["/v2/models/sum", "/v2/models/sum/versions/1"])
def test_metadata_shows_the_batch_as_the_first_dimension(path: str) -> None:
    tensors = ["a", "b"], ["sum", "diff"]
    inputs, outputs = (
        [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in names]
        for names in tensors
    )
    assert read(path).json == {
        "name": "sum",
        "versions": ["1"],
        "platform": "python",
        "inputs": inputs,
        "outputs": outputs,
    }


def test_server_metadata_names_what_works() -> None:
    answer = read("/v2").json
    assert list(answer) == ["name", "version", "extensions"]
    assert answer["name"] == "ringbatch"
    assert answer["extensions"] == [
        "binary_tensor_data",
        "parameters",
        "statistics",
        "classification",
        "model_configuration",
        "trace",
        "logging",
    ]
    assert read("/v2/").json == answer


def test_models_are_listed() -> None:
    assert read("/v2/models").json == {"models": [given.name for given, _ in MODELS]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/addone/ready", 200),
        ("/v2/models/addone/versions/1/ready", 200),
        ("/v2/models/loading/ready", 503),
        ("/v2/models/nope/ready", 404),
        ("/v2/models/nope", 404),
        ("/v2/models/nope/stats", 404),
        ("/v2/models/nope/versions/1/stats", 404),
        ("/v2/models/addone/versions/2/config", 404),
        ("/v2/models/nope/config", 404),
        ("/v2/models/nope/trace/setting", 404),
        ("/v2/models/addone/", 404),
        ("/v2/models/addone/versions", 404),
        ("/v2/repository/models/addone/load", 405),
        ("/v2/repository/models/addone/unload", 405),
        ("/v2/systemsharedmemory/status", 501),
        ("/v2/systemsharedmemory/region/r/status", 501),
        ("/v2/cudasharedmemory/region/r/status", 404),
        ("/v2/nothing", 404),
    ],
)
def test_what_can_be_read_of_a_model(path: str, status: int) -> None:
    got = read(path)
    assert got.status_code == status
    assert got.json == {"name": "addone", "ready": True} if status == 200 else got.json["error"]


@pytest.mark.parametrize("path", ["/v2/models/sum/config", "/v2/models/sum/versions/1/config"])
def test_a_model_is_shown_as_triton_would_have_it_configured(path: str) -> None:
    found = read(path).json
    assert (found["name"], found["max_batch_size"]) == ("sum", 32)
    assert [(entry["name"], entry["dims"]) for entry in found["input"]] == [
        ("a", [-1]),
        ("b", [-1]),
    ]


@pytest.mark.parametrize(
    ("path", "setting", "other"),
    [
        ("/v2/trace/setting", {"trace_level": ["OFF"], "trace_rate": None}, {"trace_rate": "5"}),
        ("/v2/models/sum/trace/setting", {"trace_level": ["OFF"]}, {"trace_level": ["TENSORS"]}),
        ("/v2/logging", {"log_error": True}, {"log_verbose_level": 3}),
    ],
)
def test_settings_are_shown_and_stay(path: str, setting: Any, other: Any) -> None:
    shown = read(path).json
    assert read(path, "POST", json=setting).json == shown
    assert read(path, "POST").json == shown
    assert read(path, "POST", json=other).status_code == 501
    assert read(path, "POST", json={"nope": 1}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", TARGET, "POST"),
        ("POST", "/v2/models/addone", "GET"),
        ("POST", "/v2", "GET"),
        ("DELETE", "/v2/models/stats", "GET"),
        ("GET", "/v2/repository/index", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    got = read(path, method)
    assert got.status_code == 405
    assert allowed in got.headers["allow"].split(", ")
    assert got.json["error"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_a_path_for_models_that_are_not_served_is_none_for_any_method(method: str) -> None:
    got = read("/predict", method)
    assert (got.status_code, "allow" in got.headers) == (404, False)


@pytest.mark.parametrize("path", ["/v2/models/sum/stats", "/v2/models/sum/versions/1/stats"])
def test_statistics_are_those_of_the_segment(path: str) -> None:
    (stats,) = read(path).json["model_stats"]
    inferences = stats.pop("inference_stats")
    last = stats.pop("last_inference")
    assert 0 <= time.time() * 1000 - last - time.monotonic() * 1000 < 60_000
    sizes = {entry["batch_size"]: entry for entry in stats.pop("batch_stats")}
    assert stats == {
        "name": "sum",
        "version": "1",
        "inference_count": 40,
        "execution_count": 2,
        "response_stats": {},
        "memory_usage": [],
    }
    assert inferences == {
        "success": {"count": 4, "ns": 4000},
        "fail": {"count": 1, "ns": 50},
        "queue": {"count": 3, "ns": 50},
        "compute_input": {"count": 4, "ns": 16},
        "compute_infer": {"count": 4, "ns": 700},
        "compute_output": {"count": 4, "ns": 23},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert sizes == {
        10: {
            "batch_size": 10,
            "compute_input": {"count": 1, "ns": 1},
            "compute_infer": {"count": 1, "ns": 100},
            "compute_output": {"count": 1, "ns": 2},
        },
        30: {
            "batch_size": 30,
            "compute_input": {"count": 1, "ns": 5},
            "compute_infer": {"count": 1, "ns": 200},
            "compute_output": {"count": 1, "ns": 7},
        },
    }


def test_statistics_of_all_models_are_in_one_list() -> None:
    stats = read("/v2/models/stats").json["model_stats"]
    assert [entry["name"] for entry in stats] == [given.name for given, _ in MODELS]
    assert read("/v2/models/sum/stats").json["model_stats"] == [stats[3]]


@pytest.mark.parametrize("rest", ["", "/stats", "/versions/1", "/versions/1/stats"])
@pytest.mark.parametrize("name", ["stats", "versions", "ready", "index", "infer", "models"])
def test_a_model_may_be_called_like_any_part_of_a_path(name: str, rest: str) -> None:
    async def asked() -> tuple[Any, Any]:
        tensor = Tensor("x", "FP32", [2])
        segment = local_segment(*(spec(i, [tensor], [tensor], name=n) for i, n in enumerate(names)))
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        app = create_app(Service(segment, gateway, time.monotonic_ns), MAX_REQUEST_BYTES)
        async with ASGIConductor(app) as conductor:
            found = [await conductor.simulate_get(f"/v2/models/{one}{rest}") for one in names]
        gateway.close()
        return found[0].json, found[1].json

    names = (name, "plain")
    one, plain = asyncio.run(asked())
    if "model_stats" in plain:
        (one,), (plain,) = one["model_stats"], plain["model_stats"]
    assert (one.pop("name"), plain.pop("name")) == names
    assert one == plain


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", [given.name for given, _ in MODELS]),
        (b"{}", [given.name for given, _ in MODELS]),
        (b'{"ready":false}', [given.name for given, _ in MODELS]),
        (b'{"ready":true}', [given.name for given, _ in MODELS if given.name != "loading"]),
    ],
)
def test_the_index_says_what_is_ready(body: bytes, names: list[str]) -> None:
    entries = read("/v2/repository/index", "POST", body=body).json
    assert [entry["name"] for entry in entries] == names
    for entry in entries:
        assert entry["version"] == "1"
        state = "UNAVAILABLE" if entry["name"] == "loading" else "READY"
        assert entry["state"] == state
        assert bool(entry["reason"]) == (state != "READY")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"nope", 400), (b"[]", 400), (b'{"ready":1}', 400), (b" " * 70_000, 413)],
)
def test_an_index_request_that_is_none_is_refused(body: bytes, status: int) -> None:
    got = read("/v2/repository/index", "POST", body=body)
    assert (got.status_code, list(got.json)) == (status, ["error"])


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "br"}, AS_JSON, 415),
        ({"Content-Length": "4097"}, b"x" * 4097, 413),
        ({"Transfer-Encoding": "chunked"}, AS_JSON, 200),
        ({"Transfer-Encoding": "chunked"}, b"x" * 4097, 413),
        ({"Content-Type": "application/octet-stream"}, AS_JSON, 200),
    ],
)
def test_a_body_is_taken_as_v1_takes_it(headers: Any, body: bytes, status: int) -> None:
    assert read(TARGET, "POST", headers=headers, body=body).status_code == status


def test_a_post_without_any_body_is_asked_for_its_length() -> None:
    assert read(TARGET, "POST").status_code == 411


@with_harness
async def test_every_slot_comes_back(harness: Harness) -> None:
    for case, (target, body, header, _) in CASES.items():
        if case != "timeout":
            await infer(harness, target, body, header)
    assert harness.lane.in_flight == 0


@with_harness
async def test_an_abandoned_request_gets_no_reply(harness: Harness) -> None:
    replies: list[int] = []
    call = harness.service.infer("addone", AS_JSON, None, partial(lambda *_: replies.append(1)))
    assert call is not None
    call.abandon()
    await over_falcon(harness, TARGET, AS_JSON, None)
    assert not replies
    assert harness.lane.in_flight == 0
