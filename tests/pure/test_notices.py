"""What processes say to their supervisor, with whatever else they may say."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.supervisor.notices import (
    OF_ALL,
    OF_THE_COLLECTOR,
    OF_WORKERS,
    Drained,
    Failed,
    Hung,
    Loaded,
    Nonsense,
    Notice,
    Ready,
    Reclaimed,
    Released,
    Signature,
    StandingBy,
    Warming,
    notice,
)

TENSORS: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [],
}
SAID = {
    "ready": ({"ready": True}, Ready()),
    "standing by": ({"standing_by": True}, StandingBy()),
    "failed": ({"error": "no weights"}, Failed("no weights")),
    "signature": (TENSORS, Signature(TENSORS)),
    "warming": ({"warming": True}, Warming()),
    "hung": ({"hung": 3}, Hung(3)),
    "reclaimed": ({"reclaimed": 3, "explained": False}, Reclaimed(3, explained=False)),
    "released": ({"released": 3}, Released(3)),
    "loaded": ({"loaded": 1 << 40}, Loaded(1 << 40)),
    "drained": ({"drained": 7}, Drained(7)),
}
ROLES = (OF_ALL, OF_WORKERS, OF_THE_COLLECTOR)


@pytest.mark.parametrize("allowed", ROLES)
@pytest.mark.parametrize(("fields", "expected"), SAID.values(), ids=SAID.keys())
def test_each_role_may_say_its_own_things_alone(
    fields: dict[str, Any], expected: Notice, allowed: tuple[type[Notice], ...]
) -> None:
    line = json.dumps(fields).encode()
    if isinstance(expected, allowed):
        assert notice(line, allowed) == expected
        return
    with pytest.raises(Nonsense, match="which it should not"):
        notice(line, allowed)


@pytest.mark.parametrize(
    "fields",
    [
        {"inputs": [{"name": "x", "datatype": "FP32"}], "outputs": []},
        {"inputs": [{"name": "", "datatype": "FP32", "shape": []}], "outputs": []},
        {"inputs": [{"name": "x", "datatype": "FP33", "shape": []}], "outputs": []},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "y": 1}], "outputs": []},
        {"inputs": ["x"], "outputs": []},
        {"inputs": {}, "outputs": []},
        {"inputs": []},
    ],
)
def test_tensors_are_tensors(fields: dict[str, Any]) -> None:
    with pytest.raises(Nonsense):
        notice(json.dumps(fields).encode(), OF_WORKERS)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
keys = st.sampled_from(["ready", "error", "inputs", "outputs", "hung", "reclaimed", "explained"])
lines = st.binary() | st.dictionaries(keys, values).map(lambda d: json.dumps(d).encode())


@given(lines, st.sampled_from(ROLES))
def test_whatever_is_said_means_something_allowed_or_nothing(
    line: bytes, allowed: tuple[type[Notice], ...]
) -> None:
    with suppress(Nonsense):
        assert isinstance(notice(line, allowed), allowed)


def test_depth_beyond_all_measure_is_nonsense() -> None:
    with pytest.raises(Nonsense):
        notice(b"[" * 200_000, OF_ALL)
