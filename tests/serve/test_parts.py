"""Answers in parts over HTTP: server-sent events of V1 and V2, and one answer for other clients."""

import http.client
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from serve.client import Connection, fast, instances
from serve.server import Server, Start
from slices import shortened_ns, slice_ns

WaitUntil = Callable[..., Any]
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {
            "parts": {"path": "streaming.py", "max_batch_size": 4},
            "typed": {"path": "counting.py"},
            "whole": {"path": "slow.py"},
        }
    )


@contextmanager
def asked(
    server: Server, first: Any, *, path: str = "/v1/models/parts:predict"
) -> Iterator[http.client.HTTPResponse]:
    """The answer to one instance, asked for as events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps({"instances": [first]}), EVENTS)
        yield connection.getresponse()
    finally:
        connection.close()


def events(answer: http.client.HTTPResponse) -> list[Any]:
    """Return all events, decoded."""
    texts = answer.read().decode().split("\n\n")
    assert texts.pop() == ""
    return [json.loads(text.removeprefix("data: ")) for text in texts]


def test_only_workers_that_answer_in_parts_preempt_others(server: Server) -> None:
    policies = {title: os.sched_getscheduler(pid) for title, pid in server.titles().items()}
    parted = {f"ringbatch: worker {name}/0" for name in ("parts", "typed")}
    assert {policies.pop(title) for title in parted} == {os.SCHED_OTHER}
    assert set(policies.values()) == {os.SCHED_BATCH}
    slices = {title: slice_ns(pid) for title, pid in server.titles().items()}
    own = {slices.pop(title) for title in parted}
    (usual_ns,) = set(slices.values())
    assert own == {shortened_ns(usual_ns)}


def test_each_part_is_an_event(server: Server) -> None:
    with asked(server, 3) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        found = events(answer)
    assert [event["predictions"] for event in found] == [["0 "], ["1 "], ["2 "]]
    assert len({event["batchId"] for event in found}) == 1


def test_a_part_comes_before_the_next_is_made(server: Server) -> None:
    with asked(server, [1_000_000, 0.02]) as answer:
        line = answer.readline()
        assert json.loads(line.removeprefix(b"data: "))["predictions"] == ["0 "]
    # The client has left: the model is free for others, though it would go on for hours.
    with asked(server, 1) as answer:
        assert len(events(answer)) == 1


def test_without_a_wish_for_events_the_answer_is_one(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(fast("parts", instances(3, 3)))
    assert answer.json["predictions"] == ["0 1 2 "] * 2


def test_a_failure_before_the_first_part_is_an_answer_as_any(server: Server) -> None:
    with asked(server, "refuse") as answer:
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/json"
        assert "ValueError" in json.loads(answer.read())["error"]
    with asked(server, 1, path="/v1/models/none:predict") as answer:
        assert answer.status == 404


def test_a_failure_behind_a_part_is_the_last_event(server: Server) -> None:
    with asked(server, "raise") as answer:
        assert answer.status == 200
        first, last = events(answer)
    assert first["predictions"] == ["first "]
    assert "raised ValueError" in last["error"]


def test_a_worker_that_dies_behind_a_part_ends_the_answer_with_an_error(server: Server) -> None:
    with asked(server, "exit") as answer:
        assert answer.status == 200
        first, last = events(answer)
    assert first["predictions"] == ["first "]
    assert "died" in last["error"]
    with asked(server, 1) as answer:
        assert len(events(answer)) == 1


def test_more_instances_than_a_batch_holds_have_no_parts(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"instances": [1] * 5})
    connection.request("POST", "/v1/models/parts:predict", body, EVENTS)
    answer = connection.getresponse()
    assert answer.status == 400
    assert "has 5 instances" in json.loads(answer.read())["error"]
    connection.close()


def test_a_model_that_returns_answers_in_one_event(server: Server) -> None:
    with asked(server, 1, path="/v1/models/whole:predict") as answer:
        (event,) = events(answer)
    assert event["predictions"] == [1]


def test_binary_data_is_no_event(server: Server) -> None:
    body = {
        "inputs": [{"name": "n", "shape": [1, 1], "datatype": "INT64", "data": [2]}],
        "parameters": {"binary_data_output": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v2/models/typed/infer", json.dumps(body), EVENTS)
    answer = connection.getresponse()
    assert answer.status == 400
    assert "no binary data" in json.loads(answer.read())["error"]
    del body["parameters"]
    connection.request("POST", "/v2/models/typed/infer", json.dumps(body), EVENTS)
    found = events(connection.getresponse())
    assert [event["outputs"][0]["data"] for event in found] == [[0], [1]]
    connection.close()


def test_a_thousand_parts_come_whole_and_in_order(server: Server) -> None:
    with asked(server, 1000) as answer:
        found = events(answer)
    assert [event["predictions"] for event in found] == [[f"{n} "] for n in range(1000)]
