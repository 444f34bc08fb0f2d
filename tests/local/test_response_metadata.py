"""Timing headers of responses: text that the requests of a batch share is made once."""

import re
from typing import Any, Final

import pytest
from frontend_harness import FrontendHarness, untyped
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.shm.attempts import with_copy
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.lane import Lane, Stamps
from ringbatch.shm.slot import Reason, Status

US: Final = 1_000
MS: Final = 1_000 * US
FINISHED: Final = 95 * US
"""After the batch was dispatched, by default."""
MARK: Final = BatchMark(7, 3, Reason.FULL, 2 * US, 11 * US, 24 * US, 90 * US, 1)
"""Mark whose instants count from the dispatch too."""


class Answered(FrontendHarness):
    """Harness that answers requests, and renders their timing headers in both ways."""

    def __init__(self) -> None:
        super().__init__(untyped())
        recorder, _ = recording(AccessSettings("off"), self.service.engine, "f")
        self.own_metadata = recorder.metadata
        self.outcomes = recorder.outcomes
        self.heads: list[str] = []
        self.expected: list[str] = []

    def _reply(self, _answer: object) -> None:
        line = self.own_metadata.timing_line(0)
        self.expected.append((b"head, id" + line + b", length, body").decode())
        self.heads.append(
            self.own_metadata.with_timing(b"head, ", b"id", b", length, ", b"body").decode()
        )
        # As where heads are put together elsewhere.
        assert self.own_metadata.with_timing(b"", b"id").decode() in self.heads[-1]
        self.loop.now_ns += 3 * US

    def serve(self, *answers: tuple[BatchMark, int], read: int = 0) -> None:
        """Requests, each 2 microseconds behind the last.

        Args:
            answers: of each the mark of its batch and when its answer stood in its slot, by the
                time from when they were dispatched; an instant of 0 is none.
            read: when the frontend reads them; by default 40 microseconds after the last.
        """
        for _ in answers:
            self.service.predict(self.name, b'{"instances":[1]}', self._reply)
            self.loop.now_ns += 2 * US
        self.loop.turn()
        start_ns = self.loop.now_ns

        def instant(after: int) -> int:
            return after and start_ns + after

        for request, (mark, finished) in zip(self.taken(), answers, strict=True):
            first, size = request.result_offset, request.request_bytes
            self.segment.memory[first : first + size] = self.payload(request)
            stamped = mark._replace(
                dispatched_ns=instant(mark.dispatched_ns),
                began_ns=instant(mark.began_ns),
                gathered_ns=instant(mark.gathered_ns),
                ran_ns=instant(mark.ran_ns),
            )
            self.engine_slots.answer(request.ref, Status.OK, size, stamped, instant(finished))
        self.engine_slots.flush()
        self.loop.now_ns = start_ns + (read or max(at for _, at in answers) + 40 * US)
        self.gateway.collect()


def durations(head: str) -> dict[str, float]:
    return {name: float(ms) for name, ms in re.findall(r"([a-z]+);dur=([0-9.]+)", head)}


@pytest.mark.parametrize(
    "mark",
    [
        MARK,
        MARK._replace(reason=Reason.RETRY),
        MARK._replace(attempts=2),
        MARK._replace(attempts=with_copy(1, 3_456 * US)),
        MARK._replace(attempts=with_copy(2, 12_345 * US)),
        MARK._replace(rows=1, reason=Reason.IDLE),
        MARK._replace(ran_ns=FINISHED),
        MARK._replace(gathered_ns=MARK.began_ns),
    ],
)
def test_headers_of_a_whole_batch_equal_those_of_each_request(mark: BatchMark) -> None:
    harness = Answered()
    harness.serve(*[(MARK._replace(batch=9), FINISHED)] * 3)
    for batch in range(4):
        harness.serve(*[(mark._replace(batch=batch), FINISHED)] * 3)
    assert harness.heads == harness.expected
    assert len(set(harness.heads)) == 15


