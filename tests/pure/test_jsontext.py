"""Spans of JSON text: what is cut out is what was written."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.host import json_text
from ringbatch.shm.host.json_text import (
    MAX_MEMBERS,
    MAX_NESTING,
    UnsoundText,
    can_be_sliced,
    elements,
    in_runs,
    members,
    whole_list,
)

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**63, max_value=2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
DUMPS = st.sampled_from(
    [
        lambda value: json.dumps(value),
        lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        lambda value: json.dumps(value, indent="\t"),
        lambda value: f" \r\n{json.dumps(value, separators=(' , ', ' : '))}\n ",
    ]
)


def cut(text: str) -> dict[str, str]:
    return {name: text[value.start : value.end] for name, value in members(text).items()}


@given(st.dictionaries(st.text(), JSON_VALUES), DUMPS)
def test_members_are_found_where_they_stand(value: dict[str, Any], dumps: Any) -> None:
    text = dumps(value)
    assert {name: json.loads(part) for name, part in cut(text).items()} == value
    assert {name: member.decoded for name, member in members(text).items()} == value
    assert all(part == part.strip() for part in cut(text).values())


@given(st.lists(JSON_VALUES), DUMPS)
def test_elements_are_found_where_they_stand(value: list[Any], dumps: Any) -> None:
    text = dumps(value)
    spans = elements(text, text.index("["))
    assert [json.loads(text[start:end]) for start, end in spans] == value
    assert whole_list(text) == value


@pytest.mark.parametrize(
    "spelling",
    [
        "6.0",
        "6",
        "6e0",
        "-0",
        "-0.0",
        "1E+400",
        "0.1000000000000000055511151231257827",
        "123456789012345678901234567890",
        '{"b":1,"a":2,"b":3}',
        '"\\u0041\\/"',
        '"\\ud800"',
        '"]}, \\" {["',
        "[ 1 ,\t2 ]",
    ],
)
def test_a_value_keeps_its_spelling(spelling: str) -> None:
    assert cut(f'{{"other": 1, "x" : {spelling} , "z":[]}}')["x"] == spelling


def test_an_escaped_name_is_the_same_name() -> None:
    assert cut('{"\\u0069nstances":[1]}') == {"instances": "[1]"}


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert cut('{"a":1,"b":2,"a":3}') == {"a": "3", "b": "2"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is empty"),
        (" \n ", "it is empty"),
        ("nope", "Expecting value: line 1 column 1 (char 0)"),
        ("[1]", "it is a list, not an object"),
        ('"a"', "it is a string, not an object"),
        ("-5", "it is a number, not an object"),
        ("null", "it is null, not an object"),
        ("true", "it is true, not an object"),
        ("[1] x", "unexpected content after the value: line 1 column 5 (char 4)"),
        ('{"a":1} x', "unexpected content after the value: line 1 column 9 (char 8)"),
        ('{"a":1}{}', "unexpected content after the value: line 1 column 8 (char 7)"),
        ("{", "expected a member's name in double quotes: line 1 column 2 (char 1)"),
        ("{1:2}", "expected a member's name in double quotes: line 1 column 2 (char 1)"),
        ('{"a":1,}', "expected a member's name in double quotes: line 1 column 8 (char 7)"),
        ('{,"a":1}', "expected a member's name in double quotes: line 1 column 2 (char 1)"),
        ('{"a" 1}', "expected a colon: line 1 column 6 (char 5)"),
        ('{"a":}', "Expecting value: line 1 column 6 (char 5)"),
        ('{"a":1', "expected a comma or a closing brace: line 1 column 7 (char 6)"),
        ('{"a":1 "b":2}', "expected a comma or a closing brace: line 1 column 8 (char 7)"),
        ('{"a":[1,2}', "Expecting ',' delimiter: line 1 column 10 (char 9)"),
        ("\ufeff{}", "Expecting value: line 1 column 1 (char 0)"),
        ('{"a":NaN}', "it holds NaN, which is no JSON number"),
        ('{"a":[Infinity]}', "it holds Infinity, which is no JSON number"),
        ('{"a":[{"b":-Infinity}]}', "it holds -Infinity, which is no JSON number"),
        ('{"a":' + "1" * 5000 + "}", "it holds an integer of too many digits"),
    ],
)
def test_unsound_text_is_refused_in_words(text: str, complaint: str) -> None:
    with pytest.raises(UnsoundText) as refused:
        members(text)
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a list: line 1 column 1 (char 0)"),
        ("{}", "expected a list: line 1 column 1 (char 0)"),
        ("[1] 2", "unexpected content after the value: line 1 column 5 (char 4)"),
        ("[NaN]", "it holds NaN, which is no JSON number"),
    ],
)
def test_a_text_that_is_no_list_is_refused_in_words(text: str, complaint: str) -> None:
    with pytest.raises(UnsoundText) as refused:
        whole_list(text)
    assert str(refused.value) == complaint


def nested(depth: int, opening: str, closing: str) -> str:
    return '{"a":' + opening * depth + "1" + closing * depth + "}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"b":', "}"), ('[{"b":', "}]")])
def test_nesting_is_limited_at_a_fixed_depth(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    deepest = nested(MAX_NESTING // levels, opening, closing)
    assert set(members(deepest)) == {"a"}
    for depth in (MAX_NESTING // levels + 1, 10_000):
        with pytest.raises(UnsoundText, match="nested more than 512 levels deep"):
            members(nested(depth, opening, closing))


def test_many_lists_side_by_side_are_no_nesting() -> None:
    text = json.dumps({"a": [[[1]]] * 2 * MAX_NESTING, "b": "[" * 2 * MAX_NESTING})
    assert json.dumps({name: value.decoded for name, value in members(text).items()}) == text


def test_the_limit_lies_well_below_that_of_python() -> None:
    assert sys.getrecursionlimit() > 1.5 * MAX_NESTING


def plainly(value: str) -> bool:
    body = b'{"a":%b}' % value.encode()
    return can_be_sliced(body, b'"a"', body.index(b":") + 1)


def deep(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize(
    "value",
    [
        "[1]",
        '["b"]',
        '["\\"a\\":[0]"]',
        '[{"b": "\\n"}]',
        deep(MAX_NESTING - 1),
        json.dumps([[[1, 2]] * 1000] * 3),
        json.dumps([{"b": 1}] * 1000),
    ],
)
def test_a_value_lies_plainly_where_nothing_else_can_be_meant(value: str) -> None:
    assert plainly(value)


@pytest.mark.parametrize(
    "value",
    [
        '[0],"a":[1]',
        '[0],"\\u0061":[1]',
        deep(MAX_NESTING),
        f"[[1],[1],{deep(MAX_NESTING)}]",
        f'["],[],[],[",{deep(MAX_NESTING)}]',
        '{"b":' * MAX_NESTING + "1" + "}" * MAX_NESTING,
    ],
)
def test_it_does_not_where_it_may_be_another_or_too_deep(value: str) -> None:
    assert not plainly(value)


@given(st.recursive(st.just("],["), lambda inner: st.lists(inner, max_size=3), max_leaves=600))
def test_a_nesting_that_is_too_deep_is_always_seen(value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"))
    for _ in range(MAX_NESTING):
        text = f"[{text},[]]"
    assert not plainly(text)


@given(st.lists(JSON_VALUES, min_size=1), DUMPS, st.integers(1, 5))
def test_runs_hold_all_elements_in_order_and_as_many_each(
    values: list[Any], dumps: Callable[[Any], str], count: int
) -> None:
    runs = in_runs(dumps(values).strip().encode(), count)
    found = [json.loads(run) for run in runs]
    assert found == [values[start : start + count] for start in range(0, len(values), count)]


@pytest.mark.parametrize("step", range(1, 9))
def test_runs_are_the_same_wherever_windows_end(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = rb'[1, "a,b", "\"," ,{"c":[1,2],"d\\\\":","}, [[],[3,4]],"\\\"]",5 ]'
    whole = in_runs(text, 2)
    assert [len(json.loads(run)) for run in whole] == [2, 2, 2, 1]
    monkeypatch.setattr(json_text, "_WINDOW_BYTES", step)
    assert in_runs(text, 2) == whole


def test_members_beyond_the_most_are_not_looked_at() -> None:
    text = "{" + ",".join(['"a":1'] * MAX_MEMBERS) + "}"
    assert members(text)["a"].decoded == 1
    with pytest.raises(UnsoundText, match=f"more than {MAX_MEMBERS} members"):
        members(text[:-1] + ',"b":what follows is not looked at')
