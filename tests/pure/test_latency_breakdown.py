"""Breakdown of a request's latency into phases."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.server_timing import header
from ringbatch.shm.attempts import with_copy
from ringbatch.shm.latency_breakdown import PHASES, TIMES, Breakdown, breakdown
from ringbatch.shm.slot import Answer, Reason, Status

MS = 1_000_000


def stamps(**other: Any) -> Answer:
    usual = Answer(
        status=Status.OK,
        size=4,
        batch=17,
        batch_rows=3,
        reason=Reason.FULL,
        dispatched_ns=110 * MS,
        began_ns=120 * MS,
        gathered_ns=125 * MS,
        ran_ns=165 * MS,
        attempts=1,
        finished_ns=170 * MS,
    )
    return usual._replace(**other)


def test_each_phase_ends_where_the_next_begins() -> None:
    found = breakdown(90 * MS, 100 * MS, stamps(), 172 * MS)
    expected = {"read": 10, "queue": 20, "gather": 5, "run": 40, "scatter": 5, "write": 2}
    assert {name: getattr(found, name) // MS for name in PHASES if getattr(found, name)} == expected
    assert found.total == 82 * MS
    assert (found.batch, found.batch_rows, found.reason, found.attempts) == (17, 3, "full", 1)


def test_copies_of_a_device_are_beside_the_phases_and_in_no_sum() -> None:
    word = with_copy(2, 300 * MS)
    found = breakdown(90 * MS, 100 * MS, stamps(attempts=word), 172 * MS)
    assert (found.copy, found.attempts) == (300 * MS, 2)
    without = breakdown(90 * MS, 100 * MS, stamps(attempts=2), 172 * MS)
    assert without == found._replace(copy=0)
    assert (found.phases, found.total) == (without.phases, without.total)
    assert found.cause(3) == without.cause(3) == "run"


def test_times_have_the_copies_behind_gather() -> None:
    found = Breakdown(1, 2, 3, 4, 5, 6, 7, 8, copy=9)
    assert dict(zip(TIMES, found.times, strict=True)) == {
        **dict(zip(PHASES, found.phases, strict=True)),
        "copy": 9,
    }
    assert TIMES.index("copy") == TIMES.index("gather") + 1


def test_a_request_that_came_at_once_took_no_time_to_read() -> None:
    assert breakdown(0, 100, stamps(), 172 * MS).read == 0


def test_a_request_without_a_slot_has_only_a_total() -> None:
    found = breakdown(90, 100, None, 150)
    assert (found.read, found.wait, found.total, found.reason) == (10, 50, 60, "")


def test_a_request_that_expired_in_its_queue_has_waited_there() -> None:
    expired = stamps(
        batch=0, batch_rows=0, began_ns=0, gathered_ns=0, ran_ns=0, attempts=0, dispatched_ns=0
    )
    found = breakdown(0, 100 * MS, expired, 171 * MS)
    assert (found.queue, found.write, found.total) == (70 * MS, MS, 71 * MS)
    assert found.reason == ""


def test_a_request_that_was_taken_up_and_not_run_was_being_gathered() -> None:
    found = breakdown(0, 100 * MS, stamps(gathered_ns=0, ran_ns=0), 171 * MS)
    assert (found.gather, found.run, found.scatter) == (0, 0, 50 * MS)


@pytest.mark.parametrize(
    ("overtaken_ms", "share_ms"), [(0, 0), (99, 20), (100, 20), (105, 15), (120, 0), (150, 0)]
)
def test_the_share_is_the_queue_from_when_a_request_was_overtaken(
    overtaken_ms: int, share_ms: int
) -> None:
    found = breakdown(0, 100 * MS, stamps(overtaken_ns=overtaken_ms * MS), 172 * MS)
    assert (found.queue, found.share) == (20 * MS, share_ms * MS)


def test_a_request_that_expired_in_its_queue_has_a_share_too() -> None:
    never = stamps(overtaken_ns=110 * MS, began_ns=0, gathered_ns=0, ran_ns=0, batch_rows=0)
    found = breakdown(0, 100 * MS, never, 171 * MS)
    assert (found.queue, found.share, found.cause(0)) == (70 * MS, 60 * MS, "share")


@given(st.lists(st.integers(0, 1 << 62), min_size=7, max_size=7))
def test_the_phases_add_up_for_any_stamps_of_a_worker(instants: list[int]) -> None:
    *own, one, other = instants
    accepted, ended = sorted((one, other))
    names = ("dispatched_ns", "began_ns", "gathered_ns", "ran_ns", "finished_ns")
    found = breakdown(0, accepted, stamps(**dict(zip(names, own, strict=True))), ended)
    assert found.total == ended - accepted
    assert min(found.phases) >= 0


@pytest.mark.parametrize(
    ("phases", "more", "rows", "cause"),
    [
        ({"queue": 5}, {"reason": "full"}, 1, "queue"),
        ({"queue": 5}, {"reason": "retry"}, 1, "retry"),
        ({"queue": 5}, {"reason": "full", "share": 3}, 1, "share"),
        ({"queue": 4}, {"reason": "full", "share": 2}, 1, "queue"),
        ({"queue": 5}, {"reason": "retry", "share": 5}, 1, "retry"),
        ({"queue": 5, "run": 6}, {"batch_rows": 3, "share": 5}, 3, "run"),
        ({"run": 5}, {"batch_rows": 3}, 3, "run"),
        ({"run": 5}, {"batch_rows": 4}, 3, "batch"),
        ({"read": 5}, {}, 1, "read"),
        ({"take": 5, "run": 4}, {"batch_rows": 4}, 1, "take"),
        ({"wait": 5}, {}, 1, "wait"),
    ],
)
def test_the_longest_phase_is_to_blame(
    phases: dict[str, Any], more: dict[str, Any], rows: int, cause: str
) -> None:
    assert Breakdown(1, 0)._replace(**phases, **more).cause(rows) == cause


def test_the_header_is_one_of_w3c_in_milliseconds() -> None:
    found = breakdown(90 * MS, 100 * MS, stamps(attempts=2), 172 * MS)
    text = header(found, "a-b")
    entry = re.compile(r'[a-z]+(;dur=[0-9.]+)?(;desc="[^"]*")?')
    assert all(entry.fullmatch(part) for part in re.split(r", (?=[a-z]+;)", text)), text
    assert "queue;dur=20.000, gather;dur=5.000, run;dur=40.000" in text
    assert 'batch;desc="a-b, 3 instances, closed for full, 2 attempts"' in text
    assert text.endswith("total;dur=82.000")


def test_the_header_has_the_copies_of_a_device_behind_gather() -> None:
    found = breakdown(0, 100 * MS, stamps(attempts=with_copy(2, 3 * MS)), 172 * MS)
    text = header(found, "a-b")
    assert "gather;dur=5.000, copy;dur=3.000, run;dur=40.000" in text
    assert text.endswith('closed for full, 2 attempts", total;dur=72.000')
    assert "copy" not in header(found._replace(copy=0), "a-b")


def test_a_request_without_a_batch_has_no_batch_fields() -> None:
    assert header(breakdown(0, 0, None, 5 * MS), "") == "wait;dur=5.000, total;dur=5.000"
