"""The memory of heads over HTTP/2: it saves reading, and changes nothing of what is read."""

import hashlib
from collections.abc import Sequence

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.grpc.call_head import CallHead, CallHeads
from ringbatch.frontend.http2.frames import ConnectionFault, StreamFault
from ringbatch.frontend.http2.header_memory import HeaderMemory
from ringbatch.frontend.http2.header_rules import Fields, Request
from ringbatch.frontend.http2.patience import Patience
from ringbatch.frontend.security.api_keys import ApiKeys

PATH = "/inference.GRPCInferenceService/ModelInfer"
PSEUDO = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", PATH.encode()),
    (b":authority", b"x"),
]
USUAL = [
    *PSEUDO,
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"user-agent", b"grpc"),
]
KEY = b"a-key-of-the-tests"
Found = list[tuple[CallHead, int] | int]


class Heads(CallHeads):
    """Counts what it reads in full."""

    def __init__(self) -> None:
        super().__init__({PATH: "infer"}, ApiKeys([hashlib.sha256(KEY).digest()]))
        self.reads = 0

    def read(self, request: Request) -> CallHead:
        self.reads += 1
        return super().read(request)


def trace(number: int) -> tuple[bytes, bytes]:
    return b"traceparent", b"00-%032x-00f067aa0ba902b7-01" % number


def asked(heads: Heads, several: Sequence[Fields], *, remembers: bool, changes: bool) -> Found:
    """What is found of each head, up to one that ends the connection.

    Args:
        heads: reads them.
        several: the fields of each.
        remembers: whether fields may vary.
        changes: whether the client puts its fields into the table.
    """
    memory = HeaderMemory(heads.read, Patience(), heads.varying if remembers else None)
    encoder, found = Encoder(), Found()
    for fields in several:
        if changes:
            block = encoder.encode(fields)
        else:
            block = encoder.encode([(*field, True) for field in fields])
        if not remembers:
            memory.forget()
        try:
            found.append(memory.request(block))
        except StreamFault as fault:
            found.append(fault.code)
        except ConnectionFault as fault:
            found.append(fault.code)
            break
    return found


OWN = {
    "trace": [[*USUAL, trace(number)] for number in (1, 2, 3)],
    "id": [[*USUAL, (b"x-request-id", b"%d" % number)] for number in (1, 2, 3)],
    "deadline": [[*USUAL, (b"grpc-timeout", b"%dm" % number)] for number in (9, 8, 7)],
    "with-and-without": [USUAL, [*USUAL, trace(1)], [*USUAL, (b"x-b3-traceid", b"1")]],
    "others": [[*USUAL, (b"baggage", b"a=%d" % n), (b"cookie", b"%d" % n)] for n in (1, 2)],
    "none": [USUAL, USUAL],
}


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("several", OWN.values(), ids=OWN)
def test_heads_with_fields_of_their_own_are_read_in_full_once(
    several: list[Fields], changes: bool
) -> None:
    heads = Heads()
    found = asked(heads, several, remembers=True, changes=changes)
    assert heads.reads == 1
    assert found == asked(Heads(), several, remembers=False, changes=changes)
    metadata = [one[0].fields for one in found if not isinstance(one, int)]
    assert metadata == [fields[len(PSEUDO) :] for fields in several]


@pytest.mark.parametrize(
    "pair",
    [
        ((b"authorization", b"Bearer " + KEY), (b"authorization", b"Bearer x")),
        ((b"x-api-key", KEY), (b"x-api-key", b"x")),
        ((b"grpc-encoding", b"gzip"), (b"grpc-encoding", b"identity")),
        ((b"x-server-timing", b"1"), (b"x-server-timing", b"0")),
        ((b"content-length", b"1"), (b"content-length", b"2")),
    ],
)
def test_fields_that_decide_are_read_each_time_that_they_differ(
    pair: tuple[tuple[bytes, bytes], ...],
) -> None:
    heads, several = Heads(), [[*USUAL, field] for field in pair]
    found = asked(heads, several, remembers=True, changes=False)
    assert heads.reads == 2
    assert found == asked(Heads(), several, remembers=False, changes=False)


