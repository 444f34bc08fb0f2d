"""Messages between the supervisor and its processes, with malformed ones."""

import json
from contextlib import suppress
from typing import Any, Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.process import role_commands
from ringbatch.engine.process.role_commands import (
    ATTACH_SEGMENT,
    DISMISS,
    START_COLLECTOR,
    START_WORKER,
    TO_COLLECTOR,
    ToRole,
)
from ringbatch.engine.process.role_events import (
    FROM_COLLECTOR,
    FROM_FRONTEND,
    FROM_WORKER,
    EntryDrained,
    EntryLoaded,
    FromRole,
    Signature,
    StandingBy,
    WaitsForPlace,
    WarmUpStarted,
    WorkerHung,
    WorkerReclaimed,
    WorkerReleased,
)
from ringbatch.shm.host.messages import (
    Beat,
    Failed,
    MalformedMessage,
    Ready,
    Vocabulary,
    encode,
)
from ringbatch.shm.tensor import DATATYPES, Tensor

FROM: Final[tuple[Vocabulary[FromRole], ...]] = (FROM_FRONTEND, FROM_WORKER, FROM_COLLECTOR)
TO: Final[tuple[Vocabulary[ToRole], ...]] = (
    START_WORKER,
    ATTACH_SEGMENT,
    START_COLLECTOR,
    TO_COLLECTOR,
)
ALL: Final[tuple[Vocabulary[object], ...]] = (*FROM, *TO, DISMISS)
TENSOR = Tensor("x", "FP32", [-1, 2])
FROM_ROLES: Final[list[FromRole]] = [
    Ready(),
    Failed("no weights"),
    Beat(),
    StandingBy(),
    Signature((TENSOR,), ()),
    WarmUpStarted(),
    WaitsForPlace(),
    WorkerHung(3),
    WorkerReclaimed(3, explained=False),
    WorkerReleased(3),
    EntryLoaded(1 << 40),
    EntryDrained(7),
]

st.register_type_strategy(
    Tensor,
    st.builds(
        Tensor,
        st.text(min_size=1),
        st.sampled_from([*DATATYPES]),
        st.lists(st.integers(-1, 9), max_size=3),
    ),
)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
messages = st.one_of([st.from_type(kind) for kind in get_args(FromRole | ToRole)])


def understood(vocabulary: Vocabulary[object], line: bytes) -> bool:
    """Return whether a vocabulary decodes a message."""
    try:
        vocabulary.decode(line)
    except MalformedMessage:
        return False
    return True


@given(messages)
def test_every_message_crosses_as_it_is_to_those_that_take_it(message: object) -> None:
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1
    taken = [vocabulary for vocabulary in ALL if understood(vocabulary, line)]
    assert taken, "somebody takes it"
    assert {vocabulary.decode(line[:-1]) for vocabulary in taken} == {message}


@pytest.mark.parametrize("vocabulary", FROM, ids=["frontend", "worker", "collector"])
@pytest.mark.parametrize("message", FROM_ROLES, ids=lambda message: type(message).__name__)
def test_each_role_may_say_its_own_things_alone(
    message: FromRole, vocabulary: Vocabulary[FromRole]
) -> None:
    own = {
        FROM_FRONTEND: (Ready, Failed, Beat),
        FROM_WORKER: (Ready, Failed, Signature, WarmUpStarted, WaitsForPlace),
        FROM_COLLECTOR: (
            *(
                Ready,
                Failed,
                StandingBy,
                WorkerHung,
                WorkerReclaimed,
                WorkerReleased,
                EntryLoaded,
                EntryDrained,
            ),
        ),
    }
    assert understood(vocabulary, encode(message)) == isinstance(message, own[vocabulary])


MALFORMED: Final = {
    "a field is missing": {"type": "WorkerReclaimed", "worker": 3},
    "a field is one too many": {"type": "Ready", "now": True},
    "a boolean is no number": {"type": "WorkerHung", "worker": True},
    "a number is no boolean": {"type": "WorkerReclaimed", "worker": 3, "explained": 1},
    "a fraction is no whole number": {"type": "WorkerHung", "worker": 3.0},
    "a number is no text": {"type": "Failed", "reason": 3},
    "null is no text": {"type": "Failed", "reason": None},
    "no such type": {"type": "Tensor"},
    "a type that is none": {"type": ["Ready"]},
    "no type": {"ready": True},
    "a list": ["Ready"],
}


@pytest.mark.parametrize("found", MALFORMED.values(), ids=MALFORMED.keys())
def test_an_invalid_message_is_named(found: object) -> None:
    for vocabulary in ALL:
        with pytest.raises(MalformedMessage, match="which it should not"):
            vocabulary.decode(json.dumps(found).encode())


@pytest.mark.parametrize(
    "inputs",
    [
        [{"name": "x", "datatype": "FP32"}],
        [{"name": "", "datatype": "FP32", "shape": []}],
        [{"name": "x", "datatype": "FP33", "shape": []}],
        [{"name": "x", "datatype": "FP32", "shape": [1], "y": 1}],
        ["x"],
        {},
    ],
)
def test_tensors_are_tensors(inputs: Any) -> None:
    line = json.dumps({"type": "Signature", "inputs": inputs, "outputs": []}).encode()
    with pytest.raises(MalformedMessage):
        FROM_WORKER.decode(line)


def test_a_whole_number_of_seconds_is_one() -> None:
    line = (
        b'{"type": "WarmUp", "required": true, "limit_s": 2, "limit": "a", "batch_timeout": "b", '
        b'"length": 16, "file": null}'
    )
    found = Vocabulary[role_commands.WarmUp](role_commands.WarmUp).decode(line)
    expected = role_commands.WarmUp(True, 2.0, "a", "b", 16, None)
    assert (found, type(found.limit_s)) == (expected, float)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
names = st.sampled_from([type(message).__name__ for message in FROM_ROLES])
keys = st.sampled_from(["reason", "inputs", "outputs", "worker", "explained", "reference"])
found = st.builds(lambda name, more: {**more, "type": name}, names, st.dictionaries(keys, values))
lines = st.binary() | (found | values).map(lambda value: json.dumps(value).encode())


@given(lines, st.sampled_from(ALL))
def test_any_line_is_a_message_or_is_named(line: bytes, vocabulary: Vocabulary[object]) -> None:
    with suppress(MalformedMessage):
        assert json.loads(encode(vocabulary.decode(line))) == json.loads(line)


def test_depth_beyond_all_measure_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        FROM_WORKER.decode(b"[" * 200_000)
