"""The model that a refused body means."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringbatch.frontend.falcon.meant_model import meant_model

MODELS = cast(Any, SimpleNamespace(by_address={"a": "model a", "b": "model b"}))
MOST_BYTES = 64


@pytest.mark.parametrize(
    ("suitable", "body", "found"),
    [
        ("ab", b'{"model": "b", "messages": 1}', "model b"),
        ("a", b'{"model": "b"}', "model b"),
        ("a", b'{"messages": 1}', "model a"),
        ("a", b'{"model": null}', "model a"),
        ("a", b"nonsense", "model a"),
        ("a", b"[1]", "model a"),
        ("ab", b'{"messages": 1}', None),
        ("ab", b"nonsense", None),
        ("a", b'{"model": "c"}', None),
        ("a", b'{"model": ["a"]}', None),
        ("a", b'{"model": "a", "x": "' + b"x" * MOST_BYTES, None),
        ("", b"{}", None),
    ],
)
def test_it_is_the_named_one_or_the_only_suitable_one(
    suitable: str, body: bytes, found: str | None
) -> None:
    meant: object = meant_model(MODELS, list(suitable), body, MOST_BYTES)
    assert meant == found
