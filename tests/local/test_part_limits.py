"""Limits of answers in parts: to the first part, and between two parts.

Tests frontend/codec/part_limits.py, and what frontend/request/parts_task.py and
frontend/request/gateway.py make of it.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson
import pytest
from frontend_harness import SECOND_NS, FrontendHarness, untyped
from hypothesis import given
from hypothesis import strategies as st
from parted_harness import END, Parted

from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits, limits_of
from ringbatch.frontend.request.codec import V1Codec
from ringbatch.frontend.request.gateway import SWEEP_NS
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.slot import Status

MS: Final = 1_000_000
FIRST: Final = "no part of the answer came within "
FURTHER: Final = "no further part of the answer came within "
GRAIN_NS: Final = 2 * MS
"""Tolerance of a request's end behind its deadline: a timer of the loop counts milliseconds."""


def error(answer: Any) -> tuple[int, str]:
    status, body, _ = answer
    return status, orjson.loads(body)["error"]


def count(harness: FrontendHarness, counter: LaneCounter) -> int:
    return harness.lane.counters[counter]


@pytest.mark.parametrize(
    ("setting", "header", "parameter", "found"),
    [
        ((0, 0), (0, 0), (0, 0), (0, 0)),
        ((9, 0), (0, 0), (0, 5), (9, 5)),
        ((9, 9), (8, 7), (7, 8), (7, 7)),
        ((3, 3), (4, 0), (0, 4), (3, 3)),
        ((0, 0), (4, 5), (5, 4), (4, 4)),
    ],
)
def test_the_shortest_limit_counts(
    setting: tuple[int, int], header: tuple[int, int], parameter: tuple[int, int], found: Any
) -> None:
    spec = untyped(first_part_timeout_ns=setting[0], part_gap_timeout_ns=setting[1])
    assert limits_of(spec, PartLimits(*header), PartLimits(*parameter)) == found


def test_without_a_first_part_in_time_a_request_ends() -> None:
    parted = Parted(first_part_timeout_ns=2 * SECOND_NS)
    assert parted.request.deadline_ns == parted.harness.loop.now_ns + 60 * SECOND_NS
    parted.harness.loop.advance(2 * SECOND_NS - MS)
    assert parted.ends == []
    assert not parted.is_given_up()
    parted.harness.loop.advance(GRAIN_NS)
    assert error(parted.ends[0]) == (504, FIRST + "first_part_timeout_s = 2")
    # Else a worker would begin it, or go on with it.
    assert parted.is_given_up()
    assert parted.is_late()
    assert parted.ends_counted() == (0, 0, 1)
    assert count(parted.harness, LaneCounter.TIMEOUTS) == 1
    parted.answer(Status.EXPIRED)
    parted.collect()
    assert len(parted.ends) == 1
    assert parted.harness.lane.in_flight == 0


def test_a_part_that_is_late_ends_the_answer_behind_those_before() -> None:
    parted = Parted(first_part_timeout_ns=5 * SECOND_NS, part_gap_timeout_ns=2 * SECOND_NS)
    for value in range(3):
        # Slower than twice the limit between two parts in all, and each of them in time.
        parted.harness.loop.advance(2 * SECOND_NS - MS)
        parted.part(value)
        parted.collect()
    parted.harness.loop.advance(2 * SECOND_NS - MS)
    assert parted.ends == []
    parted.harness.loop.advance(GRAIN_NS)
    assert parted.parts == [[0], [1], [2]]
    assert error(parted.ends[0]) == (504, FURTHER + "part_gap_timeout_s = 2")
    assert parted.is_given_up()
    assert parted.is_late()


