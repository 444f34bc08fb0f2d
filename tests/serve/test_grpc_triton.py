"""Triton's own client over gRPC, against a real server."""

import asyncio
import os
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from serve.grpc_models import ADD, ECHO
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

PREFIX = f"rbtriton_{os.getpid()}_"
NUMBERS = np.array([[1, -2], [1 << 62, 0], [-(1 << 62), 7]])
STRINGS = np.array([[b"ab", b""], ["é".encode(), b"x" * 100], [b"\xff\0", b"y"]], object)
HALVES = np.array([[0.5], [-2], [65504]], np.float16)


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("models")
    (folder / "add.py").write_text(ADD)
    (folder / "echo.py").write_text(ECHO)
    return start_for_module(
        {
            "add": {"path": str(folder / "add.py")},
            "echo": {"path": str(folder / "echo.py"), "max_batch_size": 2},
            "untyped": {"path": "moody.py"},
        },
        shared_memory_prefixes=[PREFIX],
        grpc_port=0,
        grpc_frontends=2,
        frontends=1,
    )


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
    assert len(client.get_inference_statistics().model_stats) == 3
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


def test_tritons_client_gets_the_fault(client: triton.InferenceServerClient) -> None:
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


def test_tritons_client_learns_that_there_is_no_memory_of_cudas(
    client: triton.InferenceServerClient,
) -> None:
    assert len(client.get_cuda_shared_memory_status().regions) == 0
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="use system shared memory") as refused:
        client.register_cuda_shared_memory("c", b"", 0, 64)
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
