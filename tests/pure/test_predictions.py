"""Batches for a V1 model server, and its answers: what a client wrote comes out as it went in."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.runtimes.upstreams.predictions import (
    Miscounted,
    NoPredictions,
    joined,
    shared_out,
    shown,
)
from ringbatch.shm.forward_envelope import Envelope

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BLANKS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])


def asked(closing: bytes = b"}") -> Envelope:
    return Envelope(b"/p", b"", b'{"instances":', closing)


def out(text: str, *rows: int) -> list[str]:
    return [part.decode() for part in shared_out(text.encode(), rows)]


def test_the_lists_of_several_requests_become_one() -> None:
    lists = [b"[1, 2]", b'[{"b": 1, "a": 6.0}]', b"[ 9007199254740993 ]"]
    body = joined(asked(b',"signature_name":"s"}'), lists)
    assert body == (
        b'{"instances":[1, 2,{"b": 1, "a": 6.0}, 9007199254740993 ],"signature_name":"s"}'
    )


@given(st.lists(st.lists(JSON, min_size=1, max_size=4), min_size=1, max_size=5), BLANKS)
def test_joined_lists_are_shared_out_again(lists: list[list[Any]], blanks: tuple[str, str]) -> None:
    texts = [json.dumps(values, separators=blanks).encode() for values in lists]
    body = joined(asked(), texts).replace(b'"instances"', b'"predictions"', 1)
    parts = shared_out(body, [len(values) for values in lists])
    assert [json.loads(part) for part in parts] == lists


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"predictions":[1,2.0,1e5]}', ["[1]", "[2.0,1e5]"]),
        ('{"predictions":[[1,2],[3],[]]}', ["[[1,2]]", "[[3],[]]"]),
        ('{"predictions":[[[1],[2]],[[3]],[4]]}', ["[[[1],[2]]]", "[[[3]],[4]]"]),
        ('{"predictions":[ [1], 2, [3] ]}', ["[[1]]", "[2,[3]]"]),
        ('{"predictions":[ [1] , [2] , [3] ]}', ["[ [1] ]", "[ [2] , [3] ]"]),
        ('{"predictions":[[1],[2], [3]]}', ["[[1]]", "[[2],[3]]"]),
        ('{"predictions":[[[1],[2]],3,4]}', ["[[[1],[2]]]", "[3,4]"]),
        ('{"predictions":[[[1]],[[2]],[[3]]]}', ["[[[1]]]", "[[[2]],[[3]]]"]),
        ('{"predictions":[[],[],[]]}', ["[[]]", "[[],[]]"]),
        ('{"predictions":[[1],{},[2]]}', ["[[1]]", "[{},[2]]"]),
        ('{"predictions":[["],[],["],1,2]}', ['[["],[],["]]', "[1,2]"]),
        ('{"predictions":["a,b]","],[",""]}', ['["a,b]"]', '["],[",""]']),
        ('{"predictions":[{"b":1,"a":[2]},null,"é"]}', ['[{"b":1,"a":[2]}]', '[null,"é"]']),
        ('\n{ "predictions" :\t[1 , 2 , 3 ]\n}\n', ["[1 ]", "[ 2 , 3]"]),
        ('{"model":"m","predictions":[1,2,3],"z":[7]}', ["[1]", "[2,3]"]),
        ('{"predictions":[0],"predictions":[1,2,3]}', ["[1]", "[2,3]"]),
        ('{"pred\\u0069ctions":[1,2,3]}', ["[1]", "[2,3]"]),
        ('{"predictions":[0],"pred\\u0069ctions":[1,2,3]}', ["[1]", "[2,3]"]),
        ('{"outputs":[1,2,3]}', ["[1]", "[2,3]"]),
        (
            '{"predictions":[123456789012345678901234567890,2,3]}',
            ["[123456789012345678901234567890]", "[2,3]"],
        ),
        ('{"predictions":["\\ud800",2,3]}', ['["\\ud800"]', "[2,3]"]),
    ],
)
def test_predictions_pass_as_the_server_wrote_them(text: str, expected: list[str]) -> None:
    assert out(text, 1, 2) == expected


def test_the_answer_to_one_request_is_not_cut_at_all() -> None:
    assert out('{"predictions": [ 1 ,  2 ]}', 2) == ["[ 1 ,  2 ]"]


@given(st.data())
def test_lists_are_cut_where_one_ends(data: st.DataObject) -> None:
    number = st.integers(0, 9).map(str)
    flat = st.lists(number | st.just("{}"), max_size=2).map(lambda n: f"[{','.join(n)}]")
    nested = st.lists(number | flat, min_size=1, max_size=2).map(lambda n: f"[{','.join(n)}]")
    element = data.draw(st.sampled_from([flat, flat | number, flat | nested]))
    texts = data.draw(st.lists(element, min_size=2, max_size=5))
    between = st.sampled_from(data.draw(st.sampled_from([[","], [", "], [",", " ,\n"]])))
    body = texts[0] + "".join(data.draw(between) + text for text in texts[1:])
    rows = (1, len(texts) - 1) if data.draw(st.booleans()) else (1,) * len(texts)
    parts = out(f'{{"predictions":[{body}]}}', *rows)
    expected, start = [], 0
    for own in rows:
        expected.append([json.loads(text) for text in texts[start : start + own]])
        start += own
    assert [json.loads(part) for part in parts] == expected
    assert "".join("".join(part[1:-1] for part in parts).split()).replace(",", "") == "".join(
        texts
    ).replace(",", "")


def test_an_answer_of_many_lists_in_lists_is_no_deep_one() -> None:
    images = [[[[0] * 3] * 20] * 20] * 3
    first, rest = shared_out(orjson.dumps({"predictions": images}), [1, 2])
    assert [*orjson.loads(first), *orjson.loads(rest)] == images


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_another_number_than_was_asked_for_is_nobodys(count: int) -> None:
    body = orjson.dumps({"predictions": [[1.0]] * count})
    with pytest.raises(Miscounted, match=f"gave {count} predictions for 3 instances"):
        shared_out(body, [1, 2])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":"no such model"}', 'without `predictions`: {"error":"no such model"}'),
        (b'{"predictions":null}', "without `predictions`: "),
        (b'{"predictions":{"a":1}}', "without `predictions`: "),
        (b'{"predictions":[1,2,3]', "no JSON object: expected a comma or a closing brace: line"),
        (b'{"predictions":[1,NaN,3]}', "no JSON object: it holds NaN, which is no JSON number: "),
        (b"[1,2,3]", "no JSON object: it is a list, not an object: [1,2,3]"),
        (b"", "no JSON object: it is empty: "),
        (
            b"<html>\n <h1>Bad  Gateway</h1>",
            "no JSON object: Expecting value: line 1 column 1 (char 0): "
            "<html> <h1>Bad Gateway</h1>",
        ),
        (b"\xff", "no JSON object: byte 0 is not UTF-8: "),
        (b"\xff\xfe", "no JSON object: it is UTF-16, by its byte order mark, but JSON is UTF-8: "),
        (b'\xef\xbb\xbf{"predictions":[1,2,3]}', "no JSON object: it begins with a byte order "),
        (
            b'{"predictions":[' + b"[" * 600 + b"]" * 600 + b",2,3]}",
            "no JSON object: it is nested more than 512 levels deep: ",
        ),
        (b"{" + b'"a":0,' * 2000 + b'"predictions":[1,2,3]}', "no JSON object: it has more than "),
    ],
)
def test_an_answer_without_predictions_is_described(body: bytes, words: str) -> None:
    with pytest.raises(NoPredictions) as caught:
        shared_out(body, [1, 2])
    assert not isinstance(caught.value, Miscounted)
    assert str(caught.value).startswith(f"the model server answered {words}")


def test_a_long_body_is_shown_in_part() -> None:
    text = shown(b"x" * 10_000)
    assert len(text) < 300
    assert text.endswith("...")