CONFUSABLE = {
    "two-lengths": [
        [*USUAL, (b"content-length", b"1"), trace(1)],
        [*USUAL, (b"content-length", b"1"), trace(2), (b"content-length", b"1")],
    ],
    "a-pseudo-header-behind": [USUAL, [*USUAL[:3], (b"baggage", b"1"), *USUAL[3:]]],
    "a-pseudo-header-of-its-own": [USUAL, [*USUAL, (b":status", b"200")]],
    "a-name-in-capitals": [USUAL, [*USUAL, (b"Baggage", b"1")]],
    "a-value-with-a-line-end": [USUAL, [*USUAL, (b"baggage", b"1\n2")]],
    "an-id-with-a-line-end": [USUAL, [*USUAL, (b"x-request-id", b"1\r2")]],
    "a-field-of-a-connection": [USUAL, [*USUAL, (b"connection", b"close")]],
    "an-id-twice": [USUAL, [*USUAL, (b"x-request-id", b"1"), (b"x-request-id", b"1")]],
    "no-time": [USUAL, [*USUAL, (b"grpc-timeout", b"soon")], USUAL],
    "no-time-first": [[*USUAL, (b"grpc-timeout", b"soon")], USUAL],
    "another-host": [USUAL, [*USUAL, (b"host", b"y")]],
}


@pytest.mark.parametrize("several", CONFUSABLE.values(), ids=CONFUSABLE)
def test_no_head_is_taken_for_another(several: list[Fields]) -> None:
    found = asked(Heads(), several, remembers=True, changes=False)
    assert found == asked(Heads(), several, remembers=False, changes=False)
    assert found[0] != found[1]


FIELDS = st.one_of(
    st.sampled_from(USUAL),
    st.builds(trace, st.integers(0, 3)),
    st.tuples(
        st.sampled_from(
            [
                b"grpc-timeout",
                b"x-request-id",
                b"traceparent",
                b"te",
                b"baggage",
                b"Bad",
                b"x-api-key",
            ]
        ),
        st.sampled_from([b"1", b"1S", b"trailers", b"a b", b" a", b"", KEY, b"\n"]),
    ),
)


@given(st.lists(st.lists(FIELDS, max_size=4), min_size=1, max_size=8), st.booleans(), st.data())
def test_what_was_read_before_changes_nothing(
    several: list[Fields], changes: bool, data: st.DataObject
) -> None:
    whole = []
    for others in several:
        at = data.draw(st.integers(0, len(USUAL))) if data.draw(st.booleans()) else len(USUAL)
        whole.append([*USUAL[:at], *others, *USUAL[at:]])
    found = asked(Heads(), whole, remembers=True, changes=changes)
    assert found == asked(Heads(), whole, remembers=False, changes=changes)


def test_traces_cost_no_other_head_its_place() -> None:
    heads = Heads()
    memory, encoder = HeaderMemory(heads.read, Patience(), heads.varying), Encoder()
    block = encoder.encode(USUAL)
    memory.request(block)
    block = encoder.encode(USUAL)
    memory.request(block)
    decoded = memory.decoded
    for number in range(1000):
        memory.request(encoder.encode([*USUAL, (*trace(number), True)]))
    found = memory.decoded
    memory.request(block)
    assert (heads.reads, memory.decoded) == (1, found)
    assert found > decoded


def test_forgotten_heads_are_read_again() -> None:
    heads = Heads()
    memory, encoder = HeaderMemory(heads.read, Patience(), heads.varying), Encoder()
    for number in range(3):
        memory.request(encoder.encode([*USUAL, trace(number)]))
        memory.forget()
    assert heads.reads == 3
