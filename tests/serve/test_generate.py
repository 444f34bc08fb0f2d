"""The generate extension: one object, or an event for each part."""

import http.client
import json
from typing import Any

import pytest
from dev_shm import takes
from serve.server import Server, Start

pytestmark = takes(20)

OWN = {"model_name": "telling", "model_version": "1"}
EVENTS = "text/event-stream"
JSON = "application/json"


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {
            "telling": {"path": "telling.py", "max_batch_size": 4},
            "pair": {"path": "pair.py"},
            "untyped": {"path": "moody.py"},
        },
        max_request_bytes=1 << 20,
    )


def asked(server: Server, path: str, body: Any, **headers: str) -> tuple[int, str, Any]:
    """The status, the media type, and the answer or the list of events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", f"/v2/models/{path}", json.dumps(body), headers)
        answer = connection.getresponse()
        kind, text = answer.headers["content-type"], answer.read()
        if kind != EVENTS:
            return answer.status, kind, json.loads(text)
        events = [json.loads(event.removeprefix(b"data: ")) for event in text.split(b"\n\n")[:-1]]
        return answer.status, kind, events
    finally:
        connection.close()


def test_one_object_has_all_parts(server: Server) -> None:
    body = {"text": "one three", "id": "7", "parameters": {"temperature": 0.5}}
    # Whatever the client accepts: the path says what it gets.
    status, kind, answer = asked(server, "telling/generate", body, Accept=EVENTS)
    assert (status, kind) == (200, JSON)
    assert answer == OWN | {"id": "7", "word": "three", "sizes": [3, 3, 5, 5, 5]}


def test_each_part_is_an_event(server: Server) -> None:
    body = {"text": ["one three five seven"], "limit": 2}
    for path in ("telling/generate_stream", "telling/versions/1/generate_stream"):
        status, kind, events = asked(server, path, body)
        assert (status, kind) == (200, EVENTS)
        assert events == [
            OWN | {"word": "one", "sizes": [3, 3]},
            OWN | {"word": "three", "sizes": [5, 5, 5]},
        ]


def test_a_model_without_parts_answers_with_one_event(server: Server) -> None:
    body = {"a": [[1, 2], [3, 4]], "n": [5, 6]}
    found: dict[str, Any] = {"model_name": "pair", "model_version": "1"}
    found |= {"scaled": [5.0, 10.0, 18.0, 24.0], "twice": [10, 12]}
    assert asked(server, "pair/generate", body) == (200, JSON, found)
    assert asked(server, "pair/generate_stream", body) == (200, EVENTS, [found])


def test_an_error_before_the_first_part_has_its_status(server: Server) -> None:
    for verb in ("generate", "generate_stream"):
        status, kind, answer = asked(server, f"telling/{verb}", {"text": "raise"})
        assert (status, kind) == (500, JSON)
        assert "ValueError" in answer["error"]
        status, kind, answer = asked(server, f"telling/{verb}", {"limit": 1})
        assert (status, kind) == (400, JSON)
        assert 'lacks input "text"' in answer["error"]
        assert asked(server, f"none/{verb}", {})[0] == 404
        status, _, answer = asked(server, f"untyped/{verb}", {"instances": [1]})
        assert (status, "use /v1/models/NAME:predict" in answer["error"]) == (400, True)


def test_an_error_behind_a_part_is_the_last_event(server: Server) -> None:
    status, kind, events = asked(server, "telling/generate_stream", {"text": "one raise two"})
    assert (status, kind) == (200, EVENTS)
    first, last = events
    assert first["word"] == "one"
    assert "raised ValueError" in last["error"]


def test_a_large_body_is_read_alike(server: Server) -> None:
    for size in (1 << 10, 1 << 17):
        status, _, answer = asked(server, "telling/generate", {"text": "a" * size, "limit": [1]})
        assert (status, answer.get("sizes")) == (200, [size, size]), answer
        status, _, answer = asked(server, "telling/generate", {"text": 5, "k": "a" * size})
        assert (status, 'input "text" of model "telling"' in answer["error"]) == (400, True)
