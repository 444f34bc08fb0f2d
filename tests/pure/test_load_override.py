"""Configuration that a client may give with the load of a model."""

from typing import Any

import pytest

from ringbatch.frontend.request.load_override import largest_batch
from ringbatch.shm.errors import InvalidRequest

HELD = {"name": "m", "max_batch_size": 8, "platform": "python", "parameters": {}}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, None),
        ({"unload_dependents": True}, None),
        ({"config": "{}"}, None),
        ({"config": '{"max_batch_size":16}'}, 16),
        ({"config": '{"max_batch_size":"16"}'}, 16),
        ({"config": '{"name":"m","platform":"python","max_batch_size":0}'}, 0),
        ({"config": '{"parameters":{}}'}, None),
    ],
)
def test_the_largest_batch_counts_and_unchanged_settings_are_passed_over(
    parameters: dict[str, Any], expected: int | None
) -> None:
    assert largest_batch("m", parameters, HELD) == expected


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"config": '"parameters": {'}, 'failed to load "m": its config is no JSON'),
        ({"config": "[]"}, "a string with a JSON object"),
        ({"config": 5}, "a string with a JSON object"),
        ({"config": '{"platform":"onnx"}'}, 'may set max_batch_size, but not "platform"'),
        ({"config": '{"backend":"x"}'}, 'but not "backend"'),
        ({"config": '{"max_batch_size":1.5}'}, "max_batch_size is 1.5, not a whole number"),
        ({"config": '{"max_batch_size":true}'}, "is true, not a whole number"),
        ({"config": '{"max_batch_size":"x"}'}, 'is "x", not a whole number'),
        ({"config": "{}", "file:1/model.py": b"x"}, 'parameter "file:1/model.py" is not accepted'),
    ],
)
def test_everything_else_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        largest_batch("m", parameters, HELD)
    assert words in str(refused.value)