def test_a_batch_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(lane: Lane, slot: int) -> Stamps:
        looks.append(slot)
        return stamps(lane, slot)

    stamps = Lane.stamps
    harness = Answered()
    monkeypatch.setattr(Lane, "stamps", look)
    harness.serve(*[(MARK, FINISHED)] * 3)
    harness.serve(*[(MARK._replace(batch=8), FINISHED)] * 3)
    assert len(looks) == 2


def test_each_batch_has_its_own_copy_times_and_one_without_has_none() -> None:
    harness = Answered()
    for batch, copy_us in enumerate((5, 7, 7, 0, 5)):
        mark = MARK._replace(batch=batch, attempts=with_copy(1, copy_us * US))
        harness.serve(*[(mark, FINISHED)] * 2)
    assert harness.heads == harness.expected
    copies = [durations(head).get("copy") for head in harness.heads]
    assert copies == [0.005, 0.005, *[0.007] * 4, None, None, 0.005, 0.005]
    assert all("gather;dur=0.013, copy;dur=" in head for head in harness.heads[:6])
    assert all("attempts" not in head for head in harness.heads)


def test_batches_that_finished_at_one_instant_are_distinguished() -> None:
    harness = Answered()
    other = MARK._replace(batch=8, rows=2, gathered_ns=40 * US)
    harness.serve((MARK, FINISHED), (other, FINISHED), (MARK, FINISHED))
    assert harness.heads == harness.expected


def test_answers_of_one_batch_may_be_finished_one_by_one() -> None:
    harness = Answered()
    harness.serve(*((MARK, FINISHED + after * US) for after in (0, 20, 33)))
    assert harness.heads == harness.expected
    assert [durations(head)["scatter"] for head in harness.heads] == [0.005, 0.025, 0.038]


@pytest.mark.parametrize("ran_ms", [9, 10, 11, 1_000, 20_000])
def test_long_times_are_as_exact(ran_ms: int) -> None:
    harness = Answered()
    ran = MARK.gathered_ns + ran_ms * MS
    harness.serve(*[(MARK._replace(ran_ns=ran), ran + 5 * US)] * 3, read=ran + 12 * MS)
    assert harness.heads == harness.expected
    assert durations(harness.heads[0])["run"] == ran_ms


@pytest.mark.parametrize(
    ("mark", "finished"),
    [
        (MARK._replace(began_ns=-100 * US), FINISHED),
        (MARK._replace(began_ns=0, gathered_ns=0, ran_ns=0), FINISHED),
        (MARK._replace(gathered_ns=5 * US), FINISHED),
        (MARK._replace(ran_ns=20 * US), FINISHED),
        (MARK, 80 * US),
        (MARK, 10 * MS),
        (MARK._replace(rows=0), FINISHED),
    ],
)
def test_a_lying_workers_times_stay_within_the_real_duration(
    mark: BatchMark, finished: int
) -> None:
    harness = Answered()
    harness.serve(*[(mark, finished)] * 3, read=200 * US)
    harness.serve(*[(MARK, FINISHED)] * 3)
    assert harness.heads == harness.expected


instants: Any = st.lists(st.integers(1, 30 * MS), min_size=5, max_size=5).map(sorted)


@given(instants=instants, wait_ns=st.integers(0, 20 * MS))
def test_the_phases_add_up_to_the_whole(instants: list[int], wait_ns: int) -> None:
    harness = Answered()
    dispatched, began, gathered, ran, finished = instants
    mark = BatchMark(3, 2, Reason.FULL, dispatched, began, gathered, ran, 1)
    harness.serve(*[(mark, finished)] * 3, read=finished + wait_ns)
    for head, expected in zip(harness.heads, harness.expected, strict=True):
        times_by_name = durations(head)
        total = times_by_name.pop("total")
        assert sum(times_by_name.values()) == pytest.approx(total, abs=1e-9)
        for name, ms in durations(expected).items():
            # Each of three others may have lost a microsecond to the queue.
            assert {**times_by_name, "total": total}.get(name, 0.0) == pytest.approx(ms, abs=0.0046)
