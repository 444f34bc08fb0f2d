"""A client's answers in parts, on a real engine: values and arrays, failures, and leaving early."""

from collections.abc import Iterator

import numpy as np
import pytest
from serve.server import Server, Start

from ringbatch.frontend import AnswerCutOff, Client, ModelFailed


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {
            "parts": {"path": "streaming.py", "max_batch_size": 4},
            "telling": {"path": "telling.py", "max_batch_size": 4},
        }
    )


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.pid) as made:
        yield made


def test_each_part_is_as_an_answer(client: Client) -> None:
    assert [*client.stream("parts", [3, 3])] == [[f"{number} "] * 2 for number in range(3)]
    texts = np.array([["one three five"]], object)
    found = [*client.stream("telling", {"text": texts, "limit": np.array([[2]])})]
    assert [part["word"].tolist() for part in found] == [[[b"one"]], [[b"three"]]]
    assert [part["sizes"].tolist() for part in found] == [[[3, 3]], [[5, 5, 5]]]
    # Without a stream, they are joined.
    assert client.infer("parts", [3]) == ["0 1 2 "]


def test_leaving_the_loop_frees_the_model(client: Client) -> None:
    for part in client.stream("parts", [[1_000_000, 0.02]]):
        assert part == ["0 "]
        break
    # The model would go on for hours.
    assert client.infer("parts", [1]) == ["0 "]


def test_a_failure_raises_behind_the_parts_before_it(client: Client) -> None:
    for first, error in (("raise", ModelFailed), ("exit", AnswerCutOff)):
        parts = client.stream("parts", [first])
        assert next(parts) == ["first "]
        with pytest.raises(error):
            next(parts)
    with pytest.raises(ModelFailed, match="ValueError"):
        next(client.stream("parts", ["refuse"]))


def test_a_thousand_parts_come_whole_and_in_order(client: Client) -> None:
    assert [*client.stream("parts", [1000])] == [[f"{number} "] for number in range(1000)]
