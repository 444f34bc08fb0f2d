"""CloudEvents of the payload log: which there are, their attributes, headers and lines."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import exhaustive

from ringbatch.frontend.payloads.events import (
    REQUEST_TYPE,
    RESPONSE_TYPE,
    Event,
    as_headers,
    as_line,
    events,
)
from ringbatch.frontend.payloads.exchange import PayloadExchange
from ringbatch.frontend.payloads.messages import SHORT_BYTES, contents, records
from ringbatch.frontend.payloads.settings import ALL, REQUEST, RESPONSE, EventSettings

ANSWERED = PayloadExchange(
    event_id="e",
    request_id="r",
    batch_id="b",
    model="m",
    version="1",
    protocol="v1",
    status=200,
    began_s=0.5,
    ended_s=1.25,
    request_type="application/json",
    answer_type="application/json",
    request_coding="",
    answer_coding="",
    request_bytes=7,
    answer_bytes=5,
    request_json_bytes=None,
    answer_json_bytes=None,
    headers={},
    request=b'{"a":1}',
    answer=b"[1,2]",
)
SETTINGS = EventSettings(ALL, True, {"namespace": "prod", "source": "/ringbatch/e"}, lines=True)


def made(exchange: PayloadExchange = ANSWERED, **changes: Any) -> list[Event]:
    return list(events(exchange, replace(SETTINGS, **changes)))


def test_a_request_and_its_answer_are_two_events_with_one_id() -> None:
    request, response = made()
    shared = {
        "specversion": "1.0",
        "id": "e",
        "source": "/ringbatch/e",
        "requestid": "r",
        "batchid": "b",
        "modelname": "m",
        "modelversion": "1",
        "protocol": "v1",
        "namespace": "prod",
        "datacontenttype": "application/json",
    }
    assert request.attributes == shared | {
        "type": REQUEST_TYPE,
        "time": "1970-01-01T00:00:00.500000Z",
        "bodybytes": "7",
    }
    assert response.attributes == shared | {
        "type": RESPONSE_TYPE,
        "time": "1970-01-01T00:00:01.250000Z",
        "bodybytes": "5",
        "statuscode": "200",
    }
    assert (request.data, response.data) == (b'{"a":1}', b"[1,2]")


@pytest.mark.parametrize(
    ("mode", "failures", "status", "kinds"),
    [
        (ALL, True, 200, [REQUEST_TYPE, RESPONSE_TYPE]),
        (ALL, True, 413, [REQUEST_TYPE, RESPONSE_TYPE]),
        (ALL, False, 200, [REQUEST_TYPE, RESPONSE_TYPE]),
        (ALL, False, 400, [REQUEST_TYPE]),
        (REQUEST, True, 400, [REQUEST_TYPE]),
        (RESPONSE, True, 400, [RESPONSE_TYPE]),
        (RESPONSE, False, 400, []),
        (RESPONSE, False, 200, [RESPONSE_TYPE]),
    ],
)
def test_the_settings_say_which_events_there_are(
    mode: str, failures: bool, status: int, kinds: list[str]
) -> None:
    found = made(ANSWERED._replace(status=status), mode=mode, failures=failures)
    assert [event.attributes["type"] for event in found] == kinds


def line(exchange: PayloadExchange) -> dict[str, Any]:
    text = as_line(made(exchange)[0])
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    found: dict[str, Any] = json.loads(text)
    return found


def test_json_stands_in_the_line_as_it_is() -> None:
    body = b'{\r\n "a": [1.0,\n 1e400, 12345678901234567890123]}'
    assert b'"a": [1.0,  ' not in body
    found = line(ANSWERED._replace(request=body, request_bytes=len(body)))
    # No number is read and written again.
    text = as_line(made(ANSWERED._replace(request=b"[1.00]", request_bytes=6))[0])
    assert b'"data":[1.00]' in text
    assert "data" in found or base64.b64decode(found["data_base64"]) == body


@pytest.mark.parametrize(
    "change",
    [
        {"request": b"{", "request_bytes": 1},
        {"request": b"[1", "request_bytes": 9},
        {"request": b"[1]", "request_bytes": 4},
        {"request": b"", "request_bytes": 0},
        {"request": b"[NaN]", "request_bytes": 5},
        {"request": b"\xff", "request_bytes": 1},
        {"request": b"[1]", "request_bytes": 3, "request_json_bytes": 2},
        {"request": b"[1]", "request_bytes": 3, "request_coding": "gzip"},
        {"request": b"[1]", "request_bytes": 3, "request_type": "application/x-protobuf"},
    ],
)
def test_all_other_bodies_are_kept_byte_for_byte(change: dict[str, Any]) -> None:
    found = line(ANSWERED._replace(**change))
    assert base64.b64decode(found["data_base64"]) == change["request"]
    assert "data" not in found


@given(st.binary(max_size=200), st.sampled_from(["application/json", "text/plain", "a/b+json"]))
def test_any_body_makes_one_line_that_json_reads(body: bytes, kind: str) -> None:
    exchange = ANSWERED._replace(request=body, request_bytes=len(body), request_type=kind)
    found = line(exchange)
    assert ("data" in found) != ("data_base64" in found)


SOME_BYTES = st.binary(max_size=50) | st.just(bytes(SHORT_BYTES + 1))


@given(st.lists(st.tuples(st.text(max_size=50), SOME_BYTES, SOME_BYTES)), st.booleans())
def test_records_have_every_event_in_order(
    kept: list[tuple[str, bytes, bytes]], lines: bool
) -> None:
    exchanges = []
    for some_text, request, answer in kept:
        text = some_text.encode(errors="replace").decode()
        sizes = {"request_bytes": len(request), "answer_bytes": len(answer)}
        bodies = {"request": request, "answer": answer}
        changes: dict[str, Any] = {"event_id": text, "headers": {"x": text}, **sizes, **bodies}
        exchanges.append(ANSWERED._replace(**changes))
    expected = [event for exchange in exchanges for event in made(exchange)]
    settings = replace(SETTINGS, lines=lines)
    # Records that are made one after another are a message too.
    message = records(exchanges[:2], settings) + records(exchanges[2:], settings)
    found = list(contents(message))
    if lines:
        long = [event for event in expected if len(event.data) > SHORT_BYTES]
        assert [one for one in found if isinstance(one, Event)] == long
        texts = [as_line(one) if isinstance(one, Event) else one for one in found]
        assert b"".join(texts) == b"".join(map(as_line, expected))
    else:
        assert found == expected


def test_short_bodies_are_lines_in_one_record() -> None:
    (found,) = contents(records([ANSWERED] * 3, SETTINGS))
    assert isinstance(found, bytes)
    assert found.count(b"\n") == 6


def test_without_an_event_there_is_no_message() -> None:
    answered = ANSWERED._replace(status=400)
    assert records([answered], replace(SETTINGS, mode=RESPONSE, failures=False)) == b""


def test_headers_encode_impossible_characters_as_in_the_http_binding() -> None:
    request, _ = made(ANSWERED._replace(event_id='a "b" 100% €\r\n', headers={"ua": "x y"}))
    headers = as_headers(request)
    assert headers["ce-id"] == 'a "b" 100%25 %E2%82%AC%0D%0A'
    assert headers["ce-metadata"] == '{"ua":["x y"]}'
    assert headers["content-type"] == "application/json"
    assert "ce-datacontenttype" not in headers


@exhaustive
def test_the_sdk_of_cloudevents_reads_both_forms() -> None:
    reason = "kserve is not installed; the extra `test-exhaustive` has it, and cloudevents with it"
    http = pytest.importorskip("cloudevents.http", reason=reason)
    event = made(ANSWERED._replace(headers={"user-agent": 'a "b"'}))[1]
    attributes = dict(event.attributes)
    for found in (
        http.from_http(as_headers(event), event.data),
        http.from_json(as_line(event)),
    ):
        read = {name: str(value) for name, value in found.get_attributes().items()}
        assert read.pop("time").startswith("1970-01-01T00:00:01.25")
        assert read == {name: v for name, v in attributes.items() if name != "time"}
        assert found.data in ([1, 2], b"[1,2]")