@pytest.mark.parametrize("gap_ns", [2 * MS, 30 * MS, SWEEP_NS // 2, SWEEP_NS])
def test_a_limit_that_is_shorter_than_a_look_is_kept_as_well(gap_ns: int) -> None:
    parted = Parted(first_part_timeout_ns=30 * SECOND_NS, part_gap_timeout_ns=gap_ns)
    parted.harness.loop.advance(3 * SECOND_NS + 300 * MS)
    for value in range(50):
        parted.part(value)
        parted.collect()
        parted.harness.loop.advance(gap_ns // 2)
    assert parted.ends == []
    parted.harness.loop.advance(gap_ns // 2 + GRAIN_NS)
    assert error(parted.ends[0])[1].startswith(FURTHER)


def test_parts_between_two_looks_cost_no_timer() -> None:
    parted = Parted(first_part_timeout_ns=5 * SECOND_NS, part_gap_timeout_ns=5 * SECOND_NS)
    parted.part(0)
    parted.collect()
    timers = len(parted.harness.loop.timers)
    for value in range(1, 100):
        parted.part(value)
        parted.collect()
    assert len(parted.harness.loop.timers) == timers


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (PartLimits(), "first_part_timeout_s = 4"),
        (PartLimits(first_ns=SECOND_NS), "the 1 s to the first part that it asked for"),
        (PartLimits(first_ns=9 * SECOND_NS), "first_part_timeout_s = 4"),
    ],
)
def test_the_shorter_limit_counts_and_is_named(asked: PartLimits, words: str) -> None:
    parted = Parted(limits=asked, first_part_timeout_ns=4 * SECOND_NS)
    parted.harness.loop.advance(4 * SECOND_NS + GRAIN_NS)
    assert error(parted.ends[0]) == (504, FIRST + words)


@pytest.mark.parametrize(("setting_s", "asked_s"), [(0, 1), (3, 1), (1, 0), (1, 3)])
def test_of_two_limits_between_parts_the_shorter_counts(setting_s: int, asked_s: int) -> None:
    asked = PartLimits(gap_ns=asked_s * SECOND_NS)
    parted = Parted(limits=asked, part_gap_timeout_ns=setting_s * SECOND_NS)
    parted.harness.loop.advance(5 * SECOND_NS)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(SECOND_NS - MS)
    assert parted.ends == []
    parted.harness.loop.advance(GRAIN_NS)
    own = setting_s == 1
    words = "part_gap_timeout_s = 1" if own else "the 1 s between two parts that it asked for"
    assert error(parted.ends[0]) == (504, FURTHER + words)


def test_the_timeout_of_the_whole_answer_stays_the_last_word() -> None:
    limits = PartLimits(first_ns=9 * SECOND_NS, gap_ns=9 * SECOND_NS)
    parted = Parted(limits=limits, timeout_ns=3 * SECOND_NS)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(3 * SECOND_NS + GRAIN_NS)
    assert error(parted.ends[0]) == (504, "no answer came within the 3 s it asked for")


def test_a_limit_beyond_the_timeout_moves_nothing() -> None:
    parted = Parted(limits=PartLimits(first_ns=9 * SECOND_NS), timeout_ns=3 * SECOND_NS)
    parted.harness.loop.advance(3 * SECOND_NS + GRAIN_NS)
    assert error(parted.ends[0]) == (504, "no answer came within the 3 s it asked for")


def test_behind_the_first_part_its_limit_is_over() -> None:
    parted = Parted(first_part_timeout_ns=2 * SECOND_NS)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(50 * SECOND_NS)
    assert parted.ends == []
    parted.answer()
    parted.collect()
    assert parted.ends == [END]


def test_parts_that_become_one_answer_have_no_limits() -> None:
    parted = Parted(joins=True, first_part_timeout_ns=SECOND_NS, part_gap_timeout_ns=SECOND_NS)
    parted.harness.loop.advance(30 * SECOND_NS)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(25 * SECOND_NS)
    parted.part(2)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [END])


def test_a_request_for_one_answer_has_no_limits() -> None:
    harness = FrontendHarness(untyped(in_parts=True, first_part_timeout_ns=SECOND_NS))
    harness.predict(0, [1])
    harness.loop.turn()
    harness.loop.advance(9 * SECOND_NS)
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert harness.replies.got[0][0] == 200


def test_a_part_that_has_come_is_not_late_even_if_the_frontend_looks_late() -> None:
    parted = Parted(first_part_timeout_ns=SECOND_NS, part_gap_timeout_ns=SECOND_NS)
    parted.part(1)
    # The doorbell and the timer come together, and the timer is first.
    parted.harness.loop.advance(SECOND_NS + GRAIN_NS)
    assert (parted.parts, parted.ends) == ([[1]], [])
    parted.answer()
    parted.harness.loop.advance(SECOND_NS + GRAIN_NS)
    assert (parted.parts, parted.ends) == ([[1]], [END])
    assert count(parted.harness, LaneCounter.TIMEOUTS) == 0


def test_another_request_in_the_slot_has_its_own_deadline() -> None:
    first = Parted(part_gap_timeout_ns=SECOND_NS // 2)
    first.part(1)
    first.collect()
    first.answer()
    first.collect()
    assert first.ends == [END]
    second = Parted(limits=PartLimits(first_ns=SECOND_NS), harness=first.harness)
    second.harness.loop.advance(SECOND_NS - MS)
    assert second.ends == []
    second.harness.loop.advance(GRAIN_NS)
    assert error(second.ends[0])[1].startswith(FIRST)


class Answer(NamedTuple):
    """An answer in parts: its limits, and the pauses before each part and before its end."""

    first_ns: int
    gap_ns: int
    timeout_ns: int
    pauses_ns: Sequence[int]

    def end(self) -> tuple[int, int, str]:
        """The parts that its client gets, when it ends at the earliest, and the words for it."""
        now_ns, last_ns = 0, 0
        for number, pause_ns in enumerate(self.pauses_ns):
            limit_ns = self.gap_ns if number else self.first_ns
            due_ns, words = self.timeout_ns, "no answer"
            if limit_ns and last_ns + limit_ns < due_ns:
                due_ns, words = last_ns + limit_ns, FURTHER if number else FIRST
            now_ns = last_ns + pause_ns
            if now_ns > due_ns:
                return number, due_ns, words
            last_ns = now_ns
        return len(self.pauses_ns) - 1, now_ns, ""


limits_ns = st.sampled_from([0, 20, 100, 900, 1500, 4000]).map(lambda ms: ms * MS)
# Never within a timer's grain of a limit.
pauses_ns = st.sampled_from([0, 10, 50, 450, 700, 1200, 2600]).map(lambda ms: ms * MS + 1)
answers = st.builds(
    Answer,
    limits_ns,
    limits_ns,
    st.sampled_from([2000, 6000, 60_000]).map(lambda ms: ms * MS + MS // 2),
    st.lists(pauses_ns, min_size=1, max_size=8),
)


@given(st.lists(st.tuples(st.integers(0, 1500 * MS), answers), min_size=1, max_size=4))
def test_each_of_several_answers_ends_when_its_own_limits_say(
    drawn: list[tuple[int, Answer]],
) -> None:
    harness = FrontendHarness(untyped(in_parts=True))
    loop = harness.loop
    begun_ns = loop.now_ns
    actions: list[tuple[int, int, int]] = []
    for number, (delay_ns, answer) in enumerate(drawn):
        at_ns = begun_ns + delay_ns
        actions.append((at_ns, number, -1))
        for step, pause_ns in enumerate(answer.pauses_ns):
            at_ns += pause_ns
            actions.append((at_ns, number, step))
    parteds: dict[int, Parted] = {}
    ended_ns: dict[int, int] = {}

    def pass_until(until_ns: int) -> None:
        """Let time pass, and note the millisecond at which each answer ends."""
        while loop.now_ns < until_ns:
            loop.advance(min(MS, until_ns - loop.now_ns))
            for number, parted in parteds.items():
                if parted.ends:
                    ended_ns.setdefault(number, loop.now_ns)

    for at_ns, number, step in sorted(actions):
        pass_until(at_ns)
        answer = drawn[number][1]
        if step < 0:
            limits = PartLimits(answer.first_ns, answer.gap_ns)
            parteds[number] = Parted(limits=limits, timeout_ns=answer.timeout_ns, harness=harness)
            continue
        parted = parteds[number]
        if parted.ends:
            continue
        if step < len(answer.pauses_ns) - 1:
            parted.part(step)
        else:
            parted.answer()
        parted.collect()
    pass_until(loop.now_ns + 5 * SECOND_NS)
    for number, (delay_ns, answer) in enumerate(drawn):
        parts, end_ns, words = answer.end()
        parted = parteds[number]
        assert len(parted.parts) == parts
        if words:
            assert error(parted.ends[0])[1].startswith(words)
            due_ns = begun_ns + delay_ns + end_ns
            assert due_ns <= ended_ns[number] <= due_ns + 3 * MS
        else:
            assert parted.ends == [END]


def expecting(harness: FrontendHarness, runs: int, run_s: float) -> None:
    """Publish that a new request takes so many runs of one worker, as the collector does."""
    first, words = harness.segment.layout.model(0), harness.segment.words
    words[first + ModelWords.ANSWER_NS] = int(runs * run_s * SECOND_NS)
    words[first + ModelWords.ROW_NS] = int(run_s * SECOND_NS) // 4


@pytest.mark.parametrize(
    ("runs", "limits", "refused"),
    [
        (2, PartLimits(first_ns=SECOND_NS), False),  # it begins when the one under way has ended
        (3, PartLimits(first_ns=SECOND_NS), True),
        (3, PartLimits(first_ns=5 * SECOND_NS), False),
        (5, PartLimits(first_ns=5 * SECOND_NS), True),
        (5, NO_LIMITS, False),
        (5, PartLimits(gap_ns=SECOND_NS), False),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"max_batch_size": 1, "places": 4}], ids=["batch", "rows"])
def test_a_request_that_would_wait_too_long_for_its_first_part_is_refused(
    fields: dict[str, Any], runs: int, limits: PartLimits, refused: bool
) -> None:
    harness = FrontendHarness(untyped(in_parts=True, **fields))
    expecting(harness, runs, run_s=4)
    parted = Parted(limits=limits, harness=harness)
    assert bool(parted.ends) is refused
    assert count(harness, LaneCounter.REFUSED) == refused
    if refused:
        status, body, headers = parted.ends[0]
        wait_s, limit_s = 4.0 * (runs - 2), limits.first_ns // SECOND_NS
        assert orjson.loads(body)["error"] == (
            f"so many requests wait that the first part would take {wait_s} s, too long for the "
            f"{limit_s} s to the first part that it asked for"
        )
        late_s = wait_s * 9 / 8 - limit_s
        assert (status, int(dict(headers)["retry-after"])) == (503, -(-late_s // 1))


def test_a_request_whose_first_part_is_late_before_it_is_sent_is_not_sent() -> None:
    harness = FrontendHarness(untyped(in_parts=True, first_part_timeout_ns=SECOND_NS))
    service, ends = harness.service, list[Any]()

    call = service.pipeline.start(
        V1Codec(service),
        "echo",
        b'{"instances": [1]}',
        None,
        ends.append,
        begun_ns=harness.loop.now_ns - SECOND_NS,
        in_parts=InParts(ends.append, END),
    )
    assert call is None
    assert error(ends[0]) == (504, FIRST + "first_part_timeout_s = 1")
    assert harness.lane.in_flight == 0
