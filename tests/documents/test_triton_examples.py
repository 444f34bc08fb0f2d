"""Triton's examples of decoupled models: the page's models, asked as the examples' clients ask."""

import asyncio
import os
import queue
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from documents.commands import serving, write
from documents.pages import example
from serve.grpc_stub import grpc_port
from serve.server import Server

TOOLS: Final = "docs/how-to/use-triton-tools.md"
WAIT_S: Final = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("decoupled")
    write(folder, "square_int32.py", example(TOOLS, "square_int32.py"))
    write(folder, "repeat_int32.py", example(TOOLS, "repeat_int32.py"))
    write(folder, "decoupled.toml", example(TOOLS, "decoupled.toml"))
    more = ("--grpc-port", "0", "--engine-name", f"decoupled-{os.getpid()}")
    with serving(folder, example(TOOLS, "decoupled"), *more) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        yield client


def given(name: str, values: list[int], datatype: str) -> Any:
    tensor = triton.InferInput(name, [len(values)], datatype)
    dtype = np.int32 if datatype == "INT32" else np.uint32
    tensor.set_data_from_numpy(np.array(values, dtype))
    return tensor


def repeat_inputs(values: list[int], delays_ms: list[int], wait_ms: int) -> list[Any]:
    return [
        given("IN", values, "INT32"),
        given("DELAY", delays_ms, "UINT32"),
        given("WAIT", [wait_ms], "UINT32"),
    ]


def wanted(*names: str) -> list[Any]:
    return [triton.InferRequestedOutput(name) for name in names]


class Stream:
    """A client's stream, and its responses as they come."""

    def __init__(self, client: triton.InferenceServerClient) -> None:
        self._came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(callback=lambda result, error: self._came.put((result, error)))

    def next(self) -> Any:
        result, error = self._came.get(timeout=WAIT_S)
        assert error is None, error.message()
        return result

    @property
    def is_empty(self) -> bool:
        return self._came.empty()


def test_each_element_is_a_response_with_its_index(client: triton.InferenceServerClient) -> None:
    stream = Stream(client)
    inputs = repeat_inputs([4, 2, 0, 1], [1, 2, 3, 4], wait_ms=5)
    client.async_stream_infer("repeat_int32", inputs, request_id="0", outputs=wanted("OUT", "IDX"))
    for index, value in enumerate([4, 2, 0, 1]):
        result = stream.next()
        assert result.get_response().id == "0"
        for name, number, dtype in (("OUT", value, np.int32), ("IDX", index, np.uint32)):
            assert result.as_numpy(name).tolist() == [number]
            assert result.as_numpy(name).dtype == dtype
    client.stop_stream()
    assert stream.is_empty


def test_a_request_without_an_id_gets_only_the_output_it_names(
    client: triton.InferenceServerClient,
) -> None:
    stream = Stream(client)
    inputs = repeat_inputs([*range(100, 110)], [1] * 10, wait_ms=1)
    client.async_stream_infer("repeat_int32", inputs, outputs=wanted("OUT"))
    for number in range(100, 110):
        result = stream.next()
        assert result.as_numpy("OUT").tolist() == [number]
        assert result.as_numpy("IDX") is None


def test_each_of_four_requests_gets_as_many_responses_as_it_says(
    client: triton.InferenceServerClient,
) -> None:
    stream, counts = Stream(client), [4, 2, 0, 1]
    tensor = triton.InferInput("IN", [1], "INT32")
    for number, count in enumerate(counts):
        tensor.set_data_from_numpy(np.array([count], np.int32))
        client.async_stream_infer(
            "square_int32", [tensor], request_id=str(number), outputs=wanted("OUT")
        )
    found: dict[str, list[list[int]]] = {}
    for _ in range(sum(counts)):
        result = stream.next()
        found.setdefault(result.get_response().id, []).append(result.as_numpy("OUT").tolist())
    assert found == {"0": [[4]] * 4, "1": [[2]] * 2, "3": [[1]]}
    client.stop_stream()
    assert stream.is_empty


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("square_int32", [given("IN", [0], "INT32")]),
        ("repeat_int32", repeat_inputs([], [], wait_ms=0)),
    ],
)
def test_a_request_without_parts_has_an_end_if_it_asks_for_one(
    client: triton.InferenceServerClient, model: str, inputs: list[Any]
) -> None:
    stream = Stream(client)
    client.async_stream_infer(model, inputs, request_id="none")
    client.async_stream_infer(model, inputs, request_id="end", enable_empty_final_response=True)
    response = stream.next().get_response()
    assert (response.id, list(response.outputs)) == ("end", [])
    assert response.parameters["triton_final_response"].bool_param
    client.stop_stream()
    assert stream.is_empty


def test_the_asyncio_client_gets_the_parts_of_requests_in_turn(server: Server) -> None:
    async def ask() -> list[tuple[str, int]]:
        async def requests() -> Any:
            for number in range(3):
                inputs = repeat_inputs([number, number + 10], [0, 0], wait_ms=0)
                yield {"model_name": "repeat_int32", "inputs": inputs, "request_id": str(number)}

        found = []
        url = f"127.0.0.1:{grpc_port(server)}"
        async with triton_aio.InferenceServerClient(url) as client:
            async for result, error in client.stream_infer(requests()):
                assert error is None, error.message()
                found.append((result.get_response().id, int(result.as_numpy("OUT")[0])))
        return found

    found = asyncio.run(ask())
    for number in range(3):
        assert [value for id, value in found if id == str(number)] == [number, number + 10]
    assert len(found) == 6
