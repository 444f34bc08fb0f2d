"""The memory of heads over HTTP/2: it saves reading, and changes nothing of what is read."""

import hashlib
from collections.abc import Sequence

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.grpc.call_head import CallHead, CallHeadReader
from ringbatch.frontend.http2.flood_budget import FloodBudget
from ringbatch.frontend.http2.frames import ConnectionFault, StreamFault
from ringbatch.frontend.http2.header_reader import HeaderReader
from ringbatch.frontend.http2.header_rules import Fields, Http2RequestHead
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.api_key_lines import KeyOptions

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


class Heads(CallHeadReader):
    """Reader that counts the heads that it reads in full."""

    def __init__(self) -> None:
        super().__init__({PATH: "infer"}, ApiKeys({hashlib.sha256(KEY).digest(): KeyOptions()}))
        self.reads = 0

    def read(self, request: Http2RequestHead) -> CallHead:
        self.reads += 1
        return super().read(request)


def trace(number: int) -> tuple[bytes, bytes]:
    return b"traceparent", b"00-%032x-00f067aa0ba902b7-01" % number


def written(several: Sequence[Fields], way: str) -> list[bytes]:
    """The blocks of a client.

    Args:
        several: the fields of each.
        way: fields that enter the table: all, none, or those that clients repeat.
    """
    encoder = Encoder()
    return [
        encoder.encode(
            [(*field, way == "none" or (way == "repeated" and field not in USUAL)) for field in one]
        )
        for one in several
    ]


def asked(heads: Heads, blocks: Sequence[bytes], *, remembers: bool) -> Found:
    """Read heads up to one that ends the connection, and return the results and the budget left.

    Args:
        heads: reads them.
        blocks: of the heads.
        remembers: whether anything is kept.
    """
    patience = FloodBudget()
    memory = HeaderReader(heads.read, patience, heads.varying if remembers else None)
    found = Found()
    for block in blocks:
        if not remembers:
            memory.forget()
        try:
            found.append(memory.request(block))
        except StreamFault as fault:
            found.append(fault.code)
        except ConnectionFault as fault:
            found.append(fault.code)
            break
    return [*found, patience.left]


OWN = {
    "trace": [[*USUAL, trace(number)] for number in (1, 2, 3)],
    "id": [[*USUAL, (b"x-request-id", b"%d" % number)] for number in (1, 2, 3)],
    "deadline": [[*USUAL, (b"grpc-timeout", b"%dm" % number)] for number in (9, 8, 7)],
    "with-and-without": [USUAL, [*USUAL, trace(1)], [*USUAL, (b"x-b3-traceid", b"1")]],
    "others": [[*USUAL, (b"baggage", b"a=%d" % n), (b"cookie", b"%d" % n)] for n in (1, 2)],
    "none": [USUAL, USUAL],
}


WAYS = ("all", "none", "repeated")
KNOWN = [USUAL, USUAL, [*USUAL, trace(8)], [*USUAL, trace(9)]]
"""A client's first heads: the table has its repeated fields, and they are remembered."""


