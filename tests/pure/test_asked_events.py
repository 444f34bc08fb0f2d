"""The member `stream` of a body: what asks for events, and what does not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.asked_events import asks_for_events
from ringbatch.shm.errors import InvalidRequest

ASKS = {
    "member": ('{"instances": [1], "stream": true}', True, True),
    "the last of several": ('{"stream": false, "stream": true}', True, True),
    "false": ('{"instances": [1], "stream": false}', False, False),
    "null": ('{"stream": null}', False, False),
    "parameter": ('{"parameters": {"stream": true}}', False, True),
    "false beside a parameter": ('{"stream": false, "parameters": {"stream": true}}', False, True),
    "an instance": ('{"instances": [{"stream": true}]}', False, False),
    "a column": ('{"inputs": {"stream": [true]}}', False, False),
    "a tensor": ('{"inputs": [{"name": "stream", "data": ["stream"]}]}', False, False),
    "a list": ('["stream"]', False, False),
    "parameters that are none": ('{"stream": false, "parameters": ["stream"]}', False, False),
    "JSON that Python alone reads": ('{"instances": [NaN], "stream": true}', True, True),
    "no JSON": ('{"stream": tru', False, False),
}


@pytest.mark.parametrize(("body", "v1", "v2"), ASKS.values(), ids=ASKS)
def test_only_a_member_of_the_request_asks(body: str, v1: bool, v2: bool) -> None:
    for found in (body.encode(), bytearray(body.encode())):
        assert asks_for_events(found, parameters=False) is v1
        assert asks_for_events(found, parameters=True) is v2


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_another_value_is_refused_in_words(value: Any) -> None:
    body = json.dumps({"stream": value}).encode()
    with pytest.raises(InvalidRequest, match=r"`stream` of the request is .*, not true or false"):
        asks_for_events(body, parameters=False)
    inner = json.dumps({"parameters": {"stream": value}}).encode()
    assert not asks_for_events(inner, parameters=False)
    with pytest.raises(InvalidRequest, match=r"`stream` of the request's parameters is"):
        asks_for_events(inner, parameters=True)


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["stream", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["stream", "parameters", "x"]), inner, max_size=3)
    ),
)


@given(values)
def test_any_body_asks_as_its_decoded_members_say(value: Any) -> None:
    body = json.dumps(value).encode()
    found = value if isinstance(value, dict) else {}
    wish = found.get("stream")
    if wish is not None and not isinstance(wish, bool):
        with pytest.raises(InvalidRequest):
            asks_for_events(body, parameters=False)
    else:
        assert asks_for_events(body, parameters=False) is bool(wish)
