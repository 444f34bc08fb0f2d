"""gRPC against a real server: with Triton's own client, in one batch with REST, and bad input."""

import asyncio
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import Held, Started, Stub, grpc_port, infer_request
from serve.server import Server, Start
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from ringbatch.frontend.grpc.messages import HEALTH_SERVICE, SCHEMA

WaitUntil = Callable[..., Any]

LIMIT = 1 << 16
PREFIX = f"rbgrpc_{os.getpid()}_"
ADD = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2], labels=["left", "right"])]
def predict(x):
    return x + 1
"""
ECHO = """
from ringbatch.engine import InvalidInput, Tensor
inputs = [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [-1]), Tensor("h", "FP16", [1])]
outputs = inputs
def predict(n, s, h):
    if b"raise" in s:
        raise ValueError("a secret of the model's")
    if b"refuse" in s:
        raise InvalidInput("no mood for <this>: \\u00e4")
    return n, s, h
"""
NUMBERS = np.array([[1, -2], [1 << 62, 0], [-(1 << 62), 7]])
STRINGS = np.array([[b"ab", b""], ["é".encode(), b"x" * 100], [b"\xff\0", b"y"]], object)
HALVES = np.array([[0.5], [-2], [65504]], np.float16)


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


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        yield client


def given(library: Any, name: str, array: Any, datatype: str) -> Any:
    tensor = library.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def echo_inputs(library: Any = triton, rows: slice = slice(None)) -> list[Any]:
    return [
        given(library, "n", NUMBERS[rows], "INT64"),
        given(library, "s", STRINGS[rows], "BYTES"),
        given(library, "h", HALVES[rows], "FP16"),
    ]


def assert_echoed(result: Any, rows: slice = slice(None)) -> None:
    np.testing.assert_array_equal(result.as_numpy("n"), NUMBERS[rows])
    np.testing.assert_array_equal(result.as_numpy("s"), STRINGS[rows])
    np.testing.assert_array_equal(result.as_numpy("h"), HALVES[rows])


def add_input(library: Any, *rows: list[float]) -> list[Any]:
    return [given(library, "x", np.array(rows, np.float32), "FP32")]


def assert_added(result: Any, *rows: list[float]) -> None:
    assert result.as_numpy("y").tolist() == [[value + 1 for value in row] for row in rows]


# Triton's client


def test_tritons_client_learns_all_of_the_server(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("nope")
    assert not client.is_model_ready("echo", "7")
    metadata = client.get_server_metadata(as_json=True)
    assert metadata["name"] == "ringbatch"
    assert "system_shared_memory" in metadata["extensions"]
    metadata = client.get_model_metadata("echo", as_json=True)
    assert metadata["inputs"][1] == {"name": "s", "datatype": "BYTES", "shape": ["-1", "-1"]}
    client.infer("add", add_input(triton, [1, 2]))
    (statistics,) = client.get_inference_statistics("add").model_stats
    assert (statistics.name, statistics.inference_count >= 1) == ("add", True)
    assert len(client.get_inference_statistics().model_stats) == 7
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {entry["state"] for entry in index} == {"READY"}
    configuration = client.get_model_config("echo", as_json=True)["config"]
    assert (configuration["name"], configuration["max_batch_size"]) == ("echo", 2)
    assert [entry["data_type"] for entry in configuration["input"]] == [
        "TYPE_INT64",
        "TYPE_STRING",
        "TYPE_FP16",
    ]
    with pytest.raises(InferenceServerException, match="Request for unknown model"):
        client.get_model_config("nope")


@pytest.mark.parametrize("model", [None, "add"])
def test_tritons_client_learns_of_settings_that_stay(
    client: triton.InferenceServerClient, model: str | None
) -> None:
    settings = client.get_trace_settings(model, as_json=True)["settings"]
    assert settings["trace_level"] == {"value": ["OFF"]}
    assert client.update_trace_settings(model, {"trace_level": "OFF"}, as_json=True) == {
        "settings": settings
    }
    for change in ({"trace_level": ["TIMESTAMPS"]}, {"trace_count": "7"}):
        with pytest.raises(InferenceServerException, match="cannot be set"):
            client.update_trace_settings(model, change)
    shown = client.get_log_settings(as_json=True)["settings"]
    assert shown["log_error"] == {"bool_param": True}
    assert client.update_log_settings({"log_info": True}, as_json=True) == {"settings": shown}
    with pytest.raises(InferenceServerException, match="cannot be set"):
        client.update_log_settings({"log_verbose_level": 3})


def test_tritons_client_wants_classes(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("y", class_count=2)]
    for _ in range(2):
        result = client.infer("add", add_input(triton, [1, 2], [4, 3]), outputs=wanted)
        assert result.as_numpy("y").tolist() == [
            [b"3.000000:1:right", b"2.000000:0:left"],
            [b"5.000000:0:left", b"4.000000:1:right"],
        ]


def test_tritons_client_infers(client: triton.InferenceServerClient) -> None:
    result = client.infer("add", add_input(triton, [1, 2], [3, 4]), request_id="é")
    assert_added(result, [1, 2], [3, 4])
    assert result.get_response().id == "é"
    # Three instances, where a batch holds two.
    assert_echoed(client.infer("echo", echo_inputs()))
    wanted = [triton.InferRequestedOutput(name) for name in ("h", "n")]
    result = client.infer("echo", echo_inputs(), outputs=wanted, parameters={"a": "b", "c": 1})
    assert [output.name for output in result.get_response().outputs] == ["h", "n"]
    np.testing.assert_array_equal(result.as_numpy("h"), HALVES)
    for compression in ("gzip", "deflate"):
        inputs = add_input(triton, [5, 6])
        assert_added(client.infer("add", inputs, compression_algorithm=compression), [5, 6])


def test_tritons_client_infers_asynchronously(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for number in range(20):
        client.async_infer(
            "add",
            add_input(triton, [number, 0]),
            lambda result, error, number=number: done.put((number, result, error)),
        )
    for _ in range(20):
        number, result, error = done.get()
        assert error is None
        assert_added(result, [number, 0])


def test_tritons_asyncio_client_infers(server: Server) -> None:
    async def all_of_it() -> None:
        url = f"127.0.0.1:{grpc_port(server)}"
        async with triton_aio.InferenceServerClient(url) as client:
            assert await client.is_server_ready()
            assert (await client.get_model_metadata("add", as_json=True))["versions"] == ["1"]
            assert_echoed(await client.infer("echo", echo_inputs(triton_aio)))
            results = await asyncio.gather(
                *(client.infer("add", add_input(triton_aio, [n, 0])) for n in range(20))
            )
            for number, result in enumerate(results):
                assert_added(result, [number, 0])
            await stream(client)

    async def stream(client: triton_aio.InferenceServerClient) -> None:
        async def requests() -> Any:
            for number in range(100):
                inputs = add_input(triton_aio, [number, 0])
                yield {"model_name": "add", "inputs": inputs, "request_id": str(number)}

        number = 0
        async for result, error in client.stream_infer(requests()):
            assert error is None
            assert result.get_response().id == str(number)
            assert_added(result, [number, 0])
            number += 1
        assert number == 100

    asyncio.run(all_of_it())


def test_tritons_client_streams(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: done.put((result, error)))
    for number in range(200):
        model = "nope" if number == 100 else "add"
        inputs = add_input(triton, [number, 0])
        client.async_stream_infer(
            model, inputs, request_id=str(number), enable_empty_final_response=True
        )
    for number in range(200):
        result, error = done.get()
        if number == 100:
            assert 'there is no model "nope"' in error.message()
        else:
            assert_added(result, [number, 0])
            assert result.get_response().id == str(number)
            assert result.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()


def test_tritons_client_is_told_what_is_wrong(client: triton.InferenceServerClient) -> None:
    for model, text in (("nope", "there is no model"), ("untyped", "declares no inputs")):
        with pytest.raises(InferenceServerException, match=text):
            client.infer(model, add_input(triton, [1, 2]))
    with pytest.raises(InferenceServerException, match="no version"):
        client.infer("add", add_input(triton, [1, 2]), model_version="2")
    result = client.infer("add", add_input(triton, [1, 2]), sequence_id=3, sequence_start=True)
    assert_added(result, [1, 2])


def test_tritons_client_shares_memory(client: triton.InferenceServerClient) -> None:
    """With both frontends: a registration holds for all, whichever has the connection."""
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert len(client.get_system_shared_memory_status().regions) == 0
    handle = shm.create_shared_memory_region("io", f"/{PREFIX}io", 64)
    try:
        shm.set_shared_memory_region(handle, [x])
        client.register_system_shared_memory("io", f"/{PREFIX}io", 64)
        with pytest.raises(InferenceServerException) as taken:
            client.register_system_shared_memory("io", f"/{PREFIX}io", 64)
        assert taken.value.status() == "StatusCode.ALREADY_EXISTS"
        status = client.get_system_shared_memory_status("io", as_json=True)["regions"]
        assert status["io"] == {"name": "io", "key": f"/{PREFIX}io", "byte_size": "64"}
        given = triton.InferInput("x", [2, 2], "FP32")
        given.set_shared_memory("io", x.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("io", x.nbytes, offset=32)
        result = client.infer("add", [given], outputs=[wanted])
        assert result.get_output("y").shape == [2, 2]
        assert list(result.get_response().raw_output_contents) == [b""]
        np.testing.assert_array_equal(
            shm.get_contents_as_numpy(handle, np.float32, [2, 2], 32), x + 1
        )
        # The one in memory, the other in the message.
        assert_added(client.infer("add", [given]), *x.tolist())
        client.infer("add", add_input(triton, [7, 8]), outputs=[wanted])
        found = shm.get_contents_as_numpy(handle, np.float32, [1, 2], 32)
        assert found.tolist() == [[8, 9]]
        wanted.set_shared_memory("io", 8)
        with pytest.raises(InferenceServerException, match='output "y" has 16 bytes'):
            client.infer("add", [given], outputs=[wanted])
        beyond = triton.InferInput("x", [2, 2], "FP32")
        beyond.set_shared_memory("io", x.nbytes, offset=56)
        with pytest.raises(InferenceServerException, match="not within shared memory region"):
            client.infer("add", [beyond])
        client.unregister_system_shared_memory("io")
        client.unregister_system_shared_memory()
        with pytest.raises(InferenceServerException) as unknown:
            client.infer("add", [given])
        assert unknown.value.status() == "StatusCode.NOT_FOUND"
    finally:
        shm.destroy_shared_memory_region(handle)


def test_tritons_client_is_told_that_there_is_no_memory_of_cudas(
    client: triton.InferenceServerClient,
) -> None:
    assert len(client.get_cuda_shared_memory_status().regions) == 0
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="use system shared memory") as refused:
        client.register_cuda_shared_memory("c", b"", 0, 64)
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


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


def test_what_is_no_message_is_refused(stub: Stub) -> None:
    assert stub.start(b"\xff")().code == "INVALID_ARGUMENT"


def test_an_unknown_method_is_unimplemented(stub: Stub) -> None:
    call = stub.channel.unary_unary("/inference.GRPCInferenceService/Nothing")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", wait_for_ready=True)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("word", "code", "text"),
    [
        ("raise", "INTERNAL", "model 'echo' raised ValueError; the server's log has more"),
        ("refuse", "INVALID_ARGUMENT", "no mood for <this>: ä"),
    ],
)
def test_what_the_model_says_is_told_to_its_request_alone(
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
    client: triton.InferenceServerClient, busy: Callable[[str], None]
) -> None:
    busy("held-2")
    inputs = [given(triton, "x", np.zeros(1, np.int64), "INT64")]
    with pytest.raises(InferenceServerException) as ended:
        client.infer("held-2", inputs, timeout=200_000)
    assert ended.value.status() == "StatusCode.DEADLINE_EXCEEDED", ended.value


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