def same(several: list[Fields], way: str) -> Found:
    """Return the results for heads behind `KNOWN` ones: the same with a memory and without."""
    blocks = written([*KNOWN, *several], way)
    found = asked(Heads(), blocks, remembers=True)
    assert found == asked(Heads(), blocks, remembers=False)
    return found[len(KNOWN) : -1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("several", OWN.values(), ids=OWN)
def test_heads_with_fields_of_their_own_are_read_in_full_once(
    several: list[Fields], way: str
) -> None:
    heads, blocks = Heads(), written(several, way)
    found = asked(heads, blocks, remembers=True)
    assert heads.reads == 1
    assert found == asked(Heads(), blocks, remembers=False)
    metadata = [one[0].fields for one in found[:-1] if not isinstance(one, int)]
    assert metadata == [fields[len(PSEUDO) :] for fields in several]
    same(several, way)


def test_of_a_block_that_begins_with_known_indices_only_the_rest_is_decoded() -> None:
    heads, blocks = Heads(), written([*KNOWN, *([*USUAL, trace(n)] for n in range(9))], "repeated")
    memory = HeaderReader(heads.read, FloodBudget(), heads.varying)
    decoded = []
    for block in blocks:
        before = memory.decoded
        memory.request(block)
        decoded.append(memory.decoded - before)
    assert decoded[-9:] == [1] * 9


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
    asked(heads, written(several, "none"), remembers=True)
    assert heads.reads == 2
    for way in WAYS:
        same(several, way)


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
    for way in WAYS:
        found = same(several, way)
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


@st.composite
def heads_of_a_client(draw: st.DrawFn) -> list[bytes]:
    """Blocks of heads that are alike, whose fields enter the table or do not."""
    encoder = Encoder()
    blocks = [encoder.encode(fields) for fields in KNOWN]
    for others in draw(st.lists(st.lists(FIELDS, max_size=4), min_size=1, max_size=8)):
        at = draw(st.sampled_from([len(USUAL), len(USUAL), len(USUAL), *range(len(USUAL))]))
        fields = [*USUAL[:at], *others, *USUAL[at:]]
        secret = draw(st.booleans())
        blocks.append(
            encoder.encode(
                [(*field, field in others and secret) for field in fields], huffman=False
            )
        )
    return blocks


@given(heads_of_a_client())
def test_blocks_read_before_change_nothing(blocks: list[bytes]) -> None:
    found = asked(Heads(), blocks, remembers=True)
    assert found == asked(Heads(), blocks, remembers=False)


REST = {
    "a-size-of-the-table": b"\x20",
    "an-entry-and-its-index": b"\x40\x01x\x01y\xbe",
    "large-fields": 4 * (b"\0\x01x" + b"\x7f\x81\x1f" + b"v" * 4096),
    "a-trace-that-enters": b"\x40\x0btraceparent\x37" + trace(1)[1],
    "nothing-more": b"",
    "half-a-field": b"\0\x0btrace",
}


@pytest.mark.parametrize("rest", REST.values(), ids=REST)
def test_bytes_behind_a_known_beginning_are_read_as_in_any_block(rest: bytes) -> None:
    blocks = written([*KNOWN, USUAL], "repeated")
    blocks += [blocks[-1] + rest] * 2 + written([*KNOWN, [*USUAL, trace(1)]], "repeated")[-1:]
    found = asked(Heads(), blocks, remembers=True)
    assert found == asked(Heads(), blocks, remembers=False)


def test_an_index_of_two_bytes_is_no_field_of_one() -> None:
    agents = [(b"user-agent", b"a"), (b"user-agent", b"b")]
    # The fillers push the agents' entries to indices above 127, but not the other fields'.
    fillers = [(b"x", b"%d" % number) for number in range(66)]
    others, encoder = USUAL[:-1], Encoder()
    blocks = [encoder.encode([*((*field, True) for field in others), *agents, *fillers])]
    blocks += [
        encoder.encode([*others, agent, (*trace(number), True)], huffman=False)
        for number in range(4)
        for agent in agents
    ]
    assert b"\xff" in blocks[-1].lstrip(bytes(range(0x81, 0xFF)))[:1]
    found = asked(Heads(), blocks, remembers=True)
    assert found == asked(Heads(), blocks, remembers=False)


def test_a_beginning_holds_for_the_table_that_it_was_read_with() -> None:
    blocks = written([USUAL, USUAL], "repeated")
    blocks += [blocks[-1] + REST["a-trace-that-enters"]] * 2
    found = asked(Heads(), blocks, remembers=True)
    assert found == asked(Heads(), blocks, remembers=False)


def test_traces_cost_no_other_head_its_place() -> None:
    heads = Heads()
    memory, encoder = HeaderReader(heads.read, FloodBudget(), heads.varying), Encoder()
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


@pytest.mark.parametrize("way", WAYS)
def test_forgotten_heads_are_read_again(way: str) -> None:
    heads = Heads()
    memory = HeaderReader(heads.read, FloodBudget(), heads.varying)
    for block in written(KNOWN, way):
        memory.request(block)
    for number, block in enumerate(written([*KNOWN, *KNOWN], way)[len(KNOWN) :]):
        memory.forget()
        before = heads.reads
        memory.request(block)
        assert heads.reads == before + 1, number
