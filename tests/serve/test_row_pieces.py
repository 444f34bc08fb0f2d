"""Models in steps whose rows take steps before their first part, on a real engine."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc as triton
from serve.client import Connection, fast
from serve.grpc_stub import grpc_port
from serve.models.piecing import PAUSE_S
from serve.server import Server, Start
from serve.steps_client import Stream, samples, v1_body, v2_body
from serve.test_grpc_parts import Stream as GrpcStream

from ringbatch.frontend import Client

V1: Final = "/v1/models/piecing:predict"
V2: Final = "/v2/models/piecing/infer"
GENERATE: Final = "/v2/models/piecing/generate_stream"


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module({"piecing": {"path": "piecing.py"}}, grpc_port=0, control_port=0)


def stream(server: Server, text: str) -> Stream:
    return Stream(server, text, V1, v1_body(text))


def numbers(event: dict[str, Any]) -> list[int]:
    """Return the numbers of an event of V1, V2, or the generate extension."""
    if "predictions" in event:
        return [*event["predictions"][0]]
    found = event["outputs"][0]["data"] if "outputs" in event else event["number"]
    return found if isinstance(found, list) else [found]


def test_pieces_send_nothing(server: Server) -> None:
    for path, body in (
        (V1, v1_body("4 3")),
        (V2, v2_body("4 3")),
        (GENERATE, {"text": "4 3"}),
    ):
        events = Stream(server, "", path, body)
        found = []
        while (event := events.next()) is not None:
            found.append(numbers(event))
        events.close()
        assert found == [[0], [1], [2]], path
    with Client(server.pid) as client:
        texts = {"text": np.array([["4 3"]], object)}
        parts = [part.tolist() for part in client.stream("piecing", texts)]
        assert parts == [[[0]], [[1]], [[2]]]
        assert client.infer("piecing", texts).tolist() == [[0, 1, 2]]


def test_an_answer_without_a_part_ends_well_everywhere(server: Server) -> None:
    for path, body in (
        (V1, v1_body("2 0")),
        (V2, v2_body("2 0")),
        (GENERATE, {"text": "2 0"}),
    ):
        events = Stream(server, "", path, body)
        assert events.answer.status_code == 200
        event = events.next()
        assert numbers(event) == [], path
        assert events.next() is None
        events.close()
    with Connection(server.port) as connection:
        answer = connection.ask(fast("piecing", json.dumps(v1_body("2 0")).encode()))
    assert (answer.status, answer.json["predictions"]) == (200, [[]])
    with Client(server.pid) as client:
        texts = {"text": np.array([["2 0"]], object)}
        parts = [part.tolist() for part in client.stream("piecing", texts)]
        assert parts == [[[]]]
        assert client.infer("piecing", texts).tolist() == [[]]
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        grpc = GrpcStream(client)
        tensor = triton.InferInput("text", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[b"2 0"]], object))
        client.async_stream_infer("piecing", [tensor], enable_empty_final_response=True)
        result, error = grpc.next()
        assert error is None
        assert result.as_numpy("number").tolist() == [[]]
        result, error = grpc.next()
        assert error is None
        assert result.get_response().parameters["triton_final_response"].bool_param
        grpc.close()


def test_other_rows_go_on_beside_pieces_and_the_first_part_counts_behind_them(
    server: Server, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    other = stream(server, f"0 until {end}")
    assert numbers(other.next()) == [0]
    before = samples(server)
    long = stream(server, "8 1")
    assert numbers(long.next()) == [0]
    # While it has worked off eight pieces, the other has had that many parts.
    seen = [numbers(other.next())[0] for _ in range(8)]
    assert seen == [*range(1, 9)]
    end.touch()
    other.close()
    assert long.next() is None
    long.close()
    found = samples(server)
    found.subtract(before)
    assert found["ringbatch_first_part_seconds_count"] == 1
    assert found["ringbatch_first_part_seconds_sum"] >= 9 * PAUSE_S
