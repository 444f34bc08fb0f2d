"""gRPC against a real server: one batch with REST, bad input, deadlines, health, reflection."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.grpc_models import ADD, ECHO
from serve.grpc_stub import Held, Started, Stub, grpc_port, infer_request
from serve.server import Server, Start

from ringbatch.frontend.grpc.messages import HEALTH_SERVICE, INFERENCE_SERVICE, SCHEMA

pytestmark = takes(20)

WaitUntil = Callable[..., Any]

LIMIT = 1 << 16
PREFIX = f"rbgrpc_{os.getpid()}_"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    return Held(tmp_path_factory.mktemp("held") / "held.py")


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory, held: Held) -> Server:
    folder = tmp_path_factory.mktemp("models")

    def file(name: str, source: str) -> str:
        path: Path = folder / f"{name}.py"
        path.write_text(source)
        return str(path)

    add = {"path": file("add", ADD)}
    fixed = {"policy": "fixed", "max_batch_size": 4, "max_latency_ms": 60_000}
    return start_for_module(
        {
            "add": add,
            "four": add | fixed,
            "echo": {"path": file("echo", ECHO), "max_batch_size": 2},
            **{f"held-{n}": {"path": held.path, "max_batch_size": 1} for n in (1, 2, 3)},
            "untyped": {"path": "moody.py"},
        },
        max_request_bytes=LIMIT,
        shared_memory_prefixes=[PREFIX],
        grpc_port=0,
        grpc_frontends=2,
        frontends=1,
    )


@pytest.fixture
def stub(server: Server) -> Iterator[Stub]:
    with Stub(grpc_port(server)) as stub:
        yield stub


# Batches


def test_requests_of_all_protocols_share_one_batch(server: Server, stub: Stub) -> None:
    """The batch holds 4 and would wait a minute for less: that all come at once shows it."""
    text = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]}]}
    ).encode()
    parameters = {"binary_data_size": 8}
    head = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": parameters}]}
    ).encode()
    header = {"Inference-Header-Content-Length": str(len(head))}
    over_http = [
        fast("four", instances([1, 2])),
        request("/v2/models/four/infer", text),
        request("/v2/models/four/infer", head + np.array([5, 6], "<f4").tobytes(), headers=header),
    ]
    connections = [Connection(server.port) for _ in over_http]
    for connection, data in zip(connections, over_http, strict=True):
        connection.send(data)
    raw = np.array([7, 8], "<f4").tobytes()
    over_grpc = stub.infer(
        "four", {"name": "x", "datatype": "FP32", "shape": [1, 2]}, raw_input_contents=[raw]
    )
    answers = [connection.receive() for connection in connections]
    for connection in connections:
        connection.close()
    batch_ids = {answers[0].json["batchId"], over_grpc.batch_id}
    batch_ids |= {answer.headers["x-batch-id"] for answer in answers[1:]}
    assert len(batch_ids) == 1
    assert answers[0].json["predictions"] == [[2.0, 3.0]]
    assert [answer.json["outputs"][0]["data"] for answer in answers[1:]] == [[4, 5], [6, 7]]
    assert over_grpc.response.raw_output_contents == [np.array([8, 9], "<f4").tobytes()]
    assert server.status().models["four"].batches == {"full": 1}


def test_typed_contents_come_back_raw_unless_they_are_wanted_typed(stub: Stub) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    typed = {"binary_data_output": {"bool_param": False}}
    for given in ({"contents": {"fp32_contents": [1, 2]}}, {}):
        raw: dict[str, Any] = (
            {} if given else {"raw_input_contents": [np.array([1, 2], "<f4").tobytes()]}
        )
        for _ in range(2):
            end = stub.infer("add", tensor | given, id="i", **raw)
            assert (end.code, end.response.id) == ("OK", "i")
            assert end.response.raw_output_contents == [np.array([2, 3], "<f4").tobytes()]
            end = stub.infer("add", tensor | given, parameters=typed, **raw)
            assert list(end.response.outputs[0].contents.fp32_contents) == [2, 3]
            assert not end.response.raw_output_contents


# Bad input


X = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
GOOD = {"raw_input_contents": [bytes(8)]}
BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "short": ("add", X, {"raw_input_contents": [bytes(7)]}, "INVALID_ARGUMENT"),
    "twice": ("add", X | {"contents": {"fp32_contents": [1, 2]}}, GOOD, "INVALID_ARGUMENT"),
    "missing": ("add", X, {}, "INVALID_ARGUMENT"),
    "name": ("echo", X | {"name": "z"}, GOOD, "INVALID_ARGUMENT"),
    "datatype": ("add", X | {"datatype": "FP64"}, GOOD, "INVALID_ARGUMENT"),
    "shape": ("add", X | {"shape": [1, -2]}, GOOD, "INVALID_ARGUMENT"),
    "output": ("add", X, GOOD | {"outputs": [{"name": "z"}]}, "INVALID_ARGUMENT"),
    "parameter": (
        "add",
        X,
        GOOD | {"parameters": {"timeout": {"bool_param": True}}},
        "INVALID_ARGUMENT",
    ),
    "model": ("nope", X, GOOD, "NOT_FOUND"),
    "version": ("add", X, GOOD | {"model_version": "2"}, "NOT_FOUND"),
    "untyped": ("untyped", X, GOOD, "INVALID_ARGUMENT"),
    "too-long": ("add", X, {"raw_input_contents": [bytes(LIMIT)]}, "RESOURCE_EXHAUSTED"),
    "region": (
        "add",
        X
        | {
            "parameters": {
                "shared_memory_region": {"string_param": "nope"},
                "shared_memory_byte_size": {"int64_param": 8},
            }
        },
        {},
        "NOT_FOUND",
    ),
    "region-without-size": (
        "add",
        X | {"parameters": {"shared_memory_region": {"string_param": "nope"}}},
        {},
        "INVALID_ARGUMENT",
    ),
    "classes": (
        "add",
        X,
        GOOD | {"outputs": [{"name": "y", "parameters": {"classification": {"int64_param": -1}}}]},
        "INVALID_ARGUMENT",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_the_code_of_the_protocol(stub: Stub, case: str) -> None:
    model, tensor, fields, code = BAD[case]
    end = stub.infer(model, tensor, **fields)
    assert (end.code, end.text != "", end.batch_id) == (code, True, "")


def test_an_invalid_message_is_refused(stub: Stub) -> None:
    assert stub.start(b"\xff")().code == "INVALID_ARGUMENT"


def test_an_unknown_method_is_unimplemented(stub: Stub) -> None:
    call = stub.channel.unary_unary("/inference.GRPCInferenceService/Nothing")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", wait_for_ready=True)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert refused.value.details() == (
        'there is no method "/inference.GRPCInferenceService/Nothing" here; the services are '
        "grpc.health.v1.Health, grpc.reflection.v1.ServerReflection, "
        "grpc.reflection.v1alpha.ServerReflection, inference.GRPCInferenceService"
    )


def test_a_call_without_a_message_is_refused_in_words(stub: Stub) -> None:
    call = stub.channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
    with pytest.raises(grpc.RpcError) as refused:
        call(iter(()), wait_for_ready=True)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "the call ended without a message; this method takes one"


@pytest.mark.parametrize(
    ("word", "code", "text"),
    [
        ("raise", "INTERNAL", "model 'echo' raised ValueError; the server's log has more"),
        ("refuse", "INVALID_ARGUMENT", "no mood for <this>: ä"),
    ],
)
def test_a_models_error_goes_to_its_request_alone(
    stub: Stub, word: str, code: str, text: str
) -> None:
    def begin(string: str) -> Any:
        tensors: list[dict[str, Any]] = [
            {"name": "n", "datatype": "INT64", "shape": [1, 0]},
            {"name": "s", "datatype": "BYTES", "shape": [1, 1]},
            {"name": "h", "datatype": "FP16", "shape": [1, 1]},
        ]
        data = len(string).to_bytes(4, "little") + string.encode()
        return stub.start(infer_request("echo", *tensors, raw_input_contents=[b"", data, bytes(2)]))

    good, bad = begin("good"), begin(word)
    assert good().code == "OK"
    end = bad()
    assert (end.code, end.text) == (code, text)
    assert end.batch_id


# Deadlines and cancellation


@pytest.fixture
def busy(
    server: Server, stub: Stub, held: Held, wait_until: WaitUntil
) -> Iterator[Callable[[str], None]]:
    """`busy(model)`: its worker has a batch that it cannot finish before `held.open()`, and another
    to go on with.

    Each test has a model of its own. How long earlier batches took would decide whether a request
    with a deadline is taken at all.
    """
    running: list[Started] = []

    def begin(model: str) -> None:
        held.close()
        for given in (1, 2):
            running.append(stub.start(held.request(model=model)))
            wait_until(
                lambda given=given: sum(server.status().models[model].batches.values()) == given,
                "its worker has it",
            )

    yield begin
    held.open()
    assert [started().code for started in running] == ["OK", "OK"]


def test_a_request_ends_at_the_deadline_of_its_call(
    server: Server,
    stub: Stub,
    held: Held,
    busy: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    busy("held-1")
    end = stub.start(held.request(model="held-1"), timeout_s=0.3)()
    assert end.code == "DEADLINE_EXCEEDED"
    wait_until(
        lambda: server.status().models["held-1"].dropped == 1, "the engine dropped the request"
    )
    held.open()
    assert stub.start(held.request(model="held-1"))().code == "OK"


def test_a_request_ends_at_the_timeout_that_it_names(
    stub: Stub, busy: Callable[[str], None]
) -> None:
    busy("held-2")
    end = stub.infer(
        "held-2",
        {"name": "x", "datatype": "INT64", "shape": [1]},
        raw_input_contents=[bytes(8)],
        parameters={"timeout": {"int64_param": 200_000}},
    )
    assert end.code == "DEADLINE_EXCEEDED"


def test_a_cancelled_request_is_dropped(
    server: Server,
    stub: Stub,
    held: Held,
    busy: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    busy("held-3")
    before = server.status().frontends
    started = stub.start(held.request(model="held-3"))
    wait_until(lambda: server.status().frontends["requests"] > before["requests"], "it waits")
    started.cancel()
    assert started().code == "CANCELLED"
    wait_until(
        lambda: server.status().frontends["cancelled"] > before["cancelled"], "the server knows"
    )
    held.open()
    wait_until(
        lambda: server.status().models["held-3"].dropped == 1, "the engine dropped the request"
    )


# Health and reflection


def test_health_is_served(stub: Stub) -> None:
    for name in ("", "inference.GRPCInferenceService", "add"):
        assert stub.health(name).response.status == 1
    assert stub.health("nope").code == "NOT_FOUND"
    method = SCHEMA.services[HEALTH_SERVICE]["Watch"]
    watch = stub.channel.unary_stream(
        f"/{HEALTH_SERVICE}/Watch",
        method.request.SerializeToString,
        method.response.FromString,
    )
    watching = watch(method.request(), wait_for_ready=True)
    assert next(watching).status == 1
    watching.cancel()


def test_the_health_of_every_model_is_listed(server: Server, stub: Stub) -> None:
    response = stub.start(b"", "List", HEALTH_SERVICE)().response
    models = server.status().models
    assert models
    assert {name: found.status for name, found in response.statuses.items()} == dict.fromkeys(
        ("", INFERENCE_SERVICE, *models), 1
    )


def test_reflection_is_served(stub: Stub) -> None:
    service = "grpc.reflection.v1alpha.ServerReflection"
    method = SCHEMA.services[service]["ServerReflectionInfo"]
    call = stub.channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        method.request.SerializeToString,
        method.response.FromString,
    )
    asked = [
        method.request(list_services=""),
        method.request(file_containing_symbol="inference.GRPCInferenceService"),
    ]
    services, file = call(iter(asked), wait_for_ready=True)
    assert len(services.list_services_response.service) == 4
    assert len(file.file_descriptor_response.file_descriptor_proto) == 1


def test_many_clients_at_once_get_their_own_answers(server: Server) -> None:
    failures: list[str] = []

    def ask(number: int) -> None:
        with Stub(grpc_port(server)) as stub:
            for turn in range(30):
                raw = np.array([number, turn], "<f4").tobytes()
                end = stub.infer("add", X, raw_input_contents=[raw])
                expected = [np.array([number + 1, turn + 1], "<f4").tobytes()]
                if end.code != "OK" or end.response.raw_output_contents != expected:
                    failures.append(f"{number}, {turn}: {end}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
