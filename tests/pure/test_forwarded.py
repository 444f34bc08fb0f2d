"""Bodies for other servers' models: the forwarded text, and requests that share a batch."""

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
import segment_fixture
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.v1.forwarded import ForwardedRequests, Origins, origin
from ringbatch.frontend.v1.json_values import ValueCodec
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.forward_envelope import KEY_BYTES, Envelope, decode_envelope, list_start
from ringbatch.shm.model_spec import Forward, dumps, loads

FORWARD = Forward("/v1/models/m:predict", ("authorization", "x-tenant"), any_path=False)
SPEC = replace(segment_fixture.spec(max_batch_size=3), forward=FORWARD)
REQUESTS = ForwardedRequests(SPEC, FORWARD)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def parsed(body: str, origin: bytes | None = None) -> list[tuple[int, Envelope, str]]:
    """Rows, envelope and list of each part."""
    found = []
    parts, columns = REQUESTS.parse(body.encode(), origin)
    assert not columns
    for rows, text, key_bytes in parts:
        payload = bytes(text)
        assert key_bytes == KEY_BYTES
        found.append((rows, decode_envelope(payload), payload[list_start(payload) :].decode()))
    return found


def pieces(body: str) -> tuple[bytes, str, bytes]:
    """Return the text before the list, the list, and the text behind it."""
    ((_, envelope, text),) = parsed(body)
    return envelope.opening, text, envelope.closing


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"instances":[1,2.50,1e3]}', "[1,2.50,1e3]"),
        (' {\n"instances" : [ 9007199254740993 ]\n}\n', "[ 9007199254740993 ]"),
        ('{"instances":[{"b":1,"a":"]}"}]}', '[{"b":1,"a":"]}"}]'),
        ('{"instances":["instances"]}', '["instances"]'),
        ('{"instances":["\\"instances\\":[0]"]}', '["\\"instances\\":[0]"]'),
        ('{"instances":[0],"instances":[1]}', "[1]"),
        ('{"inst\\u0061nces":[0],"instances":[1]}', "[1]"),
        ('{"instances":[0],"inst\\u0061nces":[1]}', "[1]"),
        ('{"instances":["\\ud800"]}', '["\\ud800"]'),
        ('{"instances":[123456789012345678901234567890]}', "[123456789012345678901234567890]"),
        ('{"instances":["é"]}', '["é"]'),
        ('{"instances":[1e400]}', "[1e400]"),
    ],
)
def test_instances_travel_as_they_were_written(body: str, text: str) -> None:
    assert pieces(body) == (b'{"instances":', text, b"}")


def test_the_other_name_of_the_list_travels_too() -> None:
    assert pieces('{"inputs": [1]}') == (b'{"inputs":', "[1]", b"}")


def test_other_members_travel_as_they_were_written_in_one_order() -> None:
    first = pieces('{"z": 6.0, "instances": [1], "a": {"y": 1, "x": 12345678901234567890123}}')
    assert first == (
        b'{"instances":',
        "[1]",
        b',"a":{"y": 1, "x": 12345678901234567890123},"z":6.0}',
    )
    again = pieces('{"a":{"y": 1, "x": 12345678901234567890123},"z":6.0,"instances":[1]}')
    assert again == first


def test_more_than_a_batch_takes_is_cut_and_every_part_is_sealed() -> None:
    parts = parsed('{"instances": [1, [2], "3", 4], "a": 1}')
    assert [(rows, text) for rows, _, text in parts] == [(3, '[1, [2], "3"]'), (1, "[4]")]
    assert parts[0][1] == parts[1][1]


