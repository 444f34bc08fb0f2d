"""Answers in parts that go on behind a worker's death, on a real engine.

Every stream is compared part by part: nothing is missing, and nothing comes twice.
"""

import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from serve.steps_client import TIMEOUT_S, Stream, v1_body, v2_body
from serve.test_grpc_parts import Stream as GrpcStream

from ringbatch.frontend import Client
from ringbatch.shm.errors import ModelFailed, WorkerDied

V1: Final = "/v1/models/resuming:predict"
V2: Final = "/v2/models/resuming/infer"
GENERATE: Final = "/v2/models/resuming/generate_stream"
PLACES: Final = 4
LONG: Final = 200
"""Parts of a row, which take a second."""


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    model = {"path": "resuming.py", "max_batch_size": PLACES, "workers": 1}
    return start_for_module({"resuming": model}, frontends=1, grpc_port=0, control_port=0)


def kill_worker(server: Server) -> None:
    os.kill(server.role("worker resuming/0"), signal.SIGKILL)


def number_of(event: dict[str, Any]) -> int:
    """The number of an event of V1, V2 or the generate extension."""
    if "predictions" in event:
        return int(event["predictions"][0]["number"][0])
    if "outputs" in event:
        return int(next(one["data"] for one in event["outputs"] if one["name"] == "number")[0])
    number = event["number"]
    return int(number[0] if isinstance(number, list) else number)


def streamed(server: Server, text: str, path: str = V1) -> tuple[list[int], str]:
    """Read one stream to its end; return its numbers, and the error at its end."""
    body = {V1: v1_body(text), V2: v2_body(text), GENERATE: {"text": text}}[path]
    stream = Stream(server, text, path, body)
    found: list[int] = []
    try:
        while (event := stream.next()) is not None:
            if "error" in event:
                return found, str(event["error"])
            found.append(number_of(event))
    finally:
        stream.close()
    return found, ""


def killing(server: Server, times: int, over: threading.Event) -> None:
    """Kill the worker so many times, each time that it serves again."""
    for _ in range(times):
        with Client(server.pid) as client:
            for _part in client.stream("resuming", {"text": np.array([["1"]], object)}):
                pass
        kill_worker(server)
    over.set()


@pytest.mark.parametrize("path", [V1, V2, GENERATE], ids=["v1", "v2", "generate"])
def test_events_go_on_behind_deaths(server: Server, path: str) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(PLACES) as threads:
        streams = [threads.submit(streamed, server, str(LONG), path) for _ in range(PLACES - 1)]
        threads.submit(killing, server, 2, over).result(TIMEOUT_S)
        for one in streams:
            assert one.result() == ([*range(LONG)], "")
    assert over.is_set()


def test_grpc_streams_go_on_behind_a_death(server: Server) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        stream = GrpcStream(client)
        tensor = triton.InferInput("text", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[str(LONG)]], object))
        client.async_stream_infer("resuming", [tensor], enable_empty_final_response=True)
        found: list[int] = []
        while True:
            result, error = stream.next()
            assert error is None, error.message()
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            found += result.as_numpy("number").ravel().tolist()
            if len(found) == 1:
                kill_worker(server)
        stream.close()
    assert found == [*range(LONG)]


def test_streams_of_a_client_go_on_behind_deaths(server: Server) -> None:
    with Client(server.pid) as client:
        found, pids = [], set()
        for part in client.stream("resuming", {"text": np.array([[str(LONG)]], object)}):
            found += part["number"].ravel().tolist()
            pids.add(int(part["pid"].item()))
            if len(found) in (1, LONG // 2):
                kill_worker(server)
    assert found == [*range(LONG)]
    assert len(pids) > 1, "no worker died in between"
    address = f"http://127.0.0.1:{server.control_port}/metrics"
    text = httpx.get(address, trust_env=False, verify=False).text
    resumed = re.findall(r"^ringbatch_lane_resumed_total\{.*\} (\d+)$", text, re.MULTILINE)
    assert sum(map(int, resumed)) >= 2


@pytest.mark.parametrize(("fault", "words"), [("exit", "died"), ("raise", "raised ValueError")])
def test_the_request_to_blame_is_given_up_and_others_go_on(
    server: Server, fault: str, words: str
) -> None:
    with ThreadPoolExecutor(PLACES) as threads:
        others = [threads.submit(streamed, server, str(LONG)) for _ in range(PLACES - 1)]
        found, error = streamed(server, f"3 {fault}")
        assert found == [0, 1, 2]
        assert words in error
        for one in others:
            assert one.result() == ([*range(LONG)], "")


def test_a_client_gives_up_the_request_to_blame(server: Server) -> None:
    found: list[int] = []
    with Client(server.pid) as client:
        parts = client.stream("resuming", {"text": np.array([["3 exit"]], object)})
        with pytest.raises(WorkerDied):
            found.extend(part["number"].item() for part in parts)
    assert found == [0, 1, 2]


def test_a_client_may_go_on_where_another_stopped(server: Server) -> None:
    tensors = {"text": np.array([["5"]], object), "counted": np.array([[0, 1]])}
    with Client(server.pid) as client:
        found = [part["number"].item() for part in client.stream("resuming", tensors)]
    assert found == [2, 3, 4]


def test_a_row_that_waits_for_a_worker_leaves_with_its_client(
    server: Server, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        stream = Stream(server, f"until {tmp_path / 'never'}", V1)
        stack.callback(stream.close)
        assert number_of(stream.next()) == 0
        kill_worker(server)
    # All places are free.
    with ThreadPoolExecutor(PLACES) as threads:
        found = list(threads.map(lambda _: streamed(server, "5"), range(PLACES)))
    assert found == [([*range(5)], "")] * PLACES


def test_answers_as_one_have_no_use_for_it(server: Server) -> None:
    with Client(server.pid) as client:
        tensors = {"text": np.array([["3"]], object)}
        assert client.infer("resuming", tensors)["number"].tolist() == [[0, 1, 2]]
        with pytest.raises(ModelFailed):
            client.infer("resuming", {"text": np.array([["2 raise"]], object)})
