"""Strangers' bytes: a bounded number of inputs for each place that reads some, by seed.

`python tests/fuzz/run.py --help` goes on for as long as one likes.
"""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from fuzz.connection import MAX_REQUEST_BYTES, Pair, check, check_head
from fuzz.corpora import mutator
from fuzz.decoders import TARGETS, try_one
from fuzz.mutate import Mutator, cuts
from fuzz.requests import CORPUS, SMUGGLED, TOKENS, request
from fuzz.segment import live_beside_hostility

from ringbatch.frontend import head

CONNECTIONS = 6_000
INPUTS_OF_A_DECODER = 3_000
HOSTILE_LIVES = 250
NEVER_ACCEPTED = {"v2 untyped", "grpc untyped"}
"""Such models are served over V1 alone."""


@pytest.fixture(autouse=True)
def _failures_are_not_logged() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def converse(inputs: Iterator[tuple[bytes, list[bytes]]]) -> int:
    """Send each both ways; how many requests the fast lane served."""

    async def talk() -> int:
        pair, fast = Pair(), 0
        for data, pieces in inputs:
            try:
                fast += (await check(pair, pieces)).fast
                check_head(data)
            except AssertionError as failure:
                raise AssertionError(f"{failure}\nfor {pieces}") from failure
        return fast

    return asyncio.run(talk())


def test_the_fast_lane_serves_nothing_that_others_read_differently() -> None:
    made = Mutator(CORPUS, TOKENS)
    inputs = ((data, cuts(data, seed)) for seed in range(CONNECTIONS) if (data := made.make(seed)))
    assert converse(inputs) > CONNECTIONS // 50


def test_every_cut_of_the_corpus_is_read_alike() -> None:
    inputs = ((data, [data[:cut], data[cut:]]) for data in CORPUS for cut in range(0, len(data), 7))
    assert converse(inputs)


def test_of_requests_to_smuggle_only_those_are_served_that_h11_reads_alike() -> None:
    assert any(map(check_head, SMUGGLED))
    assert not all(map(check_head, SMUGGLED))


@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_raises_nothing_but_what_it_says(target: str) -> None:
    made = mutator(target)
    accepted = 0
    for seed in range(INPUTS_OF_A_DECODER):
        data = made.make(seed)
        try:
            accepted += try_one(target, data)
        except Exception as failure:
            raise AssertionError(f"seed {seed}, {data!r}") from failure
    assert bool(accepted) != (target in NEVER_ACCEPTED)


def test_a_hostile_lane_harms_nobody_else() -> None:
    answered = 0
    for seed in range(HOSTILE_LIVES):
        try:
            answered += live_beside_hostility(seed)
        except Exception as failure:
            raise AssertionError(f"seed {seed}") from failure
    assert answered > HOSTILE_LIVES


# Wrong ones, each caught


def test_a_fast_lane_that_overlooks_a_header_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head, "_NEVER", frozenset[bytes]())
    data = request(b"Expect: 100-continue")
    with pytest.raises(AssertionError, match="past the fast lane"):
        converse(iter([(data, [data])]))


def test_a_fast_lane_with_another_limit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = head.read_head
    monkeypatch.setattr(
        head, "read_head", lambda data, most, *more: original(data, 2 * most, *more)
    )
    data = request(body=b"x" * (MAX_REQUEST_BYTES + 1))
    with pytest.raises(AssertionError, match="past the fast lane"):
        converse(iter([(data, [data])]))