@given(
    st.lists(VALUES, min_size=1, max_size=3),
    st.dictionaries(
        st.text().filter(lambda n: n not in ("instances", "inputs")), VALUES, max_size=2
    ),
    st.booleans(),
)
def test_the_server_sees_the_request_on_either_way_of_reading(
    instances: list[Any], others: dict[str, Any], ascii_only: bool
) -> None:
    body = json.dumps({"instances": instances, **others}, ensure_ascii=ascii_only)
    try:
        body.encode()
    except UnicodeEncodeError:
        return
    opening, text, closing = pieces(body)
    seen = json.loads(opening + text.encode() + closing)
    assert seen == {"instances": instances, **others}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "can't unmarshal body: it is empty"),
        ("[1]", "can't unmarshal body: "),
        ('{"instances":[1]', "can't unmarshal body: "),
        ('{"instances":[1]}x', "can't unmarshal body: "),
        ('{"instances":[NaN]}', "can't unmarshal body: "),
        ('{"instances":5}', "can't unmarshal body: `instances` is 5"),
        ('{"instances":[]}', "no instances in the request"),
        ('{"instances":null}', "no instances in the request"),
        ("{}", "no instances in the request"),
        ('{"instances":[1],"inputs":[1]}', "`instances` and `inputs` exclude each other"),
        ('{"inputs":{"a":[1]}}', "a model without declared inputs takes `instances`"),
        ('{"instances":[' + "[" * 600 + "]" * 600 + "]}", "can't unmarshal body: it is nested"),
    ],
)
def test_an_invalid_request_is_refused_before_it_joins_others(body: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        REQUESTS.parse(body.encode())
    assert str(caught.value).startswith(words)


def test_a_picture_is_many_lists_and_no_deep_one() -> None:
    picture = json.dumps([[[[1, 2, 3]] * 20] * 20])
    assert pieces(f'{{"instances": {picture}}}') == (b'{"instances":', picture, b"}")


def test_earlier_requests_decide_nothing_about_later_ones() -> None:
    """The same beginning, and then each of what the quick way does not take."""
    for _ in range(2):
        assert pieces('{"instances":[1]}') == (b'{"instances":', "[1]", b"}")
        assert pieces('{"instances":[1],"a":[2]}') == (b'{"instances":', "[1]", b',"a":[2]}')
        assert pieces('{"instances":[0],"instances":[1]}') == (b'{"instances":', "[1]", b"}")
        assert pieces('{"inputs":[1]}') == (b'{"inputs":', "[1]", b"}")
        for body in ('{"instances":[1]', '{"instances":[1]]}', '{"instances":', '{"instances":[]}'):
            with pytest.raises(InvalidRequest):
                REQUESTS.parse(body.encode())


def test_a_body_that_came_in_pieces_is_read_as_any_other() -> None:
    body = b'{"instances": [1, "a"]}'
    assert REQUESTS.parse(bytearray(body)) == REQUESTS.parse(body)


def test_as_many_beginnings_are_remembered_as_there_is_room_for() -> None:
    for number in range(600):
        found = origin(FORWARD, b"/p?%d" % number, {})
        ((_, envelope, text),) = parsed('{"instances":[1]}', found)
        assert (envelope.target, text) == (b"/v1/models/m:predict?%d" % number, "[1]")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([b"[1.0, 2]"], "[1.0, 2]"),
        ([b"[[1],2]", b'["\xc3\xa9"]'], '[[1],2,"é"]'),
    ],
)
def test_an_answer_has_the_predictions_as_the_worker_gave_them(
    parts: list[bytes], text: str
) -> None:
    for batch_id in ("a", "b", "a"):
        results = [(len(orjson.loads(part)), memoryview(part)) for part in parts]
        answer = V1Model(SPEC).answers.render(results, False, batch_id).decode()
        assert answer == f'{{"message":"","batchId":"{batch_id}","predictions":{text}}}'


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        REQUESTS.parse(b'{"instances":["\xff"]}')


def test_the_origin_has_the_models_path_the_query_and_the_headers_that_are_passed_on() -> None:
    headers = {b"x-tenant": [b"a", b"b"], b"host": [b"h"], b"authorization": [b"z"]}
    found = origin(FORWARD, b"/v1/models/other:predict?a=b?c", headers)
    assert found == (b"/v1/models/m:predict?a=b?c\nauthorization: z\nx-tenant: a\nx-tenant: b\n")
    ((_, envelope, _),) = parsed('{"instances":[1]}', found)
    assert envelope.target == b"/v1/models/m:predict?a=b?c"
    assert envelope.headers == b"authorization: z\r\nx-tenant: a\r\nx-tenant: b\r\n"


def test_as_a_sidecar_the_path_is_the_requests_own() -> None:
    forward = replace(FORWARD, any_path=True)
    assert origin(forward, b"/v1/models/%C3%A9:predict?q", {}) == b"/v1/models/%C3%A9:predict?q\n"
    assert origin(forward, b"", {}) == b"/v1/models/m:predict\n"


def test_only_models_of_other_servers_have_origins() -> None:
    origins = Origins((segment_fixture.spec(name="ours"), replace(SPEC, name="theirs")))
    assert origins.of("ours", b"/p", {}) is None
    assert origins.of("theirs", b"/p", {}) == b"/v1/models/m:predict\n"
    assert (origins.has("ours"), origins.has("theirs"), origins.any_path) == (False, True, False)


def test_as_a_sidecar_every_model_is_another_servers() -> None:
    origins = Origins((replace(SPEC, forward=replace(FORWARD, any_path=True)),))
    assert origins.any_path
    assert origins.has("whatever")
    assert origins.of("whatever", b"/p", {}) == b"/p\n"


def test_a_request_without_an_origin_has_the_usual_one() -> None:
    ((_, envelope, _),) = parsed('{"instances":[1]}')
    assert (envelope.target, envelope.headers) == (b"/v1/models/m:predict", b"")
    assert V1Model(SPEC).requests.parse(b'{"instances":[1]}') == REQUESTS.parse(
        b'{"instances":[1]}'
    )


def test_a_programs_own_values_share_batches_with_those_of_requests() -> None:
    (part,) = ValueCodec(SPEC).parse([1, [2]])
    assert ((part,), False) == REQUESTS.parse(b'{"instances":[1,[2]]}')


def test_the_model_table_carries_how_requests_are_forwarded() -> None:
    (spec,) = loads(dumps((SPEC,)))
    assert spec == SPEC
