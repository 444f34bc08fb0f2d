"""Strangers' bytes: a bounded number of inputs for each place that reads some, by seed.

`python tests/fuzz/run.py --help` goes on for as long as one likes.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fuzz import http2
from fuzz.connection import (
    FLOOD_BYTES,
    MAX_REQUEST_BYTES,
    Pair,
    check,
    live,
)
from fuzz.corpora import mutator
from fuzz.decoders import SPECS, TARGETS, try_one
from fuzz.grpc_life import live_over_grpc
from fuzz.http2 import GrpcTarget, RestTarget
from fuzz.http2_oracle import compare
from fuzz.limits import Difference
from fuzz.model_server import answer_one
from fuzz.recorded import Seen
from fuzz.requests import BODY, CORPUS, IN_CHUNKS, SMUGGLED, bare, request
from fuzz.segment import live_beside_hostility
from fuzz.strict import check_head
from fuzz.talk import AGE_S, Flood, Keys, Seconds, Step
from fuzz.virtual_time import in_virtual_time
from tiers import exhaustive, first_of
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ringbatch.engine.runtimes.upstreams import choice as upstream_choice
from ringbatch.engine.runtimes.upstreams import connection as upstream
from ringbatch.engine.runtimes.upstreams import runtime as http
from ringbatch.frontend.falcon import exchange
from ringbatch.frontend.http import fallback, head, head_meaning
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http2.outgoing import Outgoing
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.served_connection import ServedConnection

Caught = Callable[..., str]

CONNECTIONS_EACH = 500
INPUTS_OF_A_DECODER = 1_100
MANY_INPUTS_OF_A_DECODER = 3_000
HOSTILE_LIVES = 250
HOSTILE_ANSWERS = 500
GRPC_LIVES = 50
HTTP2_CONNECTIONS = 300
ORACLE_RUNS = 300
NEVER_ACCEPTED = {
    f"{protocol} {model.name}"
    for protocol in ("v2", "generate", "grpc")
    for model in SPECS
    if not model.typed
}
"""Such models are served over V1 alone."""


@pytest.fixture(autouse=True)
def _failures_are_not_logged() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def converse(connections: Iterator[Sequence[Step]], *, asks_for_keys: bool = False) -> int:
    """Play connections both ways, and return how many requests the fast lane served."""

    async def talk() -> int:
        pair, fast = Pair(asks_for_keys=asks_for_keys), 0
        for steps in connections:
            try:
                fast += len((await check(pair, steps)).taken)
            except AssertionError as failure:
                raise type(failure)(f"{failure}\nfor {steps}") from failure
        return fast

    return in_virtual_time(talk())


@pytest.mark.parametrize("part", first_of(range(8), 1))
def test_both_ways_answer_any_bytes_alike_and_every_connection_ends(part: int) -> None:
    async def talk() -> Iterator[Seen]:
        pairs = {asks: Pair(asks_for_keys=asks) for asks in (False, True)}
        seen = []
        for seed in range(part * CONNECTIONS_EACH, (part + 1) * CONNECTIONS_EACH):
            try:
                seen.append(await live(pairs, seed))
            except AssertionError as failure:
                raise type(failure)(f"seed {seed}: {failure}") from failure
        return iter(seen)

    assert sum(len(seen.taken) for seen in in_virtual_time(talk())) > CONNECTIONS_EACH // 50


def test_every_cut_of_the_corpus_is_read_alike() -> None:
    assert converse([data[:cut], data[cut:]] for data in CORPUS for cut in range(0, len(data), 7))


def test_of_requests_to_smuggle_only_those_are_served_that_h11_reads_alike() -> None:
    taken = [check_head(data, MAX_REQUEST_BYTES) for data in SMUGGLED]
    assert any(taken)
    assert not all(taken)


def test_no_model_is_asked_with_a_body_that_broke_off() -> None:
    begun = bare(b"Transfer-Encoding: chunked", body=b"11\r\n%b\r\n" % BODY)
    converse(iter([[begun, b"x\r\n"], [begun, Seconds(AGE_S)], [begun + b"\r\n"]]))


def accepted(target: str, seeds: range) -> int:
    """Give a decoder inputs, and return how many of them it takes."""
    made = mutator(target)
    taken = 0
    for seed in seeds:
        data = made.make(seed)
        try:
            taken += try_one(target, data)
        except Exception as failure:
            raise AssertionError(f"seed {seed}, {data!r}") from failure
    return taken


@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_raises_only_its_documented_errors(target: str) -> None:
    assert bool(accepted(target, range(INPUTS_OF_A_DECODER))) != (target in NEVER_ACCEPTED)


@exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_raises_them_alone_for_any_of_many_inputs(target: str) -> None:
    more = range(INPUTS_OF_A_DECODER, MANY_INPUTS_OF_A_DECODER)
    assert not accepted(target, more) or target not in NEVER_ACCEPTED


def test_a_hostile_lane_harms_nobody_else() -> None:
    answered = 0
    for seed in range(HOSTILE_LIVES):
        try:
            answered += live_beside_hostility(seed)
        except Exception as failure:
            raise AssertionError(f"seed {seed}") from failure
    assert answered > HOSTILE_LIVES


def answer_many(first: int = 0) -> int:
    """Give workers what a hostile model server answers; how many answers were taken for one."""
    taken = 0
    for seed in range(first, first + HOSTILE_ANSWERS):
        try:
            taken += answer_one(seed)
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}") from failure
    return taken


@pytest.mark.parametrize("part", first_of(range(20), 1))
def test_no_answer_of_a_model_server_ends_a_worker(part: int) -> None:
    assert answer_many(part * HOSTILE_ANSWERS) > HOSTILE_ANSWERS // 20


@exhaustive
@pytest.mark.parametrize("target", [GrpcTarget, RestTarget])
def test_frames_of_http2_harm_neither_the_process_nor_its_other_clients(
    target: type[GrpcTarget | RestTarget], tmp_path: Path
) -> None:
    with target(tmp_path) as server:
        for seed in range(HTTP2_CONNECTIONS):
            try:
                server.attempt(seed)
            except AssertionError as failure:
                raise type(failure)(f"seed {seed}: {failure}") from failure
        server.check()


@exhaustive
def test_a_path_that_is_not_utf_8_harms_nobody(tmp_path: Path) -> None:
    call = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.head(b"/\xbf"))
    with GrpcTarget(tmp_path) as server:
        server.send([http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"") + call])
        server.check()


def live_all(seeds: range) -> int:
    """Play lives of gRPC frontends, and return how many calls they had."""
    calls = 0
    for seed in seeds:
        try:
            calls += in_virtual_time(live_over_grpc(seed))
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
    return calls


@pytest.mark.parametrize("part", first_of(range(24), 1))
def test_calls_over_grpc_that_begin_and_are_taken_back_in_any_order_harm_no_other(
    part: int,
) -> None:
    seeds = range(part * GRPC_LIVES, (part + 1) * GRPC_LIVES)
    assert live_all(seeds) > 50 * GRPC_LIVES


def compare_many() -> int:
    """Compare many connections with h2; a failure names the seed."""
    frames = 0
    for seed in range(ORACLE_RUNS):
        try:
            frames += compare(seed)
        except Difference as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
    return frames


def test_http2_is_read_as_h2_reads_it() -> None:
    assert compare_many() > 20 * ORACLE_RUNS


# Wrong ones, each caught


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Caught:
    """Return a function that replaces a part of the server, plays steps, and returns the error."""

    def run(
        owner: object, name: str, value: object, steps: Sequence[Step], *, keys: bool = False
    ) -> str:
        monkeypatch.setattr(owner, name, value)
        with pytest.raises(AssertionError) as failure:
            converse(iter([steps]), asks_for_keys=keys)
        return f"{failure.typename}: {failure.value}"

    return run


def test_a_fast_lane_that_overlooks_a_header_is_caught(caught: Caught) -> None:
    words = caught(head_meaning, "_NEVER", frozenset[bytes](), [request(b"Expect: 100-continue")])
    assert "past the fast lane" in words


def test_a_fast_lane_with_another_limit_is_caught(caught: Caught) -> None:
    def with_values(text: bytes, meaning: Any, values: Any, most: int, account: int) -> object:
        return original(text, meaning, values, 2 * most, account)

    original = head.head_with
    words = caught(head, "head_with", with_values, [request(body=b"x" * (MAX_REQUEST_BYTES + 1))])
    assert "past the fast lane" in words


def test_a_key_that_works_on_after_its_end_is_caught(caught: Caught) -> None:
    asked = request(b"X-API-Key: first")
    steps = [asked, Keys(()), b"\0" * asked.index(BODY) + BODY]

    def forget(lane: FastLane) -> None:
        lane._head_text = b"\0"

    assert "past the fast lane" in caught(FastLane, "forget", forget, steps, keys=True)


def test_trailers_that_become_headers_are_caught(caught: Caught) -> None:
    body = b"11\r\n%b\r\n0\r\nX-Forwarded-User: root\r\n\r\n" % BODY
    steps = [bare(b"Transfer-Encoding: chunked", body=body)]
    words = caught(FallbackProtocol, "on_header", HttpToolsProtocol.on_header, steps)
    assert "h11 sees no such request" in words


@exhaustive
def test_trailers_that_are_kept_are_caught(caught: Caught) -> None:
    def keep(connection: FallbackProtocol, name: bytes, value: bytes) -> None:
        HttpToolsProtocol.on_header(connection, name, value)
        connection._line_bytes = 0

    beginning = bare(b"Transfer-Encoding: chunked", body=b"0\r\n")
    steps = [beginning, Flood(b"a:b\r\n", FLOOD_BYTES // 5)]
    assert caught(FallbackProtocol, "on_header", keep, steps).startswith("Overrun")


def test_chunks_over_http_1_0_that_are_served_are_caught(caught: Caught) -> None:
    asked = bare(b"Transfer-Encoding: chunked", body=IN_CHUNKS, version=b"1.0")
    words = caught(fallback, "_OLD_VERSION", "none", [asked])
    assert "h11 sees no such request" in words


def test_a_connection_that_no_clock_ends_is_caught(caught: Caught) -> None:
    assert caught(FallbackProtocol, "tick", lambda _: None, [b"\r\n"]).startswith("Endless")


def test_a_model_asked_with_half_a_body_is_caught(caught: Caught) -> None:
    begun = bare(b"Transfer-Encoding: chunked", body=b"1\r\n[\r\n")
    assert "h11 sees no such request" in caught(exchange, "WHOLE", "ringbatch.none", [begun])


@pytest.mark.parametrize(
    ("owner", "name", "value", "words"),
    [
        (upstream_choice, "_IMPOSSIBLE", (ArithmeticError, LookupError, TypeError), "ValueError"),
        (upstream, "_LANES", 1 << 20, "Overrun"),
        (http, "_LENGTH", re.compile("[0-9]*"), "ValueError"),
        (upstream, "_RETRY_AFTER", re.compile(".*"), "AssertionError"),
        (upstream_choice, "LONGEST_HOLD_S", 1e9, "Endless"),
    ],
)
def test_a_worker_that_believes_its_model_server_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object, words: str
) -> None:
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(AssertionError, match=words):
        answer_many()


def test_a_stream_that_is_closed_under_the_body_it_reads_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def finished(connection: Outgoing[Any], stream: Stream[Any]) -> None:
        stream.lingers = False
        usual(connection, stream)

    usual = Outgoing._finished
    monkeypatch.setattr(Outgoing, "_finished", finished)
    with pytest.raises(AssertionError, match="bodies: h2 has"):
        compare_many()


def test_answers_to_calls_that_were_taken_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_order(connection: ServedConnection[Any, Any], touched: list[Stream[Any]]) -> None:
        for stream in touched:
            connection._look_at(stream)

    monkeypatch.setattr(Stream, "takes_answer", True)
    monkeypatch.setattr(ServedConnection, "_look_at_all", in_order)
    with pytest.raises(AssertionError, match="KeyError"):
        live_all(range(GRPC_LIVES))
