"""Requests in parts that are cut off: they go on behind their parts, end, or are given up."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import orjson
import pytest
from frontend_harness import SECOND_NS, FrontendHarness, untyped

from ringbatch.frontend.codec.resumption import MOST_RESUMPTIONS
from ringbatch.frontend.request.codec import V1Codec
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.frame import Frame
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import Ends, ends_of
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.texts import MAX_TOKENS, PROMPT, Generator

END: Final[Any] = "end"
MODEL: Final = untyped(
    inputs=(Tensor(PROMPT, "INT64", [ANY]), Tensor(MAX_TOKENS, "INT64", [])),
    outputs=(Tensor("token", "INT64", [ANY]),),
    max_batch_size=1,
    in_parts=True,
    places=4,
    generator=Generator("", "", 100, 100, ()),
    resumes=(("token", PROMPT),),
)
PROMPT_IDS: Final = [70, 71]


class Generation:
    """A request for tokens, and the engine's side of it."""

    def __init__(self, most: int, **fields: Any) -> None:
        self.harness = FrontendHarness(replace(MODEL, **fields))
        self.tokens: list[int] = []
        self.batches: list[str] = []
        self.batch = 7
        """The number of the batch that the request is in."""
        self.ends: list[Any] = []
        self.flushed = 0
        service = self.harness.service
        body = orjson.dumps({"instances": [{PROMPT: PROMPT_IDS, MAX_TOKENS: most}]})
        parts = InParts(self._take, END, self._flush)
        self.call = service.pipeline.start(
            V1Codec(service), "echo", body, None, self.ends.append, in_parts=parts
        )
        self.harness.loop.turn()
        (self.request,) = self.harness.taken()

    def _take(self, answer: Any) -> None:
        found = orjson.loads(answer[1])
        self.tokens += found["predictions"][0]
        self.batches.append(found["batchId"])

    def _flush(self) -> None:
        self.flushed = len(self.tokens)

    def asks(self) -> tuple[list[int], int]:
        """The prompt and the most tokens in the slot of the request."""
        request, memory = self.request, self.harness.segment.memory
        start = request.request_offset
        payload = memory[start : start + request.request_bytes]
        frame = Frame(MODEL.inputs)
        placed = frame.place(1, *frame.read_prefix(payload)).parts
        ids, most = (np.ndarray(one.shape, "<i8", payload, one.offset) for one in placed)
        return ids[0].tolist(), int(most[0])

    def part(self, *tokens: int) -> None:
        """Write a part as the worker, without a look of the frontend."""
        slots, request = self.harness.engine_slots, self.request
        frame = Frame(MODEL.outputs)
        placement = frame.place(1, (len(tokens),))
        prefix = frame.prefix((len(tokens),), ())
        data = np.array(tokens, "<i8").tobytes()
        part = prefix.ljust(placement.parts[0].offset, b"\0") + data
        assert slots.part_writer(request, self.batch).write(part)
        slots.post_part(request.ref)
        slots.flush()

    def cut_off(self) -> Request | None:
        """The worker has died, and the frontend looks; the request that it sends in that place."""
        slots = self.harness.engine_slots
        mark = BatchMark(self.batch, 1, Reason.IDLE, 0)
        slots.answer(self.request.ref, Status.CUT_OFF, 0, mark, 0)
        slots.flush()
        self.batch += 1
        self.harness.gateway.collect()
        self.harness.loop.turn()
        taken = self.harness.taken()
        if not taken:
            return None
        (self.request,) = taken
        return self.request

    def counted(self, counter: LaneCounter) -> int:
        return self.harness.lane.counters[counter]

    def counts(self) -> Ends:
        """Return the counted ends of the model's requests."""
        account = self.harness.service.models["echo"].spec.account
        return ends_of(self.harness.segment, [account])[account]

    def ended(self) -> tuple[int, int]:
        """Return the number of requests answered with 200, and of those that ended otherwise."""
        return self.counts().answered, self.counts().ended


