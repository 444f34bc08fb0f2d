"""Answers in parts over gRPC, asked for by Triton's own client as of a decoupled model."""

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.http
from dev_shm import takes
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.server import Server, Start

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, inference
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES

pytestmark = takes(30)

PLAIN = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]
def predict(x):
    return x
"""
LONG = [0] * 4000
"""Parts for minutes, with a pause before each."""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    plain = tmp_path_factory.mktemp("models") / "plain.py"
    plain.write_text(PLAIN)
    repeat = {"path": "repeat.py", "max_batch_size": 0}
    return start_for_module(
        {
            "repeat": repeat | {"workers": 2},
            "batched": {"path": "repeat.py", "max_batch_size": 32},
            "plain": {"path": str(plain)},
        },
        grpc_port=0,
        frontends=1,
        lane_bytes=4 << 20,
        max_request_bytes=1 << 20,
    )


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        yield client


def repeat_inputs(values: list[int], delay_ms: int = 0, rows: int = 0) -> list[Any]:
    """Inputs of the model; with a batch dimension if there are rows."""
    arrays = {
        "IN": np.array(values, np.int32),
        "DELAY": np.full(len(values), delay_ms, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    made = []
    for name, array in arrays.items():
        value = np.tile(array, (rows, 1)) if rows else array
        datatype = "INT32" if name == "IN" else "UINT32"
        tensor = triton.InferInput(name, list(value.shape), datatype)
        tensor.set_data_from_numpy(value)
        made.append(tensor)
    return made


class Stream:
    """A stream of a client, and what comes of it by request."""

    def __init__(self, client: triton.InferenceServerClient, **more: Any) -> None:
        self.client = client
        self.came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: self.came.put((result, error)), **more)

    def ask(self, values: list[int], id: str, *, says_end: bool = False, **more: Any) -> None:
        self.client.async_stream_infer(
            more.pop("model", "repeat"),
            repeat_inputs(values, **more),
            request_id=id,
            enable_empty_final_response=says_end,
        )

    def next(self) -> tuple[Any, Any]:
        return self.came.get(timeout=60)

    def part(self) -> tuple[str, list[int], bool]:
        """The next part: its request, its values, and whether it is the last."""
        result, error = self.next()
        assert error is None, error.message()
        return seen(result)

    def until_last(self, id: str) -> list[int]:
        """Return all values of a request that marks its end, which runs alone."""
        found: list[int] = []
        while True:
            of, values, last = self.part()
            assert of == id
            found += values
            if last:
                assert values == []
                return found

    def close(self) -> None:
        self.client.stop_stream()


def seen(result: Any) -> tuple[str, list[int], bool]:
    response = result.get_response()
    assert (response.model_name, response.model_version) == ("repeat", "1")
    values = result.as_numpy("OUT")
    last = response.parameters["triton_final_response"]
    assert last.WhichOneof("parameter_choice") == "bool_param"
    return response.id, [] if values is None else values.tolist(), last.bool_param


def test_each_part_is_a_response_and_nothing_follows_unless_it_is_asked_for(
    client: triton.InferenceServerClient,
) -> None:
    stream = Stream(client)
    stream.ask([4, 2, 0, 1], "a")
    assert [stream.part() for _ in range(4)] == [("a", [n], False) for n in (4, 2, 0, 1)]
    stream.close()
    assert stream.came.empty()


def test_an_empty_last_response_comes_if_it_is_asked_for(
    client: triton.InferenceServerClient,
) -> None:
    stream = Stream(client)
    stream.ask([7, 8], "b", says_end=True)
    assert [stream.part() for _ in range(3)] == [
        ("b", [7], False),
        ("b", [8], False),
        ("b", [], True),
    ]
    stream.ask([9], "c", says_end=True)
    assert stream.until_last("c") == [9]
    stream.close()
    assert stream.came.empty()


def test_requests_of_one_stream_run_at_the_same_time(
    client: triton.InferenceServerClient, server: Server
) -> None:
    stream = Stream(client)
    stream.ask(LONG, "slow", delay_ms=20)
    assert stream.part() == ("slow", [0], False)
    stream.ask([5], "quick", says_end=True)
    others: list[Any] = []
    while len(others) < 2:
        part = stream.part()
        if part[0] != "slow":
            others.append(part)
    assert others == [("quick", [5], False), ("quick", [], True)]
    client.stop_stream(cancel_requests=True)
    # The model is free of what its client has left: two at once would find no worker otherwise.
    for _ in range(2):
        stream = Stream(client)
        stream.ask([1, 2], "d", says_end=True)
        assert stream.until_last("d") == [1, 2]
        stream.close()


def test_answers_as_one_do_not_wait_for_parts_of_requests_before_them(
    client: triton.InferenceServerClient,
) -> None:
    stream = Stream(client)
    stream.ask(LONG, "slow", delay_ms=20)
    assert stream.part() == ("slow", [0], False)
    tensor = triton.InferInput("x", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[3]], np.float32))
    for id in ("p", "q"):
        client.async_stream_infer("plain", [tensor], request_id=id)
    found: list[tuple[str, Any, bool]] = []
    while len(found) < 2:
        result, error = stream.next()
        assert error is None, error.message()
        response = result.get_response()
        if response.id != "slow":
            last = response.parameters["triton_final_response"].bool_param
            found.append((response.id, result.as_numpy("y").tolist(), last))
    assert found == [("p", [[3]], True), ("q", [[3]], True)]
    client.stop_stream(cancel_requests=True)


def test_errors_are_messages_and_the_stream_goes_on(client: triton.InferenceServerClient) -> None:
    stream = Stream(client)
    stream.ask([-1], "before")
    _, error = stream.next()
    assert "ValueError" in error.message()
    stream.ask([3, -1], "behind")
    assert stream.part() == ("behind", [3], False)
    _, error = stream.next()
    assert "ValueError" in error.message()
    stream.ask([1], "none", model="nope")
    _, error = stream.next()
    assert 'no model "nope"' in error.message()
    stream.ask([6], "well", says_end=True)
    assert stream.until_last("well") == [6]
    stream.close()


def test_a_worker_that_dies_behind_a_part_ends_that_request_alone(
    client: triton.InferenceServerClient,
) -> None:
    stream = Stream(client)
    stream.ask([3, -2], "dies")
    assert stream.part() == ("dies", [3], False)
    _, error = stream.next()
    assert "died" in error.message()
    stream.ask([4, 5], "lives", says_end=True)
    assert stream.until_last("lives") == [4, 5]
    stream.close()


def test_a_deadline_ends_a_request_with_an_error(client: triton.InferenceServerClient) -> None:
    stream = Stream(client)
    client.async_stream_infer("repeat", repeat_inputs(LONG, 10), request_id="late", timeout=300_000)
    error = None
    while error is None:
        result, error = stream.next()
        assert error is not None or not seen(result)[2]
    assert "no answer came" in error.message()
    stream.ask([1], "in time", says_end=True)
    assert stream.until_last("in time") == [1]
    stream.close()


def test_a_unary_call_gets_all_parts_as_one_answer(client: triton.InferenceServerClient) -> None:
    result = client.infer("repeat", repeat_inputs([4, 2, 0]), request_id="e")
    assert result.as_numpy("OUT").tolist() == [4, 2, 0]
    assert result.as_numpy("IDX").tolist() == [0, 1, 2]
    assert "triton_final_response" not in result.get_response().parameters
    result = client.infer("batched", repeat_inputs([4, 2], rows=3))
    assert result.as_numpy("OUT").tolist() == [[4, 2]] * 3


def test_many_streams_of_one_connection_share_batches(server: Server) -> None:
    async def ask(client: triton_aio.InferenceServerClient, number: int) -> list[list[int]]:
        async def requests() -> Any:
            inputs = repeat_inputs([number, number + 1, number + 2], rows=1)
            yield {"model_name": "batched", "inputs": inputs, "request_id": str(number)}

        found = []
        async for result, error in client.stream_infer(requests()):
            assert error is None, error.message()
            assert result.get_response().id == str(number)
            found += result.as_numpy("OUT").tolist()
        return found

    async def all_of_them() -> list[list[list[int]]]:
        url = f"127.0.0.1:{grpc_port(server)}"
        async with triton_aio.InferenceServerClient(url) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(32)))

    assert asyncio.run(all_of_them()) == [[[n], [n + 1], [n + 2]] for n in range(32)]


def test_a_message_that_takes_long_to_read_is_answered_in_parts_too(server: Server) -> None:
    values = {
        "IN": ("INT32", {"int_contents": [3, -1] + [0] * LARGE_BODY_BYTES}),
        "DELAY": ("UINT32", {"uint_contents": [0, 0]}),
        "WAIT": ("UINT32", {"uint_contents": [0]}),
    }
    inputs = [
        {"name": name, "datatype": datatype, "contents": contents}
        | {"shape": [len(next(iter(contents.values())))]}
        for name, (datatype, contents) in values.items()
    ]
    response = inference("ModelStreamInferResponse")
    with Stub(grpc_port(server)) as stub:
        ask = stub.channel.stream_stream(
            f"/{INFERENCE_SERVICE}/ModelStreamInfer", None, response.FromString
        )
        part, error = ask(iter([infer_request("repeat", *inputs)]))
    assert part.infer_response.raw_output_contents[0] == bytes([3, 0, 0, 0])
    assert "ValueError" in error.error_message


def test_its_configuration_calls_the_model_decoupled(
    client: triton.InferenceServerClient, server: Server
) -> None:
    def decoupled(model: str) -> bool:
        configuration = client.get_model_config(model).config
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}") as over_rest:
            policy = over_rest.get_model_config(model)["model_transaction_policy"]
        found: bool = configuration.model_transaction_policy.decoupled
        assert policy == {"decoupled": found}
        return found

    assert decoupled("repeat")
    assert not decoupled("plain")
