"""Large bodies received into their slots: a fast lane on a real lane, fed by hand."""

import itertools

import numpy as np
import pytest
from arrival_harness import EACH, Harness, large, post, scenario, text_of, total, values

from ringbatch.frontend.http.receiver import HEAD_BYTES
from ringbatch.frontend.request.arrival import LARGE_BYTES


@scenario
async def test_a_body_that_comes_in_pieces_is_received_into_its_slot(harness: Harness) -> None:
    for seed in range(3):
        request = large(seed, rows=2)
        harness.transport.feed(request[:5000])
        assert harness.receives()
        harness.transport.feed(request[5000:-1])
        assert await harness.answers() == []
        harness.transport.feed(request[-1:])
        assert not harness.receives()
        assert await harness.answers() == [total(seed, 2)]
    assert harness.gathered == 0


@scenario
async def test_wherever_a_request_is_cut_its_answer_is_the_same(harness: Harness) -> None:
    request, text = large(0), text_of(values(0))
    head = len(request) - len(text) - 4 * EACH
    edges = [head, head + len(text), head + len(text) + HEAD_BYTES, len(request) - 1]
    places = {edge + step for edge in edges for step in (-1, 0, 1)} - {len(request)}
    for place in sorted(places):
        harness.transport.feed(request[:place])
        harness.transport.feed(request[place:])
        assert await harness.answers() == [total(0)], place


@scenario
async def test_an_answer_larger_than_its_signature_says_fails_the_request(harness: Harness) -> None:
    harness.needed_bytes = 5000
    request = large(0)
    harness.transport.feed(request[:5000])
    harness.transport.feed(request[5000:])
    text = "the model's answer takes 5000 bytes, more than its signature says"
    assert await harness.answers() == [(500, text)]


@scenario
async def test_large_and_small_requests_follow_each_other_without_a_pause(harness: Harness) -> None:
    small = b'{"inputs":[{"name":"x","shape":[0,%d],"datatype":"FP32","data":[]}]}' % EACH
    plain = (
        b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(small)
    ) + small
    whole = plain + large(1) + plain + large(2) + large(3)
    pieces = [whole[start : start + 30_000] for start in range(0, len(whole), 30_000)]
    found = []
    for piece in pieces:
        harness.transport.feed(piece)
        found += await harness.answers()
    assert found == [[], total(1), [], total(2), total(3)]


@scenario
async def test_a_body_that_came_with_its_head_is_taken_as_it_is(harness: Harness) -> None:
    harness.transport.feed(large(4))
    assert await harness.answers() == [total(4)]
    assert harness.gathered == 1


@scenario
async def test_a_raw_tensor_is_received_into_its_slot(harness: Harness) -> None:
    data = values(5).tobytes()
    request = post(b"", data)
    harness.transport.feed(request[:300])
    assert harness.receives()
    harness.transport.feed(request[300:])
    await harness.run()
    assert harness.transport.written.endswith(np.array(total(5)).tobytes())


OTHERS = {
    "a wrong size": (post(text_of(values(0)), values(0).tobytes() + b"x"), 400),
    "no JSON": (post(b"{" * 40, values(0).tobytes()), 400),
    "a wrong name": (post(text_of(values(0), name=""), values(0).tobytes()), 400),
    "more rows than a batch": (large(0, rows=3), [*total(0, 3)]),
    "an unknown model": (post(text_of(values(0)), values(0).tobytes(), "nobody"), 404),
    "a model that is loading": (post(text_of(values(0)), values(0).tobytes(), "loading"), 503),
    "an untyped model": (post(text_of(values(0)), values(0).tobytes(), "untyped"), 400),
    "numbers in the text": (
        post(
            text_of(values(0), parameters={}, data=values(0)[0].tolist()) + b" " * LARGE_BYTES, b""
        ),
        total(0),
    ),
    "strings": (
        post(
            text_of(np.zeros((1, LARGE_BYTES), "u1"), datatype="BYTES", shape=[1, 1]),
            b"\xff" * LARGE_BYTES,
            "texts",
        ),
        400,
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_less_simple_request_is_gathered_and_answered_as_ever(case: str) -> None:
    request, expected = OTHERS[case]

    @scenario
    async def run(harness: Harness) -> None:
        for start in range(0, len(request), 20_000):
            harness.transport.feed(request[start : start + 20_000])
            if case != "a model that is loading":
                assert not harness.receives()
        (answer,) = await harness.answers()
        assert (answer[0] if isinstance(answer, tuple) else answer) == expected

    run()


@pytest.mark.parametrize("name", ["flags", "open", "pair", "unsized"])
def test_models_without_one_tensor_of_numbers_of_a_fixed_shape_gather(name: str) -> None:
    @scenario
    async def run(harness: Harness) -> None:
        array = np.zeros((1, 4 * EACH), "?") if name == "flags" else values(0)
        text = text_of(array, datatype="BOOL" if name == "flags" else "FP32")
        harness.transport.feed(post(text, array.tobytes(), name)[:2000])
        assert not harness.receives()
        assert harness.lane.in_flight == 0

    run()


def test_pieces_of_every_size_make_the_same_request() -> None:
    request = large(8)
    for size in (1000, 16_384, 65_536, 70_000):

        @scenario
        async def run(harness: Harness, size: int = size) -> None:
            edges = [*range(0, len(request), size), len(request)]
            for start, end in itertools.pairwise(edges):
                harness.transport.feed(request[start:end])
            assert await harness.answers() == [total(8)]

        run()