def test_a_request_goes_on_behind_its_parts() -> None:
    generation = Generation(most=5)
    generation.part(1)
    generation.part(2, 3)
    assert generation.cut_off() is not None
    assert generation.tokens == [1, 2, 3]
    assert generation.flushed == 3, "the next part may be far away"
    assert generation.asks() == ([*PROMPT_IDS, 1, 2, 3], 2)
    generation.part(4)
    assert generation.cut_off() is not None
    assert generation.asks() == ([*PROMPT_IDS, 1, 2, 3, 4], 1)
    assert generation.ends == []
    assert generation.ended() == (0, 0)


def test_a_request_that_goes_on_is_one_request() -> None:
    generation = Generation(most=5)
    generation.part(1)
    generation.cut_off()
    assert generation.counted(LaneCounter.REQUESTS) == 1
    assert generation.counted(LaneCounter.RESUMED) == 1
    assert generation.harness.lane.in_flight == 1, "the slot before is free"


def test_each_part_names_the_batch_that_it_was_made_in() -> None:
    generation = Generation(most=5)
    generation.part(1)
    generation.part(2)
    generation.cut_off()
    generation.part(3)
    generation.cut_off()
    first, second, third = generation.batches
    assert first == second != third


def test_the_pause_counts_as_a_gap() -> None:
    generation = Generation(most=5)
    generation.harness.loop.now_ns += 3 * SECOND_NS
    generation.part(1)
    generation.cut_off()
    generation.harness.loop.now_ns += 2 * SECOND_NS
    generation.part(2)
    generation.cut_off()
    found = generation.counts()
    assert (sum(found.first_parts), found.first_parts_ns) == (1, 3 * SECOND_NS)
    assert (sum(found.gaps), found.gaps_ns) == (1, 2 * SECOND_NS)


def test_a_resumption_does_not_move_the_deadline_of_the_next_part() -> None:
    generation = Generation(most=5, part_gap_timeout_ns=3 * SECOND_NS)
    loop = generation.harness.loop
    until_ns = generation.request.deadline_ns
    generation.part(1)
    generation.harness.gateway.collect()
    loop.advance(2 * SECOND_NS)
    again = generation.cut_off()
    assert again is not None
    assert again.deadline_ns == until_ns, "all of the answer has as much time as before"
    loop.advance(SECOND_NS - 1_000_000)
    assert generation.ends == []
    loop.advance(2_000_000)
    ((status, body, _),) = generation.ends
    assert status == 504
    assert b"no further part of the answer came within part_gap_timeout_s = 3" in body
    assert generation.ended() == (0, 1)


def test_an_answer_without_anything_missing_ends_well() -> None:
    generation = Generation(most=2)
    generation.part(1, 2)
    assert generation.cut_off() is None
    assert generation.tokens == [1, 2]
    assert generation.ends == [END]
    assert generation.ended() == (1, 0)
    assert generation.harness.lane.in_flight == 0


def test_a_request_is_given_up_at_last() -> None:
    generation = Generation(most=99)
    for token in range(MOST_RESUMPTIONS):
        generation.part(token)
        assert generation.cut_off() is not None
    generation.part(MOST_RESUMPTIONS)
    assert generation.cut_off() is None
    assert generation.tokens == [*range(MOST_RESUMPTIONS + 1)]
    ((status, body, _),) = generation.ends
    assert status == 503
    assert b"died" in body
    assert generation.ended() == (0, 1)
    assert generation.harness.lane.in_flight == 0


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_client_that_leaves_leaves_nothing_behind(goes_on: bool) -> None:
    generation = Generation(most=5)
    generation.part(1)
    if goes_on:
        generation.cut_off()
    assert generation.call is not None
    generation.call.abandon()
    slots, ref = generation.harness.engine_slots, generation.request.ref
    assert slots.given_up([ref], generation.harness.loop.now_ns) == [ref]
    assert generation.ends == []
    assert generation.ended() == (0, 1)
